"""Elicitations that send a user to a URL: who got one hears that it is complete, and nobody else."""

import json
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from msgspec import Raw
from trio.testing import MockClock

from daemon.clients.connected_clients import ConnectedClients
from daemon.clients.notifications import ROOTS_SECONDS
from daemon.clients.server_requests import COMPLETE, MAX_KNOWN, REQUIRED
from daemon.history.event import Event, EventKind
from daemon.protocol import ROOTS_CHANGED
from tests.fakes_upstream import Client, Guest, Stage
from tests.unit.clients.asking import (
    FORM,
    Question,
    answer,
    asks,
    called,
    greeted,
    on_full_surface,
    question,
    url,
)


def complete(stage: Stage, params: Any, server: str = "alpha", method: str = COMPLETE) -> None:
    """A server says that an elicitation is complete."""
    stage.context.subscribers.hear(server, method, Raw(json.dumps(params).encode()), None)
    stage.outbox.flush()


async def hears_nothing(client: Client) -> bool:
    """Whether nothing came before the answer to a ping."""
    return bool((await client.request("ping", request_id="p")).get("id") == "p")


@pytest.fixture
def stage() -> Stage:
    return on_full_surface()


@pytest.fixture
async def guest(stage: Stage, nursery: trio.Nursery) -> Guest:
    return await greeted(stage, nursery)


async def test_only_who_was_sent_there_hears_of_it_once(stage: Stage, nursery: trio.Nursery) -> None:
    anna, ben = [(await greeted(stage, nursery)).client for _ in range(2)]
    for number, client in enumerate((anna, ben)):
        await called(stage, client)
        asks(stage, "elicitation/create", url(f"e{number}"))
        await answer(client, (await client.get())["id"], {"action": "accept"})
        stage.answer(stage.alpha.sent[number])
        await client.get()
    complete(stage, {"elicitationId": "e0", "x": 1})
    complete(stage, {"elicitationId": "e0"})
    told = await anna.get()
    assert (told["method"], told["params"]) == (COMPLETE, {"elicitationId": "e0", "x": 1})
    assert await hears_nothing(anna)
    assert await hears_nothing(ben)


async def test_what_is_not_understood_or_of_another_server_is_dropped(stage: Stage, client: Client) -> None:
    await called(stage, client)
    asks(stage, "elicitation/create", url("e"))
    await client.get()
    complete(stage, {"elicitationId": "e"}, server="beta")
    complete(stage, {"elicitationId": ["e"]})
    complete(stage, ["e"])
    complete(stage, {"elicitationId": "e"}, method="notifications/other")
    assert await hears_nothing(client)


async def test_forms_are_not_remembered_and_of_many_urls_the_last(stage: Stage, guest: Guest) -> None:
    known = guest.session._connection.calls.server_requests
    for params in (FORM, {**FORM, "elicitationId": "e"}, {**url("e"), "elicitationId": 7}):
        relayed = known.ask(question("elicitation/create", params).request, None)
        assert relayed is not None
        known.close(relayed, "over")
    assert len(known.urls) == 0
    for number in range(MAX_KNOWN + 5):
        relayed = known.ask(question("elicitation/create", url(f"e{number}")).request, None)
        assert relayed is not None
        known.close(relayed, "over")
    assert len(known.urls) == MAX_KNOWN
    stage.outbox.flush()
    for _ in range(2 * (MAX_KNOWN + 8)):
        await guest.client.get()
    complete(stage, {"elicitationId": "e0"})
    complete(stage, {"elicitationId": f"e{MAX_KNOWN}"})
    assert (await guest.client.get())["params"] == {"elicitationId": f"e{MAX_KNOWN}"}


def required(*elicitations: str) -> bytes:
    """The error of a call that needs its user to go to URLs first."""
    data = {"elicitations": [url(each) for each in elicitations]}
    return json.dumps({"code": REQUIRED, "message": "first go there", "data": data}).encode()


async def test_a_call_that_needs_a_url_is_refused_as_its_server_does(stage: Stage, client: Client) -> None:
    await called(stage, client)
    stage.refuse(stage.alpha.sent[0], required("e1", "e2"))
    refused = (await client.get())["error"]
    told = json.loads(required("e1", "e2"))
    for each in (told, *told["data"]["elicitations"]):
        # Under the server's name: a client shows it as mcpd's.
        each["message"] = f"Server alpha asks: {each.get('message', '')}"
    assert refused == told
    complete(stage, {"elicitationId": "e2"})
    assert (await client.get())["method"] == COMPLETE


