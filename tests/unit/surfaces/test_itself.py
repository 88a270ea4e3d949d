"""Servers as themselves: their own names and descriptions, within what the profile allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest

from daemon.errors import ToolChanged, ToolDisabled, UnknownTool, UpstreamUnavailable
from daemon.facts import Switched
from daemon.states import ServerState
from daemon.surfaces.full import STATUS, ItselfSurface
from daemon.surfaces.surface import AwaitListing, Forward
from daemon.surfaces.table import ITSELF, META_TOOLS, SURFACES
from tests.unit.catalog.samples import after, catalog_of, listed, servers, status, tool
from tests.unit.surfaces.samples import act, listed_names, refused, view_of

if TYPE_CHECKING:
    from daemon.catalog.snapshot import Catalog
    from daemon.surfaces.surface import View

SURFACE = ItselfSurface()
ODD = tool("b", "odd name", description="its own words", title="t", _meta={"x": [1.0]})
CONFIG: dict[str, Any] = {
    "mcpServers": servers("a", "b"),
    "categories": {
        "c": {
            "server": "b",
            "tools": {"overrides": {"off": {"enabled": False}, "odd name": {"description": "the category's"}}},
        }
    },
    "profiles": {
        "default": {"excludedTools": ["b/hidden"], "toolDescriptionOverrides": {"x": "the profile's"}},
    },
}
BEFORE = catalog_of(CONFIG)
B = ("x", ODD, "off", "hidden", "a__x", "call-category-tool")
UP = after(BEFORE, [status("a"), status("b"), listed("a", "x"), listed("b", *B)])


def seen(catalog: Catalog, *names: str) -> View:
    """What a client sees that has chosen these servers."""
    view = view_of(catalog)
    return attrs.evolve(view, catalog=view.services.offers.choices.of(catalog, names))


def test_names_and_descriptions_are_the_server_s_own_and_restrictions_hold() -> None:
    tools = SURFACE.list_tools(seen(UP, "b"))
    assert listed_names(SURFACE, seen(UP, "b")) == ["x", "odd name", "a__x", "call-category-tool"]
    assert tools[1] == ODD.raw
    assert b"the profile" not in b"".join(tools)


@pytest.mark.parametrize("name", ["x", "odd name", "a__x", "call-category-tool", "b__x", "mcp__b__x"])
def test_a_call_goes_to_the_chosen_server(name: str) -> None:
    action = act(SURFACE, seen(UP, "b"), name, b"{}")
    assert isinstance(action, Forward)
    assert (action.server, action.name) == ("b", name.removeprefix("mcp__").removeprefix("b__"))


def test_other_servers_do_not_exist() -> None:
    error = refused(SURFACE, seen(UP, "b"), "y", {}, UnknownTool)
    assert "odd name" in error.message
    assert isinstance(act(SURFACE, seen(UP, "a"), "x", b"{}"), Forward)
    refused(SURFACE, seen(UP, "a"), "odd name", {}, UnknownTool)


def test_what_is_switched_off_is_refused_with_the_reason() -> None:
    refused(SURFACE, seen(UP, "b"), "off", {}, ToolDisabled)
    refused(SURFACE, seen(UP, "b"), "hidden", {}, ToolDisabled)
    off = after(UP, [Switched(off=frozenset({("b", "")}))])
    assert SURFACE.list_tools(seen(off, "b")) == ()
    assert "mcpd enable b" in refused(SURFACE, seen(off, "b"), "x", {}, ToolDisabled).message


def test_a_tool_that_has_changed_is_refused_once() -> None:
    view = attrs.evolve(seen(UP, "b"), shown=lambda _key: "another hash")
    refused(SURFACE, view, "x", {}, ToolChanged)


def test_a_server_that_has_not_listed_is_waited_for() -> None:
    starting = after(BEFORE, [status("a")])
    assert SURFACE.awaits(seen(starting, "b")) == ("b",)
    assert act(SURFACE, seen(starting, "b"), "x", b"{}") == AwaitListing(servers=("b",), calling=True)


def test_any_name_may_be_one_of_a_chosen_server_that_sleeps_and_never_listed() -> None:
    asleep = after(BEFORE, [status("a", ServerState.DORMANT), status("b", ServerState.DORMANT)])
    both = AwaitListing(servers=("a", "b"), calling=True)
    assert act(SURFACE, seen(asleep, "a", "b"), "x", b"{}") == both
    with pytest.raises(UpstreamUnavailable, match="server b has not listed its tools yet"):
        SURFACE.call(seen(asleep, "b"), "x", b"{}", patient=False)


def test_its_only_own_tool_says_which_servers_are_down_and_nobody_names_it() -> None:
    assert ITSELF.meta_tools == (STATUS,)
    assert ITSELF.name not in SURFACES
    assert not META_TOOLS & {ITSELF.name}
