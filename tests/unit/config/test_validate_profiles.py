"""Profiles name what exists, and name it once."""

from typing import Any

import pytest

from daemon.config.parse import parse
from tests.unit.cases import cases
from tests.unit.config.reading import SOURCE, faults_in, with_server


def profile(**entry: Any) -> dict[str, Any]:
    config = with_server()
    config["mcpServers"]["serena"] = {"command": "x"}
    return {**config, "categories": {"fs": {"server": "git"}}, "profiles": {"p": entry}}


@cases("config", "path", "message")
def test_a_profile_that_cannot_be_meant_is_a_fault(config: object, path: str, message: str) -> None:
    assert faults_in(config) == [(f"$.profiles.p.{path}", message)]


@pytest.mark.parametrize("key", ["coreTools", "preload", "excludedTools", "includedOptionalTools"])
def test_a_profile_may_name_tools_bare_as_other_programs_do(key: str) -> None:
    assert faults_in(profile(**{key: ["find_file", "git/log", "mcp__serena__find_symbol"]})) == []


def test_who_does_not_know_the_surfaces_does_not_judge_them() -> None:
    text = '{"profiles": {"p": {"surface": "of tomorrow"}}}'
    assert parse(text, source=SOURCE, environ={}).profiles["p"].surface == "of tomorrow"
