"""Credentials that nobody has told of, and what is said of credentials."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.safety.redact import HIDDEN, MAX_NESTED, SHORTEST, Redactor, all_spellings, credentials, nested
from tests.unit.cases import cases, rows_of

PATIENCE = 60.0
"""Seconds for the looking through of all the texts that make a pattern begin again and again: it takes
some. A pattern whose work grows with the square of a text's length takes hours."""

LENGTH = 512 * 1024
"""Characters of such a text."""


def told(text: str) -> list[str]:
    return [text[start:end] for start, end in credentials(text)]


@cases("text", "found")
def test_the_value_of_what_is_called_a_credential_is_one(text: str, found: str) -> None:
    assert told(text) == [found]


@cases("text")
def test_what_is_said_of_a_credential_stays_readable(text: str) -> None:
    assert told(text) == []


DIAGNOSES = rows_of(Path(__file__), "a_diagnosis_is_left_as_it_is")
"""What real servers, SDKs, databases and parsers say of credentials that they do not have or do not take."""


@cases("text")
def test_a_diagnosis_is_left_as_it_is(text: str) -> None:
    assert Redactor([])(text) == text
    assert Redactor([])(f"server git: {text}\nTraceback: {text}") == f"server git: {text}\nTraceback: {text}"


@cases("text")
def test_what_may_be_a_secret_goes_although_it_looks_like_a_word(text: str) -> None:
    value = re.split(r"[:=] ?", text)[-1].removeprefix("Bearer ").strip("}\"'")
    assert value not in Redactor([])(text)


NAMES = ("api_key", "apiKey", "token", "GITHUB_TOKEN", "password", "passwd", "client_secret", "authorization")
WRITTEN = ("{name}={value}", "{name}: {value}", '"{name}": "{value}"', "{name} = '{value}'")
DESCRIBED = st.sampled_from(DIAGNOSES)


@settings(deadline=None)
@given(
    name=st.sampled_from(NAMES),
    written=st.sampled_from(WRITTEN),
    value=st.from_regex(r"[A-Za-z0-9+/_.~-]{3,40}[0-9][A-Za-z]", fullmatch=True),
    before=DESCRIBED,
    after=DESCRIBED,
)
def test_no_value_with_letters_and_digits_survives_beside_any_diagnosis(
    name: str, written: str, value: str, before: str, after: str
) -> None:
    shown = Redactor([])(f"{before} {written.format(name=name, value=value)} {after}")
    assert value not in shown.removeprefix(before).removesuffix(after)


@settings(deadline=None)
@given(value=st.text(min_size=6, max_size=60), before=DESCRIBED, after=DESCRIBED)
def test_a_configured_value_never_survives_even_as_a_word_of_a_diagnosis(
    value: str, before: str, after: str
) -> None:
    assert value not in Redactor([value])(f"{before} {value} {after}").replace(HIDDEN, "")


@cases("token")
@pytest.mark.parametrize("before", ["", "x-", "_", "a b-", "sk-", "eyJ-"])
def test_a_token_is_known_by_its_first_letters(token: str, before: str) -> None:
    text = f"cannot use {before}{token}, sorry"
    assert any(each.endswith(token) for each in told(text))


def test_what_stands_before_a_token_is_none_of_it_and_words_that_begin_alike_are_none() -> None:
    for token in ("ghp_16C7e42F292c6912E7710c838347Ae178B4a", "sk-proj-abcdefghij0123456789"):
        assert told(f"cannot use key-{token}, sorry") == [token]
    for text in ("task-management-for-everybody-2026", "sk-learn-is-a-library-of-python", "eyJ is no token"):
        assert told(text) == []


(BEGINNINGS,) = rows_of(Path(__file__), "beginnings")


@pytest.mark.process
def test_a_text_that_begins_a_credential_again_and_again_is_looked_through_once() -> None:
    """Found in review: one server's 16 KiB of `sk-sk-sk-` held the event loop for a second."""
    code = (
        "from daemon.safety.redact import credentials\n"
        f"for beginning in {BEGINNINGS!r}:\n"
        f"    for text in (beginning * ({LENGTH} // len(beginning)), beginning + 'a' * {LENGTH}):\n"
        "        list(credentials(text))"
    )
    subprocess.run([sys.executable, "-c", code], timeout=PATIENCE, check=True)


def test_a_short_secret_has_no_spelling_but_its_own() -> None:
    assert all_spellings(["a b"]) == {"a b"}
    assert all(len(each) >= SHORTEST for each in all_spellings(["a b c d"]))


def test_the_strings_of_a_secret_that_is_json_are_found_with_their_names() -> None:
    found = nested('{"key": {"token": "one"}, "more": ["two", 3]}')
    assert sorted(found) == [("more", "two"), ("token", "one")]
    assert len(nested("[" + ",".join(['"x"'] * (MAX_NESTED + 50)) + "]")) == MAX_NESTED
