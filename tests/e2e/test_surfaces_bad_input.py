"""What clients, servers and configurations can do wrong on the surfaces, against the real daemon."""

from __future__ import annotations

import json
import shlex
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.harness import ROOT, Daemon, running
from tests.e2e.scripts import LIST, Clients, call, names, refusal
from tests.scripted_server import command, tool
from tests.waiting import WAIT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.e2e

MANY = 5000
ODD = ["read a file", "🎉 celebrate", "naïve-ünïcode", "a.b:c/d"]
OVERLONG = "n" * 300
BACKTRACKING = "a" * 127 + "b"
"""128 characters, as many as a name may have: a backtracking engine tries 2^127 ways to fit `^(a+)+$` to it."""


def scripted(path: Path, **script: Any) -> dict[str, Any]:
    """The `mcpServers` entry of a scripted server; its script may be long."""
    path.write_text(json.dumps(script))
    python, *options, _ = command()
    return {"command": python, "args": [*options, f"@{path}"]}


def wide(number: int) -> dict[str, Any]:
    """A tool with a schema of some size."""
    text = f"The {number}th of many: " + "what it is good for. " * 5
    schema = {"type": "object", "properties": {"value": {"type": "string", "description": text}}}
    return tool(f"tool{number}", inputSchema=schema)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    place = tmp_path_factory.mktemp("scripts")
    servers = {
        "first": scripted(place / "first", tools=["echo", "alpha"]),
        "second": scripted(place / "second", tools=["echo", "beta", "get_tools", "search_tools"]),
        "odd": scripted(place / "odd", tools=[*ODD, OVERLONG, BACKTRACKING, "a" * 128]),
        "many": scripted(place / "many", tools=[wide(number) for number in range(MANY)], page=500),
        "bare": scripted(place / "bare", tools=MANY),
    }
    categories: dict[str, Any] = {name: {"server": name} for name in servers}
    categories["regex"] = {"server": "odd", "tools": {"includePatterns": ["/^(a+)+$/"]}}
    few = ["first", "second", "odd"]
    profiles = {
        surface: {"surface": surface, "categories": few} for surface in ("browse", "search", "load", "full")
    }
    with running({"mcpServers": servers, "categories": categories, "profiles": profiles}) as daemon:
        daemon.ready()
        yield daemon


@pytest.fixture
def on(daemon: Daemon, clients: Clients) -> Any:
    """The result of the last of some steps in a session on a surface."""

    def session(profile: str, *steps: Any) -> dict[str, Any]:
        return clients.session(daemon, *steps, hello={"profile": profile}).last

    return session


def found(result: dict[str, Any]) -> list[str]:
    """The tools that a search found."""
    assert result["isError"] is False, result
    return [each["name"] for each in result["structured"]["tools"]]


# --- searching -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["", "   ", [], [""], ["", "  "]])
def test_an_empty_query_lists_everything(on: Any, query: str | list[str]) -> None:
    assert {"alpha", "beta", *ODD} <= set(
        found(on("search", call("search_tools", query=query, max_results=100)))
    )


@pytest.mark.parametrize("query", ["xyzzy plugh", "!!!", "🎈", "\u0000", "%s'\";--", "(", "*"])
def test_a_query_that_nothing_fits_is_answered_with_the_categories(on: Any, query: str) -> None:
    result = on("search", call("search_tools", query=query))

    assert found(result) == []
    assert result["text"].startswith("Found 0 tool(s).")
    assert result["text"].endswith("Available categories: first, second, odd")


def test_a_very_long_query_is_answered(on: Any) -> None:
    assert "alpha" in found(on("search", call("search_tools", query="alpha " + "of many words " * 5000)))


@pytest.mark.parametrize("surface", ["search", "browse"])
def test_an_unknown_category_is_answered_with_those_that_there_are(on: Any, surface: str) -> None:
    asking = {"search": "search_tools", "browse": "get_tools"}[surface]
    error = refusal(on(surface, call(asking, category="frist")))

    assert error["code"] == "UnknownCategory"
    assert error["available"] == ["first", "second", "odd"]
    assert "Did you mean first" in error["message"]


@pytest.mark.parametrize("most", [0, -1, -(10**9)])
def test_fewer_than_one_result_is_refused(on: Any, most: int) -> None:
    error = refusal(on("search", call("search_tools", query="alpha", max_results=most)))

    assert error["code"] == "InvalidArguments"
    assert "must be 1 or more" in error["message"]


