"""Which tools a category holds, by the configuration's selection and the servers' lists."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from daemon.catalog.categories import ToolCategory, of_server, resolve
from daemon.model import Tool, ToolKey
from tests.unit.cases import cases
from tests.unit.catalog.samples import known, servers
from tests.unit.config.reading import config_of

GIT = known("git", "git_add", "git_commit", "git_diff", "git_log", "git_show")
FS = known("fs", "read_file", "write_file")
LISTED: dict[str, Mapping[str, Tool] | None] = {"git": GIT, "fs": FS}


def category(
    tools: dict[str, Any] | None = None,
    *,
    server: str | None = "git",
    listed: Mapping[str, Mapping[str, Tool] | None] = LISTED,
    given: Mapping[ToolKey, str] = MappingProxyType({}),
) -> ToolCategory:
    """The category `c` as configured by `tools`, once the servers have listed `listed`."""
    entry: dict[str, Any] = {"description": "d", "skill": "how"}
    if server is not None:
        entry["server"] = server
    if tools is not None:
        entry["tools"] = tools
    config = config_of({"mcpServers": servers(*listed), "categories": {"c": entry}})
    return resolve(config.categories["c"], listed, given)


@pytest.mark.parametrize(
    ("owner", "names"), [("git", {"same": "git", "fs/same": "fs"}), ("fs", {"git/same": "git", "same": "fs"})]
)
def test_of_two_tools_with_one_name_the_same_one_has_it_as_everywhere(
    owner: str, names: dict[str, str]
) -> None:
    listed = {"git": known("git", "same"), "fs": known("fs", "same")}
    given = {(owner, "same"): "same"}
    held = category({"includePatterns": ["*"]}, server=None, listed=listed, given=given)
    assert {name: member.server for name, member in held.members.items()} == names


@cases("tools", "held")
def test_names_come_first_then_patterns_then_exclusions(tools: dict[str, Any] | None, held: list[str]) -> None:
    assert list(category(tools).members) == held


def test_a_name_that_no_server_lists_is_unresolved() -> None:
    found = category({"includeNames": ["git_log", "git_lag"], "overrides": {"git_ad": {"enabled": False}}})
    assert found.unresolved == ("git/git_lag", "git/git_ad")
    assert not found.members["git_lag"].listed


@cases("tools", "is_open")
def test_only_named_tools_close_a_category(tools: dict[str, Any] | None, *, is_open: bool) -> None:
    assert category(tools).open is is_open


def test_where_two_servers_share_a_name_the_second_keeps_its_prefix() -> None:
    listed = {"a": known("a", "search", "open"), "b": known("b", "search", "shut")}
    found = category({"includePatterns": ["*"]}, server=None, listed=listed)
    assert {name: (member.server, member.tool) for name, member in found.members.items()} == {
        "search": ("a", "search"),
        "open": ("a", "open"),
        "b/search": ("b", "search"),
        "shut": ("b", "shut"),
    }


def test_a_category_of_one_server_that_borrows_a_tool_draws_from_both() -> None:
    found = category({"includeNames": ["git_log", "fs/read_file"]})
    assert found.members["read_file"].server == "fs"
    assert found.servers == ("git", "fs")


def test_without_categories_a_server_is_a_category_of_all_its_tools() -> None:
    found = of_server("git", "about git", GIT)
    assert list(found.members) == list(GIT)
    assert all(member.enabled and member.listed for member in found.members.values())
    assert (found.description, found.servers, found.open) == ("about git", ("git",), True)


def test_what_is_switched_off_stays_a_member_that_says_so_although_nothing_selects_it() -> None:
    listed = {"git": known("git", "git_log", "git_reset", "git_show")}
    tools = {"includePatterns": ["git_l*"], "overrides": {"git_reset": {"enabled": False}, "git_show": {}}}
    found = category(tools, listed=listed)
    assert {name: member.enabled for name, member in found.members.items()} == {
        "git_log": True,
        "git_reset": False,
    }
    assert found.unresolved == ()
