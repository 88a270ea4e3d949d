"""Lazy loading switched off: what the servers list, and calls that nobody opens."""

import json
from typing import Any

import attrs
import msgspec
import pytest

from daemon.catalog.snapshot import Catalog
from daemon.causes import Cause, Remedy
from daemon.errors import ToolChanged, ToolDisabled, UnknownTool, UpstreamUnavailable
from daemon.facts import Switched
from daemon.states import ServerState
from daemon.surfaces.full import LINES_CHARACTERS, STATUS, FullSurface, ItselfSurface
from daemon.surfaces.surface import AwaitListing, Forward, View
from tests.unit.catalog.samples import after, catalog_of, listed, servers, status, tool
from tests.unit.surfaces.samples import act, forwarded, listed_names, refused, replied, view_of

SURFACE = FullSurface()
OFF = {"off": {"enabled": False}, "ghost": {"enabled": False}}
CONFIG: dict[str, Any] = {
    "mcpServers": servers("a", "b"),
    "categories": {"c": {"server": "a", "tools": {"overrides": OFF}}},
}
BEFORE = catalog_of(CONFIG)
ODD = tool("a", "odd name 🛠", description="d", title="t", _meta={"x": [1.0]})
UP = after(BEFORE, [status("a"), status("b"), listed("a", ODD, "x", "off"), listed("b", "x", "y")])


def test_every_tool_is_listed_byte_for_byte_as_its_server_lists_it() -> None:
    tools = SURFACE.list_tools(view_of(UP))
    assert tools[0] == ODD.raw
    assert listed_names(SURFACE, view_of(UP)) == ["odd name 🛠", "x", "b__x", "y"]


def test_the_list_waits_for_every_server_that_may_list_and_wakes_those_that_sleep() -> None:
    mixed = after(BEFORE, [status("a", ServerState.DORMANT), status("b", ServerState.STARTING)])
    assert SURFACE.awaits(view_of(mixed)) == ("a", "b")
    assert SURFACE.awaits(view_of(after(mixed, [status("a", ServerState.FAILED)]))) == ("b",)
    assert SURFACE.awaits(view_of(UP)) == ()


@pytest.mark.parametrize("sent", [b"{}", b'{ "a": 1.0,\n"a": 2}', b'{"deep":' + b"[" * 400 + b"]" * 400 + b"}"])
def test_a_call_goes_on_unopened(sent: bytes) -> None:
    action = forwarded(SURFACE, view_of(UP), "b__x", sent)
    assert (action.server, action.name, action.arguments) == ("b", "x", sent)
    assert action.repair is None


def test_a_tool_that_is_switched_off_or_unknown_is_refused() -> None:
    refused(SURFACE, view_of(UP), "off", {}, ToolDisabled)
    refused(SURFACE, view_of(UP), "a/ghost", {}, UnknownTool)
    error = refused(SURFACE, view_of(UP), "y" * 500, {}, UnknownTool)
    assert len(error.message) < 400


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


# --- servers as themselves: their own names and descriptions, within what the profile allows -----------------


ITSELF_SURFACE = ItselfSurface()
ITSELF_ODD = tool("b", "odd name", description="its own words", title="t", _meta={"x": [1.0]})
ITSELF_CONFIG: dict[str, Any] = {
    "mcpServers": servers("a", "b"),
    "categories": {
        "c": {
            "server": "b",
            "tools": {"overrides": {"off": {"enabled": False}, "odd name": {"description": "the category's"}}},
        }
    },
    "profiles": {
        "default": {"excludedTools": ["b/hidden"], "toolDescriptionOverrides": {"x": "the profile's"}}
    },
}
ITSELF_BEFORE = catalog_of(ITSELF_CONFIG)
B = ("x", ITSELF_ODD, "off", "hidden", "a__x", "call-category-tool")
ITSELF_UP = after(ITSELF_BEFORE, [status("a"), status("b"), listed("a", "x"), listed("b", *B)])


def seen(catalog: Catalog, *names: str) -> View:
    """What a client sees that has chosen these servers."""
    view = view_of(catalog)
    return attrs.evolve(view, catalog=view.services.offers.choices.of(catalog, names))


def test_names_and_descriptions_are_the_server_s_own_and_restrictions_hold() -> None:
    tools = ITSELF_SURFACE.list_tools(seen(ITSELF_UP, "b"))
    assert listed_names(ITSELF_SURFACE, seen(ITSELF_UP, "b")) == ["x", "odd name", "a__x", "call-category-tool"]
    assert tools[1] == ITSELF_ODD.raw
    assert b"the profile" not in b"".join(tools)


