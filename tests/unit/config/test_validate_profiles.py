"""Profiles name what exists, and name it once."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.config.parse import parse
from tests.unit.config.reading import SOURCE, faults_in, with_server

UNSOUND = "a tool's name is 1 to 128 bytes of printable characters"


def profile(**entry: Any) -> dict[str, Any]:
    config = with_server()
    config["mcpServers"]["serena"] = {"command": "x"}
    return {**config, "categories": {"fs": {"server": "git"}}, "profiles": {"p": entry}}


@pytest.mark.parametrize(
    ("config", "path", "message"),
    [
        (profile(surface="categry"), "surface", "unknown surface 'categry': did you mean 'category'?"),
        (profile(answerTokens=70_000), "answerTokens", "70000 is too much; it must be 65536 or less"),
        (profile(categories=["fs", "fss"]), "categories[1]", "unknown category 'fss': did you mean 'fs'?"),
        (profile(categories=["git"]), "categories[0]", "unknown category 'git': known are fs"),
        (profile(categories=["fs", "fs"]), "categories[1]", "'fs' stands here twice"),
        (profile(coreTools=["find", "find"]), "coreTools[1]", "'find' stands here twice: keep one of them"),
        (profile(excludedTools=["x/y"]), "excludedTools[0]", "unknown server 'x': known are git, serena"),
        (profile(includedOptionalTools=["git/"]), "includedOptionalTools[0]", UNSOUND),
        (
            profile(toolDescriptionOverrides={"got/x": "y"}),
            'toolDescriptionOverrides["got/x"]',
            "unknown server 'got': did you mean 'git'?",
        ),
        (profile(coreTools=["got/find"]), "coreTools[0]", "unknown server 'got': did you mean 'git'?"),
        (profile(preload=["got/find"]), "preload[0]", "unknown server 'got': did you mean 'git'?"),
        (
            profile(coreTools=["git/a", "mcp__git__a"]),
            "coreTools[1]",
            "'mcp__git__a' is the same tool as 'git/a': keep one of them",
        ),
    ],
)
def test_a_profile_that_cannot_be_meant_is_a_fault(config: object, path: str, message: str) -> None:
    assert faults_in(config) == [(f"$.profiles.p.{path}", message)]


@pytest.mark.parametrize("key", ["coreTools", "preload", "excludedTools", "includedOptionalTools"])
def test_a_profile_may_name_tools_bare_as_other_programs_do(key: str) -> None:
    assert faults_in(profile(**{key: ["find_file", "git/log", "mcp__serena__find_symbol"]})) == []


def test_who_does_not_know_the_surfaces_does_not_judge_them() -> None:
    text = '{"profiles": {"p": {"surface": "of tomorrow"}}}'
    assert parse(text, source=SOURCE, environ={}).profiles["p"].surface == "of tomorrow"
