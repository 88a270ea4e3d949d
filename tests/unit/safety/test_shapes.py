"""Credentials that nobody has told of, and what is said of credentials."""

from __future__ import annotations

import base64
import subprocess
import sys

import pytest

from daemon.safety.shapes import MAX_NESTED, SHORTEST, all_spellings, credentials, nested

PATIENCE = 60.0
"""Seconds for the looking through of all the texts that make a pattern begin again and again: it takes
some. A pattern whose work grows with the square of a text's length takes hours."""

LENGTH = 512 * 1024
"""Characters of such a text."""


def told(text: str) -> list[str]:
    return [text[start:end] for start, end in credentials(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"mcpd_{'0f' * 32} came", f"mcpd_{'0f' * 32}"),
        ("password: hunter2", "hunter2"),
        ("password: p@ssword!", "p@ssword!"),
        ("password=sunshine", "sunshine"),
        ('"password": "sunshine"', "sunshine"),
        ("Authorization: Bearer sunshine", "sunshine"),
        ("secret: abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwxyz"),
        ("token: AbCdEfGh", "AbCdEfGh"),
    ],
)
def test_the_value_of_what_is_called_a_credential_is_one(text: str, found: str) -> None:
    assert told(text) == [found]


@pytest.mark.parametrize(
    "text",
    [
        "invalid token: expired",
        "invalid token: signature mismatch",
        "Token: Expired.",
        "api_key: missing, see the documentation",
        "password: not set",
        "password=none",
        "secret=missing&next=1",
        "bad password: access_denied",
        'token: "expired"',
        "authorization: denied (no such user)",
        "token: not-found",
    ],
)
def test_what_is_said_of_a_credential_stays_readable(text: str) -> None:
    assert told(text) == []


@pytest.mark.parametrize(
    "token",
    [
        "sk-proj-abcdefghij0123456789",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "xoxb-1234567890-abcdefghij",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
        "sk_live_abcdefghij0123456789",
    ],
)
@pytest.mark.parametrize("before", ["", "x-", "_", "a b-", "sk-", "eyJ-"])
def test_a_token_is_known_by_its_first_letters(token: str, before: str) -> None:
    text = f"cannot use {before}{token}, sorry"
    assert any(each.endswith(token) for each in told(text))


@pytest.mark.parametrize("token", ["ghp_16C7e42F292c6912E7710c838347Ae178B4a", "sk-proj-abcdefghij0123456789"])
def test_what_stands_before_a_token_is_none_of_it(token: str) -> None:
    assert told(f"cannot use key-{token}, sorry") == [token]


@pytest.mark.parametrize(
    "text", ["task-management-for-everybody-2026", "sk-learn-is-a-library-of-python", "eyJ is no token"]
)
def test_words_that_begin_alike_are_none(text: str) -> None:
    assert told(text) == []


BEGINNINGS = (
    *(
        "sk-",
        "-sk_",
        "eyJ-",
        "eyJabcdefgh-",
        "eyJ.",
        "ghp_-",
        "github_pat_-",
        "xoxb-",
        "AKIA-",
        "AIza-",
        "SG.",
        "SG.",
    ),
    *(
        "SG.abcdefghijklmnop.",
        "a-",
        "sk-eyJ-",
        "bearer ",
        "bearer a",
        "basic a.",
        "token = ",
        "token:",
        "token: bearer ",
    ),
    *("password='", "api_key", "://", "://a:", "://a:b", "secret  ", "key: ${"),
)


@pytest.mark.process
def test_a_text_that_begins_a_credential_again_and_again_is_looked_through_once() -> None:
    """Found in review: one server's 16 KiB of `sk-sk-sk-` held the event loop for a second."""
    code = (
        "from daemon.safety.shapes import credentials\n"
        f"for beginning in {BEGINNINGS!r}:\n"
        f"    for text in (beginning * ({LENGTH} // len(beginning)), beginning + 'a' * {LENGTH}):\n"
        "        list(credentials(text))"
    )
    subprocess.run([sys.executable, "-c", code], timeout=PATIENCE, check=True)


@pytest.mark.parametrize("before", range(3))
def test_one_of_the_spellings_is_what_base64_holds_wherever_the_secret_begins(before: int) -> None:
    encoded = base64.b64encode(bytes(before) + b"hunter2 hunter2" + b"xyz").decode()
    assert any(each in encoded for each in all_spellings(["hunter2 hunter2"]))


def test_a_short_secret_has_no_spelling_but_its_own() -> None:
    assert all_spellings(["a b"]) == {"a b"}
    assert all(len(each) >= SHORTEST for each in all_spellings(["a b c d"]))


def test_the_strings_of_a_secret_that_is_json_are_found_with_their_names() -> None:
    found = nested('{"key": {"token": "one"}, "more": ["two", 3]}')
    assert sorted(found) == [("more", "two"), ("token", "one")]
    assert len(nested("[" + ",".join(['"x"'] * (MAX_NESTED + 50)) + "]")) == MAX_NESTED


@pytest.mark.parametrize("secret", ["{not json", "[" * 10_000, "[[[[", '{"a":1}', "[]", "plain"])
def test_what_only_looks_like_json_has_no_strings_within(secret: str) -> None:
    assert nested(secret) == []
