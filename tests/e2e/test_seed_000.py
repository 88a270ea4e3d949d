"""Seed 000, Serena's deferred loading, driven through the real socket by the SDKs' clients.

The configuration is the shipped `config/serena.json` with its `deferred` profile. Serena itself is played by a
scripted server that lists the tools which Serena 2.1.0 listed; mcp-server-time is real.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon.config.jsonc import decode
from tests.e2e.harness import Daemon, program, scripted, serving
from tests.e2e.loading import ONE
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
from tests.scripted_server import command, tool
from tests.unit.cases import rows_of
from tests.unit.config.test_examples import EXAMPLES, SERENA_2_1_DESKTOP_APP

CATEGORIES = [
    *("memory", "file_operations", "symbolic_read", "symbolic_edit"),
    *("config", "workflow", "shell", "jetbrains"),
]
META_TOOLS = ["search_tools", "call_tool", "call_read_only_tool"]
CORE = ["initial_instructions", "activate_project", "get_current_config", "list_dir", "find_file"]
MEMORY = ["write_memory", "read_memory", "list_memories", "edit_memory", "rename_memory"]
SYMBOL = {name for name in SERENA_2_1_DESKTOP_APP if "symbol" in name} - {"safe_delete_symbol"}

DESCRIBED = dict(rows_of(Path(__file__), "described"))
"""What Serena says of some of its tools."""

DEFERRED = {"deferredLoading": True, "categories": CATEGORIES}


def serena() -> dict[str, Any]:
    """The shipped configuration, with a scripted Serena, a clock and the profiles of these tests."""
    config, faults = decode((EXAMPLES / "serena.json").read_text(), source="serena.json")
    assert isinstance(config, dict)
    assert not faults
    tools = [tool(name, description=DESCRIBED.get(name, "")) for name in sorted(SERENA_2_1_DESKTOP_APP)]
    program_and_arguments = command(tools=tools)
    config["mcpServers"]["serena"] |= {"command": program_and_arguments[0], "args": program_and_arguments[1:]}
    time = {"command": program("mcp-server-time"), "args": ["--local-timezone", "UTC"]}
    config["mcpServers"]["time"] = {**time, **ONE}
    config["categories"]["clock"] = {"description": "What time it is.", "server": "time"}
    config["profiles"] |= {
        "prompted": {**DEFERRED, "prompt": "Look before you leap."},
        "without": {**DEFERRED, "excludedTools": ["find_symbol", "serena/rename_symbol"]},
        "with": {**DEFERRED, "includedOptionalTools": ["execute_shell_command", "time/get_current_time"]},
        "reworded": {**DEFERRED, "toolDescriptionOverrides": {"find_file": "Look a file up by its name."}},
        "eager": {**DEFERRED, "deferredLoading": False},
        "clocks": {"deferredLoading": True, "coreTools": ["time/convert_time", "search_tools"]},
    }
    return config


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with serving(serena()) as daemon:
        yield daemon


@pytest.fixture
def deferred(daemon: Daemon, clients: Clients) -> Any:
    """A session of `config/serena.json`'s `deferred` profile, or of another."""

    def session(*steps: Any, profile: str = "deferred", **job: Any) -> Outcome:
        return clients.session(daemon, *steps, hello={"profile": profile}, **job)

    return session


def found(result: dict[str, Any]) -> list[str]:
    """The tools that a search found, in its order."""
    assert result["isError"] is False, result
    return [each["name"] for each in result["structured"]["tools"]]


def test_at_first_the_search_the_call_and_the_core_tools_are_listed_and_told_of(deferred: Any) -> None:
    seen = deferred(LIST)
    assert names(seen.last) == [*META_TOOLS, *CORE]
    told = seen.instructions
    assert told.startswith("**Tool Discovery (Deferred Loading)**\nOnly core tools are loaded initially")
    assert "Use `search_tools` to discover additional tools:\n- `search_tools(query=" in told
    for category in CATEGORIES:
        assert f'- `search_tools(category="{category}")`: ' in told
    assert f"Core tools available: search_tools, call_tool, {', '.join(CORE)}\n" in told
    # A profile's description is for people.
    assert "A few core tools, and a search for the rest." not in told + json.dumps(seen.last)
    properties = seen.last["tools"][0]["inputSchema"]["properties"]
    assert set(properties) == {"query", "category", "include_descriptions", "max_results"}
    assert properties["category"]["type"] == ["string", "null"]
    defaults = [properties[each]["default"] for each in ("query", "include_descriptions", "max_results")]
    assert defaults == ["", True, 20]