@pytest.mark.parametrize("name", ["x", "odd name", "a__x", "call-category-tool", "b__x", "mcp__b__x"])
def test_a_call_goes_to_the_chosen_server(name: str) -> None:
    action = forwarded(ITSELF_SURFACE, seen(ITSELF_UP, "b"), name, b"{}")
    assert (action.server, action.name) == ("b", name.removeprefix("mcp__").removeprefix("b__"))


def test_other_servers_do_not_exist() -> None:
    error = refused(ITSELF_SURFACE, seen(ITSELF_UP, "b"), "y", {}, UnknownTool)
    assert "odd name" in error.message
    assert isinstance(act(ITSELF_SURFACE, seen(ITSELF_UP, "a"), "x", b"{}"), Forward)
    refused(ITSELF_SURFACE, seen(ITSELF_UP, "a"), "odd name", {}, UnknownTool)


def test_what_is_switched_off_is_refused_with_the_reason() -> None:
    refused(ITSELF_SURFACE, seen(ITSELF_UP, "b"), "off", {}, ToolDisabled)
    refused(ITSELF_SURFACE, seen(ITSELF_UP, "b"), "hidden", {}, ToolDisabled)
    off = after(ITSELF_UP, [Switched(off=frozenset({("b", "")}))])
    assert ITSELF_SURFACE.list_tools(seen(off, "b")) == ()
    assert "mcpd enable b" in refused(ITSELF_SURFACE, seen(off, "b"), "x", {}, ToolDisabled).message


def test_the_command_for_a_tool_that_is_switched_off_is_one_word_of_a_shell() -> None:
    name = "x;$(id)"
    off = after(
        ITSELF_BEFORE, [status("b"), listed("b", tool("b", name)), Switched(off=frozenset({("b", name)}))]
    )
    assert f"mcpd enable 'b/{name}'" in refused(ITSELF_SURFACE, seen(off, "b"), name, {}, ToolDisabled).message


def test_a_tool_that_has_changed_is_refused_once() -> None:
    view = attrs.evolve(seen(ITSELF_UP, "b"), shown=lambda _key: "another hash")
    refused(ITSELF_SURFACE, view, "x", {}, ToolChanged)


def test_a_server_that_has_not_listed_is_waited_for() -> None:
    starting = after(ITSELF_BEFORE, [status("a")])
    assert ITSELF_SURFACE.awaits(seen(starting, "b")) == ("b",)
    assert act(ITSELF_SURFACE, seen(starting, "b"), "x", b"{}") == AwaitListing(servers=("b",), calling=True)


# --- servers that are down, as models are told of them that are given servers' own tools ---------------------


WANTS = Remedy("It wants DATABASE_URL.", "Set it in `env`.", by_words=True)
LOGIN = Remedy("h:443 wants an OAuth login.", "`mcpd login notion`.")
DOWN_BEFORE = catalog_of({"mcpServers": servers("git", "notion", "broken")})
DOWN_UP = after(DOWN_BEFORE, [status("git"), listed("git", "log")])
CRASHES: dict[str, Any] = {"cause": Cause.EXITED, "reason": "exited with status 1", "remedy": WANTS}
DOWN = after(
    DOWN_UP,
    [
        status("notion", ServerState.NEEDS_AUTH, attempt=1, cause=Cause.LOGIN_NEEDED, remedy=LOGIN),
        status("broken", ServerState.CRASHLOOP, attempt=5, **CRASHES),
    ],
)
LINES = (
    "Down now: notion, broken.\n"
    "- notion: h:443 wants an OAuth login. Tell the user to run `mcpd login notion`, then try again.\n"
    "- broken: It wants DATABASE_URL. What helps (tell the user): Set it in `env`."
)


def test_the_instructions_and_a_tool_name_each_server_that_is_down_with_cause_and_remedy() -> None:
    view = view_of(DOWN)
    assert SURFACE.instructions(view) == f"The tools of these MCP servers: git, notion, broken.\n{LINES}"
    first, *others = SURFACE.list_tools(view)
    tool = json.loads(first)
    assert tool["name"] == STATUS
    assert tool["description"].endswith(LINES)
    assert tool["annotations"] == {"readOnlyHint": True, "openWorldHint": False}
    assert others == list(view.offer.listing)
    assert len(SURFACE.listed(view)) == len(others)


