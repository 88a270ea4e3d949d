"""Credentials that are known by their name, their place or their look."""

from __future__ import annotations

import random
import string

import pytest

from daemon.config.redaction import (
    in_arguments,
    in_pairs,
    is_setting,
    looks_random,
    may_be_common,
    names_credential,
)


@pytest.mark.parametrize(
    ("text", "random"),
    [
        ("0b1f6a2c-5d3e-4f70-8a91-b2c3d4e5f607", True),
        ("ZmFrZS10b2tlbi0xMjM0NTY3ODkw", True),
        ("sk-ant-abc123def456ghi789", True),
        ("AbCdEfGh12345678IjKlMnOp", True),
        ("short1X", False),
        ("mcp-server-2025-11-25", False),
        ("streamable-http-server-v2", False),
        ("customer_conversations_2024", False),
        ("a-path-of-ordinary-words", False),
        ("1234567890123456", False),
        ("0b1f6a2c 5d3e 4f70 8a91", False),
    ],
)
def test_a_credential_has_another_look_than_words(text: str, random: bool) -> None:
    assert looks_random(text) is random


@pytest.mark.parametrize(
    ("args", "found"),
    [
        (["--api-key", "k", "x"], [(1, "k")]),
        (["--token=k="], [(0, "k=")]),
        (["-e", "API_KEY=k", "-eDB_PASSWORD=p"], [(1, "k"), (2, "p")]),
        (["--header", "Authorization: Bearer k"], [(1, "Bearer k")]),
        (["--header=X-Api-Key:k"], [(0, "k")]),
        (["--token-file", "/run/token", "--token", "--verbose", "--key"], []),
        (["--auth", "a", "--passphrase", "b c", "--pwd", "d"], [(1, "a"), (3, "b c"), (5, "d")]),
        (["--connection-string", "Server=h;Password=p;"], [(1, "Server=h;Password=p;"), (1, "p")]),
        (["--keyspace", "orders", "--max-tokens", "100000", "--primary-key", "customer_id"], []),
        (["-y", "some-package@1.2.3", "--port=80", "https://host/path", "C:\\x"], []),
        ([], []),
    ],
)
def test_a_credential_is_found_among_arguments_with_its_place(
    args: list[str], found: list[tuple[int, str]]
) -> None:
    assert list(in_arguments(args)) == found


@pytest.mark.parametrize(
    "name",
    [
        *("API_KEY", "apikey", "APIKey", "--key", "AccountKey", "ACCESS_KEY_ID", "OPENAI_API_KEYS", "KEY"),
        *("githubToken", "--token", "auth-token", "GITHUB_TOKEN_2", "ACCESS_TOKENS", "GITHUB_PAT", "bearer"),
        *(
            "DB_PASSWORD",
            "PGPASSWORD",
            "passwd",
            "DB_PASS",
            "--pwd",
            "MYSQL_PWD",
            "PASSPHRASE",
            "ssl-passphrase",
        ),
        *("Authorization", "AUTH", "--auth", "BASIC_AUTH", "client_secret", "Set-Cookie", "SESSION"),
        *(
            "CACHE_PASSWORD",
            "PUBLIC_URL_SECRET",
            "SMTP_PW",
            "SMTPPW",
            "CREDS",
            "MNEMONIC",
            "WALLET_SEED",
            "SEED_PHRASE",
        ),
        *("CARD_PIN", "OTP", "JWT", "PSK", "SID", "SESSION_ID", "SIGNATURE", "SAS_SIG", "CONNECTION_STRING"),
        *("AUTH_HEADER", "PGPASS", "ROOTPASS", "APPKEY", "MASTERKEY", "LICENSE_KEY", "ENCRYPTIONKEY", "SSHKEY"),
        "COSMOS_PRIMARY_KEY",
    ],
)
def test_a_name_says_by_a_word_of_it_that_its_value_is_a_credential(name: str) -> None:
    assert names_credential(name)


@pytest.mark.parametrize(
    "name",
    [
        *("--keyspace", "--keyboard", "--tokenizer", "TOKENIZER", "MONKEY", "compass", "pattern", "author"),
        *("--primary-key", "PARTITION_KEY", "sort-keys", "publicKey", "--max-tokens", "MAX_NEW_TOKENS"),
        *("--token-limit", "TOKEN_URL", "--password-file", "PASSWORD_MIN_LENGTH", "AUTH_MODE", "session-name"),
        *("bypass", "PIN_VERSIONS", "signature-format", "otp-length", "string", "WPM"),
        "",
    ],
)
def test_a_name_that_only_looks_like_it_says_nothing(name: str) -> None:
    assert not names_credential(name)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Server=h;User Id=sa;Password=pass word;", ["pass word"]),
        ("Server=h; Pwd = abc ;Encrypt=true", ["abc"]),
        ("host=h password=abc dbname=d", ["abc"]),
        ("AccountName=n;AccountKey=abc==;EndpointSuffix=core", ["abc=="]),
        ("export API_TOKEN=abc; exec server", ["abc"]),
        ("postgresql://h/d?x=1", []),
        ("mode=fast;keyspace=orders", []),
        ("plain words", []),
    ],
)
def test_a_credential_is_found_in_what_lists_names_and_values(text: str, told: list[str]) -> None:
    assert list(in_pairs(text)) == told


