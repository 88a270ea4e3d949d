"""Secrets: those we know and those that look like one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.redact import HIDDEN, Redactor

CANARY = "ca9ary-5ecre7-value"


def test_a_known_secret_is_replaced_wherever_it_stands() -> None:
    redact = Redactor([CANARY])
    assert redact(f"{CANARY} x{CANARY}y {CANARY}") == f"{HIDDEN} x{HIDDEN}y {HIDDEN}"


def test_of_two_secrets_the_longer_one_goes_first_so_that_none_leaves_a_rest() -> None:
    redact = Redactor(["abcdef", "abcdefghij"])
    assert redact("abcdefghij abcdef") == f"{HIDDEN} {HIDDEN}"


def test_a_secret_is_no_pattern() -> None:
    redact = Redactor(["a.c(+", "[x]"])
    assert redact("abc a.c(+ [x] x") == f"abc {HIDDEN} {HIDDEN} x"


def test_without_secrets_ordinary_text_stays_as_it_is() -> None:
    text = "tokens saved: 12, server at http://localhost:8080/mcp, user git@example.org"
    assert Redactor([])(text) == text


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {CANARY}",
        f"authorization: basic {CANARY}",
        f"sent token {CANARY} upstream",
        f"api_key={CANARY}",
        f"API-KEY: {CANARY}",
        f'{{"apikey": "{CANARY}", "x": 1}}',
        f"access_token={CANARY}&next=1",
        f"password: '{CANARY}'",
        f"X-Api-Key: {CANARY}",
        f"cannot connect to postgresql://user:{CANARY}@db/x",
        f"https://x:{CANARY}@github.com/a/b.git",
    ],
)
def test_what_looks_like_a_credential_is_hidden_although_nobody_told_us(text: str) -> None:
    assert CANARY not in Redactor([])(text)
    assert HIDDEN in Redactor([])(text)


@pytest.mark.parametrize(
    "text",
    [
        f"OPENAI_API_KEY={CANARY}",
        f"DB_PASSWORD={CANARY}",
        f"client_secret={CANARY}&grant_type=refresh_token",
        f'"GITHUB_ACCESS_TOKEN": "{CANARY}"',
    ],
)
def test_a_credential_is_hidden_also_when_its_name_has_a_prefix(text: str) -> None:
    assert CANARY not in Redactor([])(text)


def test_what_stands_around_a_credential_stays_readable() -> None:
    redacted = Redactor([])(f"GET https://u:{CANARY}@host/path?x=1 failed, api_key={CANARY}; retrying")
    assert redacted == f"GET https://{HIDDEN}@host/path?x=1 failed, api_key={HIDDEN}; retrying"


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
