"""The shipped examples load, fit the schema and follow our own advice."""

import re
from collections.abc import Iterable
from pathlib import Path

import attrs
import jsonschema  # type: ignore[import-untyped]
import pytest

from daemon.checks.advice import oversights
from daemon.config.config_model import Config, Share
from daemon.config.jsonc import decode
from daemon.config.names import read_reference
from daemon.config.parse import load
from daemon.config.schema import json_schema
from daemon.surfaces.table import SURFACES, chosen
from tests.unit.cases import rows_of

EXAMPLES = Path(__file__).parents[3] / "config"
FILES = sorted(path for path in EXAMPLES.glob("*.json") if path.name != "mcpd.schema.json")

(SERENA_2_1_DESKTOP_APP,) = rows_of(Path(__file__), "serena_2_1_desktop_app")
"""What Serena 2.1.0 listed in its context `desktop-app`."""

DEMO = dict(rows_of(Path(__file__), "demo"))
"""What the servers of the demo listed, in the versions that it pins."""


SEMCODE = dict(rows_of(Path(__file__), "semcode"))
"""The categories of semcode 0.1.1 and the tools that it has in each, as its `--lazy` lists them."""


def named_tools(config: Config, category: str) -> list[tuple[str, str]]:
    """Server and tool of every name in a category, overrides included."""
    entry = config.categories[category]
    names = [*entry.tools.include_names, *entry.tools.overrides]
    references = [read_reference(name, config.mcp_servers) for name in names]
    return [(reference.server or entry.server or "", reference.tool) for reference in references]


def included(config: Config, categories: Iterable[str]) -> list[str]:
    return [
        read_reference(name, config.mcp_servers).tool
        for category in categories
        for name in config.categories[category].tools.include_names
    ]


def switched_off(config: Config) -> set[str]:
    return {
        read_reference(name, config.mcp_servers).tool
        for category in config.categories.values()
        for name, override in category.tools.overrides.items()
        if not override.enabled
    }


def test_the_examples_are_there() -> None:
    assert [path.name for path in FILES] == ["demo.json", "semcode.json", "serena.json"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_example_loads_without_any_environment_and_follows_our_own_advice(path: Path) -> None:
    config = load(path, {})
    value, _ = decode(path.read_text(encoding="utf-8"), source=path.name)
    jsonschema.Draft202012Validator(json_schema(list(SURFACES))).validate(value)
    for server in config.mcp_servers.values():
        if server.command in {"npx", "uvx"}:
            assert any(re.search(r"(==|[^@]@)\d+\.\d+\.\d+$", each) for each in server.args), server.name
    assert all(server.description for server in config.mcp_servers.values())
    assert all(category.description for category in config.categories.values())
    commands = {name: server for name, server in config.mcp_servers.items() if server.command}
    on = {name: attrs.evolve(server, enabled=True) for name, server in commands.items()}
    told = oversights(attrs.evolve(config, mcp_servers={**config.mcp_servers, **on}))
    assert not [fault.message for fault in told]


def test_the_demo_shows_who_may_share_a_server_names_real_tools_and_switches_off_what_destroys() -> None:
    config = load(EXAMPLES / "demo.json", {})
    shared = {name: server.shared_by for name, server in config.mcp_servers.items()}
    divided = {name: share for name, share in shared.items() if share is not Share.ALL}
    assert divided == {"filesystem": Share.WORKSPACE, "browser": Share.SESSION}
    for category in config.categories:
        for server, tool in named_tools(config, category):
            assert tool in DEMO[server], f"{category}: {server}/{tool}"
    assert {"git_reset", "write_file", "move_file", "delete_entities"} <= switched_off(config)


def test_semcode_has_the_five_categories_of_its_own_and_its_16_tools() -> None:
    config = load(EXAMPLES / "semcode.json", {}, SURFACES)
    assert {name: included(config, [name]) for name in config.categories} == SEMCODE
    assert sum(map(len, SEMCODE.values())) == 16
    assert chosen(config, config.profiles["default"]) == "browse"


def test_serena_is_split_into_the_five_categories_and_every_tool_is_in_exactly_one() -> None:
    config = load(EXAMPLES / "serena.json", {})
    five = config.profiles["default"].categories
    assert five == ("fs", "code", "memory", "session", "meta")
    assert sorted(included(config, five)) == sorted(SERENA_2_1_DESKTOP_APP)
    assert "execute_shell_command" in switched_off(config)
    assert config.categories["code"].tools.exclude_patterns
    assert config.mcp_servers["serena"].shared_by is Share.WORKSPACE


def test_the_second_profile_of_serena_has_the_eight_categories_and_core_tools_of_the_draft() -> None:
    config = load(EXAMPLES / "serena.json", {}, SURFACES)
    profile = config.profiles["deferred"]
    eight, words = (
        profile.categories or (),
        "file_operations symbolic_read symbolic_edit memory config workflow",
    )
    assert " ".join(eight) == f"{words} shell jetbrains"
    assert sorted(included(config, eight)) == sorted(SERENA_2_1_DESKTOP_APP)
    assert set() < set(profile.core_tools or ()) <= set(SERENA_2_1_DESKTOP_APP)
    assert chosen(config, profile) == "search"
