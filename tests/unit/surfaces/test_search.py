"""Seed 000: search, core tools, and what is found is listed."""

from typing import Any

import attrs
import msgspec
import pytest

from daemon.catalog.loaded import Loaded, Source
from daemon.errors import ToolDisabled, UnknownTool
from daemon.facts import Fact
from daemon.states import ServerState
from daemon.surfaces.finding import MAX_RESULTS, find_tools, scored
from daemon.surfaces.search import SearchSurface
from daemon.surfaces.surface import AwaitListing, Loading, View
from tests.unit.cases import cases
from tests.unit.catalog.samples import after, catalog_of, listed, servers, status, tool, up
from tests.unit.surfaces.samples import act, answer, forwarded, listed_names, refused, replied, text_of, view_of

SURFACE = SearchSurface()
CONFIG: dict[str, Any] = {
    "mcpServers": servers("serena", "shell"),
    "categories": {
        "file_operations": {
            "description": "Work on files.",
            "server": "serena",
            "tools": {"includeNames": ["find_file", "read_file", "delete_file"]},
        },
        "symbolic_read": {"server": "serena", "tools": {"includePatterns": ["*symbol*"]}},
        "shell": {"description": "d", "server": "shell", "tools": {"overrides": {"rm": {"enabled": False}}}},
    },
    "profiles": {
        "core": {"coreTools": ["search_tools", "read_file", "shell/run"]},
        "files": {"categories": ["file_operations"]},
    },
}
BEFORE = catalog_of(CONFIG)
UP = after(
    BEFORE,
    [
        status("serena"),
        status("shell"),
        listed(
            "serena",
            tool("serena", "find_file", description="Finds files.\n  By mask."),
            tool("serena", "read_file", description="Reads a file."),
            tool("serena", "find_symbol", description="Finds a symbol."),
            "delete_file",
            "loose_end",
        ),
        listed("shell", tool("shell", "run", description="Runs a command."), "rm"),
    ],
)
VIEW = view_of(UP)


def search(view: View = VIEW, **asked: object) -> Any:
    return answer(SURFACE, view, "search_tools", msgspec.json.encode(asked))


def found(view: View = VIEW, **asked: object) -> list[str]:
    return [entry["name"] for entry in search(view, **asked)["tools"]]


# --- what is listed ------------------------------------------------------------------------------------------


def test_what_was_found_is_listed_after_the_core_tools_each_once_and_only_while_it_is_offered() -> None:
    own = ["search_tools", "call_tool", "call_read_only_tool"]
    assert listed_names(SURFACE, VIEW) == own
    assert listed_names(SURFACE, view_of(UP, "core")) == [*own, "read_file", "run"]
    tools = [tool("shell", "run"), tool("serena", "find_symbol"), tool("serena", "gone")]
    loaded = Loaded().adding([(each, 1) for each in tools], Source.MANUAL, 1.0)
    assert listed_names(SURFACE, view_of(UP, "core", loaded=loaded)) == [
        *own,
        "read_file",
        "run",
        "find_symbol",
    ]


def test_a_tool_that_is_called_like_a_meta_tool_is_listed_under_its_servers_name() -> None:
    view = view_of(up({"profiles": {"p": {"coreTools": ["a/call_tool"]}}}, a=["call_tool"]), "p")
    assert listed_names(SURFACE, view) == ["search_tools", "call_tool", "call_read_only_tool", "a__call_tool"]
    action = forwarded(SURFACE, view, "a__call_tool")
    assert (action.server, action.name) == ("a", "call_tool")


def test_the_list_waits_for_the_servers_of_core_tools_only() -> None:
    assert SURFACE.awaits(view_of(BEFORE)) == ()
    some = catalog_of({**CONFIG, "profiles": {"p": {"coreTools": ["shell/run"]}}})
    assert SURFACE.awaits(view_of(some, "p")) == ("shell",)
    # Whose a bare name is nobody knows yet; that of a meta-tool is nobody's.
    bare = catalog_of(
        {**CONFIG, "profiles": {"p": {"coreTools": ["run"]}, "q": {"coreTools": ["search_tools"]}}}
    )
    assert SURFACE.awaits(view_of(bare, "p")) == ("serena", "shell")
    assert SURFACE.awaits(view_of(bare, "q")) == ()


def test_the_instructions_hold_the_discovery_text_with_real_categories_and_core_tools() -> None:
    text = SURFACE.instructions(view_of(UP, "core"))
    assert text.startswith("**Tool Discovery (Deferred Loading)**\nOnly core tools are loaded initially")
    assert '- `search_tools(category="file_operations")`: Work on files.' in text
    assert '- `search_tools(category="symbolic_read")`: find symbol' in text
    assert text.endswith("Core tools available: search_tools, call_tool, read_file, run")
    assert SURFACE.instructions(view_of(BEFORE, "core")) == text.replace("find symbol", "List its tools")


