"""Seed 002, §4: a line per server, a line per tool, a schema for what is loaded."""

import json
from typing import Any

import attrs
import msgspec
import pytest

from daemon.catalog.loaded import Loaded, Source, Verdict
from daemon.catalog.offer import Choices
from daemon.catalog.snapshot import Catalog
from daemon.errors import CallError, ToolChanged, ToolDisabled, ToolNotLoaded, UnknownServer, UnknownTool
from daemon.facts import Switched
from daemon.model import Tool
from daemon.states import ServerState
from daemon.surfaces.load import MAX_TOOL_LINES, LoadSurface
from daemon.surfaces.surface import AwaitListing, Loading, View
from tests.unit.catalog.samples import after, catalog_of, listed, servers, status, tool, up
from tests.unit.surfaces.samples import act, answer, forwarded, listed_names, refused, replied, view_of

SURFACE = LoadSurface()
CONFIG: dict[str, Any] = {
    "mcpServers": {
        "git": {"command": "git", "description": "Version control: repositories, commits, branches."},
        "clock": {"command": "clock", "description": "The time in any zone."},
        "files": {"command": "files"},
    },
    "categories": {
        "c": {"server": "files", "tools": {"includeNames": ["wipe"], "overrides": {"wipe": {"enabled": False}}}}
    },
    "profiles": {"auto": {"autoLoad": True}},
}
LOG = tool(
    "git",
    "git_log",
    description="Shows the commit logs.\nIn order.",
    inputSchema={"type": "object", "$schema": "x", "properties": {"repo": {"type": "string"}}},
)
BEFORE = catalog_of(CONFIG)
UP = after(
    BEFORE,
    [
        *(status(name) for name in ("git", "clock", "files")),
        listed("git", LOG, tool("git", "git_diff", description="Shows differences."), "read"),
        listed("clock", tool("clock", "now", description="Tells the current time.")),
        listed("files", "read", "wipe"),
    ],
)
VIEW = view_of(UP)


def loaded(*names: str) -> Loaded:
    tools = UP.servers["git"].tools
    assert tools is not None
    return Loaded().adding([(tools[name], 1) for name in names], Source.MANUAL, 1.0)


# --- what is listed ------------------------------------------------------------------------------------------


def described(view: View) -> str:
    return str(msgspec.json.decode(SURFACE.list_tools(view)[0])["description"])


def test_the_two_tools_are_always_listed_with_a_line_per_server() -> None:
    assert listed_names(SURFACE, VIEW) == ["load_mcp_server", "load_mcp_tool"]
    lines = "- git: Version control: repositories, commits, branches.\n- clock: The time in any zone.\n- files"
    assert lines in described(VIEW)
    assert "none are configured" in described(view_of(catalog_of({})))
    many = catalog_of({"mcpServers": servers(*(f"s{number}" for number in range(40)))})
    assert "more: load_mcp_server finds them by need" in described(view_of(many, characters=100))
    assert len(described(view_of(many, characters=100))) < 300
    text = SURFACE.instructions(VIEW)
    assert text.index("load_mcp_server") < text.index("load_mcp_tool")
    assert SURFACE.awaits(view_of(BEFORE)) == ()


def test_what_is_loaded_is_listed_as_its_server_has_it_and_never_deferred_while_it_exists() -> None:
    view = view_of(UP, loaded=loaded("git_log", "read"))
    assert listed_names(SURFACE, view) == ["load_mcp_server", "load_mcp_tool", "git_log", "read"]
    assert SURFACE.list_tools(view)[2] == LOG.raw[:-1] + b',"_meta":{"anthropic/alwaysLoad":true}}'
    gone = view_of(after(UP, [listed("git", "read")]), loaded=loaded("git_log", "read"))
    assert listed_names(SURFACE, gone) == ["load_mcp_server", "load_mcp_tool", "read"]


# --- load_mcp_server -----------------------------------------------------------------------------------------


def test_a_need_finds_a_server_with_its_summary_and_a_line_per_tool_and_no_schema() -> None:
    found = answer(SURFACE, VIEW, "load_mcp_server", {"name": "commits and branches"})
    lines = {"git_log": "Shows the commit logs.", "git_diff": "Shows differences.", "read": ""}
    summary = "Version control: repositories, commits, branches."
    assert found == {"servers": {"git": {"summary": summary, "tools": lines}}}
    assert list(answer(SURFACE, VIEW, "load_mcp_server", {"name": "clock"})["servers"]) == ["clock"]
    # A name that two servers share is the one to call it by; a tool that is switched off is not named.
    found = answer(SURFACE, VIEW, "load_mcp_server", {"name": "files"})["servers"]["files"]
    assert found == {"tools": {"files__read": ""}}


