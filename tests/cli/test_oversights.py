"""What is left unsaid in a configuration, and what is switched off in one place only."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.cli.oversights import oversights
from tests.config.reading import config_of

SERVER = {"command": "x", "description": "Git."}
OFF = {"overrides": {"git_reset": {"enabled": False}}}


def told(**config: Any) -> list[tuple[str, str]]:
    return [(fault.path, fault.message) for fault in oversights(config_of(config))]


def in_categories(**tools: dict[str, Any]) -> list[tuple[str, str]]:
    categories = {name: {"description": "C.", "server": "git", "tools": each} for name, each in tools.items()}
    return told(mcpServers={"git": SERVER, "other": SERVER}, categories=categories)


def test_a_server_that_nothing_is_said_of_is_told_unless_it_is_switched_off() -> None:
    ((place, message),) = told(
        mcpServers={"git": SERVER, "bare": {"command": "x"}, "off": {"command": "x", "enabled": False}}
    )
    assert place == "$.mcpServers.bare"
    assert "no 'description'" in message


def test_a_server_whose_category_is_described_needs_no_description() -> None:
    category = {"description": "C.", "server": "git"}
    assert told(mcpServers={"git": {"command": "x"}}, categories={"c": category}) == []


def test_nothing_is_told_of_the_tools_of_a_server_that_is_switched_off() -> None:
    categories = {
        name: {"description": "C.", "server": "git", "tools": each} for name, each in (("a", OFF), ("b", {}))
    }
    assert told(mcpServers={"git": {**SERVER, "enabled": False}}, categories=categories) == []


@pytest.mark.parametrize(
    "other",
    [
        {"includeNames": ["git_reset"]},
        {"includeNames": ["git/git_reset"]},
        {"includePatterns": ["git_*"]},
        {"includePatterns": ["/reset$/"], "overrides": {"git_reset": {"description": "Ours."}}},
        {},
    ],
)
def test_a_tool_that_another_category_still_has_is_told(other: dict[str, Any]) -> None:
    ((place, message),) = in_categories(write=OFF, all=other)
    assert place == "$.categories.write.tools.overrides.git_reset.enabled"
    assert "'all' still has it" in message


def test_all_that_have_it_are_named() -> None:
    ((_, message),) = in_categories(write=OFF, a={}, b={}, c={})
    assert "'a', 'b' and 'c' still have it" in message


@pytest.mark.parametrize(
    "other",
    [
        OFF,
        {"overrides": {"git/git_reset": {"enabled": False}}},
        {"includeNames": ["git_log"]},
        {"includeNames": ["other/git_reset"]},
        {"excludePatterns": ["*_reset"]},
        {"includePatterns": ["git_l*"]},
    ],
)
def test_a_tool_that_no_other_has_is_not(other: dict[str, Any]) -> None:
    assert in_categories(write=OFF, all=other) == []
