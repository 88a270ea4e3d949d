"""Secrets: those we know, those that look like one, and what is said of them."""

import base64
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.safety.redact import (
    CUT,
    HIDDEN,
    MAX_NESTED,
    SHORTEST,
    SHOWN,
    Redactor,
    all_spellings,
    credentials,
    nested,
)
from tests.unit.cases import cases, rows_of

CANARY = "ca9ary-5ecre7-value"


@pytest.mark.parametrize(
    ("secrets", "text", "shown"),
    [
        ([CANARY], f"{CANARY} x{CANARY}y {CANARY}", f"{HIDDEN} x{HIDDEN}y {HIDDEN}"),
        (["abcdef", "abcdefghij"], "abcdefghij abcdef", f"{HIDDEN} {HIDDEN}"),
        (["abcdef", "defghi"], "xabcdefghiy", f"x{HIDDEN}y"),
        (["a.c(+", "[x]"], "abc a.c(+ [x] x", f"abc {HIDDEN} {HIDDEN} x"),
        (["pi"], "a pi cGk=", f"a {HIDDEN} cGk="),
        *(([odd], f"x{odd}y", f"x{HIDDEN}y") for odd in ("{not json", "[" * 10_000, "[[[[", '{"a":1}', "[]")),
    ],
    ids=[
        "several times",
        "the longer first",
        "overlapping",
        "patterns",
        "short",
        *(f"JSON {n}" for n in range(5)),
    ],
)
def test_a_known_secret_is_replaced_as_it_is_wherever_it_stands(
    secrets: list[str], text: str, shown: str
) -> None:
    assert Redactor(secrets)(text) == shown


@cases("text")
def test_what_looks_like_a_credential_is_hidden_although_nobody_told_us(text: str) -> None:
    assert CANARY not in Redactor([])(text)
    assert HIDDEN in Redactor([])(text)


@cases("text")
def test_a_credential_is_hidden_also_when_its_name_has_a_prefix(text: str) -> None:
    assert CANARY not in Redactor([])(text)


def test_what_stands_around_a_credential_stays_readable_as_does_ordinary_text() -> None:
    text = "tokens saved: 12, server at http://localhost:8080/mcp, user git@example.org"
    assert Redactor([])(text) == text
    redacted = Redactor([])(f"GET https://u:{CANARY}@host/path?x=1 failed, api_key={CANARY}; retrying")
    assert redacted == f"GET https://{HIDDEN}@host/path?x=1 failed, api_key={HIDDEN}; retrying"


@settings(deadline=None)
@given(st.lists(st.text(min_size=6), max_size=5), st.text(max_size=50), st.text(max_size=50))
def test_no_known_secret_survives(secrets: list[str], before: str, after: str) -> None:
    redact = Redactor(secrets)
    for secret in secrets:
        shown = redact(before + secret + after)
        assert secret not in shown or secret in HIDDEN + HIDDEN


def test_more_can_be_learned_and_nothing_is_forgotten() -> None:
    redact = Redactor([CANARY])
    redact.learn(["another-secret", f"{CANARY}-and-more"])
    assert redact(f"{CANARY}-and-more {CANARY} another-secret") == f"{HIDDEN} {HIDDEN} {HIDDEN}"
    redact.learn([])
    redact.learn([""])
    assert redact("plain another-secret") == f"plain {HIDDEN}"


ODD = 'c/a+n@a r"y\\é:7'
"""A secret that every encoding spells in another way."""

WRITTEN: dict[str, Callable[[str], str]] = {
    "path": quote,
    "query": lambda text: quote(text, safe=""),
    "query in small letters": lambda text: re.sub("%..", lambda code: code[0].lower(), quote(text, safe="")),
    "form": quote_plus,
    "repr": repr,
    "JSON": json.dumps,
    "JSON in UTF-8": lambda text: json.dumps(text, ensure_ascii=False),
    "within JSON": lambda text: json.dumps({"error": {"message": f"bad key {text}"}}),
    "JSON within JSON": lambda text: json.dumps(json.dumps({"key": text})),
    "JSON of Go": lambda text: _each(json.dumps(text, ensure_ascii=False), "&<>"),
    "JSON of PHP": lambda text: json.dumps(text).replace("/", r"\/"),
    "JSON of .NET": lambda text: _each(json.dumps(text), "+&<>'", capitals=True),
    "bytes": lambda text: repr(text.encode()),
    "ASCII": ascii,
    "twice in a url": lambda text: quote(quote(text, safe=""), safe=""),
    "a url in the JSON of PHP": lambda text: json.dumps(f"https://h/?q={quote(text)}").replace("/", r"\/"),
}


def _each(text: str, characters: str, *, capitals: bool = False) -> str:
    """A text with the code points of some characters in their place, as in JSON."""
    spelt = {ord(each): f"\\u{ord(each):04{'X' if capitals else 'x'}}" for each in characters}
    return text.translate(spelt)


