"""In which order a client hears of a tool that it has loaded, and what becomes of the answer that waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from daemon.catalog.kinds import LISTS
from daemon.clients.list_changes import PATIENCE, TAKING_IN
from daemon.errors import UpstreamLost
from daemon.model import Kind
from tests.fakes_upstream import MODERN, Stage

if TYPE_CHECKING:
    from tests.fakes_upstream import Client, Guest

pytestmark = pytest.mark.usefixtures("autojump_clock")

TOOLS_CHANGED = LISTS[Kind.TOOL].changed
LOAD: dict[str, Any] = {"profiles": {"default": {"surface": "load"}}}
SEARCH: dict[str, Any] = {"profiles": {"default": {"surface": "search"}}}
ECHO = {"name": "load_mcp_tool", "arguments": {"names": ["echo"]}}
ADD = {"name": "load_mcp_tool", "arguments": {"names": ["add"]}}
FIND = {"name": "search_tools", "arguments": {"query": "echo"}}


async def shaken(stage: Stage, nursery: trio.Nursery, **hello: object) -> Guest:
    """A client of the handshake era that has listed its tools."""
    guest = await stage.connect(nursery)
    if hello:
        await guest.client.tell("mcpd/hello", hello)
    client = {"name": "test", "version": "1"}
    await guest.client.request("initialize", {"protocolVersion": "2025-11-25", "clientInfo": client})
    await guest.client.request("tools/list")
    return guest


async def order(client: Client, count: int) -> list[object]:
    """The ids of answers and the methods of notifications, as they come."""
    messages = [await client.get() for _ in range(count)]
    return [message.get("method", message.get("id")) for message in messages]


async def served(client: Client) -> bool:
    """Whether the next thing that the client hears is the answer to a ping."""
    return bool((await client.request("ping", request_id="ping")).get("id") == "ping")


@pytest.mark.parametrize(("written", "call"), [(LOAD, ECHO), (SEARCH, FIND)])
async def test_a_client_has_its_list_before_it_is_told_that_a_tool_is_loaded(
    nursery: trio.Nursery, written: dict[str, Any], call: dict[str, Any]
) -> None:
    client = (await shaken(Stage(**written), nursery)).client
    await client.ask("tools/call", call, request_id="load")
    assert await order(client, 1) == [TOOLS_CHANGED]
    await trio.sleep(0.04)
    await client.ask("tools/list", request_id="list")
    listed = await client.get()
    assert "echo" in [tool["name"] for tool in listed["result"]["tools"]]
    began = trio.current_time()
    assert await order(client, 1) == ["load"]
    assert trio.current_time() - began == pytest.approx(TAKING_IN)
    # What is loaded already is no news, and nothing waits.
    began = trio.current_time()
    await client.ask("tools/call", call, request_id="again")
    assert await order(client, 1) == ["again"]
    assert trio.current_time() == began
    assert await served(client)


async def test_a_modern_client_is_told_in_its_subscription_and_waited_for(nursery: trio.Nursery) -> None:
    client = await Stage(**LOAD).client(nursery)
    listen = {"_meta": MODERN, "notifications": {"toolsListChanged": True}}
    await client.request("subscriptions/listen", listen, request_id="sub")
    await client.request("tools/list", {"_meta": MODERN})
    await client.ask("tools/call", {**ECHO, "_meta": MODERN}, request_id="load")
    assert await order(client, 1) == [TOOLS_CHANGED]
    await trio.sleep(0.04)
    await client.ask("tools/list", {"_meta": MODERN}, request_id="list")
    assert await order(client, 2) == ["list", "load"]


async def test_a_modern_client_without_a_subscription_is_answered_at_once(nursery: trio.Nursery) -> None:
    client = await Stage(**LOAD).client(nursery)
    await client.request("tools/list", {"_meta": MODERN})
    began = trio.current_time()
    await client.ask("tools/call", {**ECHO, "_meta": MODERN}, request_id="load")
    assert await order(client, 1) == ["load"]
    assert trio.current_time() == began


async def test_a_client_that_never_lists_again_is_answered_after_a_second_and_then_at_once(
    nursery: trio.Nursery,
) -> None:
    stage = Stage(**LOAD)
    client = (await shaken(stage, nursery)).client
    for call, seconds in ((ECHO, PATIENCE), (ADD, 0.0)):
        began = trio.current_time()
        await client.ask("tools/call", call, request_id="load")
        await order(client, 2 if call is ECHO else 1)
        assert trio.current_time() - began == pytest.approx(seconds)
    # Another window of the same client need not find out.
    other = (await shaken(stage, nursery)).client
    began = trio.current_time()
    await other.ask("tools/call", ECHO, request_id="load")
    assert await order(other, 2) == [TOOLS_CHANGED, "load"]
    assert trio.current_time() == began


async def test_whoever_waits_for_its_list_is_served_otherwise_and_so_is_everybody_else(
    nursery: trio.Nursery,
) -> None:
    stage = Stage(**LOAD)
    stage.alpha.on_send = lambda sent: sent.exchange.answered(b'{"content":[]}')
    client, other = (await shaken(stage, nursery)).client, (await shaken(stage, nursery)).client
    began = trio.current_time()
    await client.ask("tools/call", ECHO, request_id="load")
    assert await order(client, 1) == [TOOLS_CHANGED]
    await client.ask("tools/call", {"name": "echo", "arguments": {}}, request_id="call")
    assert await order(client, 1) == ["call"]
    assert await served(client)
    assert await served(other)
    assert trio.current_time() == began


async def test_two_loads_at_once_are_announced_once_and_answered_after_the_one_list(
    nursery: trio.Nursery,
) -> None:
    client = (await shaken(Stage(**LOAD), nursery)).client
    await client.ask("tools/call", ECHO, request_id="one")
    await client.ask("tools/call", ADD, request_id="two")
    assert await order(client, 1) == [TOOLS_CHANGED]
    await trio.testing.wait_all_tasks_blocked()
    listed = await client.request("tools/list", request_id="list")
    assert [tool["name"] for tool in listed["result"]["tools"]][2:] == ["echo", "add"]
    assert sorted(map(str, await order(client, 2))) == ["one", "two"]
    assert await served(client)


async def test_what_loads_under_a_key_is_on_disk_before_it_is_answered_and_the_two_waits_are_one(
    nursery: trio.Nursery,
) -> None:
    stage = Stage(**LOAD)
    client = (await shaken(stage, nursery, session="k")).client
    stage.memory.open = trio.Event()
    began = trio.current_time()
    await client.ask("tools/call", ECHO, request_id="load")
    assert await order(client, 1) == [TOOLS_CHANGED]
    await client.ask("tools/list", request_id="list")
    assert await order(client, 1) == ["list"]
    await trio.sleep(0.5)
    assert await served(client), "it is not answered yet"
    stage.memory.open.set()
    assert await order(client, 1) == ["load"]
    assert trio.current_time() - began == pytest.approx(0.5 + TAKING_IN)


async def test_a_load_that_is_cancelled_while_it_waits_is_not_answered(nursery: trio.Nursery) -> None:
    guest = await shaken(Stage(**LOAD), nursery)
    await guest.client.ask("tools/call", ECHO, request_id="load")
    assert await order(guest.client, 1) == [TOOLS_CHANGED]
    await guest.client.tell("notifications/cancelled", {"requestId": "load"})
    await trio.sleep(2 * PATIENCE)
    assert await served(guest.client)
    assert guest.session.statistics().loaded == 1
    assert guest.session.in_flight == 0


async def test_a_client_that_goes_while_it_is_waited_for_ends_its_session(nursery: trio.Nursery) -> None:
    guest = await shaken(Stage(**LOAD), nursery)
    await guest.client.ask("tools/call", ECHO, request_id="load")
    assert await order(guest.client, 1) == [TOOLS_CHANGED]
    began = trio.current_time()
    guest.client.close()
    with trio.fail_after(PATIENCE / 2):
        await guest.ended.wait()
    assert trio.current_time() == began


async def test_a_daemon_that_goes_down_answers_what_waits_for_a_list_as_it_would_have(
    nursery: trio.Nursery,
) -> None:
    guest = await shaken(Stage(**LOAD), nursery)
    await guest.client.ask("tools/call", ECHO, request_id="load")
    assert await order(guest.client, 1) == [TOOLS_CHANGED]
    guest.session.lose_calls(UpstreamLost("going down"))
    answer = await guest.client.get()
    assert (answer["id"], answer["result"]["isError"]) == ("load", False)
    await trio.sleep(2 * PATIENCE)
    assert await served(guest.client)


async def test_a_call_that_loads_its_tool_itself_waits_for_nobody(nursery: trio.Nursery) -> None:
    stage = Stage(profiles={"default": {"surface": "load", "autoLoad": True}})
    client = (await shaken(stage, nursery)).client
    began = trio.current_time()
    await client.ask("tools/call", {"name": "echo", "arguments": {}}, request_id="call")
    sent = await stage.alpha.wait_sent()
    assert await order(client, 1) == [TOOLS_CHANGED]
    stage.answer(sent)
    assert await order(client, 1) == ["call"]
    assert trio.current_time() == began


async def test_a_search_that_finds_nothing_waits_for_nobody(nursery: trio.Nursery) -> None:
    client = (await shaken(Stage(**SEARCH), nursery)).client
    await client.ask("tools/call", FIND, request_id="found")
    assert await order(client, 1) == [TOOLS_CHANGED]
    nothing = {"name": "search_tools", "arguments": {"query": "xylophone"}}
    await client.ask("tools/call", nothing, request_id="nothing")
    assert await order(client, 1) == ["nothing"]


async def test_a_subscription_tells_what_another_connection_of_its_session_loads(nursery: trio.Nursery) -> None:
    """As over HTTP, where it has a connection of its own; it stands from its acknowledgement on."""
    stage = Stage(**LOAD)
    stage.memory.open = trio.Event()
    told, loading = await stage.connect(nursery), await stage.connect(nursery)
    for guest in (told, loading):
        await guest.client.tell("mcpd/hello", {"session": "k"})
    listen = {"_meta": MODERN, "notifications": {"toolsListChanged": True}}
    await told.client.ask("subscriptions/listen", listen, request_id="s")
    assert await served(told.client), "its session is not there yet"
    stage.memory.open.set()
    assert await order(told.client, 1) == ["notifications/subscriptions/acknowledged"]
    for call in (ECHO, ADD):
        await loading.client.request("tools/call", {"_meta": MODERN, **call}, request_id="load")
        assert await order(told.client, 1) == [TOOLS_CHANGED]
