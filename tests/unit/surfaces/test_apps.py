"""MCP Apps (SEP-1865): tools that no model sees, apps that are read from their server, and what they call."""

from functools import partial
from typing import Any

import attrs
import msgspec
import pytest

from daemon.catalog.offer import MAX_APPS, Choices
from daemon.errors import CallError, ToolChanged, ToolDisabled, ToolNotLoaded, UnknownTool
from daemon.surfaces.calling import call_by_app
from daemon.surfaces.full import FullSurface, ItselfSurface
from daemon.surfaces.load import LoadSurface
from daemon.surfaces.search import SearchSurface
from daemon.surfaces.summing import server_lines
from daemon.surfaces.surface import Forward, Reply, Surface, View
from tests.unit.catalog.samples import tool, up
from tests.unit.surfaces.samples import READING, act, listed_names, view_of

PAGE = "ui://app/page.html"
SHOWS = {"ui": {"resourceUri": PAGE}, "ui/resourceUri": PAGE, "x": [1.0]}
FOR_APPS = {"ui": {"visibility": ["app"]}}
FOR_MODELS = {"ui": {"visibility": ["model"]}}
SECRET = "xylophone"
"""Of a tool for apps alone: it stands in its name, its description and its arguments."""


def app(server: str) -> list[Any]:
    """The tools of a server with an app; two of them are for the app or for models alone."""
    hidden = {"description": f"The {SECRET} step.", "inputSchema": {"properties": {SECRET: {"type": "string"}}}}
    return [
        tool(server, "show", _meta=SHOWS),
        tool(server, "refresh"),
        tool(server, f"{SECRET}_step", _meta=FOR_APPS, **hidden),
        tool(server, "think", _meta=FOR_MODELS),
    ]


UP = up(a=app("a"), b=app("b"), c=["refresh", "alone"])
ONE = up(a=app("a"), b=[], c=[])
CALLS: dict[str, list[dict[str, object]]] = {
    "get-category-tools": [{"category": "a"}],
    "call-category-tool": [{"category": "a", "name": f"{SECRET}_step", "args": {}}],
    "list_categories": [{}],
    "get_tools": [{"category": "a"}],
    "call_tool": [{"tool_name": "step", "arguments": {}}],
    "search_tools": [{"query": SECRET}, {"category": "a"}, {"query": "xylophon"}],
    "load_mcp_server": [{"name": "a"}],
    "load_mcp_tool": [{"names": ["step"]}, {"names": [f"{SECRET}_step"]}],
    "mcpd_status": [{}],
}
"""Calls of the meta-tools that show tools, by name."""


def showing(catalog: Any = UP, **linked: str) -> View:
    """The view of a client that shows apps, which has opened those of these servers in this order."""
    opened = {f"ui://mcpd+{server}/{n}": server for n, server in linked.items()}
    return attrs.evolve(view_of(catalog), apps=True, linked=opened)


def called(surface: Surface, view: View, name: str) -> Forward:
    """Where a call of a client that shows apps goes."""
    found = call_by_app(view, name, b"{}", partial(surface.call, view, name, b"{}", patient=False))
    assert isinstance(found, Forward)
    return found


@pytest.mark.parametrize("surface", READING.values(), ids=READING)
@pytest.mark.parametrize("apps", [False, True])
def test_no_model_is_shown_a_tool_that_is_for_apps_alone(surface: Surface, apps: bool) -> None:
    view = attrs.evolve(view_of(UP), apps=apps)
    said = surface.instructions(view) + server_lines(view)
    if surface.name != "full" or not apps:
        # The hosts of clients that show apps hide these tools themselves.
        said += str(surface.list_tools(view))
    for name in surface.meta_tools:
        for arguments in CALLS.get(name, ()):
            try:
                action = surface.call(view, name, msgspec.json.encode(arguments), patient=False)
            except CallError as error:
                said += str(error.details)
            else:
                said += bytes(action.result).decode() if isinstance(action, Reply) else ""
    # What was asked for may be repeated.
    assert f"{SECRET}_step" not in said.replace(f"'{SECRET}_step'", "")
    assert f"{SECRET.capitalize()}" not in said
    assert f"The {SECRET}" not in said


def test_a_plain_list_has_it_for_clients_that_show_apps_in_its_servers_order() -> None:
    step = f"{SECRET}_step"
    assert listed_names(ItselfSurface(), showing(ONE)) == ["show", "refresh", step, "think"]
    assert listed_names(FullSurface(), view_of(ONE)) == ["show", "refresh", "think"]
    view = showing(ONE)
    assert len(FullSurface().listed(view)) == len(FullSurface().list_tools(view))
    assert called(FullSurface(), showing(ONE), step).name == step
    with pytest.raises(ToolDisabled, match="only the app of its server may call it"):
        FullSurface().call(view_of(ONE), step, b"{}", patient=False)


