"""How a call finds its tool on all surfaces."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from daemon.errors import InvalidArguments, ToolDisabled, UnknownTool, UpstreamUnavailable
from daemon.states import ServerState
from daemon.surfaces.calling import find, public_name, refuse_meta_tool
from daemon.surfaces.surface import AwaitListing
from tests.unit.catalog.samples import after, catalog_of, listed, servers, status
from tests.unit.surfaces.samples import view_of

CATALOG = after(
    catalog_of({"mcpServers": servers("a", "b"), "profiles": {"p": {"excludedTools": ["x"]}}}),
    [status("a"), listed("a", "x", "call_tool")],
)


@pytest.mark.parametrize("name", ["call_tool", "mcp__mcpd__call_tool", "mcp__x__y__call_tool"])
def test_a_wrapper_does_not_take_its_own_kind(name: str) -> None:
    with pytest.raises(InvalidArguments, match="call it directly"):
        refuse_meta_tool(view_of(CATALOG), name, ("call_tool",))


@pytest.mark.parametrize("name", ["a__call_tool", "a/call_tool", "mcp__a__call_tool", "call_tool_", ""])
def test_a_tool_of_a_server_that_is_called_like_a_meta_tool_is_not_one(name: str) -> None:
    refuse_meta_tool(view_of(CATALOG), name, ("call_tool",))


def test_a_name_that_a_meta_tool_has_is_qualified_beside_it() -> None:
    view = view_of(CATALOG)
    assert public_name(view, ("a", "call_tool"), ("call_tool",)) == "a__call_tool"
    assert public_name(view, ("a", "call_tool"), ("search_tools",)) == "call_tool"
    found = find(view, "a__call_tool", patient=False)
    assert not isinstance(found, AwaitListing)
    assert found.key == ("a", "call_tool")


def test_what_a_profile_leaves_out_is_disabled_and_what_nobody_has_is_unknown() -> None:
    view = view_of(CATALOG, "p")
    with pytest.raises(ToolDisabled) as disabled:
        find(view, "x", patient=True)
    assert disabled.value.details == {"tool": "x", "server": "a"}
    with pytest.raises(UnknownTool):
        find(view, "a/y", patient=True)


def test_a_name_that_is_left_out_is_not_disabled_where_no_server_has_it() -> None:
    with pytest.raises(UnknownTool):
        find(view_of(after(CATALOG, [listed("a", "y")]), "p"), "a/x", patient=False)


def test_a_named_server_is_waited_for_and_then_said_to_be_silent() -> None:
    view = view_of(CATALOG)
    assert find(view, "b/x", patient=True) == AwaitListing(servers=("b",), calling=True)
    with pytest.raises(UpstreamUnavailable) as caught:
        find(
            view_of(after(CATALOG, [status("b", ServerState.FAILED, reason="no such file")])),
            "b/x",
            patient=True,
        )
    assert caught.value.details["server"] == "b"
    assert caught.value.details["state"] == "failed"
    assert "no such file" in caught.value.message


def test_an_unknown_name_is_answered_with_close_ones_and_the_servers_that_are_silent() -> None:
    with pytest.raises(UnknownTool) as caught:
        find(view_of(CATALOG), "call_tol", patient=False)
    assert caught.value.details["closest"] == ["call_tool"]
    assert "Not known yet are the tools of: b (stopped)." in caught.value.message
    assert msgspec.json.encode(caught.value.details)


# --- a profile that shows less ------------------------------------------------------------------------------

RESTRICTED: dict[str, Any] = {
    "mcpServers": {**servers("a", "other", "asleep"), "off": {"command": "x", "enabled": False}},
    "categories": {"ca": {"server": "a"}},
    "profiles": {"only": {"categories": ["ca"], "includedOptionalTools": ["other/extra"]}},
}


def test_a_profile_sees_the_servers_that_it_shows_something_of() -> None:
    catalog = catalog_of(RESTRICTED)
    assert list(view_of(catalog, "only").servers) == ["a", "other"]
    assert list(view_of(catalog).servers) == ["a", "other", "asleep"]


def test_a_name_that_nobody_has_wakes_nobody_and_tells_of_nobody_outside_the_profile() -> None:
    catalog = after(
        catalog_of(RESTRICTED),
        [status("a"), listed("a", "x"), listed("other", "extra"), status("asleep", ServerState.DORMANT)],
    )
    for profile in ("only", "default"):
        with pytest.raises(UnknownTool) as caught:
            find(view_of(catalog, profile), "frobnicate", patient=True)
        assert ("asleep" in caught.value.message) is (profile == "default")
        assert "off" not in caught.value.message


def test_a_name_with_its_servers_wakes_that_server() -> None:
    catalog = after(catalog_of(RESTRICTED), [status("asleep", ServerState.DORMANT)])
    assert find(view_of(catalog), "asleep__x", patient=True) == AwaitListing(servers=("asleep",), calling=True)
