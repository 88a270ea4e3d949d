"""Roots that servers ask for outside of calls: only of the client that alone can be meant, and for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio
import trio.testing

from daemon.clients.notifications import ROOTS_SECONDS
from daemon.protocol import ROOTS_CHANGED
from tests.unit.clients.asking import ALL, Question, answer, asks, called, greeted, on_full_surface, question

if TYPE_CHECKING:
    from trio.testing import MockClock

    from tests.fakes_upstream import Stage


def asked_apart(stage: Stage, method: str = "roots/list", server: str = "alpha") -> Question:
    """The server asks while no call is in flight."""
    asked = question(method, server=server)
    stage.context.subscribers.ask(asked.request)
    stage.outbox.flush()
    return asked


def refused(asked: Question) -> bool:
    return bool(asked.back.said) and asked.back.said[0][0] == "refused"


async def test_the_only_client_with_roots_is_asked(nursery: trio.Nursery) -> None:
    stage = on_full_surface()
    await greeted(stage, nursery, {"sampling": {}})
    client = (await greeted(stage, nursery)).client
    asked = asked_apart(stage)
    got = await client.get()
    assert got["method"] == "roots/list"
    await answer(client, got["id"], {"roots": [{"uri": "file:///a"}]})
    assert asked.answers == [("result", {"roots": [{"uri": "file:///a"}]})]


async def test_of_two_clients_neither_is_asked(nursery: trio.Nursery) -> None:
    stage = on_full_surface()
    guest = await greeted(stage, nursery)
    other = await greeted(stage, nursery)
    assert refused(asked_apart(stage))
    other.client.close()
    await other.ended.wait()
    assert not refused(asked_apart(stage))
    guest.client.close()
    await guest.ended.wait()
    assert refused(asked_apart(stage))


async def test_a_client_is_not_asked_before_its_handshake_is_over(nursery: trio.Nursery) -> None:
    stage = on_full_surface()
    guest = await greeted(stage, nursery, done=False)
    assert refused(asked_apart(stage))
    assert stage.alpha.told == []
    await guest.client.tell("notifications/initialized", {})
    await trio.testing.wait_all_tasks_blocked()
    # It was refused before: now it can ask again.
    assert stage.alpha.told == [ROOTS_CHANGED]
    assert not refused(asked_apart(stage))


async def test_only_a_client_that_sees_the_server_is_asked(nursery: trio.Nursery) -> None:
    profiles = {"default": {"surface": "full", "categories": ["b"]}}
    stage = on_full_surface(
        profiles=profiles, categories={"a": {"description": "A", "server": "alpha"}, "b": {"server": "beta"}}
    )
    await greeted(stage, nursery)
    assert refused(asked_apart(stage))
    assert not refused(asked_apart(stage, server="beta"))


async def test_a_client_with_chosen_servers_is_asked_by_those_alone(nursery: trio.Nursery) -> None:
    stage = on_full_surface()
    guest = await stage.connect(nursery)
    await guest.client.tell("mcpd/hello", {"servers": ["beta"]})
    params = {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}}
    await guest.client.request("initialize", params, request_id=0)
    await guest.client.tell("notifications/initialized", {})
    await trio.testing.wait_all_tasks_blocked()
    assert refused(asked_apart(stage))
    assert not refused(asked_apart(stage, server="beta"))


async def test_nothing_but_roots_is_asked_outside_of_calls(nursery: trio.Nursery) -> None:
    stage = on_full_surface()
    await greeted(stage, nursery)
    assert refused(asked_apart(stage, "sampling/createMessage"))
    assert refused(asked_apart(stage, "elicitation/create"))


async def test_a_client_that_never_tells_its_roots_is_waited_for_no_longer_than_a_minute(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    stage = on_full_surface()
    client = (await greeted(stage, nursery)).client
    asked = asked_apart(stage)
    uid = (await client.get())["id"]
    await trio.sleep(ROOTS_SECONDS - 0.1)
    assert asked.request.is_open
    told = await client.get()
    assert told["params"]["requestId"] == uid
    assert refused(asked)


async def test_an_answer_ends_the_wait(nursery: trio.Nursery) -> None:
    stage = on_full_surface()
    client = (await greeted(stage, nursery)).client
    for _ in range(3):
        asked = asked_apart(stage)
        await answer(client, (await client.get())["id"], {"roots": []})
        assert asked.answers == [("result", {"roots": []})]
    before = asked_apart(stage)
    await client.get()
    before.request.withdraw("the server has cancelled it")
    stage.outbox.flush()
    assert (await client.get())["method"] == "notifications/cancelled"


async def test_a_change_of_roots_is_told_to_the_servers_that_have_asked_for_them(nursery: trio.Nursery) -> None:
    stage = on_full_surface()
    client = (await greeted(stage, nursery)).client
    await client.tell("notifications/roots/list_changed", {})
    await called(stage, client)
    assert stage.alpha.told == []
    asks(stage, "roots/list")
    await client.get()
    await client.tell("notifications/roots/list_changed", {})
    await trio.testing.wait_all_tasks_blocked()
    assert stage.alpha.told == [ROOTS_CHANGED]
    assert stage.upstreams["beta"].told == []


async def test_a_server_that_knows_the_roots_of_a_client_asks_anew_when_that_is_gone(
    nursery: trio.Nursery,
) -> None:
    stage = on_full_surface()
    gone, other = await greeted(stage, nursery), await greeted(stage, nursery)
    await called(stage, gone.client)
    asks(stage, "roots/list")
    await gone.client.get()
    gone.client.close()
    await gone.ended.wait()
    assert stage.alpha.told == [ROOTS_CHANGED]
    asked_apart(stage)
    assert (await other.client.get())["method"] == "roots/list"


async def test_a_server_that_is_gone_is_not_told(nursery: trio.Nursery) -> None:
    stage = on_full_surface()
    client = (await greeted(stage, nursery)).client
    asked = asked_apart(stage, server="beta")
    await answer(client, (await client.get())["id"], {"roots": []})
    assert asked.answers == [("result", {"roots": []})]
    del stage.upstreams["beta"]
    await client.tell("notifications/roots/list_changed", {})
    reply: Any = await client.request("ping", request_id=3)
    assert reply["result"] == {}
    assert "roots" in ALL
