"""What is clearly a setting, and all that nobody can tell from a password."""

from __future__ import annotations

import random
import string

import pytest

from daemon.config.settings import is_setting

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
        *(
            "--key=7fK2mQ9xVb4Z",
            '{"mode": "fast", "x": "7fK2mQ9xVb4Z"}',
            "key-ghp_16C7e42F292c6912E7710c",
        ),
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
