"""A prompt or a resource is a request, and no call of a tool: it is counted as what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest

from daemon.clients.calls import ClientCall
from daemon.counting.tally import counters, most_called
from daemon.errors import Overloaded, UpstreamLost
from daemon.model import Kind
from tests.fakes_upstream import MODERN, Stage
from tests.unit.clients.inputs import ABLE, META, asks

if TYPE_CHECKING:
    import trio

    from daemon.history.event import Event


@pytest.mark.parametrize("outcome", ["ok", UpstreamLost.code])
async def test_a_request_that_goes_the_way_of_calls_is_none(nursery: trio.Nursery, outcome: str) -> None:
    stage = Stage()
    client = await stage.client(nursery)
    await client.call("alpha", "echo")
    sent = await stage.alpha.wait_sent()
    assert isinstance(sent.call, ClientCall)
    sent.call.method = "prompts/get"
    if outcome == "ok":
        stage.answer(sent)
    else:
        stage.lose(sent, UpstreamLost("gone", server="alpha"))
    await client.get()
    counted = stage.tally.servers["alpha"]
    assert counted.requests == {("prompts/get", outcome): 1}
    assert (counted.count, counted.outcomes, stage.tally.meta_calls) == (0, {}, {})
    assert most_called(counters(stage.tally)) == []


async def test_a_call_is_one_and_no_request(nursery: trio.Nursery) -> None:
    stage = Stage()
    client = await stage.client(nursery)
    await client.call("alpha", "echo")
    stage.answer(await stage.alpha.wait_sent())
    await client.get()
    assert stage.tally.servers["alpha"].requests == {}
    assert most_called(counters(stage.tally)) == [("alpha", "echo")]


@pytest.mark.parametrize(("meta", "became"), [(META, "parked"), (MODERN, "refused")])
async def test_what_a_modern_client_is_asked_is_counted(
    nursery: trio.Nursery, meta: dict[str, Any], became: str
) -> None:
    stage = Stage()
    client = await stage.client(nursery)
    await client.call("alpha", "echo", _meta=meta)
    asks(stage, await stage.alpha.wait_sent())
    assert stage.tally.servers["alpha"].relays == {("elicitation/create", became): 1}


@pytest.mark.parametrize(("capabilities", "became"), [(ABLE, "relayed"), ({}, "refused")])
async def test_what_a_client_is_asked_is_counted(
    nursery: trio.Nursery, capabilities: dict[str, Any], became: str
) -> None:
    stage = Stage()
    client = await stage.client(nursery)
    who = {"name": "tester", "version": "1"}
    said = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": who}
    await client.request("initialize", said)
    await client.call("alpha", "echo", request_id="x")
    asks(stage, await stage.alpha.wait_sent(), "roots/list", None)
    assert stage.tally.servers["alpha"].relays == {("roots/list", became): 1}


async def test_a_request_that_is_refused_by_a_bound_says_by_which_as_a_call_does(nursery: trio.Nursery) -> None:
    noted: list[Event] = []
    stage = Stage()
    stage.context = attrs.evolve(stage.context, gather=noted.append)
    stage.offers("alpha", Kind.PROMPT, "review")
    stage.alpha.refusal = Overloaded("the server does not read", bound="bytes that wait for the server")
    client = await stage.client(nursery)
    await client.request("prompts/get", {"name": "review"})
    assert [(event.server, event.details) for event in noted] == [
        ("alpha", {"bound": "bytes that wait for the server"})
    ]


async def test_calls_that_end_together_are_recorded_together_after_their_answers_are_written(
    nursery: trio.Nursery,
) -> None:
    stage = Stage()
    client = await stage.client(nursery)
    for number in range(3):
        await client.call("alpha", "echo", request_id=number)
    results = b'{"content":[]}', b'{"content":[]}', b'{"content":[],"isError":true}'
    await stage.alpha.wait_sent(3)
    for sent, result in zip(stage.alpha.sent, results, strict=True):
        sent.exchange.answered(result)
    assert (stage.alpha.recorded, stage.tally.servers["alpha"].count) == ([], 0)
    stage.outbox.flush()
    assert [ok for _, ok in stage.alpha.recorded] == [True] * 3
    assert stage.tally.servers["alpha"].outcomes == {("category", "ok"): 3}
    assert [note[3] for note in stage.log.notes] == ["ok", "ok", "isError"]
    stage.outbox.flush()
    assert stage.tally.servers["alpha"].count == 3
