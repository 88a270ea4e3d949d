"""Categories and profiles name what exists, and name it once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.config.reading import config_of, faults_in, with_server

UNSUPPORTED = "Lookaround, back-references and counts over 1,000 are not supported (RE2)"


def category(tools: dict[str, Any] | None = None, **entry: Any) -> dict[str, Any]:
    config = with_server()
    config["mcpServers"]["serena"] = {"command": "x"}
    return {**config, "categories": {"fs": {**entry, **({} if tools is None else {"tools": tools})}}}


def profile(**entry: Any) -> dict[str, Any]:
    return {**category(server="git"), "profiles": {"p": entry}}


@pytest.mark.parametrize(
    ("config", "path", "message"),
    [
        (category(server="serana"), "server", "unknown server 'serana': did you mean 'serena'?"),
        (category(server="x"), "server", "unknown server 'x': known are git, serena"),
        (category(), "", "this category has no tools: write a 'server', or tools.includeNames as server/tool"),
        (
            category({"includeNames": ["a", "b", "a"]}, server="git"),
            "tools.includeNames[2]",
            "'a' stands here twice: keep one of them",
        ),
        (
            category({"includeNames": ["a", "mcp__git__a"]}, server="git"),
            "tools.includeNames[1]",
            "'mcp__git__a' is the same tool as 'a': keep one of them",
        ),
        (
            category({"includeNames": ["git/a", "a"]}, server="git"),
            "tools.includeNames[1]",
            "'a' is the same tool as 'git/a': keep one of them",
        ),
        (
            category({"includeNames": ["got/a"]}),
            "tools.includeNames[0]",
            "unknown server 'got': did you mean 'git'?",
        ),
        (
            category({"includeNames": ["git/a", "b"]}),
            "tools.includeNames[1]",
            "'b' does not say whose tool it is: write 'server/tool', as in 'git/b'",
        ),
        (
            category({"includeNames": [""]}, server="git"),
            "tools.includeNames[0]",
            "a tool's name is 1 to 128 bytes of printable characters",
        ),
        (
            category({"includeNames": ["git/"]}),
            "tools.includeNames[0]",
            "a tool's name is 1 to 128 bytes of printable characters",
        ),
        (
            category({"overrides": {"got/a": {}}}, server="git"),
            'tools.overrides["got/a"]',
            "unknown server 'got': did you mean 'git'?",
        ),
        (
            category({"overrides": {"a": {}, "mcp__git__a": {}}}, server="git"),
            "tools.overrides.mcp__git__a",
            "'mcp__git__a' is the same tool as 'a': keep one of them",
        ),
        (
            category({"includePatterns": ["/(/"]}, server="git"),
            "tools.includePatterns[0]",
            f"this regex does not compile: missing ): (. {UNSUPPORTED}",
        ),
        (
            category({"excludePatterns": ["ok*", "/[/"]}, server="git"),
            "tools.excludePatterns[1]",
            f"this regex does not compile: missing ]: [. {UNSUPPORTED}",
        ),
        (
            category({"includePatterns": ["/git"]}, server="git"),
            "tools.includePatterns[0]",
            "a regex stands between two slashes: /^git_/",
        ),
        (
            category({"includePatterns": ["//"]}, server="git"),
            "tools.includePatterns[0]",
            "a regex stands between two slashes: /^git_/",
        ),
        (
            category({"includePatterns": [""]}, server="git"),
            "tools.includePatterns[0]",
            "an empty pattern fits no tool: remove it",
        ),
    ],
)
def test_a_category_that_cannot_be_meant_is_a_fault(config: object, path: str, message: str) -> None:
    assert faults_in(config) == [(f"$.categories.fs.{path}".rstrip("."), message)]


def test_without_categories_each_server_is_one() -> None:
    config = {**with_server(), "profiles": {"p": {"categories": ["git"]}}}
    assert faults_in(config) == []


@pytest.mark.parametrize("section", ["categories", "profiles"])
def test_titles_are_short_and_printable(section: str) -> None:
    titles = ["", "a" * 65, "ok"]
    entries = {title: {"server": "git"} if section == "categories" else {} for title in titles}
    message = "this name must have 1 to 64 printable characters"
    assert faults_in({**with_server(), section: entries}) == [
        (f'$.{section}[""]', message),
        (f"$.{section}.{'a' * 65}", message),
    ]


def test_a_category_may_take_tools_from_several_servers() -> None:
    names = ["git/a", "mcp__serena__a", "/x/"[1:2]]
    config = config_of(category({"includeNames": names}, server="git"))
    assert config.categories["fs"].tools.include_names == ("git/a", "mcp__serena__a", "x")
