"""Seed 000, Serena's deferred loading, driven through the real socket by the SDKs' clients.

The configuration is the shipped `config/serena.json` with its `deferred` profile. Serena itself is played by a
scripted server that lists the tools which Serena 2.1.0 listed; mcp-server-time is real.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from daemon.config.jsonc import decode
from tests.e2e.harness import Daemon, program, running, scripted
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
from tests.unit.config.test_examples import EXAMPLES, SERENA_2_1_DESKTOP_APP

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.e2e

CATEGORIES = [
    *("memory", "file_operations", "symbolic_read", "symbolic_edit"),
    *("config", "workflow", "shell", "jetbrains"),
]
CORE = ["initial_instructions", "activate_project", "get_current_config", "list_dir", "find_file"]
MEMORY = ["write_memory", "read_memory", "list_memories", "edit_memory", "rename_memory"]
SYMBOL = {name for name in SERENA_2_1_DESKTOP_APP if "symbol" in name} - {"safe_delete_symbol"}

DESCRIBED = {
    "find_symbol": "Retrieves information on all symbols/code entities based on the given name path pattern.",
    "find_referencing_symbols": "Finds references to the symbol at the given name_path.",
    "find_file": "Finds non-gitignored files matching the given file mask.",
    "list_dir": "Lists files and directories in the given directory.",
    "rename_symbol": "Renames the symbol throughout the codebase.",
    "onboarding": "Looks at the project's structure for the first time.",
}
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
    config["mcpServers"]["time"] = {"command": program("mcp-server-time"), "args": ["--local-timezone", "UTC"]}
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
    with running(serena()) as daemon:
        daemon.ready()
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


# --- what is there from the start ----------------------------------------------------------------------------


def test_at_first_only_the_search_the_call_and_the_core_tools_are_listed(deferred: Any) -> None:
    assert names(deferred(LIST).last) == ["search_tools", "call_tool", "call_read_only_tool", *CORE]


def test_the_instructions_tell_of_the_search_with_the_real_categories_and_core_tools(deferred: Any) -> None:
    told = deferred().instructions

    assert told.startswith("**Tool Discovery (Deferred Loading)**\nOnly core tools are loaded initially")
    assert "Use `search_tools` to discover additional tools:\n- `search_tools(query=" in told
    for category in CATEGORIES:
        assert f'- `search_tools(category="{category}")`: ' in told
    assert f"Core tools available: search_tools, call_tool, {', '.join(CORE)}\n" in told


def test_the_definition_of_the_search_has_the_seeds_parameters_and_defaults(deferred: Any) -> None:
    properties = deferred(LIST).last["tools"][0]["inputSchema"]["properties"]

    assert set(properties) == {"query", "category", "include_descriptions", "max_results"}
    assert properties["query"]["default"] == ""
    assert properties["category"]["type"] == ["string", "null"]
    assert properties["include_descriptions"]["default"] is True
    assert properties["max_results"]["default"] == 20


# --- search_tools --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["symbol", "SYMBOL", "symb"])
def test_a_query_finds_the_tools_with_that_word_in_their_names_first(deferred: Any, query: str) -> None:
    hits = found(deferred(call("search_tools", query=query, max_results=20)).last)

    assert set(hits[: len(SYMBOL)]) == SYMBOL


def test_a_word_that_only_the_servers_description_has_does_not_make_every_tool_a_find(deferred: Any) -> None:
    hits = found(deferred(call("search_tools", query="symbol", max_results=100)).last)

    assert not {"onboarding", "list_dir", "read_memory"} & set(hits)


def test_a_category_lists_its_tools_and_not_what_it_switches_off(deferred: Any) -> None:
    hits = found(deferred(call("search_tools", category="memory")).last)

    assert hits == MEMORY


def test_a_query_within_a_category_finds_what_fits_both(deferred: Any) -> None:
    files, symbols = deferred(
        call("search_tools", query="find", category="file_operations"),
        call("search_tools", query="find", category="symbolic_read"),
    ).results

    assert found(files)[0] == "find_file"
    assert not {"find_symbol", "find_declaration"} & set(found(files))
    assert set(found(symbols)[:4]) == {
        *("find_symbol", "find_declaration", "find_implementations", "find_referencing_symbols"),
    }


def test_descriptions_can_be_left_out(deferred: Any) -> None:
    query = {"query": "find file", "max_results": 1}

    told, bare = deferred(
        call("search_tools", **query), call("search_tools", **query, include_descriptions=False)
    ).results

    assert told["structured"]["tools"][0]["description"] == DESCRIBED["find_file"]
    assert "description" not in bare["structured"]["tools"][0]
    assert DESCRIBED["find_file"] in told["text"]
    assert DESCRIBED["find_file"] not in bare["text"]


def test_max_results_cuts_the_answer_and_says_that_there_is_more(deferred: Any) -> None:
    result = deferred(call("search_tools", category="memory", max_results=2)).last

    assert found(result) == MEMORY[:2]
    assert result["structured"]["total"] == len(MEMORY)
    assert "3 more fit: say more precisely" in result["text"]


def test_several_phrasings_find_more_than_either(deferred: Any) -> None:
    one, other, both = (
        found(each)
        for each in deferred(
            call("search_tools", query="rename_symbol", max_results=1),
            call("search_tools", query="list_dir", max_results=1),
            call("search_tools", query=["rename_symbol", "list_dir"], max_results=2),
        ).results
    )

    assert (one, other) == (["rename_symbol"], ["list_dir"])
    assert set(both) == {"rename_symbol", "list_dir"}


def test_without_arguments_everything_is_searched_and_twenty_are_shown(deferred: Any) -> None:
    plain, spelled = deferred(
        call("search_tools"),
        call("search_tools", query="", category=None, include_descriptions=True, max_results=20),
    ).results

    # Of 29 tools the shipped categories switch off three, and replace_symbol_body for one profile only.
    assert len(found(plain)) == 20
    assert plain["structured"]["total"] == len(SERENA_2_1_DESKTOP_APP) - 3
    assert plain == spelled


def test_the_answer_reads_as_the_seed_shows_it(deferred: Any) -> None:
    result = deferred(call("search_tools", query="find_referencing_symbols", max_results=1)).last

    lines = result["text"].splitlines()
    assert lines[:5] == [
        "Found 1 tool(s):",
        "",
        "- **find_referencing_symbols** [active] [symbolic_read]",
        f"  {DESCRIBED['find_referencing_symbols']}",
        "",
    ]
    assert lines[-1] == f"Available categories: {', '.join(CATEGORIES)}"


def test_the_answer_is_structured_as_well(deferred: Any) -> None:
    structured = deferred(call("search_tools", query="find_file", max_results=1)).last["structured"]

    assert structured["tools"] == [
        {
            "name": "find_file",
            "server": "serena",
            "category": "file_operations",
            "active": True,
            "description": DESCRIBED["find_file"],
        }
    ]
    assert structured["categories"] == CATEGORIES


# --- what is found -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "job"),
    [(PYTHON, {}), (PYTHON, {"mode": "2026-07-28", "listen": True}), (TYPESCRIPT, {})],
    ids=["python", "python-modern", "typescript"],
)
def test_what_is_found_is_announced_and_listed_from_then_on(
    daemon: Daemon, sdks: Processes, argv: tuple[str, ...], job: dict[str, Any]
) -> None:
    search = call("search_tools", query="rename_symbol", max_results=1)
    seen = sdks[argv].session(daemon, LIST, search, CHANGED, LIST, hello={"profile": "deferred"}, **job)

    before, _, _, after = seen.results
    assert names(after) == [*names(before), "rename_symbol"]
    assert after["tools"][-1]["description"] == DESCRIBED["rename_symbol"]
    assert seen.changes == 1


def test_what_was_found_already_is_not_announced_again(deferred: Any) -> None:
    search = call("search_tools", query="rename_symbol", max_results=1)

    seen = deferred(LIST, search, CHANGED, LIST, search, LIST)

    assert seen.changes == 1
    assert names(seen.results[3]) == names(seen.results[5])


def test_what_one_session_finds_is_not_listed_for_another(deferred: Any) -> None:
    deferred(call("search_tools", query="rename_symbol"))

    assert "rename_symbol" not in names(deferred(LIST).last)


def test_a_core_tool_a_found_one_and_one_that_is_not_listed_are_called_by_name(deferred: Any) -> None:
    core, _, listed, unlisted = deferred(
        call("list_dir", path="."),
        call("search_tools", query="find_symbol", max_results=1),
        call("find_symbol", name_path="A"),
        call("write_memory", name="b"),
    ).results

    assert [json.loads(each["text"]) for each in (core, listed, unlisted)] == [
        {"path": "."},
        {"name_path": "A"},
        {"name": "b"},
    ]


def test_call_tool_runs_a_tool_that_is_not_listed(deferred: Any) -> None:
    result = deferred(call("call_tool", tool_name="write_memory", arguments={"name": "b"})).last

    assert json.loads(result["text"]) == {"name": "b"}


def test_a_real_server_is_found_and_called_the_same_way(deferred: Any) -> None:
    clock, current, wrapped = deferred(
        call("search_tools", query="current time in a timezone", max_results=1),
        call("get_current_time", timezone="UTC"),
        call("call_tool", tool_name="get_current_time", arguments={"timezone": "Asia/Taipei"}),
        profile="clocks",
    ).results

    assert found(clock) == ["get_current_time"]
    assert (zone(current), zone(wrapped)) == ("UTC", "Asia/Taipei")


# --- the keys of a profile -----------------------------------------------------------------------------------


def test_core_tools_may_be_any_servers_and_may_name_the_search_itself(deferred: Any) -> None:
    seen = deferred(LIST, profile="clocks")

    assert names(seen.last) == ["search_tools", "call_tool", "call_read_only_tool", "convert_time"]
    assert "Core tools available: search_tools, call_tool, convert_time\n" in seen.instructions


def test_the_prompt_is_added_to_the_instructions(deferred: Any) -> None:
    told = deferred(profile="prompted").instructions

    assert told.startswith("**Tool Discovery")
    assert told.endswith("\nLook before you leap.")


def test_excluded_tools_are_neither_found_nor_called_nor_in_a_category(deferred: Any) -> None:
    everything, reading, bare, qualified = deferred(
        call("search_tools", max_results=100),
        call("search_tools", category="symbolic_read"),
        call("find_symbol"),
        call("call_tool", tool_name="rename_symbol", arguments={}),
        profile="without",
    ).results

    assert not {"find_symbol", "rename_symbol"} & {*found(everything), *found(reading)}
    assert refusal(bare)["code"] == refusal(qualified)["code"] == "ToolDisabled"


def test_optional_tools_are_shown_although_they_are_off_or_in_no_category_of_the_profile(deferred: Any) -> None:
    everything, shell, clock = deferred(
        call("search_tools", max_results=100),
        call("execute_shell_command", command="true"),
        call("get_current_time", timezone="UTC"),
        profile="with",
    ).results

    assert {"execute_shell_command", "get_current_time"} <= set(found(everything))
    assert "convert_time" not in found(everything)
    assert json.loads(shell["text"]) == {"command": "true"}
    assert zone(clock) == "UTC"


def test_without_the_profiles_word_what_is_off_stays_off(deferred: Any) -> None:
    shell, clock = deferred(call("execute_shell_command"), call("get_current_time", timezone="UTC")).results

    assert refusal(shell)["code"] == refusal(clock)["code"] == "ToolDisabled"


def test_a_description_of_the_profile_is_what_searches_show_and_lists_carry(deferred: Any) -> None:
    searched, listed = deferred(
        call("search_tools", query="find_file", max_results=1), LIST, profile="reworded"
    ).results

    assert searched["structured"]["tools"][0]["description"] == "Look a file up by its name."
    assert "  Look a file up by its name.\n" in searched["text"]
    assert listed["tools"][-1]["description"] == "Look a file up by its name."


def test_without_deferred_loading_every_tool_is_listed_as_before(deferred: Any) -> None:
    listed = names(deferred(LIST, profile="eager").last)

    assert not {"search_tools", "call_tool"} & set(listed)
    assert len(listed) == len(SERENA_2_1_DESKTOP_APP) - 3


def test_a_profile_that_says_nothing_of_it_is_not_deferred(daemon: Daemon, clients: Clients) -> None:
    assert names(clients.session(daemon, LIST).last) == [
        "get-category-tools",
        "call-category-tool",
        "call-read-only-tool",
    ]


def test_the_profiles_description_is_for_people_and_reaches_no_model(deferred: Any) -> None:
    seen = deferred(LIST)

    assert "A few core tools, and a search for the rest." not in seen.instructions + json.dumps(seen.last)


def test_the_bridge_asks_for_the_profile(daemon: Daemon, clients: Clients) -> None:
    seen = clients.bridged(daemon, ["--profile", "deferred"], LIST, call("search_tools", query="find_file"))

    assert names(seen.results[0]) == ["search_tools", "call_tool", "call_read_only_tool", *CORE]
    assert found(seen.last)[0] == "find_file"


def test_a_profile_that_names_no_core_tools_has_those_that_were_called_most_over_restarts() -> None:
    server = scripted(tools=[tool("echo"), tool("add"), tool("hide")])
    profiles = {
        "default": {"deferredLoading": True, "excludedTools": ["hide"]},
        "none": {"deferredLoading": True, "coreTools": []},
    }
    with running({"mcpServers": {"s": server}, "profiles": profiles}) as daemon:
        daemon.ready()
        for core in ([], ["add", "echo"]):
            with daemon.client() as client, daemon.client() as plain:
                said = client.ask("initialize", {"protocolVersion": "2025-06-18"})["result"]["instructions"]
                assert said.endswith(f"Core tools available: {', '.join(['search_tools', 'call_tool', *core])}")
                for name in ("echo", "add", "echo"):
                    assert client.call(name, {})["isError"] is False
                assert client.listed() == ["search_tools", "call_tool", "call_read_only_tool", *core]
                assert plain.hello(profile="none").call("hide", {})["isError"] is False
                assert plain.listed() == ["search_tools", "call_tool", "call_read_only_tool"]
            daemon.stop()
            daemon.start()
            daemon.ready()
        assert "toolCalls" not in json.dumps(daemon.ask("status"))