@pytest.mark.parametrize(
    ("value", "named", "common"),
    [
        ("password", True, True),
        ("customer_id", True, True),
        ("Ünïcode", True, True),
        ("hunter22", True, False),
        ("9081726354", True, False),
        ("open sesame", True, False),
        ("correct-horse-battery", True, False),
        ("abcdefghijklmnop", True, False),
        ("p@ss!word", True, False),
        ("us-east-1", False, True),
        ("open sesame", False, True),
        ("customerId", False, True),
        ("s3cr3t", False, False),
        ("0b1f6a2c5d3e4f708a91", False, False),
    ],
)
def test_what_may_be_anybodys_word_depends_on_the_name_that_it_stands_under(
    value: str, *, named: bool, common: bool
) -> None:
    assert may_be_common(value, named=named) is common


DRAWN = 2000
"""Passwords of each kind: always the same ones."""

FEW = 0.02
"""The share of them that may look like words."""


@pytest.mark.parametrize(
    "value",
    [
        *(
            "WARNING",
            "production",
            "true",
            "8080",
            "1.5",
            "2026-11-22",
            "2026-11-22T10:00:00Z",
            "512MiB",
            "30s",
        ),
        *("en_US.UTF-8", "Europe/Berlin", "America/Argentina/Buenos_Aires", "us-east-1", "eu-central-1a"),
        *("/srv/data", "/home/me/My Notes", "~/notes/work", "./data/x.json", "src/**/*.py", "C:\\Users\\me"),
        *("localhost:5432", "db-prod-1.internal.example.com", "10.0.0.0/8", "me@example.com"),
        *("http://localhost:9000/x", "redis://cache:6379/0", "https://x.y/v1?api-version=2024-02-01"),
        *("gpt-4o-mini", "gpt-4o-2024-08-06", "o4-mini", "claude-opus-4-5-20251101", "deepseek-ai/DeepSeek-R1"),
        *("Qwen2.5-Coder-32B-Instruct", "Qwen3-30B-A3B-Instruct-2507", "Llama-4-Scout-17B-16E-Instruct"),
        *(
            "memory-store",
            "a sentence of words",
            "JavaScript",
            "PostgreSQL",
            "Ünïcode wörds",
            "mcp-server-git==2.1.0",
        ),
        *("repos,issues,pull_requests", "--max-old-space-size=4096", "key=value;other=2", '["read", "write"]'),
        *("application/json; charset=utf-8", "kubernetes-dashboard", "configparser", "elasticsearch", ""),
    ],
)
def test_what_people_configure_is_a_setting(value: str) -> None:
    assert is_setting(value)


@pytest.mark.parametrize(
    "value",
    [
        *(
            "Xk9$mQ2!vL7#pR",
            "7fK2mQ9xVb4Z",
            "xkqzvbwmtrpl",
            "XKQZVBWMTRPL",
            "3f9a1c0b7e2d",
            "k9-Q2-z3-aB",
            "canary-91bc",
        ),
        *("0b1f6a2c-5d3e-4f70-8a91-b2c3d4e5f607", "/K7MDENG/bPxRfiCYEXAMPLEKEY", "a note, then 7fK2mQ9xVb4Z"),
        *("--key=7fK2mQ9xVb4Z", '{"mode": "fast", "x": "7fK2mQ9xVb4Z"}', "key-ghp_16C7e42F292c6912E7710c"),
        "-----BEGIN PRIVATE KEY-----",
    ],
)
def test_what_nobody_can_tell_from_a_password_is_none(value: str) -> None:
    assert not is_setting(value)


@pytest.mark.parametrize("length", [12, 16, 20, 40])
@pytest.mark.parametrize(
    "characters",
    [
        string.ascii_letters + string.digits + string.punctuation,
        string.ascii_letters + string.digits + "!@#$%^&*",
        string.ascii_letters + string.digits,
        string.ascii_letters + string.digits + "-_",
        string.ascii_letters + string.digits + "+/",
        string.ascii_lowercase + string.digits,
        string.ascii_lowercase,
        string.ascii_letters,
        string.hexdigits[:16],
    ],
)
def test_hardly_a_password_that_was_drawn_by_lot_looks_like_a_setting(characters: str, length: int) -> None:
    draw = random.Random(length)
    drawn = ["".join(draw.choices(characters, k=length)) for _ in range(DRAWN)]
    assert sum(map(is_setting, drawn)) <= FEW * DRAWN
