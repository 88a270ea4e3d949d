"""Seed 002 §4, dynamic loading, driven through the real socket by the SDKs' clients, with real servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.harness import Daemon, program, running
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

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    place = tmp_path_factory.mktemp("repository")
    repository(place)
    with running(configured(three_servers(place))) as daemon:
        daemon.ready()
        yield daemon


@pytest.fixture
def session(daemon: Daemon, clients: Clients) -> Any:
    """A session of the profile `default`, or of another."""

    def session(*steps: Any, profile: str = "default", **job: Any) -> Outcome:
        return clients.session(daemon, *steps, hello={"profile": profile}, **job)

    return session


# --- FR-3, FR-6: what is there from the start ----------------------------------------------------------------


def test_at_first_only_the_two_loading_tools_are_listed_with_the_seeds_parameters(session: Any) -> None:
    server, tool = session(LIST).last["tools"]

    assert [server["name"], tool["name"]] == META_TOOLS
    assert set(server["inputSchema"]["properties"]) == {"name"}
    assert server["inputSchema"]["required"] == ["name"]
    assert tool["inputSchema"]["properties"]["names"]["type"] == "array"
    assert tool["inputSchema"]["properties"]["server_name"]["type"] == "string"
    assert tool["inputSchema"]["required"] == ["names"]


def test_a_line_for_each_server_stands_in_the_list_from_the_start(session: Any) -> None:
    described = session(LIST).last["tools"][0]["description"]

    lines = described.partition("Servers:\n")[2].splitlines()
    assert lines[0] == "- git: Version control: look at and make commits and branches."
    assert lines[1].startswith("- time")
    assert lines[2] == "- files: Read and write files."


def test_the_instructions_tell_how_to_load(session: Any) -> None:
    told = session().instructions

    assert "load_mcp_server finds servers" in told
    assert "load_mcp_tool loads tools" in told


def test_the_two_tools_are_there_whatever_the_configuration_selects(session: Any) -> None:
    listed, server, tool = session(
        LIST,
        call("load_mcp_server", name="git"),
        call("load_mcp_tool", names=["git_log"]),
        profile="nothing",
    ).results

    assert names(listed) == META_TOOLS
    # They answer; there is nothing to be found.
    assert refusal(server)["code"] == "UnknownServer"
    assert refusal(tool)["code"] in {"UnknownTool", "ToolDisabled"}


def test_a_profile_of_some_categories_tells_of_their_servers_only(session: Any) -> None:
    listed, git, clock = session(
        LIST,
        call("load_mcp_server", name="git"),
        call("load_mcp_server", name="time"),
        profile="clocks",
    ).results

    assert "git" not in listed["tools"][0]["description"]
    assert refusal(git)["available"] == ["time"]
    assert set(servers_in(clock)) == {"time"}


# --- FR-4: load_mcp_server -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "server"),
    [
        ("git", "git"),
        ("commits", "git"),
        ("version control", "git"),
        ("show me what changed in the last commit", "git"),
        ("timezone", "time"),
        ("what time is it in Tokyo", "time"),
        ("list the files in a directory", "files"),
    ],
)
def test_a_server_is_found_by_name_by_keyword_and_by_need(session: Any, name: str, server: str) -> None:
    assert next(iter(servers_in(session(call("load_mcp_server", name=name)).last))) == server


def test_a_server_is_answered_with_its_summary_and_a_line_per_tool_and_no_schema(session: Any) -> None:
    result = session(call("load_mcp_server", name="git")).last

    (server,) = servers_in(result).values()
    assert server["summary"] == "Version control: look at and make commits and branches."
    assert {"git_log", "git_show", "git_status"} <= set(server["tools"])
    assert server["tools"]["git_log"] == "Shows the commit logs"
    assert not any("\n" in line for line in server["tools"].values())
    assert "inputSchema" not in result["text"]
    assert "max_count" not in result["text"]


def test_a_server_that_nothing_fits_is_answered_with_those_that_there_are(session: Any) -> None:
    error = refusal(session(call("load_mcp_server", name="xyzzyplugh")).last)

    assert error["code"] == "UnknownServer"
    assert error["available"] == ["git", "time", "files"]


def test_finding_a_server_loads_none_of_its_tools(session: Any) -> None:
    _, listed, called = session(call("load_mcp_server", name="time"), LIST, call("get_current_time")).results

    assert names(listed) == META_TOOLS
    assert refusal(called)["code"] == "ToolNotLoaded"


# --- FR-4: load_mcp_tool -------------------------------------------------------------------------------------


def test_several_tools_are_loaded_at_once_with_their_whole_schemas(session: Any) -> None:
    result = session(call("load_mcp_tool", names=["git_log", "git_show", "convert_time"])).last

    loaded = tools_in(result)
    assert list(loaded) == ["git_log", "git_show", "convert_time"]
    assert loaded["git_log"]["inputSchema"]["required"] == ["repo_path"]
    assert set(loaded["convert_time"]["inputSchema"]["properties"]) == {
        *("source_timezone", "time", "target_timezone"),
    }
    assert all(each["description"] and each["schemaHash"] for each in loaded.values())
    assert result["structured"]["meta"]["sourceServer"] == "git, time"


def test_a_schema_says_what_the_server_says(session: Any, clients: Clients) -> None:
    (direct,) = (
        each
        for each in clients.spawned([program("mcp-server-time"), "--local-timezone", "UTC"], LIST).last["tools"]
        if each["name"] == "convert_time"
    )

    loaded = tools_in(session(call("load_mcp_tool", names=["convert_time"])).last)["convert_time"]

    assert loaded["description"] == direct["description"]
    assert loaded["inputSchema"] == direct["inputSchema"]


@pytest.mark.parametrize(
    ("need", "tool"),
    [
        ("show the commit log", "git_log"),
        ("convert a time between timezones", "convert_time"),
        ("move or rename a file", "move_file"),
    ],
)
def test_a_tool_is_loaded_by_need(session: Any, need: str, tool: str) -> None:
    assert list(tools_in(session(call("load_mcp_tool", names=[need])).last)) == [tool]


def test_a_need_that_several_tools_fit_names_the_others(session: Any) -> None:
    result = session(call("load_mcp_tool", names=["git diff of changes"])).last

    (loaded,) = tools_in(result)
    alternatives = result["structured"]["meta"]["alternatives"]["git diff of changes"]
    assert loaded.startswith("git_diff")
    assert all(each.startswith("git_diff") for each in alternatives)
    assert loaded not in alternatives


def test_names_and_needs_stand_side_by_side_and_what_fails_keeps_nothing_from_loading(session: Any) -> None:
    asked = ["git_log", "the current time", "xyzzyplugh"]
    result = session(call("load_mcp_tool", names=asked)).last

    assert list(tools_in(result)) == ["git_log", "get_current_time"]
    assert result["structured"]["meta"]["notLoaded"]["xyzzyplugh"].startswith("UnknownTool: ")


def test_server_name_keeps_the_search_to_one_server(session: Any) -> None:
    anywhere, there, elsewhere, nowhere = session(
        call("load_mcp_tool", names=["status of the working tree"]),
        call("load_mcp_tool", names=["read a text"], server_name="files"),
        call("load_mcp_tool", names=["git_log"], server_name="time"),
        call("load_mcp_tool", names=["git_log"], server_name="gti"),
    ).results

    assert list(tools_in(anywhere)) == ["git_status"]
    assert list(tools_in(there)) == ["read_text_file"]
    assert refusal(elsewhere)["code"] == "UnknownTool"
    assert refusal(nowhere)["code"] == "UnknownServer"
    assert refusal(nowhere)["closest"] == ["git"]


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