@pytest.mark.parametrize("secret", [CANARY, ODD, "R&D<key>/'1' \U0001f511"])
@pytest.mark.parametrize("way", WRITTEN)
def test_a_secret_is_hidden_in_the_spelling_of_urls_json_and_reprs(secret: str, way: str) -> None:
    written = WRITTEN[way](secret)
    shown = Redactor([secret])(f"sent {written} upstream")
    assert HIDDEN in shown
    assert written not in shown
    assert shown.startswith("sent ")
    assert shown.endswith(" upstream")


@settings(deadline=None)
@given(
    st.sampled_from([CANARY, ODD, "sixsix"]),
    st.binary(max_size=7),
    st.binary(max_size=4),
    st.sampled_from([base64.b64encode, base64.urlsafe_b64encode]),
)
def test_a_secret_is_hidden_wherever_it_begins_in_what_was_encoded_as_base64(
    secret: str, before: bytes, after: bytes, encode: Callable[[bytes], bytes]
) -> None:
    shown = Redactor([secret])(encode(before + secret.encode() + after).decode())
    assert HIDDEN in shown


def test_what_a_text_has_besides_stays_as_it_was_written() -> None:
    text = r'{"path":"C:\\temp\n%20%zz","said":"\u00e9\ud83d'
    assert Redactor([CANARY])(text) == text
    assert Redactor(["a/b+c-d"])(text + r'a\/b%2Bc-d"}') == f'{text}{HIDDEN}"}}'


@cases("text")
def test_words_of_an_explanation_are_no_credentials(text: str) -> None:
    assert Redactor([])(text) == text


# --- of bounded length ---------------------------------------------------------------------------------------

FILLED = "0123456789" * 20


@pytest.mark.parametrize("way", ["itself", "JSON of PHP", "JSON", "query"])
@pytest.mark.parametrize("secret", [CANARY, ODD])
@pytest.mark.parametrize("raw", [False, True], ids=["text", "bytes"])
def test_no_part_of_a_secret_stands_at_the_end_of_what_was_cut(way: str, secret: str, raw: bool) -> None:
    written = WRITTEN.get(way, str)(secret)
    redact = Redactor([secret, "another-secret-that-is-longer-than-the-one-that-is-cut"])
    text = FILLED + written + FILLED
    for most in range(len(FILLED), len(FILLED) + len(written) + 1):
        kept = redact.cut(text.encode() if raw else text, most)
        assert kept.endswith(CUT)
        rest = kept.removesuffix(CUT).removeprefix(FILLED)
        # What is there of the secret is all of it, or the quote before it.
        assert rest in {"", '"', written, written[:-1], written.rstrip('\\"}')} or HIDDEN in redact(kept)
        assert len(kept) <= most + len(CUT)


def test_a_password_in_a_url_is_not_cut_apart_either() -> None:
    text = f"{FILLED}postgres://user:{CANARY}@host/database"
    for most in range(len(FILLED), len(text)):
        assert "ca9ary" not in Redactor([])(text, most)


def test_what_is_short_enough_is_kept_as_it_is() -> None:
    redact = Redactor([CANARY])
    assert redact.cut(CANARY, len(CANARY)) == CANARY
    assert redact.cut(b"x\xff", 2) == "x\ufffd"


def test_of_a_text_as_long_as_a_message_the_beginning_is_looked_at_and_shown() -> None:
    shown = Redactor([CANARY])("x" * (SHOWN - 4) + CANARY * 100_000)
    assert shown == "x" * (SHOWN - 4) + CUT
    assert len(Redactor([CANARY])(CANARY * 100_000)) <= SHOWN


def test_a_secret_that_fills_the_bound_many_times_over_is_not_shown_behind_the_others() -> None:
    secret = "".join(chr(0x4E00 + each) for each in range(600))
    shown = Redactor([secret])((secret + ",") * 200)
    assert set(shown.removesuffix(CUT)) <= set(HIDDEN + ",")


# --- in JSON -------------------------------------------------------------------------------------------------


def test_in_json_secrets_go_from_strings_and_keys_and_all_else_stays() -> None:
    raw = (
        rb'{ "name":"\u0041", "n" : 1.50e3,"ca9ary-5ecre7-value":["x ca9ary\u002d5ecre7-value y","password=x"]}'
    )
    shown = Redactor([CANARY]).json(raw)
    hidden = HIDDEN.encode()
    assert shown == rb'{ "name":"\u0041", "n" : 1.50e3,"%b":["x %b y","password=x"]}' % (hidden, hidden)


@pytest.mark.parametrize("odd", [rb"\ud800", b"\n", "é".encode(), b"\xff", rb"\q"], ids=str)
def test_a_secret_goes_from_json_however_odd_a_string_is(odd: bytes) -> None:
    shown = Redactor([CANARY]).json(b'["%b","%b %b"]' % (odd, odd, CANARY.encode()))
    assert CANARY.encode() not in shown
    assert HIDDEN.encode() in shown


