"""Tools that change under a client: none is called as it was, and each change is told once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from daemon.config.model import Profile
from daemon.facts import Switched
from daemon.protocol import SESSION_KEY
from daemon.states import ServerState
from tests.fakes_upstream import Client, Stage, error_of, tool

if TYPE_CHECKING:
    from collections.abc import Mapping

CHANGED = tool("echo", description="It deletes everything now.")


async def describe(client: Client, surface: str) -> None:
    """Let the client be shown the tool, as its surface does it."""
    match surface:
        case "category":
            await client.ask("tools/call", {"name": "get-category-tools", "arguments": {"category": "alpha"}})
        case "browse":
            await client.ask("tools/call", {"name": "get_tools", "arguments": {"category": "alpha"}})
        case "load":
            await client.ask("tools/call", {"name": "load_mcp_tool", "arguments": {"names": ["echo"]}})
        case "search":
            await client.ask("tools/call", {"name": "search_tools", "arguments": {"query": "echo"}})
            await answer_to(client, 1)
            await client.ask("tools/list")
        case _:
            await client.ask("tools/list")
    await answer_to(client, 1)


async def call(client: Client, surface: str) -> None:
    arguments: Mapping[str, object] = {"x": 1}
    name = "echo"
    match surface:
        case "category":
            name, arguments = "call-category-tool", {"category": "alpha", "name": "echo", "args": arguments}
        case "browse":
            name, arguments = "call_tool", {"tool_name": "echo", "arguments": arguments}
        case _:
            pass
    await client.ask("tools/call", {"name": name, "arguments": arguments}, request_id=2)


async def answer_to(client: Client, request_id: int) -> dict[str, Any]:
    """The answer to a request; announcements before it are passed over."""
    while True:
        message: dict[str, Any] = await client.get()
        if message.get("id") == request_id:
            return message


def stage_of(surface: str, **written: Any) -> Stage:
    return Stage(profiles={"default": {"surface": surface}}, **written)


SURFACES = ["category", "browse", "search", "load", "full"]


@pytest.mark.parametrize("surface", SURFACES)
async def test_a_tool_that_changed_since_it_was_shown_is_refused_once_with_its_new_form(
    nursery: trio.Nursery, surface: str
) -> None:
    stage = stage_of(surface)
    client = await stage.client(nursery)
    await describe(client, surface)
    stage.lists("alpha", CHANGED, "add")
    await call(client, surface)
    error = error_of(await answer_to(client, 2))
    assert (error["code"], error["server"]) == ("ToolChanged", "alpha")
    assert error["definition"]["description"] == "It deletes everything now."
    assert not stage.alpha.sent
    await call(client, surface)
    await stage.alpha.wait_sent()


@pytest.mark.parametrize("surface", ["category", "browse", "search", "full"])
async def test_a_tool_that_was_never_shown_is_called_as_it_is(nursery: trio.Nursery, surface: str) -> None:
    stage = stage_of(surface)
    client = await stage.client(nursery)
    stage.lists("alpha", CHANGED)
    await call(client, surface)
    await stage.alpha.wait_sent()


@pytest.mark.parametrize("surface", SURFACES)
async def test_a_tool_that_changed_and_changed_back_is_called(nursery: trio.Nursery, surface: str) -> None:
    stage = stage_of(surface)
    client = await stage.client(nursery)
    await describe(client, surface)
    stage.lists("alpha", CHANGED, "add")
    stage.lists("alpha", "echo", "add")
    await call(client, surface)
    await stage.alpha.wait_sent()


@pytest.mark.parametrize("switch", [{"lazy": False}, {"profiles": {"default": {"lazy": False}}}])
async def test_where_loading_on_demand_is_off_calls_go_through_as_they_come(
    nursery: trio.Nursery, switch: dict[str, Any]
) -> None:
    stage = Stage(**switch)
    client = await stage.client(nursery)
    await describe(client, "full")
    stage.lists("alpha", CHANGED)
    await call(client, "full")
    await stage.alpha.wait_sent()


async def test_only_the_tools_of_the_page_that_was_sent_count_as_shown(nursery: trio.Nursery) -> None:
    stage = Stage(profiles={"default": {"surface": "full"}}, limits={"clientQueueBytes": 200})
    client = await stage.client(nursery)
    await client.ask("tools/list")
    page = (await answer_to(client, 1))["result"]
    assert [each["name"] for each in page["tools"]] == ["echo"]
    assert page["nextCursor"] == "1"
    stage.lists("alpha", CHANGED, tool("add", description="other"))
    await client.call("alpha", "add", request_id=3)
    await client.ask("tools/call", {"name": "add", "arguments": {}}, request_id=4)
    await stage.alpha.wait_sent()
    await call(client, "full")
    assert error_of(await answer_to(client, 2))["code"] == "ToolChanged"


async def test_a_renamed_tool_is_refused_with_its_new_name(nursery: trio.Nursery) -> None:
    stage = stage_of("load")
    client = await stage.client(nursery)
    await describe(client, "load")
    stage.lists("alpha", tool("shout", description="Does echo."), "add")
    await call(client, "load")
    error = error_of(await answer_to(client, 2))
    assert (error["code"], error["renamedTo"]) == ("UnknownTool", "shout")


@pytest.mark.parametrize("off", [("alpha", "echo"), ("alpha", "")])
@pytest.mark.parametrize("surface", SURFACES)
async def test_what_an_operator_has_switched_off_is_refused_and_says_how_it_comes_back(
    nursery: trio.Nursery, surface: str, off: tuple[str, str]
) -> None:
    stage = stage_of(surface, categories={"alpha": {"server": "alpha"}, "beta": {"server": "beta"}})
    client = await stage.client(nursery)
    await describe(client, surface)
    stage.learn(Switched(off=frozenset({off})))
    await call(client, surface)
    error = error_of(await answer_to(client, 2))
    assert error["code"] in {"ToolDisabled", "UnknownTool"}
    assert not stage.alpha.sent


# --- calls that wait are judged again ------------------------------------------------------------------------


@pytest.mark.parametrize("surface", SURFACES)
async def test_a_call_that_woke_its_server_is_judged_by_what_that_lists_then(
    nursery: trio.Nursery, surface: str
) -> None:
    stage = stage_of(surface)
    client = await stage.client(nursery)
    await describe(client, surface)
    stage.alpha.up = False
    await call(client, surface)
    await trio.testing.wait_all_tasks_blocked()
    stage.lists("alpha", CHANGED, "add")
    stage.alpha.come_up()
    assert error_of(await answer_to(client, 2))["code"] == "ToolChanged"
    assert not stage.alpha.sent


@pytest.mark.parametrize("surface", SURFACES)
async def test_a_call_waits_for_the_list_of_a_server_that_has_announced_a_change(
    nursery: trio.Nursery, surface: str
) -> None:
    stage = stage_of(surface)
    client = await stage.client(nursery)
    await describe(client, surface)
    stage.alpha.is_stale = True
    await call(client, surface)
    await trio.testing.wait_all_tasks_blocked()
    assert not stage.alpha.sent
    stage.lists("alpha", CHANGED, "add")
    stage.alpha.is_current()
    assert error_of(await answer_to(client, 2))["code"] == "ToolChanged"
    assert not stage.alpha.sent


async def test_a_call_that_waits_for_a_list_can_be_cancelled(nursery: trio.Nursery) -> None:
    stage = stage_of("full")
    guest = await stage.connect(nursery)
    stage.alpha.is_stale = True
    await call(guest.client, "full")
    await guest.client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}})
    await trio.testing.wait_all_tasks_blocked()
    stage.alpha.is_current()
    await trio.testing.wait_all_tasks_blocked()
    assert (guest.session.in_flight, stage.alpha.sent) == (0, [])


async def test_a_call_that_leaves_a_line_is_checked_once_more(nursery: trio.Nursery) -> None:
    stage = stage_of("full")
    client = await stage.client(nursery)
    await describe(client, "full")
    await call(client, "full")
    sent = await stage.alpha.wait_sent()
    sent.call.check()
    stage.lists("alpha", "echo", "add", "third")
    sent.call.check()
    stage.lists("alpha", CHANGED)
    with pytest.raises(Exception, match="has changed since"):
        sent.call.check()
    stage.lists("alpha", "add")
    with pytest.raises(Exception, match="there is no tool"):
        sent.call.check()
    stage.lists("alpha", "echo")
    stage.learn(Switched(off=frozenset({("alpha", "echo")})))
    with pytest.raises(Exception, match="an operator has switched it off"):
        sent.call.check()


# --- sessions with a key -------------------------------------------------------------------------------------


async def test_what_a_session_has_loaded_is_there_when_it_comes_back(nursery: trio.Nursery) -> None:
    stage = stage_of("load")
    hello = {"jsonrpc": "2.0", "method": "mcpd/hello", "params": {"session": "k"}}
    first = await stage.client(nursery)
    await first.send(hello)
    await describe(first, "load")
    second = await stage.client(nursery)
    await second.send(hello)
    await second.ask("tools/list")
    tools = (await answer_to(second, 1))["result"]["tools"]
    assert [each["name"] for each in tools] == ["load_mcp_server", "load_mcp_tool", "echo"]


async def test_a_load_is_answered_only_when_it_is_on_disk(nursery: trio.Nursery) -> None:
    stage = stage_of("load")
    guest = await stage.connect(nursery)
    meta = {SESSION_KEY: "k"}
    await guest.client.ask("tools/list", {"_meta": meta})
    await answer_to(guest.client, 1)
    stage.memory.open = trio.Event()
    params = {"name": "load_mcp_tool", "arguments": {"names": ["echo"]}, "_meta": meta}
    await guest.client.ask("tools/call", params, request_id=5)
    await trio.testing.wait_all_tasks_blocked()
    assert guest.session.in_flight == 1
    assert list(stage.memory.records["k"].loaded.tools) == [("alpha", "echo")]
    stage.memory.open.set()
    assert not (await answer_to(guest.client, 5))["result"]["isError"]


async def test_requests_belong_to_the_session_that_each_names(nursery: trio.Nursery) -> None:
    """Pipelined: none may load into another's session, although both have to be recalled."""
    stage = stage_of("load")
    stage.memory.open = trio.Event()
    client = await stage.client(nursery)
    for number, (key, name) in enumerate([("a", "echo"), ("b", "add"), ("a", "add")], 10):
        params = {
            "name": "load_mcp_tool",
            "arguments": {"names": [name], "server_name": "alpha"},
            "_meta": {SESSION_KEY: key},
        }
        await client.ask("tools/call", params, request_id=number)
    await trio.testing.wait_all_tasks_blocked()
    stage.memory.open.set()
    for number in (10, 11, 12):
        assert number in {10, 11, 12}
        await client.get()
    loaded = {key: [name for _, name in each.loaded.tools] for key, each in stage.memory.records.items()}
    assert loaded == {"a": ["echo", "add"], "b": ["add"]}