@pytest.mark.parametrize("surface", [FullSurface(), SearchSurface(), LoadSurface()], ids=lambda each: each.name)
def test_a_listed_tool_names_the_app_of_its_server(surface: Surface) -> None:
    view = view_of(UP, usual=[("b", "show")])
    raws = [msgspec.json.decode(raw) for raw in surface.list_tools(view)]
    shown = [each["_meta"] for each in raws if each["name"] == "b__show"]
    assert all(each["ui"] == {"resourceUri": "ui://mcpd+b/app/page.html"} for each in shown)
    assert all(each["ui/resourceUri"] == "ui://mcpd+b/app/page.html" and each["x"] == [1.0] for each in shown)
    assert shown or surface.name == "load"


@pytest.mark.parametrize("surface", [READING["category"], READING["browse"]], ids=lambda each: each.name)
def test_tools_with_an_app_are_listed_beside_meta_tools_as_hosts_show_only_these_in_one(
    surface: Surface,
) -> None:
    view = showing()
    assert listed_names(surface, view)[-2:] == ["a__show", "b__show"]
    assert listed_names(surface, view_of(UP)) == listed_names(surface, view)[:-2], (
        "for other clients nothing is"
    )
    shown = msgspec.json.decode(surface.list_tools(view)[-1])
    assert shown["_meta"]["ui"] == {"resourceUri": "ui://mcpd+b/app/page.html"}
    assert called(surface, view, "b__show").page == PAGE
    with pytest.raises(UnknownTool):
        surface.call(view_of(UP), "b__show", b"{}", patient=False)
    changed = attrs.evolve(view, shown=lambda _key: "another")
    with pytest.raises(ToolChanged):
        called(surface, changed, "b__show")


def test_each_call_of_a_tool_with_an_app_is_decided_by_itself_as_it_opens_the_app() -> None:
    decided = [
        act(READING["category"], showing(), "call-category-tool", {"category": "a", "name": name, "args": {}})
        for name in ("show", "refresh")
    ]
    sent = [(each.page, each.wrapper is None) for each in decided if isinstance(each, Forward)]
    assert sent == [(PAGE, True), ("", False)]


def test_so_many_apps_that_their_schemas_would_fill_a_conversation_are_not_all_listed() -> None:
    many = [tool("a", f"show{number}", _meta=SHOWS) for number in range(MAX_APPS + 5)]
    view = showing(up(a=many))
    names = listed_names(READING["category"], view)
    assert len([name for name in names if name.startswith("show")]) == MAX_APPS


def test_a_server_by_itself_is_listed_byte_for_byte() -> None:
    alone = attrs.evolve(view_of(UP), catalog=Choices().of(UP, ("b",)), apps=True)
    assert ItselfSurface().list_tools(alone) == tuple(each.raw for each in app("b"))


def test_a_name_that_several_servers_have_is_left_to_apps_and_goes_to_the_one_opened_last() -> None:
    view = showing()
    names = listed_names(FullSurface(), view)
    assert [name for name in names if "refresh" in name] == ["a__refresh", "b__refresh", "c__refresh"]
    assert called(FullSurface(), view, "b__refresh").server == "b"
    with pytest.raises(UnknownTool, match=r"several servers have a tool 'refresh'.*: a__refresh, b__ref"):
        called(FullSurface(), view, "refresh")
    assert called(FullSurface(), showing(x="b"), "refresh").server == "b"
    last = called(FullSurface(), showing(x="b", y="a", z="c"), "refresh")
    assert last.server == "a", "c has no app"
    assert not last.verbatim, "it is decided anew when another app is opened"
    assert called(FullSurface(), showing(x="b"), f"{SECRET}_step").server == "b"
    # For everybody else names are as they were.
    assert [name for name in listed_names(FullSurface(), view_of(UP)) if "refresh" in name] == [
        "refresh",
        "b__refresh",
        "c__refresh",
    ]
    plain = FullSurface().call(
        attrs.evolve(view_of(UP), linked={"ui://mcpd+b/x": "b"}), "refresh", b"{}", patient=False
    )
    assert isinstance(plain, Forward)
    assert plain.server == "a"


@pytest.mark.parametrize("surface", READING.values(), ids=READING)
def test_an_app_calls_its_server_on_every_surface_once_it_is_open(surface: Surface) -> None:
    assert called(surface, showing(ONE, x="a"), "refresh").server == "a"
    assert called(surface, showing(ONE), f"{SECRET}_step").server == "a"
    if surface.name in {"category", "browse"}:
        with pytest.raises((UnknownTool, ToolNotLoaded)):
            called(surface, showing(ONE), "refresh")
    with pytest.raises(CallError):
        called(surface, showing(ONE, x="a"), "nothing")
    if surface.name in {"category", "browse"}:
        with pytest.raises(UnknownTool):
            called(surface, showing(ONE, x="a"), "think")


def test_a_call_that_opens_an_app_says_so_each_time() -> None:
    forward = FullSurface().call(view_of(ONE), "show", b"{}", patient=False)
    assert isinstance(forward, Forward)
    assert (forward.page, forward.verbatim) == (PAGE, False)


@pytest.mark.parametrize(
    "meta", [7, {"ui": 7}, {"ui": {"resourceUri": 7, "visibility": "app"}}, {"ui": {"resourceUri": "http://x"}}]
)
def test_a_meta_that_is_none_of_an_app_changes_nothing(meta: object) -> None:
    odd = tool("a", "odd", _meta=meta)
    assert FullSurface().list_tools(view_of(up(a=[odd])))[0] == odd.raw
