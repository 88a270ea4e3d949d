"""In which order a client hears of a tool that it has loaded, and what becomes of the answer that waits."""

import json
from typing import Any

import pytest
import trio
import trio.testing

from daemon.catalog.kinds import LISTS
from daemon.clients.client import LOCAL_USER, Principal
from daemon.clients.notifications import PATIENCE, TAKING_IN
from daemon.counting.tally import summary, tokens_in
from daemon.errors import UpstreamLost
from daemon.model import Kind
from daemon.protocol import HELLO
from daemon.states import ServerState
from daemon.surfaces.table import SEARCHING_CLIENTS
from tests.fakes_upstream import MODERN, Client, Guest, Stage, tool
from tests.unit.cases import cases
from tests.waiting import in_time

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


async def loading(nursery: trio.Nursery, **hello: object) -> Guest:
    """Such a client, which has been told that the tool it loads is there, and has not listed it yet."""
    guest = await shaken(Stage(**LOAD), nursery, **hello)
    await guest.client.ask("tools/call", ECHO, request_id="load")
    assert await order(guest.client, 1) == [TOOLS_CHANGED]
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


async def test_a_search_that_finds_nothing_waits_for_nobody(nursery: trio.Nursery) -> None:
    client = (await shaken(Stage(**SEARCH), nursery)).client
    await client.ask("tools/call", FIND, request_id="found")
    assert await order(client, 1) == [TOOLS_CHANGED]
    nothing = {"name": "search_tools", "arguments": {"query": "xylophone"}}
    await client.ask("tools/call", nothing, request_id="nothing")
    assert await order(client, 1) == ["nothing"]


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
    guest = await loading(nursery)
    await guest.client.tell("notifications/cancelled", {"requestId": "load"})
    await trio.sleep(2 * PATIENCE)
    assert await served(guest.client)
    assert guest.session.statistics().loaded == 1
    assert guest.session.in_flight == 0


async def test_a_client_that_goes_while_it_is_waited_for_ends_its_session(nursery: trio.Nursery) -> None:
    guest = await loading(nursery)
    began = trio.current_time()
    guest.client.close()
    await in_time(guest.ended.wait(), PATIENCE / 2)
    assert trio.current_time() == began


async def test_a_daemon_that_goes_down_answers_what_waits_for_a_list_as_it_would_have(
    nursery: trio.Nursery,
) -> None:
    guest = await loading(nursery)
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


INFO = "io.modelcontextprotocol/clientInfo"
META_TOOLS = ["get-category-tools", "call-category-tool", "call-read-only-tool"]
CLAUDE = {"name": "claude-code", "version": "2.1.329"}
OLD_CLAUDE = {"name": "claude-code", "version": "2.1.197"}
CODEX = {"name": "codex-mcp-client", "version": "0.169.0"}
OPENCODE = {"name": "opencode", "version": "1.18.33"}

PASSING = Principal(keeps=False)
"""Somebody whose connection may be another's with the next request."""


async def sits_down(stage: Stage, nursery: trio.Nursery, info: object, hello: object = None) -> Guest:
    guest = await stage.connect(nursery)
    if hello is not None:
        await guest.client.tell(HELLO, hello)
    await guest.client.request("initialize", {"protocolVersion": "2025-11-25", "clientInfo": info})
    return guest


async def names(guest: Guest, info: object = None, *, modern: bool = False) -> list[str]:
    meta = {"_meta": {**MODERN, **({INFO: info} if info else {})}} if modern else {}
    answered = await guest.client.request("tools/list", meta)
    return [each["name"] for each in answered["result"]["tools"]]


def many(count: int) -> list[str]:
    return [f"tool_{number}" for number in range(count)]


@cases("info", "surface")
async def test_a_client_has_the_surface_that_fits_it(nursery: trio.Nursery, info: object, surface: str) -> None:
    guest = await sits_down(Stage(), nursery, info)
    found = await names(guest)
    assert found == (META_TOOLS if surface == "category" else ["echo", "add", "beta__echo", "beta__add"])
    assert guest.session.statistics().surface == surface


