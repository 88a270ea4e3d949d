"""Secrets: those we know and those that look like one."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.redact import HIDDEN, MAX_NESTED, Redactor

if TYPE_CHECKING:
    from collections.abc import Callable

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
}


@pytest.mark.parametrize("secret", [CANARY, ODD])
@pytest.mark.parametrize("way", WRITTEN)
def test_a_secret_is_hidden_in_the_spelling_of_urls_json_and_reprs(secret: str, way: str) -> None:
    written = WRITTEN[way](secret)
    shown = Redactor([secret])(f"sent {written} upstream")
    assert HIDDEN in shown
    assert written not in shown


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


def test_what_is_within_a_secret_that_is_json_is_secret_itself() -> None:
    key = {"auth": {"token": CANARY, "keys": ["another-one", 7, None, "short"]}}
    redact = Redactor([json.dumps(key)])
    assert redact(f"{CANARY} another-one short 7 auth") == f"{HIDDEN} {HIDDEN} short 7 auth"


@pytest.mark.parametrize("secret", ["{not json", "[" * 10_000, "[[[[", '{"a":1}', "[]"])
def test_what_only_looks_like_json_is_a_secret_like_any_other(secret: str) -> None:
    assert Redactor([secret])(f"x{secret}y") == f"x{HIDDEN}y"


def test_of_a_large_document_so_many_strings_are_secrets_and_no_more() -> None:
    redact = Redactor([json.dumps([f"value-{each:06}" for each in range(MAX_NESTED * 2)])])
    assert redact(f"value-{MAX_NESTED * 2 - 1:06}") == HIDDEN
    assert redact("value-000000") == "value-000000"


def test_a_short_secret_is_hidden_as_it_is_and_its_parts_are_not() -> None:
    redact = Redactor(["pi"])
    assert redact("a pi") == f"a {HIDDEN}"
    assert redact("cGk=") == "cGk="