async def test_a_url_that_no_user_is_to_see_is_not_passed_on_and_is_an_event(nursery: trio.Nursery) -> None:
    stage, noted = on_full_surface(), list[Event]()
    stage.context = msgspec.structs.replace(stage.context, subscribers=ConnectedClients(noted.append))
    client = (await greeted(stage, nursery)).client
    await called(stage, client)
    stage.refuse(stage.alpha.sent[0], required("e1").replace(b"https:", b"javascript:"))
    assert "sent a question that mcpd does not show to users" in json.dumps(await client.get())
    assert [(event.kind, event.server) for event in noted] == [(EventKind.QUESTION_REFUSED, "alpha")]


@pytest.mark.parametrize("urls", [True, False])
async def test_other_errors_and_any_to_a_client_without_urls_are_told_as_any_failure(
    stage: Stage, nursery: trio.Nursery, urls: bool
) -> None:
    others = (b'{"code":-32042,"message":"m"}', b'{"code":1,"message":"m","data":{}}')
    errors = others if urls else (required("e1"),)
    client = (await greeted(stage, nursery, {"elicitation": {"url": {}} if urls else {}})).client
    for number, error in enumerate(errors):
        await called(stage, client)
        stage.refuse(stage.alpha.sent[number], error)
        result = (await client.get())["result"]
        assert (result["isError"], urls or "first go there" in result["content"][0]["text"]) == (True, True)


async def test_a_client_that_is_gone_hears_nothing(stage: Stage, guest: Guest) -> None:
    await called(stage, guest.client)
    asks(stage, "elicitation/create", url("e"))
    await guest.client.get()
    guest.client.close()
    await guest.ended.wait()
    assert not stage.context.subscribers.sent_to_urls
    complete(stage, {"elicitationId": "e"})


def asked_apart(stage: Stage, method: str = "roots/list", server: str = "alpha") -> Question:
    """The server asks while no call is in flight."""
    asked = question(method, server=server)
    stage.context.subscribers.ask(asked.request)
    stage.outbox.flush()
    return asked


def refused(asked: Question) -> bool:
    return bool(asked.back.said) and asked.back.said[0][0] == "refused"


async def test_the_only_client_with_roots_is_asked_for_them_and_for_nothing_else(
    stage: Stage, nursery: trio.Nursery
) -> None:
    await greeted(stage, nursery, {"sampling": {}})
    client = (await greeted(stage, nursery)).client
    assert refused(asked_apart(stage, "sampling/createMessage"))
    assert refused(asked_apart(stage, "elicitation/create"))
    asked = asked_apart(stage)
    got = await client.get()
    assert got["method"] == "roots/list"
    await answer(client, got["id"], {"roots": [{"uri": "file:///a"}]})
    assert asked.answers == [("result", {"roots": [{"uri": "file:///a"}]})]


async def test_a_client_is_not_asked_before_its_handshake_is_over(stage: Stage, nursery: trio.Nursery) -> None:
    guest = await greeted(stage, nursery, done=False)
    assert refused(asked_apart(stage))
    assert stage.alpha.told == []
    await guest.client.tell("notifications/initialized", {})
    await trio.testing.wait_all_tasks_blocked()
    # It was refused before: now it can ask again.
    assert stage.alpha.told == [ROOTS_CHANGED]
    assert not refused(asked_apart(stage))


async def test_of_two_clients_with_roots_none_is_asked(stage: Stage, nursery: trio.Nursery) -> None:
    gone, _other = await greeted(stage, nursery), await greeted(stage, nursery)
    assert refused(asked_apart(stage))
    assert stage.alpha.told == []
    gone.client.close()
    await gone.ended.wait()
    assert stage.alpha.told == [ROOTS_CHANGED]


async def test_only_a_client_that_sees_the_server_is_asked(nursery: trio.Nursery) -> None:
    profiles = {"default": {"surface": "full", "categories": ["b"]}}
    stage = on_full_surface(
        profiles=profiles, categories={"a": {"description": "A", "server": "alpha"}, "b": {"server": "beta"}}
    )
    await greeted(stage, nursery)
    assert refused(asked_apart(stage))
    assert not refused(asked_apart(stage, server="beta"))


async def test_a_client_that_never_tells_its_roots_is_waited_for_no_longer_than_a_minute(
    stage: Stage, client: Client, autojump_clock: MockClock
) -> None:
    asked = asked_apart(stage)
    uid = (await client.get())["id"]
    await trio.sleep(ROOTS_SECONDS - 0.1)
    assert asked.request.is_open
    told = await client.get()
    assert told["params"]["requestId"] == uid
    assert refused(asked)


async def test_a_server_asks_anew_for_roots_when_a_client_is_gone(stage: Stage, nursery: trio.Nursery) -> None:
    gone, other = await greeted(stage, nursery), await greeted(stage, nursery)
    await called(stage, gone.client)
    asks(stage, "roots/list")
    await gone.client.get()
    gone.client.close()
    await gone.ended.wait()
    assert stage.alpha.told == [ROOTS_CHANGED]
    asked_apart(stage)
    assert (await other.client.get())["method"] == "roots/list"