def test_a_billion_results_are_as_many_as_there_are_up_to_a_hundred(daemon: Daemon, clients: Clients) -> None:
    search = call("search_tools", query="", max_results=10**9)
    few, many = (
        clients.session(daemon, search, LIST, hello=hello)
        for hello in ({"profile": "search"}, {"surface": "search"})
    )

    assert len(found(few.results[0])) == len(names(few.last)) - 3
    assert len(found(many.results[0])) == 100
    assert many.results[0]["structured"]["total"] > MANY


@pytest.mark.parametrize(
    "arguments",
    [
        {"query": 7},
        {"query": ["a", 7]},
        {"max_results": "many"},
        {"max_results": 1.5},
        {"include_descriptions": "no"},
        {"category": ["first"]},
        {"quary": "alpha"},
    ],
)
def test_arguments_of_another_shape_are_refused_with_an_example(on: Any, arguments: dict[str, Any]) -> None:
    error = refusal(on("search", call("search_tools", **arguments)))

    assert error["code"] == "InvalidArguments"
    assert '{"query": "read a file"}' in error["message"]


# --- meta-tools among themselves -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("surface", "name"),
    [
        ("browse", "list_categories"),
        ("browse", "get_tools"),
        ("browse", "call_tool"),
        ("browse", "mcp__mcpd__call_tool"),
        ("search", "search_tools"),
        ("search", "call_tool"),
        ("search", "mcp__mcpd__search_tools"),
    ],
)
def test_call_tool_calls_no_meta_tool(on: Any, surface: str, name: str) -> None:
    error = refusal(on(surface, call("call_tool", tool_name=name, arguments={})))

    assert error["code"] == "InvalidArguments"
    assert "call it directly" in error["message"]


@pytest.mark.parametrize("name", ["load_mcp_server", "load_mcp_tool", "mcp__mcpd__load_mcp_tool"])
def test_load_mcp_tool_loads_no_meta_tool(on: Any, name: str) -> None:
    error = refusal(on("load", call("load_mcp_tool", names=[name])))

    assert error["code"] == "InvalidArguments"
    assert "call it directly" in error["message"]


def test_a_servers_tool_with_a_meta_tools_name_is_called_by_its_qualified_name(on: Any) -> None:
    described = on("browse", call("get_tools", category="second"))["structured"]["tools"]
    searched = found(on("search", call("search_tools", query="search_tools", max_results=1)))

    assert {"second__get_tools", "search_tools"} <= set(described)
    assert searched == ["second__search_tools"]
    for surface, name in (("browse", "second__get_tools"), ("search", "second__search_tools")):
        wrapped = call("call_tool", tool_name=name, arguments={"from": "the server"})
        assert json.loads(on(surface, wrapped)["text"]) == {"from": "the server"}


@pytest.mark.parametrize("sent", [[], [""], ["alpha"] * 51 + [f"t{n}" for n in range(51)]])
def test_no_names_and_too_many_names_are_refused(on: Any, sent: list[str]) -> None:
    error = refusal(on("load", call("load_mcp_tool", names=sent)))

    assert error["code"] == "InvalidArguments"


@pytest.mark.parametrize("name", ["", "   "])
def test_an_empty_need_for_a_server_is_refused_with_an_example(on: Any, name: str) -> None:
    error = refusal(on("load", call("load_mcp_server", name=name)))

    assert error["code"] == "InvalidArguments"
    assert "version control" in error["message"]


# --- much ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hello", "asking"), [({"lazy": True}, "get_tools"), ({}, "get-category-tools")])
@pytest.mark.parametrize(("category", "prefix"), [("many", "tool"), ("bare", "echo")])
def test_five_thousand_tools_come_in_parts_each_exactly_once(
    daemon: Daemon, clients: Clients, hello: dict[str, Any], asking: str, category: str, prefix: str
) -> None:
    step = call(asking, category=category)
    seen: list[str] = []
    parts = 0
    while step:
        result = clients.session(daemon, step, hello=hello).last
        assert result["isError"] is False, result
        seen += result["structured"]["tools"]
        meta = result["structured"]["meta"]
        parts += 1
        assert meta.get("toolsLeft", 0) == MANY - len(seen)
        step = call(meta["next"]["name"], **meta["next"]["arguments"]) if "next" in meta else {}

    assert seen == [f"{prefix}{number}" for number in range(MANY)]
    assert parts > 1


