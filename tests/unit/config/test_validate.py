"""Faults of all kinds come together, without the echoes of one another."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.config.reading import faults_in, with_server


def test_faults_of_types_and_of_rules_are_reported_in_one_run() -> None:
    config = {
        "mcpServers": {
            "git": {"command": "x", "args": [1], "timeouts": {"call": 900}, "env": {"K": "${UNSET}"}},
            "My Server": {"url": "ftp://h", "enabled": True, "bogus": 1},
        },
        "categories": {"fs": {"server": "gti", "tools": {"includeNames": ["a", "a"], "overrides": {"a": 1}}}},
        "profiles": {"p": {"lazy": "no", "categories": ["nope"]}},
        "summaries": {"model": "m", "baseUrl": "http://h", "apiKeyEnv": "sk-123"},
        "lazy": 1,
    }
    assert sorted(path for path, _ in faults_in(config)) == sorted(
        [
            "$.mcpServers.git.env.K",
            "$.mcpServers.git.args[0]",
            "$.mcpServers.git.timeouts.callMax",
            '$.mcpServers["My Server"]',
            '$.mcpServers["My Server"].url',
            '$.mcpServers["My Server"].bogus',
            "$.categories.fs.server",
            "$.categories.fs.tools.includeNames[1]",
            "$.categories.fs.tools.overrides.a",
            "$.profiles.p.lazy",
            "$.profiles.p.categories[0]",
            "$.summaries.apiKeyEnv",
            "$.lazy",
        ]
    )


@pytest.mark.parametrize(
    ("entry", "path"),
    [
        ({"comand": "x"}, "comand"),
        ({"serverUrl": "https://h"}, "serverUrl"),
        ({"command": 3}, "command"),
        ({"type": "tcp", "url": "tcp://h"}, "type"),
        ({"url": "${UNSET}"}, "url"),
        ({"command": "${UNSET}/~"}, "command"),
    ],
)
def test_one_slip_is_one_fault(entry: dict[str, Any], path: str) -> None:
    assert [found for found, _ in faults_in({"mcpServers": {"s": entry}})] == [f"$.mcpServers.s.{path}"]


def test_a_server_at_fault_is_still_a_known_server() -> None:
    config = {"mcpServers": {"git": 3}, "categories": {"g": {"server": "git"}}}
    assert [path for path, _ in faults_in(config)] == ["$.mcpServers.git"]


def test_a_pasted_key_is_not_repeated() -> None:
    summaries = {"model": "m", "baseUrl": "http://h", "apiKeyEnv": "sk-hunter2"}
    assert faults_in({**with_server(), "summaries": summaries}) == [
        ("$.summaries.apiKeyEnv", "write the NAME of the environment variable that holds the key, not the key")
    ]


@pytest.mark.parametrize("url", ["ftp://u:hunter2@h", "h/v1", "", "http://", "https://h:x/v1", "http://[h/v1"])
def test_an_endpoint_that_cannot_be_asked_is_a_fault_that_repeats_no_password(url: str) -> None:
    ((path, message),) = faults_in({**with_server(), "summaries": {"model": "m", "baseUrl": url}})
    assert path == "$.summaries.baseUrl"
    assert "https://HOST/v1" in message
    assert "hunter2" not in message


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080/v1", "https://u:p@api.example/v1", "http://[::1]:1"])
def test_an_endpoint_that_can_be_asked_is_none(url: str) -> None:
    assert faults_in({**with_server(), "summaries": {"model": "m", "baseUrl": url}}) == []


def test_a_server_that_may_be_a_client_exists() -> None:
    faults = faults_in({**with_server(), "listen": {"servers": ["git", "gti"]}})
    assert [path for path, _ in faults] == ["$.listen.servers[1]"]
    assert faults[0][1].startswith("unknown server 'gti': did you mean")