# --- search_tools --------------------------------------------------------------------------------------------


def test_a_search_finds_by_name_description_and_category(deferred: Any) -> None:
    *symbols, every, memory, files, reading, plain, spelled = deferred(
        *(call("search_tools", query=query) for query in ("symbol", "SYMBOL", "symb")),
        call("search_tools", query="symbol", max_results=100),
        call("search_tools", category="memory"),
        call("search_tools", query="find", category="file_operations"),
        call("search_tools", query="find", category="symbolic_read"),
        call("search_tools"),
        call("search_tools", query="", category=None, include_descriptions=True, max_results=20),
    ).results
    for hits in symbols:
        assert set(found(hits)[: len(SYMBOL)]) == SYMBOL
    # A word that only the server's description has does not make every tool a find.
    assert not {"onboarding", "list_dir", "read_memory"} & set(found(every))
    assert found(memory) == MEMORY
    assert found(files)[0] == "find_file"
    assert not {"find_symbol", "find_declaration"} & set(found(files))
    assert set(found(reading)[:4]) == {
        *("find_symbol", "find_declaration", "find_implementations", "find_referencing_symbols")
    }
    # Of 29 tools the shipped categories switch off three, and replace_symbol_body for one profile only.
    assert (len(found(plain)), plain["structured"]["total"]) == (20, len(SERENA_2_1_DESKTOP_APP) - 3)
    assert plain == spelled


def test_the_answer_reads_as_the_seed_shows_it_and_is_structured_as_well(deferred: Any) -> None:
    told, bare, few, *phrased = deferred(
        call("search_tools", query="find_file", max_results=1),
        call("search_tools", query="find file", max_results=1, include_descriptions=False),
        call("search_tools", category="memory", max_results=2),
        call("search_tools", query="rename_symbol", max_results=1),
        call("search_tools", query=["rename_symbol", "list_dir"], max_results=2),
    ).results
    lines, says = told["text"].splitlines(), DESCRIBED["find_file"]
    assert lines[:5] == ["Found 1 tool(s):", "", "- **find_file** [active] [file_operations]", f"  {says}", ""]
    assert lines[-1] == f"Available categories: {', '.join(CATEGORIES)}"
    hit = {"name": "find_file", "server": "serena", "category": "file_operations", "active": True}
    assert told["structured"]["tools"] == [{**hit, "description": says}]
    assert told["structured"]["categories"] == CATEGORIES
    assert "description" not in bare["structured"]["tools"][0]
    assert says not in bare["text"]
    assert (found(few), few["structured"]["total"]) == (MEMORY[:2], len(MEMORY))
    assert "3 more fit: say more precisely" in few["text"]
    assert [set(found(each)) for each in phrased] == [{"rename_symbol"}, {"rename_symbol", "list_dir"}]


# --- what is found -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "job"),
    [(PYTHON, {}), (PYTHON, {"mode": "2026-07-28", "listen": True}), (TYPESCRIPT, {})],
    ids=["python", "python-modern", "typescript"],
)
def test_what_is_found_is_announced_once_and_listed_from_then_on_in_that_session(
    daemon: Daemon, sdks: Processes, argv: tuple[str, ...], job: dict[str, Any]
) -> None:
    search, hello = call("search_tools", query="rename_symbol", max_results=1), {"profile": "deferred"}
    seen = sdks[argv].session(daemon, LIST, search, CHANGED, LIST, search, LIST, hello=hello, **job)
    before, _, _, after, _, again = seen.results
    assert names(after) == names(again) == [*names(before), "rename_symbol"]
    assert after["tools"][-1]["description"] == DESCRIBED["rename_symbol"]
    assert seen.changes == 1
    assert "rename_symbol" not in names(sdks[argv].session(daemon, LIST, hello=hello, **job).last)


