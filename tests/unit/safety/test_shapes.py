"""Credentials that nobody has told of, and what is said of credentials."""

from __future__ import annotations

import base64
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.safety.redact import HIDDEN, Redactor
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


DIAGNOSES = (
    "invalid token: expired",
    "invalid_token: The access token expired",
    "password: required",
    "token=missing",
    "token = missing",
    "authorization: bearer token not found",
    "Authorization: Bearer token is missing",
    "api key invalid",
    "api_key: not set",
    "API key: invalid",
    'token: "expired"',
    'error="invalid_token", error_description="The access token expired"',
    "password=required",
    "password='required'",
    "secret: not found",
    "Error: GITHUB_TOKEN: not set",
    "GITHUB_PERSONAL_ACCESS_TOKEN=unset",
    "SLACK_BOT_TOKEN= is empty",
    "token: expired_token",
    "token: signature_mismatch",
    "authorization=required",
    "Authorization: required",
    "authorization: none",
    "authorization=bearer",
    "Unexpected token: <",
    "SyntaxError: Unexpected token: '}'",
    "SyntaxError: Unexpected token } in JSON at position 42",
    "SyntaxError: Unexpected token '<', \"<!DOCTYPE \"... is not valid JSON",
    "unexpected token: EOF",
    "basic authentication failed",
    "Basic authentication is required",
    "bearer authentication failed",
    "bearer token has expired (exp 1700000000)",
    'Bearer realm="mcp", error="invalid_token"',
    'WWW-Authenticate: Bearer resource_metadata="https://x/y"',
    "token expired 3600s ago",
    "access token: too short (8 characters)",
    "max_tokens: 4096",
    "tokens: 4096 used of 8192",
    'password authentication failed for user "postgres"',
    'FATAL: password authentication failed for user "app"',
    "Error: password must be at least 12 characters",
    "password: must contain a digit",
    "token: 401 Unauthorized",
    "token=401",
    "api-key: HTTP 403",
    "apikey: rejected (403)",
    '"password": "is required"',
    '{"token": "Missing required parameter"}',
    '{"error": "token", "password": ["This field is required."]}',
    "password: [This field is required]",
    "password: <required>",
    "token=<missing>",
    "token: <your-token-here>",
    "token=YOUR_TOKEN",
    "API_KEY=your-api-key",
    "token=${GITHUB_TOKEN}",
    "token=$GITHUB_TOKEN",
    "set the environment variable API_KEY=...",
    "password: ****",
    "password=********",
    "secret: undefined",
    "token: null",
    "token=None,",
    "token=expired; please renew",
    "token=expired.",
    "token: 'invalid'",
    "token=not_found",
    "token=token-expired",
    "token=invalid_grant",
    "token=insufficient_scope",
    'token="insufficient scope"',
    "authorization=denied",
    "Authorization: insufficient_scope",
    "token=unauthorized",
    "token=Unauthorized",
    "token: Unauthorized",
    "token: bad",
    "token=bad",
    "token=stale",
    "token=refreshed",
    "token: ok",
    "password=incorrect",
    "password=wrong",
    "api_key=missing",
    "api_key=malformed",
    "apikey=absent",
    "secret=unreadable",
    "token=unreadable: permission denied",
    "token: /run/secrets/token: no such file",
    "password_file: /run/secrets/pw not found",
    "password: No such file or directory",
    "token type: bearer",
    "token_type=bearer",
    "token_type: Bearer",
    "grant_type=password&error=invalid_grant",
    "Authorization: Basic, got none",
    "authorization: bearer scheme expected",
    "authorization: bearer expected",
    "token: 2 errors",
    "token=0",
)
"""What real servers, SDKs, databases and parsers say of credentials that they do not have or do not take."""


@pytest.mark.parametrize("text", DIAGNOSES)
def test_a_diagnosis_is_left_as_it_is(text: str) -> None:
    assert Redactor([])(text) == text
    assert Redactor([])(f"server git: {text}\nTraceback: {text}") == f"server git: {text}\nTraceback: {text}"


@pytest.mark.parametrize(
    "text",
    [
        "password: sunshine",
        'password="correct horse battery"',
        "{'password': 'a, b; c'}",
        "secret=no-way-jose",
        "password=secret",
        "password: 123",
        "token=2048",
        "token: expired-hunter2",
        "Authorization: Bearer letmein",
        "token=$ecret",
        "token=/abc/DEF/x9",
        "api key: AAAAAAAAAAAA",
        "token=<hunter2>",
    ],
)
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