def test_servers_that_are_not_chosen_or_fit_much_worse_than_the_best_are_not_told() -> None:
    log = tool("a", "read_log", description="Reads the log of commits.")
    three = up(a=[log, "read_commit"], b=[tool("b", "x", description="Logs.")], c=[log, "read_commit"])
    found = answer(SURFACE, view_of(three), "load_mcp_server", {"name": "read the log of commits"})
    assert list(found["servers"]) == ["a", "c"]
    off = view_of(after(three, [Switched(off=frozenset({("a", "")}))]))
    found = answer(SURFACE, off, "load_mcp_server", {"name": "read the log of commits"})
    assert list(found["servers"]) == ["c"]
    chosen = attrs.evolve(view_of(three), catalog=Choices().of(three, ("b", "c")))
    found = answer(SURFACE, chosen, "load_mcp_server", {"name": "read the log of commits"}, patient=False)
    assert list(found["servers"]) == ["c"]


def test_of_very_many_tools_the_first_are_told_and_the_rest_counted() -> None:
    names = [f"t{number}" for number in range(MAX_TOOL_LINES + 7)]
    many = up(a=names)
    found = answer(SURFACE, view_of(many), "load_mcp_server", {"name": "a"})["servers"]["a"]
    assert list(found["tools"]) == names[:MAX_TOOL_LINES]
    assert found["toolsLeft"] == 7
    following = found["next"]
    assert following["name"] == "load_mcp_server"
    rest = answer(SURFACE, view_of(many), "load_mcp_server", following["arguments"])["servers"]["a"]
    assert list(rest["tools"]) == names[MAX_TOOL_LINES:]
    assert "next" not in rest


def test_a_need_that_no_server_fits_is_answered_with_those_that_exist() -> None:
    error = refused(SURFACE, VIEW, "load_mcp_server", {"name": "qqqqqq wwwwww"}, UnknownServer)
    assert error.details["available"] == ["git", "clock", "files"]


def test_a_server_that_sleeps_and_never_listed_is_woken_when_it_is_found() -> None:
    asleep = after(BEFORE, [status(name, ServerState.DORMANT) for name in ("git", "clock", "files")])
    assert act(SURFACE, view_of(asleep), "load_mcp_server", {"name": "clock"}) == AwaitListing(
        servers=("clock",), indexed=True
    )
    found = answer(SURFACE, view_of(asleep), "load_mcp_server", {"name": "clock"}, patient=False)
    assert found["servers"]["clock"]["tools"] == {}


# --- load_mcp_tool -------------------------------------------------------------------------------------------


def test_several_tools_are_loaded_at_once_by_name_and_by_need_with_their_schemas() -> None:
    action = replied(SURFACE, VIEW, "load_mcp_tool", {"names": ["git_log", "what time is it now"]})
    structured = msgspec.json.decode(action.result)["structuredContent"]
    assert list(structured["tools"]) == ["git_log", "now"]
    assert structured["tools"]["git_log"] == {
        "description": "Shows the commit logs.\nIn order.",
        "inputSchema": {"type": "object", "properties": {"repo": {"type": "string"}}},
        "schemaHash": LOG.schema_hash[:12],
    }
    assert structured["meta"] == {"sourceServer": "git, clock", "epoch": 2}
    assert action.loading == Loading(tools=(("git", "git_log"), ("clock", "now")), source=Source.MANUAL)


@pytest.mark.parametrize(
    "names", ["git_log", ["mcp__git__git_log"], ["git/git_log"], ["git_log", "git_log", " "]]
)
def test_a_name_may_be_written_in_any_way(names: object) -> None:
    assert list(answer(SURFACE, VIEW, "load_mcp_tool", {"names": names})["tools"]) == ["git_log"]


def test_a_server_name_limits_where_names_and_needs_are_looked_for() -> None:
    one = answer(SURFACE, VIEW, "load_mcp_tool", {"names": ["read"], "server_name": "files"})
    assert list(one["tools"]) == ["files__read"]
    assert one == answer(SURFACE, VIEW, "load_mcp_tool", {"names": ["read"], "server_name": "mcp__files"})
    refused(SURFACE, VIEW, "load_mcp_tool", {"names": ["commit logs"], "server_name": "clock"}, UnknownTool)
    error = refused(SURFACE, VIEW, "load_mcp_tool", {"names": ["x"], "server_name": "glock"}, UnknownServer)
    assert error.details["closest"] == ["clock"]