# --- search_tools --------------------------------------------------------------------------------------------


def test_a_search_answers_as_the_seed_shows_and_loads_what_it_found() -> None:
    text = text_of(act(SURFACE, VIEW, "search_tools", {"category": "file_operations"}))
    assert text == (
        "Found 3 tool(s):\n\n"
        "- **find_file** [active] [file_operations]\n  Finds files. By mask.\n\n"
        "- **read_file** [active] [file_operations]\n  Reads a file.\n\n"
        "- **delete_file** [active] [file_operations]\n\n"
        "Available categories: file_operations, symbolic_read, shell"
    )
    symbol = {"name": "find_symbol", "server": "serena", "category": "symbolic_read", "active": True}
    assert search(query="symbol") == {
        "tools": [{**symbol, "description": "Finds a symbol."}],
        "categories": ["file_operations", "symbolic_read", "shell"],
    }
    action = replied(SURFACE, VIEW, "search_tools", {"query": "symbol"})
    assert action.loading == Loading(tools=(("serena", "find_symbol"),), source=Source.MANUAL, leaving=())


def test_everything_is_found_without_a_query_in_its_order() -> None:
    everything = ["find_file", "read_file", "find_symbol", "delete_file", "loose_end", "run"]
    for query in ("", "  ", [], ["", " "]):
        assert found(query=query, max_results=20) == everything
    assert found(category=None, max_results=20) == found(category="", max_results=20) == everything


def test_a_need_that_nothing_fits_is_told_so_with_the_categories_that_there_are() -> None:
    action = replied(SURFACE, VIEW, "search_tools", {"query": "book a flight to Tokyo"})
    structured = msgspec.json.decode(action.result)["structuredContent"]
    assert structured["tools"] == []
    assert structured["meta"]["note"].startswith("No tool here fits that.")
    assert structured["meta"]["note"] in text_of(action)
    assert "Available categories: file_operations, symbolic_read, shell" in text_of(action)
    assert action.loading == Loading(leaving=())


def test_twenty_are_found_and_five_listed_unless_a_number_is_asked_for() -> None:
    facts: list[Fact] = [
        status("shell"),
        listed("shell"),
        status("serena"),
        listed("serena", *(f"read_{n}" for n in range(30))),
    ]
    view = view_of(after(BEFORE, facts))
    for asked, lines, listing in (({}, 20, 5), ({"max_results": 6}, 6, 6), ({"cursor": "20"}, 10, 5)):
        action = replied(SURFACE, view, "search_tools", asked)
        tools = msgspec.json.decode(action.result)["structuredContent"]["tools"]
        assert [each.get("listed", True) for each in tools] == [True] * listing + [False] * (lines - listing)
        assert action.loading is not None
        assert len(action.loading.tools) == listing
    # The call for the rest has what was asked for, and nothing that goes without saying.
    assert search(view, max_results=6)["meta"]["next"]["arguments"] == {"max_results": 6, "cursor": "6"}


def test_a_query_finds_by_name_and_description_and_stays_in_its_category() -> None:
    assert set(found(query="find")) == {"find_file", "find_symbol"}
    assert found(query="find", category="symbolic_read") == ["find_symbol"]
    assert found(query="command") == ["run"]
    assert set(found(query=["symbol", "command"])) == {"find_symbol", "run"}


def test_descriptions_can_be_left_out() -> None:
    answered = search(query="symbol", include_descriptions=False)
    assert "description" not in answered["tools"][0]
    action = act(SURFACE, VIEW, "search_tools", {"category": "shell", "include_descriptions": False})
    assert text_of(action).splitlines()[2:4] == ["- **run** [active] [shell]", ""]


def test_all_that_fits_is_reached_page_by_page_of_a_bounded_size() -> None:
    names = [f"t{number}" for number in range(2 * MAX_RESULTS + 50)]
    view = view_of(up(a=names))
    seen: list[str] = []
    arguments: dict[str, Any] = {"category": "a", "max_results": 10**9, "include_descriptions": False}
    text = text_of(act(SURFACE, view, "search_tools", arguments))
    assert "150 more fit: say more precisely what you need, or see them with search_tools({" in text
    while arguments:
        found = answer(SURFACE, view, "search_tools", arguments)
        assert len(found["tools"]) <= MAX_RESULTS
        seen += [tool["name"] for tool in found["tools"]]
        arguments = found.get("meta", {}).get("next", {}).get("arguments", {})
        assert not arguments or arguments["include_descriptions"] is False
    assert seen == names


def category_text(view: View) -> str:
    schema = msgspec.json.decode(SURFACE.list_tools(view)[0])["inputSchema"]
    return str(schema["properties"]["category"]["description"])


def test_the_category_says_what_it_may_be() -> None:
    assert category_text(VIEW) == "Only this category: file_operations, symbolic_read, shell."
    assert category_text(view_of(UP, "files")) == "Only this category: file_operations."
    assert category_text(view_of(catalog_of({"mcpServers": {}}))) == "Only this category."