async def test_a_client_that_begins_without_a_word_has_categories_until_it_says_what_it_is(
    nursery: trio.Nursery,
) -> None:
    guest = await Stage().connect(nursery)
    assert await names(guest) == META_TOOLS
    assert guest.session.statistics().choice.grounds == "silent_client"
    await guest.client.request("initialize", {"protocolVersion": "2025-11-25", "clientInfo": CLAUDE})
    assert "echo" in await names(guest)


async def test_more_tools_than_a_client_can_take_are_shown_in_categories(nursery: trio.Nursery) -> None:
    stage, known = Stage(), SEARCHING_CLIENTS[0]
    stage.lists("alpha", *many(known.tools - 2))
    info = {"name": known.name, "version": ".".join(map(str, known.since))}
    first = await sits_down(stage, nursery, info)
    assert len(await names(first)) == known.tools
    # One more does not change what a client has in the middle of its conversation; who comes next has less.
    stage.lists("alpha", *many(known.tools - 1))
    assert (await first.client.get())["method"] == "notifications/tools/list_changed"
    assert len(await names(first)) == known.tools + 1
    second = await sits_down(stage, nursery, info)
    assert await names(second) == META_TOOLS
    assert second.session.statistics().choice.grounds == "too_many_tools"


async def test_only_the_tools_of_the_clients_own_profile_count(nursery: trio.Nursery) -> None:
    stage = Stage(profiles={"default": {}, "small": {"categories": ["beta"]}})
    stage.lists("alpha", *many(600))
    assert (await sits_down(stage, nursery, CLAUDE)).session.statistics().surface == "category"
    small = (await sits_down(stage, nursery, CLAUDE, {"profile": "small"})).session.statistics()
    assert (small.surface, small.choice.tools) == ("full", 2)


async def test_another_profile_of_an_operators_is_decided_for_anew(nursery: trio.Nursery) -> None:
    stage = Stage(profiles={"default": {}, "plain": {"surface": "search"}})
    guest = await sits_down(stage, nursery, CLAUDE)
    guest.session.move("plain")
    assert guest.session.statistics().surface == "search"
    guest.session.move("default")
    assert guest.session.statistics().surface == "full"


@pytest.mark.parametrize("principal", [LOCAL_USER, PASSING], ids=["keeps", "passing"])
async def test_each_envelope_of_a_shared_connection_is_answered_as_its_client_needs(
    nursery: trio.Nursery, principal: Principal
) -> None:
    guest = await Stage().connect(nursery, principal)
    for _ in range(2):
        assert "echo" in await names(guest, CLAUDE, modern=True)
        assert await names(guest, OPENCODE, modern=True) == META_TOOLS
        assert await names(guest, OLD_CLAUDE, modern=True) == META_TOOLS


async def test_an_envelope_that_names_nobody_is_nobodys_where_others_may_have_come_before(
    nursery: trio.Nursery,
) -> None:
    stage = Stage()
    passing, own = await stage.connect(nursery, PASSING), await stage.connect(nursery)
    for guest, surface in ((passing, "category"), (own, "full")):
        assert "echo" in await names(guest, CLAUDE, modern=True)
        await names(guest, modern=True)
        assert guest.session.statistics().surface == surface
    assert passing.session.statistics().client == ""


async def test_a_client_whose_connections_end_keeps_its_surface_over_them(nursery: trio.Nursery) -> None:
    stage = Stage()
    assert "echo" in await names(await stage.connect(nursery, PASSING), CLAUDE, modern=True)
    stage.lists("alpha", *many(600))
    assert len(await names(await stage.connect(nursery, PASSING), CLAUDE, modern=True)) == 602
    # Another token's client is another.
    other = Principal(keeps=False, owner="token ci: ", token="ci")
    assert await names(await stage.connect(nursery, other), CLAUDE, modern=True) == META_TOOLS


