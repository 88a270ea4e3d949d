"""Credentials that are known by their name, their place or their look."""

from __future__ import annotations

import pytest

from daemon.config.credentials import NAMED, in_arguments, is_wordy, looks_random


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
        (["-y", "some-package@1.2.3", "--port=80", "https://host/path", "C:\\x"], []),
        ([], []),
    ],
)
def test_a_credential_is_found_among_arguments_with_its_place(
    args: list[str], found: list[tuple[int, str]]
) -> None:
    assert list(in_arguments(args)) == found


@pytest.mark.parametrize("name", ["API_KEY", "githubToken", "DB_PASSWORD", "Authorization", "GITHUB_PAT"[7:]])
def test_a_name_says_that_its_value_is_a_credential(name: str) -> None:
    assert NAMED.search(name)


@pytest.mark.parametrize(
    ("text", "wordy"),
    [
        ("us-east-1", True),
        ("gpt-4o, llama3-70b", True),
        ("Ünïcode wörds", True),
        ("hunter2", True),
        ("s3cr3t", False),
        ("aB3xY9", False),
        ("camelCaseWord", False),
    ],
)
def test_words_are_told_from_what_is_none(text: str, wordy: bool) -> None:
    assert is_wordy(text) is wordy