@pytest.mark.parametrize("cursor", ["-1", "99999", "one", "", "٣"])
def test_a_cursor_that_nobody_gave_out_is_refused(daemon: Daemon, clients: Clients, cursor: str) -> None:
    asked = call("get_tools", category="many", cursor=cursor)

    assert refusal(clients.session(daemon, asked, hello={"lazy": True}).last)["code"] == "InvalidArguments"


def test_five_thousand_tools_are_listed_when_the_switch_is_off(daemon: Daemon, clients: Clients) -> None:
    listed = names(clients.session(daemon, LIST, hello={"lazy": False}).last)

    assert [name for name in listed if name.startswith("tool")] == [f"tool{number}" for number in range(MANY)]


# --- names ---------------------------------------------------------------------------------------------------


def test_a_name_that_two_servers_share_is_the_firsts_and_the_seconds_is_qualified(on: Any) -> None:
    listed = names(on("full", LIST))

    assert listed[:4] == ["echo", "alpha", "second__echo", "beta"]
    for name in ("echo", "second__echo", "second/echo", "mcp__second__echo"):
        assert json.loads(on("full", call(name, value=name))["text"]) == {"value": name}


def test_a_server_that_comes_up_late_renames_nobodys_tools(tmp_path: Path, clients: Clients) -> None:
    program = tmp_path / "late"
    servers = {"late": {"command": str(program)}, "early": scripted(tmp_path / "early", tools=["echo"])}
    config = {"mcpServers": servers, "lazy": False}

    with running(config) as daemon:
        daemon.ready("early")
        assert names(clients.session(daemon, LIST).last) == ["mcpd_status", "echo"]
        program.write_text(f"#!/bin/sh\nexec {shlex.join(command(tools=['echo', 'gamma']))}\n")
        program.chmod(0o700)
        daemon.run("restart", "late")
        daemon.ready("late")
        listed = names(clients.session(daemon, LIST).last)

    assert listed == ["late__echo", "gamma", "echo"]


@pytest.mark.parametrize("name", ODD)
def test_a_name_with_spaces_or_emoji_is_listed_described_loaded_and_called(
    daemon: Daemon, clients: Clients, name: str
) -> None:
    listed, direct = clients.session(daemon, LIST, call(name, a=1), hello={"profile": "full"}).results
    described, wrapped = clients.session(
        daemon,
        call("get_tools", category="odd"),
        call("call_tool", tool_name=name, arguments={"a": 1}),
        hello={"profile": "browse"},
    ).results
    loaded, called = clients.session(
        daemon, call("load_mcp_tool", names=[name]), call(name, a=1), hello={"profile": "load"}
    ).results

    assert name in names(listed)
    assert name in described["structured"]["tools"]
    assert list(loaded["structured"]["tools"]) == [name]
    assert [json.loads(each["text"]) for each in (direct, wrapped, called)] == [{"a": 1}] * 3


def test_a_name_of_three_hundred_characters_is_quarantined_and_the_status_names_it(
    daemon: Daemon, on: Any
) -> None:
    assert OVERLONG not in names(on("full", LIST))
    assert refusal(on("full", call(OVERLONG)))["code"] == "UnknownTool"

    (quarantined,) = daemon.ask("status")["servers"]["odd"]["quarantined"].items()
    assert quarantined[0].strip("'") in OVERLONG
    assert "128" in quarantined[1]
    assert "nnnnnnnn" in daemon.run("status", check=None)


# --- patterns ------------------------------------------------------------------------------------------------


def test_a_pattern_that_explodes_elsewhere_is_matched_at_once(daemon: Daemon, clients: Clients) -> None:
    result = clients.session(daemon, call("get_tools", category="regex"), hello={"lazy": True}).last

    assert list(result["structured"]["tools"]) == ["a" * 128]


@pytest.mark.parametrize("pattern", ["/(/", "/[z-a]/", "/(?=a)/", r"/(a)\1/", "/a{2000}/", "/", ""])
@pytest.mark.parametrize("words", [("check",), ("run", "--config")])
def test_a_pattern_that_does_not_compile_ends_with_78_and_its_place(
    tmp_path: Path, pattern: str, words: tuple[str, ...]
) -> None:
    tools = {"includePatterns": ["good_*", pattern]}
    server = {"time": {"command": "true"}}
    daemon = Daemon(
        tmp_path, {"mcpServers": server, "categories": {"c": {"server": "time", "tools": tools}}}, {}
    )

    done = subprocess.run(
        daemon.command(*words, str(daemon.config)),
        cwd=ROOT,
        env=daemon.environ,
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )

    assert done.returncode == 78
    assert "categories.c.tools.includePatterns[1]" in done.stdout + done.stderr