async def test_a_call_that_waits_is_decided_as_its_own_client_needs(nursery: trio.Nursery) -> None:
    stage = Stage(listed=False)
    guest = await stage.connect(nursery)

    def call(info: object, name: str, arguments: object, request_id: int) -> dict[str, Any]:
        meta = {**MODERN, INFO: info}
        params = {"name": name, "arguments": arguments, "_meta": meta}
        return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}

    wrapped = {"category": "alpha", "name": "echo", "args": {}}
    await guest.client.send(
        call(OPENCODE, "call-category-tool", wrapped, 1), call(CLAUDE, "alpha__echo", {}, 2)
    )
    stage.becomes("alpha", ServerState.READY)
    stage.lists("alpha", "echo")
    await stage.alpha.wait_sent(2)
    for sent in stage.alpha.sent:
        stage.answer(sent)
    answered = [await guest.client.get(), await guest.client.get()]
    assert sorted(each["id"] for each in answered) == [1, 2]
    assert not any(each["result"].get("isError") for each in answered)


BIG = [tool(f"tool_{number}", description="long " * 100) for number in range(20)]


def stage_of(surface: str) -> Stage:
    stage = Stage(profiles={"default": {"surface": surface}})
    stage.lists("alpha", *BIG)
    return stage


async def named(stage: Stage, nursery: trio.Nursery, name: str, version: str) -> Guest:
    guest = await stage.connect(nursery)
    client = {"name": name, "version": version}
    await guest.client.request("initialize", {"protocolVersion": "2025-11-25", "clientInfo": client})
    return guest


def full_size(stage: Stage) -> int:
    return stage.services.offers.of(stage.catalog.value, stage.config.profiles["default"]).listing_bytes


def size_of(tools: list[Any]) -> int:
    return sum(len(json.dumps(each, separators=(",", ":"), ensure_ascii=False).encode()) for each in tools)


async def test_a_session_is_spared_what_it_was_not_listed_less_what_it_was_told_instead(
    nursery: trio.Nursery,
) -> None:
    stage = stage_of("load")
    guest = await named(stage, nursery, "opencode", "1")
    first = (await guest.client.request("tools/list"))["result"]["tools"]
    full = full_size(stage)
    assert guest.session.statistics().tokens_not_sent == tokens_in(full - size_of(first))
    load = {"name": "load_mcp_tool", "arguments": {"names": ["tool_1"]}}
    await guest.client.ask("tools/call", load, request_id="load")
    await guest.client.get()
    second = (await guest.client.request("tools/list"))["result"]["tools"]
    answered = len(json.dumps((await guest.client.get())["result"], separators=(",", ":")).encode())
    # However often it asks: what it has is what counts.
    for _ in range(3):
        await guest.client.request("tools/list")
    spared = guest.session.statistics().tokens_not_sent
    assert spared == pytest.approx((full - size_of(second) - answered / 2) / 4, abs=5)
    assert summary(stage.tally)["estimatedTokensNotSent"] == pytest.approx(spared, abs=5)
    assert len(first) < len(second)


@pytest.mark.parametrize(
    ("name", "version"), [("claude-code", "2.1.329"), ("claude-code", "3.0"), ("codex-mcp-client", "0.169.0")]
)
@pytest.mark.parametrize("surface", ["category", "full"])
async def test_to_clients_that_defer_tools_themselves_it_does_not_apply(
    nursery: trio.Nursery, name: str, version: str, surface: str
) -> None:
    stage = stage_of(surface)
    guest = await named(stage, nursery, name, version)
    await guest.client.request("tools/list")
    await guest.client.request("tools/call", {"name": "get-category-tools", "arguments": {"category": "alpha"}})
    assert guest.session.statistics().tokens_not_sent is None
    told = summary(stage.tally)
    assert (told["estimatedTokensSpared"], told["estimatedTokensSentInstead"]) == (0, 0)
    assert stage.tally.lists[surface].count == 1
