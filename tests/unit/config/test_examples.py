"""The shipped examples load, fit the schema and follow our own advice."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import jsonschema  # type: ignore[import-untyped]
import pytest

from daemon.checks.advice import oversights
from daemon.config.config_model import Share
from daemon.config.jsonc import decode
from daemon.config.names import read_reference
from daemon.config.parse import load
from daemon.config.schema import json_schema
from daemon.surfaces.table import SURFACES, chosen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daemon.config.config_model import Config

EXAMPLES = Path(__file__).parents[3] / "config"
FILES = sorted(path for path in EXAMPLES.glob("*.json") if path.name != "mcpd.schema.json")

SERENA_2_1_DESKTOP_APP = {
    "create_text_file",
    "replace_content",
    "replace_in_files",
    "replace_symbol_body",
    "insert_after_symbol",
    "insert_before_symbol",
    "read_file",
    "list_dir",
    "find_file",
    "search_for_pattern",
    "get_symbols_overview",
    "find_symbol",
    "find_referencing_symbols",
    "find_implementations",
    "find_declaration",
    "get_diagnostics_for_file",
    "rename_symbol",
    "safe_delete_symbol",
    "write_memory",
    "read_memory",
    "list_memories",
    "delete_memory",
    "rename_memory",
    "edit_memory",
    "execute_shell_command",
    "activate_project",
    "get_current_config",
    "onboarding",
    "initial_instructions",
}
"""What Serena 2.1.0 listed in its context `desktop-app`."""

DEMO = {
    "time": "get_current_time convert_time",
    "git": "git_status git_diff_unstaged git_diff_staged git_diff git_commit git_add git_reset git_log "
    "git_create_branch git_checkout git_show git_branch",
    "filesystem": "read_file read_text_file read_media_file read_multiple_files write_file edit_file "
    "create_directory list_directory list_directory_with_sizes directory_tree move_file search_files "
    "get_file_info list_allowed_directories",
    "memory": "create_entities create_relations add_observations delete_entities delete_observations "
    "delete_relations read_graph search_nodes open_nodes",
}
"""What the servers of the demo listed, in the versions that it pins."""


SEMCODE = {
    "code_lookup": ["find_function", "find_type", "find_callers", "find_calls", "find_callchain"],
    "code_search": ["grep_functions", "vgrep_functions", "diff_functions"],
    "git_history": ["find_commit", "vcommit_similar_commits", "list_branches", "compare_branches"],
    "lore_email": ["lore_search", "vlore_similar_emails", "dig"],
    "status": ["indexing_status"],
}
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
def test_an_example_loads_without_any_environment_and_fits_the_schema(path: Path) -> None:
    assert load(path, {}).mcp_servers
    value, _ = decode(path.read_text(encoding="utf-8"), source=path.name)
    jsonschema.Draft202012Validator(json_schema(list(SURFACES))).validate(value)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_an_example_installs_is_pinned(path: Path) -> None:
    for server in load(path, {}).mcp_servers.values():
        if server.command in {"npx", "uvx"}:
            assert any(re.search(r"(==|[^@]@)\d+\.\d+\.\d+$", argument) for argument in server.args), (
                server.name
            )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_server_and_category_of_an_example_is_described(path: Path) -> None:
    config = load(path, {})
    assert all(server.description for server in config.mcp_servers.values())
    assert all(category.description for category in config.categories.values())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_example_leaves_nothing_unsaid(path: Path) -> None:
    config = load(path, {})
    everything = {
        name: attrs.evolve(server, enabled=True)
        for name, server in config.mcp_servers.items()
        if server.command
    }
    told = oversights(attrs.evolve(config, mcp_servers={**config.mcp_servers, **everything}))
    assert not [fault.message for fault in told]


def test_the_demo_shows_who_may_share_a_server() -> None:
    config = load(EXAMPLES / "demo.json", {})
    shared = {name: server.shared_by for name, server in config.mcp_servers.items()}
    assert {name for name, share in shared.items() if share is Share.WORKSPACE} == {"filesystem"}
    assert {name for name, share in shared.items() if share is Share.SESSION} == {"browser"}


def test_the_demo_names_tools_that_exist_and_switches_off_what_destroys() -> None:
    config = load(EXAMPLES / "demo.json", {})
    for category in config.categories:
        for server, tool in named_tools(config, category):
            assert tool in DEMO[server].split(), f"{category}: {server}/{tool}"
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
    eight = profile.categories
    assert eight == (
        "file_operations",
        "symbolic_read",
        "symbolic_edit",
        "memory",
        "config",
        "workflow",
        "shell",
        "jetbrains",
    )
    assert sorted(included(config, eight)) == sorted(SERENA_2_1_DESKTOP_APP)
    assert profile.core_tools is not None
    assert set(profile.core_tools) <= set(SERENA_2_1_DESKTOP_APP)
    assert chosen(config, profile) == "search"
