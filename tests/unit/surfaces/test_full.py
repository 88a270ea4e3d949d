"""Lazy loading switched off: what the servers list, and calls that nobody opens."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.errors import ToolDisabled, UnknownTool, UpstreamUnavailable
from daemon.states import ServerState
from daemon.surfaces.full import FullSurface
from daemon.surfaces.surface import AwaitListing, Forward
from tests.unit.catalog.samples import after, catalog_of, listed, servers, status, tool
from tests.unit.surfaces.samples import act, listed_names, refused, view_of

SURFACE = FullSurface()
CONFIG: dict[str, Any] = {
    "mcpServers": servers("a", "b"),
    "categories": {"c": {"server": "a", "tools": {"overrides": {"off": {"enabled": False}}}}},
}
BEFORE = catalog_of(CONFIG)
ODD = tool("a", "odd name 🛠", description="d", title="t", _meta={"x": [1.0]})
UP = after(BEFORE, [status("a"), status("b"), listed("a", ODD, "x", "off"), listed("b", "x", "y")])


def test_every_tool_is_listed_byte_for_byte_as_its_server_lists_it() -> None:
    tools = SURFACE.list_tools(view_of(UP))
    assert tools[0] == ODD.raw
    assert listed_names(SURFACE, view_of(UP)) == ["odd name 🛠", "x", "b__x", "y"]


def test_the_list_is_the_same_object_whatever_states_servers_are_in() -> None:
    view = view_of(UP)
    down = after(UP, [status("a", ServerState.BACKOFF)])
    assert view.services.offers.of(down, view.profile).listing is SURFACE.list_tools(view)


def test_the_list_waits_for_every_server_that_may_list_and_wakes_those_that_sleep() -> None:
    mixed = after(BEFORE, [status("a", ServerState.DORMANT), status("b", ServerState.STARTING)])
    assert SURFACE.awaits(view_of(mixed)) == ("a", "b")
    assert SURFACE.awaits(view_of(after(mixed, [status("a", ServerState.FAILED)]))) == ("b",)
    assert SURFACE.awaits(view_of(UP)) == ()


@pytest.mark.parametrize("sent", [b"{}", b'{ "a": 1.0,\n"a": 2}', b'{"deep":' + b"[" * 400 + b"]" * 400 + b"}"])
def test_a_call_goes_on_unopened(sent: bytes) -> None:
    action = act(SURFACE, view_of(UP), "b__x", sent)
    assert isinstance(action, Forward)
    assert (action.server, action.name, action.arguments) == ("b", "x", sent)
    assert action.repair is None


def test_a_tool_that_is_switched_off_or_unknown_is_refused() -> None:
    refused(SURFACE, view_of(UP), "off", {}, ToolDisabled)
    error = refused(SURFACE, view_of(UP), "y" * 500, {}, UnknownTool)
    assert len(error.message) < 400


def test_a_quarantined_tool_is_refused_with_the_reason() -> None:
    catalog = after(BEFORE, [status("a"), listed("a", "x", quarantined={"bad": "has no inputSchema"})])
    for name in ("bad", "a/bad"):
        error = refused(SURFACE, view_of(catalog), name, {}, UnknownTool, patient=False)
        assert "cannot be used: has no inputSchema" in error.message


def test_a_name_that_a_server_may_yet_list_is_waited_for_and_then_unknown() -> None:
    assert act(SURFACE, view_of(BEFORE), "x") == AwaitListing(servers=("a", "b"))
    assert act(SURFACE, view_of(BEFORE), "b/x") == AwaitListing(servers=("b",), calling=True)
    error = refused(SURFACE, view_of(BEFORE), "x", {}, UnknownTool, patient=False)
    assert "a (stopped)" in error.message


def test_a_tool_of_a_server_that_is_down_and_never_listed_is_unavailable_and_not_unknown() -> None:
    down = after(BEFORE, [status("b", ServerState.BACKOFF, reason="exited")])
    error = refused(SURFACE, view_of(down), "b__x", {}, UpstreamUnavailable)
    assert error.details["server"] == "b"
    assert "exited" in error.message


def test_the_instructions_name_the_servers() -> None:
    assert "a, b" in SURFACE.instructions(view_of(UP))
    many = catalog_of({"mcpServers": servers(*(f"s{number}" for number in range(30)))})
    assert SURFACE.instructions(view_of(many)).endswith("s19 and 10 more.")
    assert "No MCP servers" in SURFACE.instructions(view_of(catalog_of({})))
