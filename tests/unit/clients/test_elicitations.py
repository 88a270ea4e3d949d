"""Elicitations that send a user to a URL: who got one hears that it is complete, and nobody else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
from msgspec import Raw

from daemon.clients.connected_clients import ConnectedClients
from daemon.clients.server_requests import COMPLETE, MAX_KNOWN, REQUIRED
from daemon.history.event import Event, EventKind
from tests.unit.clients.asking import FORM, answer, asks, called, greeted, on_full_surface, question, url

if TYPE_CHECKING:
    import trio

    from tests.fakes_upstream import Client, Stage


def complete(stage: Stage, params: Any, server: str = "alpha", method: str = COMPLETE) -> None:
    """A server says that an elicitation is complete."""
    stage.context.subscribers.hear(server, method, Raw(json.dumps(params).encode()), None)
    stage.outbox.flush()


async def hears_nothing(client: Client) -> bool:
    """Whether nothing came before the answer to a ping."""
    return bool((await client.request("ping", request_id="p")).get("id") == "p")


async def test_only_who_was_sent_there_hears_of_it_once_even_after_the_call(nursery: trio.Nursery) -> None:
    stage = on_full_surface()
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


async def test_what_is_not_understood_or_of_another_server_is_dropped(nursery: trio.Nursery) -> None:
    stage = on_full_surface()
    client = (await greeted(stage, nursery)).client
    await called(stage, client)
    asks(stage, "elicitation/create", url("e"))
    await client.get()
    complete(stage, {"elicitationId": "e"}, server="beta")
    complete(stage, {"elicitationId": ["e"]})
    complete(stage, ["e"])
    complete(stage, {"elicitationId": "e"}, method="notifications/other")
    assert await hears_nothing(client)


async def test_forms_are_not_remembered_and_of_many_urls_the_last(nursery: trio.Nursery) -> None:
    stage = on_full_surface()
    guest = await greeted(stage, nursery)
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


async def test_a_call_that_needs_a_url_first_is_refused_as_its_server_does(nursery: trio.Nursery) -> None:
    stage = on_full_surface()
    client = (await greeted(stage, nursery)).client
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
    stage.context = attrs.evolve(stage.context, subscribers=ConnectedClients(noted.append))
    client = (await greeted(stage, nursery)).client
    await called(stage, client)
    stage.refuse(stage.alpha.sent[0], required("e1").replace(b"https:", b"javascript:"))
    assert "asked something that mcpd does not show to users" in json.dumps(await client.get())
    assert [(event.kind, event.server) for event in noted] == [(EventKind.QUESTION_REFUSED, "alpha")]


async def test_to_a_client_that_knows_no_urls_it_is_told_as_any_failure(nursery: trio.Nursery) -> None:
    stage = on_full_surface()
    client = (await greeted(stage, nursery, {"elicitation": {}})).client
    await called(stage, client)
    stage.refuse(stage.alpha.sent[0], required("e1"))
    result = (await client.get())["result"]
    assert result["isError"] is True
    assert "first go there" in result["content"][0]["text"]


async def test_other_errors_are_told_as_any_failure(nursery: trio.Nursery) -> None:
    stage = on_full_surface()
    client = (await greeted(stage, nursery)).client
    for number, error in enumerate((b'{"code":-32042,"message":"m"}', b'{"code":1,"message":"m","data":{}}')):
        await called(stage, client)
        stage.refuse(stage.alpha.sent[number], error)
        assert (await client.get())["result"]["isError"] is True


async def test_a_client_that_is_gone_hears_nothing(nursery: trio.Nursery) -> None:
    stage = on_full_surface()
    guest = await greeted(stage, nursery)
    await called(stage, guest.client)
    asks(stage, "elicitation/create", url("e"))
    await guest.client.get()
    guest.client.close()
    await guest.ended.wait()
    assert not stage.context.subscribers.sent_to_urls
    complete(stage, {"elicitationId": "e"})