def test_core_tools_found_ones_and_those_that_are_not_listed_are_called(deferred: Any) -> None:
    core, _, listed, unlisted, wrapped, shell = deferred(
        call("list_dir", path="."),
        call("search_tools", query="find_symbol", max_results=1),
        call("find_symbol", name_path="A"),
        call("write_memory", name="b"),
        call("call_tool", tool_name="write_memory", arguments={"name": "b"}),
        call("execute_shell_command"),
    ).results
    said = [json.loads(each["text"]) for each in (core, listed, unlisted, wrapped)]
    assert said == [{"path": "."}, {"name_path": "A"}, {"name": "b"}, {"name": "b"}]
    # What is off stays off, whatever is found.
    assert refusal(shell)["code"] == "ToolDisabled"


# --- the keys of a profile -----------------------------------------------------------------------------------


def test_core_tools_may_be_any_servers_and_may_name_the_search_itself(deferred: Any) -> None:
    seen = deferred(
        LIST,
        call("search_tools", query="current time in a timezone", max_results=1),
        call("get_current_time", timezone="UTC"),
        call("call_tool", tool_name="get_current_time", arguments={"timezone": "Asia/Taipei"}),
        profile="clocks",
    )
    listed, clock, current, wrapped = seen.results
    assert names(listed) == [*META_TOOLS, "convert_time"]
    assert "Core tools available: search_tools, call_tool, convert_time\n" in seen.instructions
    assert found(clock) == ["get_current_time"]
    assert (zone(current), zone(wrapped)) == ("UTC", "Asia/Taipei")


def test_excluded_tools_are_neither_found_nor_called_and_optional_ones_are(deferred: Any) -> None:
    everything, reading, bare, qualified = deferred(
        call("search_tools", max_results=100),
        call("search_tools", category="symbolic_read"),
        call("find_symbol"),
        call("call_tool", tool_name="rename_symbol", arguments={}),
        profile="without",
    ).results
    assert not {"find_symbol", "rename_symbol"} & {*found(everything), *found(reading)}
    assert refusal(bare)["code"] == refusal(qualified)["code"] == "ToolDisabled"

    everything, shell, clock = deferred(
        call("search_tools", max_results=100),
        call("execute_shell_command", command="true"),
        call("get_current_time", timezone="UTC"),
        profile="with",
    ).results
    assert {"execute_shell_command", "get_current_time"} <= set(found(everything))
    assert "convert_time" not in found(everything)
    assert (json.loads(shell["text"]), zone(clock)) == ({"command": "true"}, "UTC")


def test_a_prompt_and_descriptions_of_the_profile_reach_models(deferred: Any) -> None:
    assert deferred(profile="prompted").instructions.endswith("\nLook before you leap.")
    searched, listed = deferred(
        call("search_tools", query="find_file", max_results=1), LIST, profile="reworded"
    ).results
    assert searched["structured"]["tools"][0]["description"] == "Look a file up by its name."
    assert listed["tools"][-1]["description"] == "Look a file up by its name."


def test_without_deferred_loading_every_tool_is_listed_as_before(deferred: Any) -> None:
    listed = names(deferred(LIST, profile="eager").last)
    assert not {"search_tools", "call_tool"} & set(listed)
    assert len(listed) == len(SERENA_2_1_DESKTOP_APP) - 3


def test_a_profile_that_names_no_core_tools_has_those_that_were_called_most_over_restarts() -> None:
    server = scripted(tools=[tool("echo"), tool("add"), tool("hide")])
    profiles = {
        "default": {"deferredLoading": True, "excludedTools": ["hide"]},
        "none": {"deferredLoading": True, "coreTools": []},
    }
    with serving({"mcpServers": {"s": server}, "profiles": profiles}) as daemon:
        for core in ([], ["add", "echo"]):
            with daemon.client() as client, daemon.client() as plain:
                said = client.ask("initialize", {"protocolVersion": "2025-06-18"})["result"]["instructions"]
                assert said.endswith(f"Core tools available: {', '.join(['search_tools', 'call_tool', *core])}")
                for name in ("echo", "add", "echo"):
                    assert client.call(name, {})["isError"] is False
                assert client.listed() == ["search_tools", "call_tool", "call_read_only_tool", *core]
                assert plain.hello(profile="none").call("hide", {})["isError"] is False
                assert plain.listed() == ["search_tools", "call_tool", "call_read_only_tool"]
            daemon.restart()
            daemon.ready()
        assert "toolCalls" not in json.dumps(daemon.ask("status"))