def test_tools_that_are_switched_off_or_outside_the_profile_are_not_found() -> None:
    assert "rm" not in found()
    assert found(view_of(UP, "files")) == ["find_file", "read_file", "delete_file"]
    assert found(view_of(UP, "files"), query="symbol command") == []
    fewer = after(UP, [listed("serena", "find_file")])
    assert found(view_of(fewer), category="file_operations") == ["find_file"], "the others are only configured"


@cases("state", "active")
def test_a_tool_is_active_when_a_call_would_be_taken_and_named_otherwise(state: str, *, active: bool) -> None:
    view = view_of(after(UP, [status("shell", ServerState(state))]))
    answered = search(view, query="command")
    assert answered["tools"][0]["active"] is active
    mark = "active" if active else "unavailable"
    assert f"**run** [{mark}]" in text_of(act(SURFACE, view, "search_tools", {"query": "command"}))
    meta = answered.get("meta", {})
    assert (meta.get("unavailableTools"), list(meta.get("unavailableServers", ()))) == (
        (None, []) if active else (["run"], ["shell"])
    )


def test_a_server_that_sleeps_is_named_only_while_nobody_knows_its_tools() -> None:
    known = view_of(after(UP, [status("shell", ServerState.DORMANT)]))
    assert "meta" not in search(known, query="command")
    unknown = after(BEFORE, [status("shell", ServerState.DORMANT), status("serena", ServerState.DORMANT)])
    meta = search(view_of(unknown), query="command")["meta"]
    assert list(meta["unavailableServers"]) == ["serena", "shell"]
    said = text_of(act(SURFACE, view_of(unknown), "search_tools", {"query": "command"}))
    assert "Not available:\n- serena (dormant): dormant.\n- shell (dormant): dormant.\n" in said


def test_a_search_waits_for_servers_that_start_and_for_the_index_and_a_category_wakes_its_own() -> None:
    asleep = after(BEFORE, [status("serena", ServerState.DORMANT), status("shell", ServerState.STARTING)])
    view = view_of(asleep)
    assert act(SURFACE, view, "search_tools") == AwaitListing(servers=("shell",), indexed=True)
    waiting = act(SURFACE, view, "search_tools", {"category": "symbolic_read"})
    assert waiting == AwaitListing(servers=("serena",), indexed=True)
    assert act(SURFACE, view_of(UP, indexed=False), "search_tools") == AwaitListing(indexed=True)
    assert (
        answer(SURFACE, view_of(UP, indexed=False), "search_tools", {"query": "x"}, patient=False)["tools"]
        == []
    )


# --- calls ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["run", "shell__run", "shell/run", "mcp__shell__run"])
def test_every_tool_is_called_by_name_whether_listed_or_not(name: str) -> None:
    for called, sent in ((name, b'{ "a": 1 }'), ("call_tool", b'{"tool_name":"%b","arguments":{ "a": 1 }}')):
        action = forwarded(SURFACE, VIEW, called, sent.replace(b"%b", name.encode()))
        assert (action.server, action.name, action.arguments) == ("shell", "run", b'{ "a": 1 }')


def test_what_is_off_or_unknown_is_not_called() -> None:
    refused(SURFACE, VIEW, "rm", {}, ToolDisabled)
    refused(SURFACE, VIEW, "nothing", {}, UnknownTool)
    refused(SURFACE, view_of(UP, "files"), "run", {}, ToolDisabled)


# --- finding tools, for models and operators alike -----------------------------------------------------------


SEARCHING_CONFIG = {
    "categories": {
        "one": {"server": "a", "tools": {"includeNames": ["write_note"]}},
        "two": {"tools": {"includeNames": ["a/write_note", "b/play_song"]}},
    },
    "profiles": {"p": {"categories": ["one"]}},
}
WRITE_NOTE = tool("a", "write_note", description="Writes\n a note.")
SEARCHING_VIEW = view_of(up(SEARCHING_CONFIG, a=[WRITE_NOTE, "other"], b=["play_song"]))


def test_an_operator_sees_scores_and_the_category_that_was_asked_for() -> None:
    told: Any = scored(SEARCHING_VIEW, ["write a note"], "two", 1)
    (first,) = told["tools"]
    assert first["score"] > 0
    assert (first["name"], first["server"], first["category"], first["description"]) == (
        "write_note",
        "a",
        "two",
        "Writes a note.",
    )
    assert told["total"] >= 1


def test_what_a_server_has_no_more_is_not_found_while_the_index_still_has_it() -> None:
    gone = after(SEARCHING_VIEW.catalog, [listed("b", "write_song")])
    later = attrs.evolve(SEARCHING_VIEW, catalog=gone)
    assert find_tools(later, ["song"], None, 10).total == 0
