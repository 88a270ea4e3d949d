"""Seed 003, semcode's `--lazy`, driven through the real socket by the SDKs' clients, with real servers.

Each test of the seed's own list has its counterpart here, in the seed's order; its name stands in the comment.
"""

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from tests.e2e.harness import Daemon, own_directory, running, scripted, serving, started
from tests.e2e.loading import repository, three_servers
from tests.e2e.scripts import LIST, PYTHON, TYPESCRIPT, Clients, Outcome, Processes, call, names, refusal, zone
from tests.scripted_server import command
from tests.unit.config.test_examples import EXAMPLES, SEMCODE

META_TOOLS = ["list_categories", "get_tools", "call_tool", "call_read_only_tool"]
CATEGORIES = {
    "git_history": "Look at commits.",
    "git_changes": "Make commits and branches.",
    "clock": "What time it is.",
    "files": "Read and write files.",
}
CLOCK = ["get_current_time", "convert_time"]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Three real servers in four categories."""
    place = tmp_path_factory.mktemp("repository")
    repository(place)
    history = "/^git_(log|show|status|diff.*|branch)$/"
    chosen: dict[str, dict[str, Any]] = {
        "git_history": {"server": "git", "tools": {"includePatterns": [history]}},
        "git_changes": {"server": "git", "tools": {"includePatterns": ["git_*"], "excludePatterns": [history]}},
        "clock": {"server": "time"},
        "files": {"server": "files"},
    }
    return {
        "mcpServers": three_servers(place),
        "categories": {name: {"description": CATEGORIES[name], **chosen[name]} for name in CATEGORIES},
        "profiles": {"off": {"lazy": False}},
    }


@pytest.fixture(scope="module")
def daemon(config: dict[str, Any]) -> Iterator[Daemon]:
    with serving(config) as daemon:
        yield daemon


@pytest.fixture
def lazy(daemon: Daemon, clients: Clients) -> Any:
    """A session of a client that asks for `--lazy`."""

    def session(*steps: Any) -> Outcome:
        return clients.session(daemon, *steps, hello={"lazy": True})

    return session


@pytest.fixture(scope="module")
def everything(daemon: Daemon, clients: Clients) -> list[dict[str, Any]]:
    """What a client that asks for `--no-lazy` lists."""
    tools: list[dict[str, Any]] = clients.session(daemon, LIST, hello={"lazy": False}).last["tools"]
    return tools


def described(result: dict[str, Any]) -> dict[str, Any]:
    """The tools that `get_tools` describes."""
    assert result["isError"] is False, result
    tools: dict[str, Any] = result["structured"]["tools"]
    return tools


# --- the seed's own list; its names of tests stand in the comments ----------------------------------------


def test_the_categories_cover_all_tools_each_once_with_a_valid_schema(
    lazy: Any, everything: list[dict[str, Any]]
) -> None:
    # test_get_tool_schema_returns_valid_schemas, test_get_tool_schema_returns_none_for_unknown,
    # test_get_all_tool_schemas_returns_16_tools, test_tool_categories_cover_all_tools,
    # test_handle_get_tools_returns_schemas_for_category
    results = lazy(*(call("get_tools", category=name) for name in CATEGORIES)).results
    found = {name: tool for each in results for name, tool in described(each).items()}
    assert sum(len(described(each)) for each in results) == len(found)
    assert sorted(found) == sorted(tool["name"] for tool in everything)
    for tool in everything:
        shown = found[tool["name"]]
        assert shown["description"] == tool["description"] != ""
        assert shown["inputSchema"] == tool["inputSchema"] or tool["name"] not in CLOCK
        assert shown["inputSchema"]["type"] == "object"
        jsonschema.Draft202012Validator.check_schema(shown["inputSchema"])
    clock = results[list(CATEGORIES).index("clock")]
    assert list(described(clock)) == CLOCK
    meta = clock["structured"]["meta"]
    assert (meta["category"], meta["sourceServer"]) == ("clock", "time")


def test_all_categories_are_listed_with_descriptions_and_tool_names(lazy: Any) -> None:
    # test_handle_list_categories_returns_all_categories
    result = lazy(call("list_categories")).last
    found = {each["name"]: each["description"] for each in result["structured"]["categories"]}
    assert found == CATEGORIES
    assert result["structured"]["categories"][2]["tools"] == CLOCK
    assert "- **clock**: What time it is.\n  Tools: get_current_time, convert_time" in result["text"]


def test_what_does_not_exist_is_answered_with_what_does_and_any_tool_is_called_by_name(lazy: Any) -> None:
    # test_handle_get_tools_invalid_category, test_handle_call_tool_unknown_tool,
    # test_handle_call_tool_prevents_meta_tool_recursion
    ways = ("get_current_time", "time/get_current_time", "mcp__time__get_current_time")
    category, tool, *results = lazy(
        call("get_tools", category="git_histroy"),
        call("call_tool", tool_name="get_curent_time", arguments={}),
        *(call("call_tool", tool_name=name, arguments={"category": "clock"}) for name in META_TOOLS),
        *(call("call_tool", tool_name=name, arguments={"timezone": "Asia/Taipei"}) for name in ways),
    ).results
    error = refusal(category)
    assert (error["code"], error["available"]) == ("UnknownCategory", list(CATEGORIES))
    assert "Did you mean git_history" in error["message"]
    error = refusal(tool)
    assert (error["code"], error["closest"][0]) == ("UnknownTool", "get_current_time")
    assert "Did you mean get_current_time" in error["message"]
    for each in results[: len(META_TOOLS)]:
        assert refusal(each)["code"] == "InvalidArguments"
        assert "call it directly" in refusal(each)["message"]
    assert [zone(each) for each in results[len(META_TOOLS) :]] == ["Asia/Taipei"] * len(ways)


# --- modes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("argv", [PYTHON, TYPESCRIPT], ids=["python", "typescript"])
def test_lazily_exactly_the_meta_tools_are_listed_and_lead_to_a_result(
    daemon: Daemon, sdks: Processes, argv: tuple[str, ...]
) -> None:  # test_lazy_mode_returns_meta_tools_only
    seen = sdks[argv].bridged(
        daemon,
        ["--lazy"],
        LIST,
        call("list_categories"),
        call("get_tools", category="clock"),
        call("call_tool", tool_name="get_current_time", arguments={"timezone": "UTC"}),
    )

    listed, categories, tools, called = seen.results
    assert names(listed) == META_TOOLS
    assert [each["name"] for each in categories["structured"]["categories"]] == list(CATEGORIES)
    assert list(described(tools)) == CLOCK
    assert zone(called) == "UTC"
    assert "1. list_categories" in seen.instructions


def test_not_lazily_every_tool_is_listed_and_called_by_name(
    daemon: Daemon, clients: Clients
) -> None:  # test_non_lazy_mode_returns_all_tools
    seen = clients.bridged(daemon, ["--no-lazy"], LIST, call("get_current_time", timezone="UTC"))

    listed = names(seen.results[0])
    assert {"git_log", "git_commit", *CLOCK, "read_text_file"} <= set(listed)
    assert not {*META_TOOLS} & set(listed)
    assert zone(seen.last) == "UTC"


def test_the_definitions_are_a_small_part_of_the_whole_list_with_the_seeds_parameters(
    lazy: Any, everything: list[dict[str, Any]]
) -> None:
    listed = lazy(LIST).last["tools"]
    # The seed has 230 of 6,400 tokens for 16 tools, and grows no more: neither do these definitions.
    assert len(json.dumps(listed)) < 2000
    assert len(json.dumps(everything)) > 10 * len(json.dumps(listed))
    assert {tool["name"]: tool["inputSchema"].get("required", []) for tool in listed} == {
        "list_categories": [],
        "get_tools": ["category"],
        "call_tool": ["tool_name", "arguments"],
        "call_read_only_tool": ["tool_name", "arguments"],
    }


# --- the shipped example -------------------------------------------------------------------------------------


def semcode(directory: Path) -> None:
    """A `semcode-mcp` in a directory: what it lists, and how it answers what it does not know."""
    unknown = {"result": {"error": {"code": -32601, "message": "Method not found"}}}
    script = {
        "name": "semcode-mcp",
        "protocol": "2024-11-05",
        "announces": False,
        "tools": [tool for tools in SEMCODE.values() for tool in tools],
        "on": {"server/discover": unknown},
    }
    program = directory / "semcode-mcp"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command(**script))} "$@"\n')
    program.chmod(0o755)


@pytest.fixture
def example() -> Iterator[Daemon]:
    """`mcpd run --config config/semcode.json`, with a `semcode-mcp` on the PATH."""
    directory = own_directory()
    semcode(directory)
    daemon = Daemon(directory, {}, {"PATH": f"{directory}:{os.defpath}"})
    daemon.config = EXAMPLES / "semcode.json"
    with started(daemon):
        daemon.ready("semcode")
        yield daemon


def test_the_shipped_example_serves_the_seeds_five_categories_and_16_tools(
    example: Daemon, clients: Clients
) -> None:
    assert "5 categories" in example.run("check", str(example.config))
    asked = [call("get_tools", category=category) for category in SEMCODE]
    found = call("call_tool", tool_name="indexing_status", arguments={})
    seen = clients.bridged(example, [], LIST, call("list_categories"), *asked, found)

    listed, categories, *tools, called = seen.results
    assert names(listed) == META_TOOLS
    told = {each["name"]: each["tools"] for each in categories["structured"]["categories"]}
    assert told == SEMCODE
    assert [list(described(each)) for each in tools] == list(SEMCODE.values())
    assert called["isError"] is False
    everything = names(clients.bridged(example, ["--no-lazy"], LIST).last)
    assert sorted(everything) == sorted(name for names in SEMCODE.values() for name in names)
    assert "lazy loading is on; by profile: default shows browse" in example.said()
    assert example.status()["daemon"]["surfaces"] == {"default": "browse"}


# --- the switches of the daemon ------------------------------------------------------------------------------


TIME = {"time": scripted(tools=CLOCK)}


@pytest.mark.parametrize(
    ("switch", "top", "option", "expected"),
    [
        (
            "--lazy",
            {"lazy": False, "profiles": {"default": {"lazy": False, "surface": "full"}}},
            "",
            META_TOOLS,
        ),
        ("--lazy", {}, "--no-lazy", CLOCK),
        ("--no-lazy", {"lazy": True, "profiles": {"default": {"surface": "browse"}}}, "--lazy", CLOCK),
    ],
)
def test_the_daemons_switch_counts_more_than_its_configuration_and_a_client_can_only_switch_off(
    clients: Clients, switch: str, top: dict[str, Any], option: str, expected: list[str]
) -> None:
    with running({"mcpServers": TIME, **top}, options=(switch,)) as daemon:
        assert names(clients.bridged(daemon, [option] if option else [], LIST).last) == expected


def test_without_a_switch_the_configuration_counts(daemon: Daemon, clients: Clients) -> None:
    assert names(clients.bridged(daemon, [], LIST).last) == [
        "get-category-tools",
        "call-category-tool",
        "call-read-only-tool",
    ]
    assert set(CLOCK) < set(names(clients.bridged(daemon, ["--profile", "off"], LIST).last))
