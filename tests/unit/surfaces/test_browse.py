"""Seed 003, whose list of tests has a counterpart here or in tests/e2e/test_seed_003.py."""

from typing import Any

import msgspec
import pytest

from daemon.errors import InvalidArguments
from daemon.kit.wording import BYTES_PER_TOKEN
from daemon.states import ServerState
from daemon.surfaces.browse import MAX_NAMES, BrowseSurface
from daemon.surfaces.surface import AwaitListing
from daemon.surfaces.table import SURFACES
from tests.unit.cases import cases
from tests.unit.catalog.samples import after, catalog_of, listed, servers, status, tool, up
from tests.unit.surfaces.samples import act, answer, forwarded, listed_names, refused, text_of, view_of

SURFACE = BrowseSurface()
CONFIG: dict[str, Any] = {
    "mcpServers": servers("git", "fs"),
    "categories": {
        "history": {"description": "What\nchanged.", "server": "git"},
        "files": {
            "description": "Files.",
            "server": "fs",
            "tools": {"includeNames": ["read", "wipe", "ghost"], "overrides": {"wipe": {"enabled": False}}},
        },
    },
}
BEFORE = catalog_of(CONFIG)
UP = after(
    BEFORE,
    [
        status("git"),
        status("fs"),
        listed("git", tool("git", "log", description="Shows."), "read"),
        listed("fs", "read", "wipe", "call_tool"),
    ],
)
VIEW = view_of(UP)


def test_three_meta_tools_and_one_for_reads_are_listed_with_valid_schemas() -> None:
    assert listed_names(SURFACE, VIEW) == ["list_categories", "get_tools", "call_tool", "call_read_only_tool"]
    for raw in SURFACE.list_tools(VIEW):
        assert msgspec.json.decode(raw)["inputSchema"]["type"] == "object"


def test_only_a_few_words_of_the_list_depend_on_what_there_is() -> None:
    (listing, *others), (bare, *same) = SURFACE.list_tools(VIEW), SURFACE.list_tools(view_of(catalog_of({})))
    assert others == same
    assert listing == bare.replace(
        b"tool categories.", b"tool categories: history (What changed.), files (Files.)."
    )
    assert SURFACE.awaits(VIEW) == ()


@pytest.mark.parametrize(("read_only_call", "tokens"), [(True, 300), (False, 240)])
def test_its_list_stays_the_smallest(read_only_call: bool, tokens: int) -> None:
    profile = {"readOnlyCall": read_only_call}
    view = view_of(catalog_of({"profiles": {"default": profile}}))
    size = sum(len(each) + len(",") for each in SURFACES["browse"].list_tools(view))
    assert size <= BYTES_PER_TOKEN * tokens


def test_the_list_of_categories_is_also_told_in_prose() -> None:
    text = text_of(act(SURFACE, VIEW, "list_categories"))
    assert text.splitlines() == [
        "Available categories:",
        "- **history**: What changed.",
        "  Tools: log, read",
        "- **files**: Files.",
        "  Tools: fs__read",
    ]


def test_without_servers_there_are_no_categories_and_that_is_said() -> None:
    assert "no categories" in text_of(act(SURFACE, view_of(catalog_of({})), "list_categories"))


def test_the_list_of_categories_waits_for_servers_that_are_starting_and_wakes_none() -> None:
    assert act(SURFACE, view_of(BEFORE), "list_categories") == AwaitListing(servers=("git", "fs"))
    asleep = after(BEFORE, [status("git", ServerState.DORMANT), status("fs", ServerState.BACKOFF)])
    found = answer(SURFACE, view_of(asleep), "list_categories")
    assert [category["name"] for category in found["categories"]] == ["history", "files"]
    assert list(found["meta"]["unavailableServers"]) == ["git", "fs"]
    said = text_of(act(SURFACE, view_of(asleep), "list_categories"))
    assert said.endswith("\nNot available:\n- git (dormant): dormant.\n- fs (backoff): backoff.")


def test_of_very_many_tools_each_category_names_its_first_ones_and_counts_the_rest() -> None:
    names = [f"t{number}" for number in range(MAX_NAMES)]
    many = up(a=names, b=["x"])
    first, second = answer(SURFACE, view_of(many), "list_categories")["categories"]
    assert first["tools"] == names[: MAX_NAMES // 2]
    assert first["toolsLeft"] == MAX_NAMES // 2
    assert second == {"name": "b", "description": "the b server", "tools": ["x"]}
    assert f"and {MAX_NAMES // 2} more" in text_of(act(SURFACE, view_of(many), "list_categories"))


def test_the_schemas_of_a_category_come_under_the_names_to_call_them_by() -> None:
    found = answer(SURFACE, VIEW, "get_tools", {"category": "files"})
    assert list(found["tools"]) == ["fs__read"]
    assert found["meta"] == {
        "category": "files",
        "sourceServer": "fs",
        "epoch": 1,
        "unavailableTools": ["ghost"],
    }
    shown = answer(SURFACE, VIEW, "get_tools", {"category": "history"})["tools"]["log"]
    assert shown["description"] == "Shows."
    assert shown["inputSchema"] == {"type": "object"}


@cases("name", "server", "bare")
def test_a_tool_is_called_by_name(name: str, server: str, bare: str) -> None:
    sent = b'{"tool_name":%b,"arguments":{ "x" : 1 }}' % msgspec.json.encode(name)
    action = forwarded(SURFACE, VIEW, "call_tool", sent)
    assert (action.server, action.name, bytes(action.arguments)) == (server, bare, b'{ "x" : 1 }')
    assert action.label == f"{server}/{bare}"


@pytest.mark.parametrize("name", ["list_categories", "get_tools", "call_tool", "mcp__mcpd__call_tool"])
def test_a_meta_tool_is_not_called_through_call_tool(name: str) -> None:
    error = refused(SURFACE, VIEW, "call_tool", {"tool_name": name, "arguments": {}}, InvalidArguments)
    assert "call it directly" in error.message
    assert error.details["tool"] == name.removeprefix("mcp__mcpd__")
