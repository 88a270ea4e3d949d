"""A client follows resources in the way of its era, and is told why where it cannot."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from daemon.clients.notifications import MAX_SUBSCRIPTIONS
from daemon.clients.requests.subscriptions import MAX_WAITING, SETTLED_SECONDS
from daemon.model import Kind
from daemon.wire.envelope import RemoteError
from tests.fakes_upstream import MODERN, Client, Guest, Stage
from tests.unit.clients.asking import answer, greeted
from tests.unit.clients.inputs import raw
from tests.unit.clients.instanced import divided
from tests.waiting import in_time

URI = "file:///a"
UPDATED = "notifications/resources/updated"

SLOW = 2 << 20
"""Bytes that wait for a client that does not read: more than is sent to it without being required."""


@pytest.fixture
def stage() -> Stage:
    stage = Stage(limits={"clientQueueBytes": SLOW // 2})
    stage.offers("alpha", Kind.RESOURCE, URI)
    stage.offers("beta", Kind.RESOURCE, "file:///b")
    for server in ("alpha", "beta"):
        stage.offers(server, Kind.TEMPLATE)
    return stage


async def agree(stage: Stage, refusal: RemoteError | None = None, uri: str = URI) -> None:
    """The server says whether it tells of updates, once it is asked."""
    resources = stage.context.subscribers.resources
    with trio.fail_after(30):
        while uri not in resources.wished("alpha"):
            await trio.testing.wait_all_tasks_blocked()
    resources.settled("alpha", uri, refusal)


async def subscribe(client: Client, uri: str = URI, request_id: str = "s") -> None:
    await client.ask("resources/subscribe", {"uri": uri}, request_id=request_id)


async def test_a_subscription_is_answered_once_the_server_has_agreed(client: Client, stage: Stage) -> None:
    await subscribe(client, "mcpd://alpha/file%3A%2F%2F%2Fa")
    await agree(stage)
    assert await client.get() == {"jsonrpc": "2.0", "id": "s", "result": {}}
    stage.context.subscribers.hear("alpha", UPDATED, raw({"uri": URI}), None)
    stage.outbox.flush()
    assert (await client.get())["params"] == {"uri": "mcpd://alpha/file%3A%2F%2F%2Fa"}
    gone = {"uri": "mcpd://alpha/file%3A%2F%2F%2Fa"}
    assert (await client.request("resources/unsubscribe", gone))["result"] == {}
    assert not stage.context.subscribers.resources.wished("alpha")
    assert (await client.request("resources/unsubscribe", gone))["result"] == {}


async def test_a_client_that_reads_slowly_is_told_the_newest_once_it_reads(
    client: Client, stage: Stage, autojump_clock: MockClock
) -> None:
    await subscribe(client)
    await agree(stage)
    await client.get()
    await client.call("alpha", "echo", request_id="large")
    stage.answer(await stage.alpha.wait_sent(), b'{"content":[],"x":"%b"}' % (b"x" * SLOW))
    for _ in range(2):
        stage.context.subscribers.hear("alpha", UPDATED, raw({"uri": URI}), None)
    stage.outbox.flush()
    assert (await client.get())["id"] == "large"
    assert (await client.get())["params"] == {"uri": URI}
    assert (await client.request("ping"))["result"] == {}, "it is told once"


async def test_a_refusal_is_the_servers_and_nothing_is_followed(client: Client, stage: Stage) -> None:
    await subscribe(client)
    await agree(stage, RemoteError(-32601, "it does not declare resources.subscribe"))
    assert (await client.get())["error"]["code"] == -32601
    assert not stage.context.subscribers.resources.wished("alpha")


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_what_cannot_be_followed_is_refused(client: Client, era: str) -> None:
    meta = {"_meta": MODERN} if era == "modern" else {}
    for params in ({"uri": 7}, {}, {"uri": "mcpd://nobody/x"}):
        answer = await client.request("resources/subscribe", {**params, **meta})
        expected = -32601 if meta else -32002 if params.get("uri") == "mcpd://nobody/x" else -32602
        assert answer["error"]["code"] == expected
    answer = await client.request("resources/unsubscribe", {"uri": 7, **meta})
    assert answer["error"]["code"] == (-32601 if meta else -32602)


async def test_a_server_that_says_nothing_is_waited_for_a_bounded_time(
    client: Client, stage: Stage, autojump_clock: MockClock
) -> None:
    began = trio.current_time()
    await subscribe(client)
    assert (await client.get())["error"]["data"]["code"] == "UpstreamTimeout"
    assert trio.current_time() - began == pytest.approx(SETTLED_SECONDS, abs=1)
    stage.alpha.up = False
    await subscribe(client)
    assert (await client.get())["error"]["data"]["code"] == "UpstreamUnavailable"


async def test_so_many_subscriptions_wait_and_answered_ones_do_not(client: Client, stage: Stage) -> None:
    for number in range(MAX_WAITING + 1):
        await subscribe(client, request_id=f"s{number}")
    refused = await client.get()
    assert (refused["id"], refused["error"]["data"]["code"]) == (f"s{MAX_WAITING}", "Overloaded")
    await agree(stage)
    for _ in range(MAX_WAITING):
        assert (await client.get())["result"] == {}
    await subscribe(client)
    assert (await client.get())["result"] == {}


async def test_a_client_that_hangs_up_follows_nothing_more(guest: Guest, stage: Stage) -> None:
    await subscribe(guest.client)
    await agree(stage)
    await guest.client.get()
    guest.client.close()
    await in_time(guest.ended.wait())
    assert not stage.context.subscribers.resources.wished("alpha")


async def test_a_modern_client_is_told_within_its_subscription(client: Client, stage: Stage) -> None:
    wanted: dict[str, Any] = {"resourceSubscriptions": [URI, "mcpd://nobody/x", 7], "toolsListChanged": True}
    await client.ask("subscriptions/listen", {"_meta": MODERN, "notifications": wanted}, request_id="l")
    await agree(stage)
    acknowledged = (await client.get())["params"]["notifications"]
    assert acknowledged == {"resourceSubscriptions": [URI], "toolsListChanged": True}
    stage.context.subscribers.hear("alpha", UPDATED, raw({"uri": URI}), None)
    stage.outbox.flush()
    told = (await client.get())["params"]
    assert told == {"uri": URI, "_meta": {"io.modelcontextprotocol/subscriptionId": "l"}}
    await client.tell("notifications/cancelled", {"requestId": "l"})
    assert (await client.request("ping"))["result"] == {}
    assert not stage.context.subscribers.resources.wished("alpha")


async def test_a_subscription_cancelled_before_it_is_agreed_on_is_none(client: Client, stage: Stage) -> None:
    params = {"_meta": MODERN, "notifications": {"resourceSubscriptions": [URI]}}
    await client.ask("subscriptions/listen", params, request_id="l")
    await client.tell("notifications/cancelled", {"requestId": "l"})
    assert (await client.request("ping"))["result"] == {}
    await trio.testing.wait_all_tasks_blocked()
    assert not stage.context.subscribers.resources.wished("alpha")
    assert (await client.request("ping"))["result"] == {}


async def test_an_open_subscription_keeps_its_id_to_itself(client: Client) -> None:
    params = {"_meta": MODERN, "notifications": {"toolsListChanged": True}}
    assert "method" in await client.request("subscriptions/listen", params)
    assert (await client.request("subscriptions/listen", params)).get("error", {}).get("code") == -32600


async def test_a_client_has_so_many_subscriptions_open_and_no_more(client: Client) -> None:
    params = {"_meta": MODERN, "notifications": {"toolsListChanged": True}}
    for number in range(MAX_SUBSCRIPTIONS):
        acknowledged = await client.request("subscriptions/listen", params, request_id=number)
        assert "method" in acknowledged
    refused = await client.request("subscriptions/listen", params, request_id="more")
    assert (refused["id"], refused["error"]["code"]) == ("more", -32600)


# --- followed anew, when the server or the instance is no more ----------------------------------------------


async def following(stage: Stage, client: Client, *, modern: bool = False) -> None:
    """The client follows the resource."""
    if modern:
        wanted = {"notifications": {"resourceSubscriptions": [URI]}, "_meta": MODERN}
        await client.ask("subscriptions/listen", wanted, request_id="s")
    else:
        await subscribe(client)
    await agree(stage)
    assert "error" not in await client.get()


@pytest.mark.parametrize("modern", [False, True], ids=["handshake", "modern"])
async def test_what_is_followed_is_followed_where_it_is_now(client: Client, stage: Stage, modern: bool) -> None:
    await following(stage, client, modern=modern)
    stage.context.subscribers.gone("alpha")
    stage.outbox.flush()
    told = await client.get()
    await agree(stage)
    stage.context.subscribers.hear("alpha", UPDATED, raw({"uri": URI}), None)
    stage.outbox.flush()
    assert await client.get() == told
    assert told["params"]["uri"] == URI
    assert ("_meta" in told["params"]) is modern


async def test_who_follows_it_no_more_is_not_subscribed_anew(stage: Stage, nursery: trio.Nursery) -> None:
    client = (await greeted(stage, nursery)).client
    await following(stage, client)
    instances = divided(stage, by_workspace=True)
    stage.context.subscribers.gone("alpha")
    stage.outbox.flush()
    assert (await client.get())["method"] == UPDATED
    # Where it would be followed now depends on the client's roots.
    asked = await client.get()
    assert asked["method"] == "roots/list"
    assert (await client.request("resources/unsubscribe", {"uri": URI}))["result"] == {}
    await answer(client, asked["id"], {"roots": []})
    await trio.testing.wait_all_tasks_blocked()
    (instance,) = instances.names
    assert not stage.context.subscribers.resources.wished(instance)


async def test_a_server_is_asked_once_it_is_up(client: Client, stage: Stage, autojump_clock: MockClock) -> None:
    await following(stage, client)
    stage.alpha.up = False
    stage.context.subscribers.gone("alpha")
    await trio.sleep(2 * SETTLED_SECONDS)
    assert stage.alpha.woken
    assert stage.context.subscribers.resources.wished("alpha") == {URI}


@pytest.mark.parametrize("why", ["it refuses", "it is not listed"])
async def test_what_cannot_be_followed_anew_is_let_go(client: Client, stage: Stage, why: str) -> None:
    await following(stage, client)
    if why == "it is not listed":
        stage.offers("alpha", Kind.RESOURCE)
    stage.context.subscribers.gone("alpha")
    if why == "it refuses":
        await agree(stage, RemoteError(-32601, "no"))
    await trio.testing.wait_all_tasks_blocked()
    assert not stage.context.subscribers.resources.wished("alpha")
