"""Seed 002 §4, dynamic loading, driven through the real socket by the SDKs' clients, with real servers."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Daemon, program, serving
from tests.e2e.loading import META_TOOLS, configured, repository, servers_in, three_servers, tools_in
from tests.e2e.scripts import (
    CHANGED,
    LIST,
    PYTHON,
    TYPESCRIPT,
    Clients,
    Outcome,
    Processes,
    call,
    names,
    refusal,
    zone,
)
from tests.modules import functions_in


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    place = tmp_path_factory.mktemp("repository")
    repository(place)
    with serving(configured(three_servers(place))) as daemon:
        yield daemon


@pytest.fixture
def session(daemon: Daemon, clients: Clients) -> Any:
    """A session of the profile `default`, or of another."""

    def session(*steps: Any, profile: str = "default", **job: Any) -> Outcome:
        return clients.session(daemon, *steps, hello={"profile": profile}, **job)

    return session


# --- FR-3, FR-6: what is there from the start ----------------------------------------------------------------


def test_at_first_only_the_two_loading_tools_are_listed_with_the_seeds_parameters(session: Any) -> None:
    seen = session(LIST)
    server, tool = seen.last["tools"]
    assert [server["name"], tool["name"]] == META_TOOLS
    assert set(server["inputSchema"]["properties"]) == {"name"}
    assert server["inputSchema"]["required"] == ["name"]
    assert tool["inputSchema"]["properties"]["names"]["type"] == "array"
    assert tool["inputSchema"]["properties"]["server_name"]["type"] == "string"
    for words in ("load_mcp_server finds servers", "load_mcp_tool loads tools"):
        assert words in seen.instructions


def test_a_line_for_each_server_stands_in_the_list_from_the_start(session: Any) -> None:
    described = session(LIST).last["tools"][0]["description"]

    lines = described.partition("Servers:\n")[2].splitlines()
    assert lines[0] == "- git: Version control: look at and make commits and branches."
    assert lines[1].startswith("- time")
    assert lines[2] == "- files: Read and write files."


def test_the_two_tools_are_there_whatever_the_configuration_selects(session: Any) -> None:
    asked = [call("load_mcp_server", name="git"), call("load_mcp_tool", names=["git_log"])]
    listed, server, tool = session(LIST, *asked, profile="nothing").results
    assert names(listed) == META_TOOLS
    # They answer; there is nothing to be found.
    assert refusal(server)["code"] == "UnknownServer"
    assert refusal(tool)["code"] in {"UnknownTool", "ToolDisabled"}

    asked = [call("load_mcp_server", name="git"), call("load_mcp_server", name="time")]
    listed, git, clock = session(LIST, *asked, profile="clocks").results
    assert "git" not in listed["tools"][0]["description"]
    assert refusal(git)["available"] == ["time"]
    assert set(servers_in(clock)) == {"time"}


# --- FR-4: load_mcp_server -----------------------------------------------------------------------------------


NEEDS = {
    "git": ("git", "commits", "version control", "show me what changed in the last commit"),
    "time": ("timezone", "what time is it in Tokyo"),
    "files": ("list the files in a directory",),
}


def test_a_server_is_found_by_name_by_keyword_and_by_need(session: Any) -> None:
    wanted = [(need, server) for server, needs in NEEDS.items() for need in needs]
    results = session(*(call("load_mcp_server", name=need) for need, _ in wanted)).results
    assert [
        (need, next(iter(servers_in(each)))) for (need, _), each in zip(wanted, results, strict=True)
    ] == wanted


def test_a_server_is_answered_with_its_summary_and_a_line_per_tool_and_loads_none(session: Any) -> None:
    result, unknown, listed, called = session(
        call("load_mcp_server", name="git"), call("load_mcp_server", name="xyzzyplugh"), LIST, call("git_log")
    ).results
    (server,) = servers_in(result).values()
    assert server["summary"] == "Version control: look at and make commits and branches."
    assert {"git_log", "git_show", "git_status"} <= set(server["tools"])
    assert server["tools"]["git_log"] == "Shows the commit logs"
    assert not any("\n" in line for line in server["tools"].values())
    assert not [word for word in ("inputSchema", "max_count") if word in result["text"]]
    error = refusal(unknown)
    assert (error["code"], error["available"]) == ("UnknownServer", ["git", "time", "files"])
    assert names(listed) == META_TOOLS
    assert refusal(called)["code"] == "ToolNotLoaded"


# --- FR-4: load_mcp_tool -------------------------------------------------------------------------------------


def test_several_tools_are_loaded_at_once_with_their_whole_schemas(session: Any, clients: Clients) -> None:
    result = session(call("load_mcp_tool", names=["git_log", "git_show", "convert_time"])).last
    loaded = tools_in(result)
    assert list(loaded) == ["git_log", "git_show", "convert_time"]
    assert loaded["git_log"]["inputSchema"]["required"] == ["repo_path"]
    assert all(each["description"] and each["schemaHash"] for each in loaded.values())
    assert result["structured"]["meta"]["sourceServer"] == "git, time"
    listed = clients.spawned([program("mcp-server-time"), "--local-timezone", "UTC"], LIST).last["tools"]
    (direct,) = (each for each in listed if each["name"] == "convert_time")
    for member in ("description", "inputSchema"):
        assert loaded["convert_time"][member] == direct[member]


def test_a_tool_is_loaded_by_need_and_what_fails_keeps_nothing_from_loading(session: Any) -> None:
    needs = {
        "show the commit log": "git_log",
        "convert a time between timezones": "convert_time",
        "move or rename a file": "move_file",
    }
    *results, several, mixed = session(
        *(call("load_mcp_tool", names=[need]) for need in needs),
        call("load_mcp_tool", names=["git diff of changes"]),
        call("load_mcp_tool", names=["git_log", "the current time", "xyzzyplugh"]),
    ).results
    assert [list(tools_in(each)) for each in results] == [[each] for each in needs.values()]
    (loaded,) = tools_in(several)
    others = several["structured"]["meta"]["alternatives"]["git diff of changes"]
    assert all(each.startswith("git_diff") for each in [loaded, *others])
    assert loaded not in others
    assert list(tools_in(mixed)) == ["git_log", "get_current_time"]
    assert mixed["structured"]["meta"]["notLoaded"]["xyzzyplugh"].startswith("UnknownTool: ")


def test_server_name_keeps_the_search_to_one_server(session: Any) -> None:
    there, elsewhere, nowhere = session(
        call("load_mcp_tool", names=["read a text"], server_name="files"),
        call("load_mcp_tool", names=["git_log"], server_name="time"),
        call("load_mcp_tool", names=["git_log"], server_name="gti"),
    ).results
    assert list(tools_in(there)) == ["read_text_file"]
    assert refusal(elsewhere)["code"] == "UnknownTool"
    assert (refusal(nowhere)["code"], refusal(nowhere)["closest"]) == ("UnknownServer", ["git"])


@pytest.mark.parametrize(
    ("argv", "job"),
    [(PYTHON, {}), (PYTHON, {"mode": "2026-07-28", "listen": True}), (TYPESCRIPT, {})],
    ids=["python", "python-modern", "typescript"],
)
def test_what_is_loaded_is_announced_listed_and_called(
    daemon: Daemon, sdks: Processes, argv: tuple[str, ...], job: dict[str, Any]
) -> None:
    seen = sdks[argv].session(
        daemon,
        LIST,
        call("load_mcp_tool", names=["get_current_time", "git_log"]),
        CHANGED,
        LIST,
        call("get_current_time", timezone="Asia/Taipei"),
        **job,
    )

    before, _, _, after, called = seen.results
    assert names(before) == META_TOOLS
    assert names(after) == [*META_TOOLS, "get_current_time", "git_log"]
    assert zone(called) == "Asia/Taipei"
    assert seen.changes == 1


def test_what_one_session_loads_no_other_session_has(session: Any) -> None:
    session(call("load_mcp_tool", names=["get_current_time"]))

    listed, called = session(LIST, call("get_current_time", timezone="UTC")).results
    assert names(listed) == META_TOOLS
    assert refusal(called)["code"] == "ToolNotLoaded"


# --- FR-8: a call to what is not loaded ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["get_current_time", "mcp__time__get_current_time", "time/get_current_time"])
def test_the_refusal_of_a_call_holds_the_call_that_helps(session: Any, name: str) -> None:
    error = refusal(session(call(name, timezone="UTC")).last)
    assert error["code"] == "ToolNotLoaded"
    assert "load_mcp_tool" in error["message"]

    helped, again = session(
        {"call": error["load"]["name"], "arguments": error["load"]["arguments"]}, call(name, timezone="UTC")
    ).results

    assert list(tools_in(helped)) == ["get_current_time"]
    assert zone(again) == "UTC"


def test_a_tool_that_does_not_exist_is_not_called_not_loaded(session: Any) -> None:
    assert refusal(session(call("get_curent_time")).last)["closest"][0] == "get_current_time"


def test_with_auto_load_the_call_runs_at_once_and_the_tool_is_loaded(session: Any) -> None:
    seen = session(LIST, call("get_current_time", timezone="UTC"), CHANGED, LIST, profile="auto")

    before, called, _, after = seen.results
    assert names(before) == META_TOOLS
    assert zone(called) == "UTC"
    assert names(after) == [*META_TOOLS, "get_current_time"]
    assert seen.changes == 1


# --- seed 002 §12 and §13, line by line ----------------------------------------------------------------------


LINES = tomllib.loads(Path(__file__).with_name("seed_002.toml").read_text())


@pytest.mark.parametrize("line", LINES)
def test_each_line_of_the_seed_has_its_tests(line: str) -> None:
    for name, tests in LINES[line].items():
        assert set(tests) <= functions_in(f"tests/{name}"), name


def test_no_line_is_left_out() -> None:
    numbers = [line.split()[0] for line in LINES]
    unit, integration = [f"12.1.{n}" for n in range(1, 5)], [f"12.2.{n}" for n in range(1, 6)]
    assert numbers == [*unit, *integration, "12.3.1", *(f"13.{n}" for n in range(1, 7))]