@pytest.mark.parametrize("raw", [b'{"a":"token=abc12345"}', b'{"a":"\\ud800"}', b'{"a":"\xff"}', b"7"])
def test_json_without_a_known_secret_is_the_same_object(raw: bytes) -> None:
    assert Redactor([CANARY]).json(raw) is raw


def test_what_may_be_anybodys_words_stays_in_a_definition_and_goes_from_what_is_said() -> None:
    redact = Redactor(())
    redact.learn([CANARY, "us-east-1", "issues"], ["us-east-1", "issues"])
    raw = b'{"name":"list_issues","region":"us-east-1","x":"%b"}' % CANARY.encode()
    assert redact.json(raw) == raw.replace(CANARY.encode(), HIDDEN.encode())
    assert redact("in us-east-1") == f"in {HIDDEN}"
    redact.learn(["issues"])
    assert redact.json(b'"list_issues"') == b'"list_%b"' % HIDDEN.encode()


def test_a_short_secret_goes_from_a_definition_only_as_a_whole_word() -> None:
    redact = Redactor(["hunter22", CANARY])
    raw = b'["hunter221","xhunter22","call_hunter22","a hunter22.","x%bx"]' % CANARY.encode()
    hidden = HIDDEN.encode()
    assert redact.json(raw) == b'["hunter221","xhunter22","call_%b","a %b.","x%bx"]' % (hidden, hidden, hidden)
    assert redact("xhunter22") == f"x{HIDDEN}"


def test_the_words_that_schemas_are_made_of_stay_although_one_is_a_secret() -> None:
    redact = Redactor(["additionalProperties", "object", "required"])
    raw = b'{"type":"object","additionalProperties":false,"required":["an object"]}'
    assert redact.json(raw) == raw.replace(b"an object", b"an %b" % HIDDEN.encode())


@pytest.mark.parametrize("number", [b"9081726354", b"-9081726354", b"9081726354.0"])
def test_a_long_number_goes_from_a_definition_if_it_is_a_secret(number: bytes) -> None:
    redact = Redactor(["9081726354", "100000"])
    raw = b'{"a":%b,"b":[%b ],"c":100000,"d":90817263540,"e":1.9081726354}'
    hidden = b'"%b"' % HIDDEN.encode()
    assert redact.json(raw % (number, number)) == raw % (hidden, hidden)


def test_what_another_one_hides_is_hidden_beside_one_s_own_as_soon_as_it_is_learned() -> None:
    other = Redactor([])
    redact = Redactor(["sunshine"], shared=other)
    other.learn([CANARY, "plainly"], ["plainly"])
    assert redact(f"sunshine {CANARY} plainly") == f"{HIDDEN} {HIDDEN} {HIDDEN}"
    assert redact.json(b'"%b plainly"' % CANARY.encode()) == b'"%b plainly"' % HIDDEN.encode()
    assert redact.cut("x" * 100 + CANARY, 105) == "x" * 100 + CUT
    assert other("sunshine") == "sunshine"


def test_a_name_that_may_be_read_stays_whole_although_a_secret_stands_in_it() -> None:
    redact = Redactor(["postgres", CANARY])
    redact.spare(["postgres", "postgres-db", "git"])
    text = "postgres-db: see `mcpd logs postgres`, [server=postgres]"
    assert redact(text) == text
    assert redact(f"mypostgres postgres-{CANARY}") == f"my{HIDDEN} {HIDDEN}-{HIDDEN}"


SECONDS = 60.0
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
ASSIGNED = ("{name}={value}", "{name}: {value}", '"{name}": "{value}"', "{name} = '{value}'")
DESCRIBED = st.sampled_from(DIAGNOSES)


@settings(deadline=None)
@given(
    name=st.sampled_from(NAMES),
    written=st.sampled_from(ASSIGNED),
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
    subprocess.run([sys.executable, "-c", code], timeout=SECONDS, check=True)


def test_a_short_secret_has_no_spelling_but_its_own() -> None:
    assert all_spellings(["a b"]) == {"a b"}
    assert all(len(each) >= SHORTEST for each in all_spellings(["a b c d"]))


def test_the_strings_of_a_secret_that_is_json_are_found_with_their_names() -> None:
    found = nested('{"key": {"token": "one"}, "more": ["two", 3]}')
    assert sorted(found) == [("more", "two"), ("token", "one")]
    assert len(nested("[" + ",".join(['"x"'] * (MAX_NESTED + 50)) + "]")) == MAX_NESTED
    for odd in ("{not json", "[" * 10_000, "[[[[", '{"a":1}', "[]", "plain"):
        assert nested(odd) == []