def test_what_is_not_found_is_told_beside_what_is() -> None:
    found = answer(SURFACE, VIEW, "load_mcp_tool", {"names": ["git_log", "qqqqqq", "wipe", "load_mcp_tool"]})
    assert list(found["tools"]) == ["git_log"]
    failures = found["meta"]["notLoaded"]
    assert [failures[name].split(":")[0] for name in ("qqqqqq", "wipe", "load_mcp_tool")] == [
        "UnknownTool",
        "ToolDisabled",
        "InvalidArguments",
    ]


def test_other_tools_that_fit_a_need_nearly_as_well_are_named() -> None:
    twins = [tool("a", name, description="Converts a picture.") for name in ("one", "two")]
    found = answer(SURFACE, view_of(up(a=twins)), "load_mcp_tool", {"names": ["convert picture"]})
    assert list(found["tools"]) == ["one"]
    assert found["meta"]["alternatives"] == {"convert picture": ["two"]}


def test_schemas_that_do_not_fit_one_answer_are_not_loaded_and_that_is_said() -> None:
    large = [tool("a", f"t{number}", description="x" * 12_000) for number in range(4)]
    catalog = up(a=large)
    action = replied(SURFACE, view_of(catalog), "load_mcp_tool", {"names": ["t0", "t1", "t2", "t3"]})
    structured = msgspec.json.decode(action.result)["structuredContent"]
    assert list(structured["tools"]) == ["t0", "t1"]
    assert list(structured["meta"]["notLoaded"]) == ["t2", "t3"]
    assert action.loading == Loading(tools=(("a", "t0"), ("a", "t1")))


def test_loading_waits_for_servers_that_start_and_wakes_only_the_one_that_is_named() -> None:
    view = view_of(after(BEFORE, [status("git", ServerState.DORMANT), status("clock", ServerState.STARTING)]))
    assert act(SURFACE, view, "load_mcp_tool", {"names": ["x"]}) == AwaitListing(
        servers=("clock", "files"), indexed=True
    )
    assert act(SURFACE, view, "load_mcp_tool", {"names": ["x"], "server_name": "git"}) == AwaitListing(
        servers=("git",), indexed=True
    )


def test_a_tool_of_a_server_that_never_listed_is_no_need_that_other_tools_may_fit() -> None:
    backoff = after(BEFORE, [status("git", ServerState.BACKOFF), status("files")])
    view = view_of(after(backoff, [listed("files", "log_in")]))
    for asked in ({"names": ["git/log"]}, {"names": ["log"], "server_name": "git"}):
        error = refused(SURFACE, view, "load_mcp_tool", asked, CallError, patient=False)
        assert "server git has not listed its tools yet (backoff)" in error.message


# --- calls ---------------------------------------------------------------------------------------------------


def test_a_loaded_tool_is_called_and_nobody_opens_its_arguments() -> None:
    action = forwarded(SURFACE, view_of(UP, loaded=loaded("git_log")), "git_log", b'{ "repo":1 }')
    assert (action.server, action.name, action.arguments, action.loading) == (
        "git",
        "git_log",
        b'{ "repo":1 }',
        None,
    )


def test_a_tool_that_is_not_loaded_is_refused_with_the_exact_call_that_loads_it() -> None:
    error = refused(SURFACE, VIEW, "files/read", {}, ToolNotLoaded)
    assert 'load_mcp_tool({"names":["files__read"]})' in error.message
    load = error.details["load"]
    assert load == {"name": "load_mcp_tool", "arguments": {"names": ["files__read"]}}
    assert isinstance(load, dict)
    assert list(answer(SURFACE, VIEW, load["name"], load["arguments"])["tools"]) == ["files__read"]


OPTIONAL: dict[str, Any] = {
    "mcpServers": servers("a", "b"),
    "categories": {"ca": {"server": "a"}},
    "profiles": {"p": {"surface": "load", "categories": ["ca"], "includedOptionalTools": ["b/secret"]}},
}


def test_an_optional_tool_of_a_server_outside_the_profiles_categories_is_found_and_loaded() -> None:
    catalog = after(catalog_of(OPTIONAL), [listed("a", "echo"), listed("b", "secret", "other")])
    view = view_of(catalog, "p")
    assert list(answer(SURFACE, view, "load_mcp_tool", {"names": ["secret"]})["tools"]) == ["secret"]
    assert list(answer(SURFACE, view, "load_mcp_server", {"name": "b"})["servers"]["b"]["tools"]) == ["secret"]