def test_the_tool_answers_with_what_is_known_and_says_so_when_all_is_well_again() -> None:
    reply = replied(SURFACE, view_of(DOWN), STATUS, {})
    answer = json.loads(reply.result)
    assert "- broken (crashloop): It wants DATABASE_URL." in answer["content"][0]["text"]
    told = answer["structuredContent"]["unavailableServers"]
    assert list(told) == ["notion", "broken"]
    assert (told["broken"]["happened"], told["broken"]["helps"]) == (WANTS.happened, WANTS.helps)

    well = after(DOWN, [status("notion"), status("broken")])
    assert listed_names(SURFACE, view_of(well)) == ["log"]
    reply = replied(SURFACE, view_of(well), STATUS, {})
    assert "Every MCP server is up" in json.loads(reply.result)["content"][0]["text"]


@pytest.mark.parametrize("state", [ServerState.STARTING, ServerState.QUEUED, ServerState.BACKOFF])
def test_a_server_that_is_tried_again_stays_in_the_list_unchanged(state: ServerState) -> None:
    again = after(DOWN, [status("broken", state, attempt=5, incarnation=6, **CRASHES)])
    assert SURFACE.list_tools(view_of(again)) == SURFACE.list_tools(view_of(DOWN))


@pytest.mark.parametrize(
    ("cause", "remedy", "is_told"),
    [
        (Cause.EXITED, msgspec.structs.replace(WANTS, happened="It wants DATABASE_URL (pid 7)."), False),
        (Cause.EXITED, Remedy("It failed with exit status 1.", "See its logs."), False),
        (Cause.EXITED, Remedy("It wants TOKEN.", "Set TOKEN.", by_words=True), True),
        (Cause.REFUSED, WANTS, False),
        (Cause.REFUSED, Remedy("Nobody listens.", "Start it."), True),
    ],
)
def test_a_try_that_fails_alike_leaves_the_list_as_it_is(
    cause: Cause, remedy: Remedy, *, is_told: bool
) -> None:
    again = after(DOWN, [status("broken", ServerState.CRASHLOOP, attempt=6, cause=cause, remedy=remedy)])
    assert (SURFACE.list_tools(view_of(again)) != SURFACE.list_tools(view_of(DOWN))) == is_told
    anew = after(again, [status("broken", ServerState.CRASHLOOP, attempt=1, cause=cause, remedy=remedy)])
    assert remedy.happened in SURFACE.instructions(view_of(anew))


def test_neither_a_first_start_nor_a_single_end_of_a_server_with_tools_changes_the_list() -> None:
    starting = after(DOWN_UP, [status("broken", ServerState.STARTING)])
    once = after(DOWN_UP, [status("git", ServerState.BACKOFF, attempt=1, **CRASHES)])
    for catalog in (starting, once):
        assert listed_names(SURFACE, view_of(catalog)) == ["log"]
    twice = after(DOWN_UP, [status("git", ServerState.BACKOFF, attempt=2, **CRASHES)])
    parked = after(DOWN_UP, [status("git", ServerState.NEEDS_AUTH, attempt=1, cause=Cause.LOGIN_NEEDED)])
    for catalog in (twice, parked):
        assert listed_names(SURFACE, view_of(catalog)) == [STATUS, "log"]


def test_a_server_that_is_up_and_lists_nothing_is_named() -> None:
    mute = after(
        DOWN_UP, [status("broken", ServerState.DEGRADED, cause=Cause.LIST_REFUSED, reason="it refuses")]
    )
    assert "- broken: it refuses." in SURFACE.instructions(view_of(mute))


def test_a_tool_of_that_name_of_a_server_is_that_servers() -> None:
    catalog = after(DOWN, [listed("git", STATUS)])
    assert listed_names(SURFACE, view_of(catalog)) == [STATUS]
    assert isinstance(act(SURFACE, view_of(catalog), STATUS, {}), Forward)


def test_a_client_that_has_chosen_servers_is_told_of_those() -> None:
    view = view_of(DOWN)
    view = attrs.evolve(view, catalog=view.services.offers.choices.of(DOWN, ("notion", "gone")))
    said = ItselfSurface().instructions(view)
    assert said.startswith(
        "notion: down now. h:443 wants an OAuth login. Tell the user to run `mcpd login notion`"
    )
    assert said.count("not in mcpd's configuration") == 1
    assert b"broken" not in ItselfSurface().list_tools(view)[0]


def test_however_many_are_down_the_lines_are_short_and_foreign_words_are_legible() -> None:
    names = [f"s{number}" for number in range(40)]
    long = Remedy("It said \u202e" + "x" * 600, "Nothing.", by_words=True)
    facts = [status(name, ServerState.FAILED, attempt=1, cause=Cause.EXITED, remedy=long) for name in names]
    said = SURFACE.instructions(view_of(after(catalog_of({"mcpServers": servers(*names)}), facts)))
    assert len(said) < LINES_CHARACTERS + 400
    assert "and 20 more." in said
    assert "\u202e" not in said