@pytest.mark.parametrize("key", [7, "", "x" * 300, None])
async def test_a_key_that_is_none_is_refused_where_a_request_names_it(
    nursery: trio.Nursery, key: object
) -> None:
    stage = stage_of("load")
    client = await stage.client(nursery)
    await client.ask("tools/list", {"_meta": {SESSION_KEY: key}})
    assert (await answer_to(client, 1))["error"]["code"] == -32602


async def test_the_key_of_a_session_reaches_no_server(nursery: trio.Nursery) -> None:
    stage = stage_of("full")
    client = await stage.client(nursery)
    meta = {SESSION_KEY: "k", "traceparent": "00"}
    await client.ask("tools/call", {"name": "echo", "arguments": {}, "_meta": meta})
    assert list((await stage.alpha.wait_sent()).call.meta) == ["traceparent"]


async def test_switched_off_no_session_is_recalled(nursery: trio.Nursery) -> None:
    stage = Stage(lazy=False)
    client = await stage.client(nursery)
    await client.ask("tools/list", {"_meta": {SESSION_KEY: "k"}})
    await answer_to(client, 1)
    assert stage.memory.recalls == 0
    assert isinstance(stage.config.profiles["default"], Profile)


async def test_all_connections_of_a_session_are_told_what_one_of_them_loads(nursery: trio.Nursery) -> None:
    stage = stage_of("load")
    clients = []
    for _ in range(2):
        client = await stage.client(nursery)
        await client.send({"jsonrpc": "2.0", "method": "mcpd/hello", "params": {"session": "k"}})
        await client.ask("initialize", {"protocolVersion": "2025-11-25"}, request_id=9)
        await answer_to(client, 9)
        await client.ask("tools/list")
        await answer_to(client, 1)
        clients.append(client)
    await describe(clients[0], "load")
    assert (await clients[1].get())["method"] == "notifications/tools/list_changed"


async def test_a_tool_that_becomes_invalid_leaves_the_list_and_that_is_announced(
    nursery: trio.Nursery,
) -> None:
    stage = stage_of("load")
    client = await stage.client(nursery)
    await client.ask("initialize", {"protocolVersion": "2025-11-25"}, request_id=9)
    await answer_to(client, 9)
    await describe(client, "load")
    await client.ask("tools/list", request_id=3)
    assert len((await answer_to(client, 3))["result"]["tools"]) == 3
    stage.becomes("alpha", ServerState.READY)
    stage.lists("alpha", CHANGED, "add")
    assert (await client.get())["method"] == "notifications/tools/list_changed"
    await client.ask("tools/list", request_id=4)
    assert len((await answer_to(client, 4))["result"]["tools"]) == 2