def test_with_auto_load_a_tool_is_loaded_and_run_at_once_unless_it_is_off_or_unknown() -> None:
    action = forwarded(SURFACE, view_of(UP, "auto"), "git_log", b"{}")
    assert action.loading == Loading(tools=(("git", "git_log"),), source=Source.AUTO)
    refused(SURFACE, view_of(UP, "auto"), "wipe", {}, ToolDisabled)
    refused(SURFACE, view_of(UP, "auto"), "nothing", {}, UnknownTool)


# --- renamed tools -------------------------------------------------------------------------------------------


RENAMED_CONFIG: dict[str, Any] = {
    "mcpServers": {"git": {"command": "git"}},
    "profiles": {"auto": {"autoLoad": True}},
}
RENAMED_LOG = tool("git", "git_log", description="Shows the log.")
HISTORY = tool("git", "history", description="Shows the log.")
OTHER = tool("git", "history", description="Shows something else.")
NEW = ("git", "history")
RENAMED_BEFORE = after(catalog_of(RENAMED_CONFIG), [listed("git", RENAMED_LOG, "add")])
MOVED = after(RENAMED_BEFORE, [listed("git", HISTORY, "add")])
DIFFERS = after(MOVED, [listed("git", OTHER, "add")])


def loaded_renamed(each: Tool = RENAMED_LOG, verdict: Verdict | None = None) -> Loaded:
    made = Loaded().adding([(each, 1)], Source.MANUAL, 1.0)
    if verdict is None:
        return made
    return Loaded({key: msgspec.structs.replace(known, verdict=verdict) for key, known in made.tools.items()})


def seen(catalog: Catalog = MOVED, profile: str = "default", *, of: Loaded | None = None) -> View:
    return view_of(catalog, profile, loaded=loaded_renamed() if of is None else of)


def test_the_refusal_of_the_old_name_holds_the_call_that_loads_the_new_one() -> None:
    error = refused(SURFACE, seen(DIFFERS), "git_log", {}, UnknownTool)
    assert error.message == (
        "server git has renamed 'git_log': it is called history now. Load it:"
        ' load_mcp_tool({"names":["history"]}), then call history.'
    )
    assert error.details["renamedTo"] == "history"
    load: Any = error.details["load"]
    assert list(answer(SURFACE, seen(DIFFERS), load["name"], load["arguments"])["tools"]) == ["history"]


def test_what_is_loaded_under_its_new_name_is_called_by_it() -> None:
    both = loaded_renamed().adding([(OTHER, 2)], Source.MANUAL, 2.0)
    error = refused(SURFACE, seen(DIFFERS, of=both), "git_log", {}, UnknownTool)
    assert error.message.endswith("It is loaded: call history.")


def test_the_old_name_loads_the_new_tool() -> None:
    reply = replied(SURFACE, seen(), "load_mcp_tool", {"names": ["git_log"]})
    assert reply.loading == Loading(tools=(NEW,))


@pytest.mark.parametrize("profile", ["default", "auto"])
def test_a_call_to_the_old_name_runs_loads_the_new_one_and_says_so_once(profile: str) -> None:
    action = forwarded(SURFACE, seen(profile=profile), "git_log", b'{"n":1}')
    assert (action.server, action.name, bytes(action.arguments)) == ("git", "history", b'{"n":1}')
    assert action.loading == Loading(tools=(NEW,), source=Source.AUTO)
    assert action.convert is not None
    told = {"type": "text", "text": "server git has renamed 'git_log': it is called history now."}
    said = json.loads(action.convert(b'{"content":[{"type":"x"}],"structuredContent":{"a":1.50}}'))
    assert said == {"content": [{"type": "x"}, told], "structuredContent": {"a": 1.5}}
    assert action.convert(b'{"task":{}}') == b'{"task":{}}'
    both = loaded_renamed().adding([(HISTORY, 2)], Source.AUTO, 2.0)
    again = forwarded(SURFACE, seen(profile=profile, of=both), "git_log", b"{}")
    assert (again.name, again.loading, again.convert) == ("history", None, None)


def test_with_auto_load_nothing_runs_that_is_not_what_was_shown() -> None:
    assert (
        "it is called history now"
        in refused(SURFACE, seen(DIFFERS, "auto"), "git_log", {}, UnknownTool).message
    )
    refused(SURFACE, seen(MOVED, "auto", of=Loaded()), "git_log", {}, UnknownTool)


def test_other_refusals_are_what_they_were() -> None:
    refused(SURFACE, seen(RENAMED_BEFORE, of=Loaded()), "git_log", {}, ToolNotLoaded)
    new = after(RENAMED_BEFORE, [listed("git", tool("git", "git_log", description="New."), "add")])
    refused(SURFACE, seen(new), "git_log", {}, ToolChanged)
