"""Calls of one client in flight: each is answered, counted and forgotten once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Raw

from daemon.clients.calls import MAX_SEARCHED, ClientCall, is_error
from daemon.counting.tally import counters, most_called
from daemon.errors import (
    CallError,
    Overloaded,
    PromptDisabled,
    ResourceDisabled,
    UnknownPrompt,
    UnknownResource,
    UpstreamLost,
    UpstreamUnavailable,
)
from daemon.model import Kind
from tests.fakes_upstream import MODERN, Client, Stage
from tests.unit.cases import cases
from tests.unit.clients.asking import asks, called, greeted, on_full_surface
from tests.unit.clients.inputs import ABLE, META
from tests.unit.clients.inputs import asks as asks_about

if TYPE_CHECKING:
    import trio

    from tests.fakes_upstream import Guest


@pytest.fixture
def full() -> Stage:
    return on_full_surface()


@pytest.fixture
async def known(full: Stage, nursery: trio.Nursery) -> Guest:
    return await greeted(full, nursery)


async def test_what_a_server_asks_is_withdrawn_on_the_stream_of_its_call(full: Stage, known: Guest) -> None:
    """Its call is forgotten only afterwards: over HTTP, what belongs to no call goes another way."""
    await called(full, known.client)
    asked = asks(full, "roots/list")
    uid = (await known.client.get())["id"]
    calls, still_open = known.session._connection.calls, list[bool]()

    def given_up() -> None:
        still_open.append(b"7" in calls.open)
        asked.request.end("given up")

    full.alpha.on_cancel = given_up
    await known.client.tell("notifications/cancelled", {"requestId": 7})
    assert (await known.client.get())["params"] == {"requestId": uid, "reason": "given up"}
    assert still_open == [True]
    assert not calls.open


async def test_at_a_stop_every_call_is_answered(full: Stage, known: Guest) -> None:
    for request_id in (7, 8):
        await called(full, known.client, request_id)
    known.session.lose_calls(UpstreamLost("mcpd is stopping"))
    answers = [await known.client.get() for _ in range(2)]
    assert sorted(answer["id"] for answer in answers) == [7, 8]
    assert all(answer["result"]["isError"] for answer in answers)


@pytest.mark.parametrize("holds", [True, False])
async def test_a_bridge_is_given_back_what_no_server_was_sent(
    full: Stage, nursery: trio.Nursery, *, holds: bool
) -> None:
    known = await full.connect(nursery)
    await known.client.tell("mcpd/hello", {"holds": holds})
    for request_id in (7, "eight"):
        await called(full, known.client, request_id)
    known.session.calls.open[b'"eight"'].in_line = True
    known.session.give_back()
    assert list(known.session.calls.open) == ([b"7"] if holds else [b"7", b'"eight"'])
    if holds:
        said = await known.client.get()
        assert (said["method"], said["params"]) == ("mcpd/unsent", {"ids": ["eight"]})


@cases("result", "failed", raw={"result"})
def test_a_tool_s_own_word_that_it_failed_is_seen_and_no_quotation(result: bytes, failed: bool) -> None:
    assert is_error(result) is failed
    assert is_error(Raw(result)) is failed


def test_it_is_seen_in_a_long_result_and_not_looked_for_in_one_that_is_too_long() -> None:
    of = (
        '{"isError" : true, "content":"X"}',
        '{"content":"X","isError":true}',
        '{"a":"X","isError":true,"b":"X"}',
    )
    for result in of:
        assert is_error(result.replace("X", "x" * 5000).encode())
    assert not is_error(b'{"isError":true,"content":"%b"}' % (b"x" * MAX_SEARCHED))


@pytest.mark.parametrize("outcome", ["ok", UpstreamLost.code])
async def test_a_request_that_goes_the_way_of_calls_is_none(stage: Stage, client: Client, outcome: str) -> None:
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


@pytest.mark.parametrize(("meta", "became"), [(META, "parked"), (MODERN, "refused")])
async def test_what_a_modern_client_is_asked_is_counted(
    stage: Stage, client: Client, meta: dict[str, Any], became: str
) -> None:
    await client.call("alpha", "echo", _meta=meta)
    asks_about(stage, await stage.alpha.wait_sent())
    assert stage.tally.servers["alpha"].relays == {("elicitation/create", became): 1}


@pytest.mark.parametrize(("capabilities", "became"), [(ABLE, "relayed"), ({}, "refused")])
async def test_what_a_client_is_asked_is_counted(
    stage: Stage, client: Client, capabilities: dict[str, Any], became: str
) -> None:
    who = {"name": "tester", "version": "1"}
    said = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": who}
    await client.request("initialize", said)
    await client.call("alpha", "echo", request_id="x")
    asks_about(stage, await stage.alpha.wait_sent(), "roots/list", None)
    assert stage.tally.servers["alpha"].relays == {("roots/list", became): 1}


async def test_calls_that_end_together_are_recorded_together_after_their_answers_are_written(
    stage: Stage, client: Client
) -> None:
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


INTERNAL, PARAMS, NO_RESOURCE = -32603, -32602, -32002


@pytest.mark.parametrize(
    ("error", "code", "modern"),
    [
        (UnknownPrompt, PARAMS, PARAMS),
        (PromptDisabled, PARAMS, PARAMS),
        (UnknownResource, NO_RESOURCE, PARAMS),
        (ResourceDisabled, NO_RESOURCE, PARAMS),
        (UpstreamUnavailable, INTERNAL, INTERNAL),
        (Overloaded, INTERNAL, INTERNAL),
    ],
)
async def test_an_error_has_its_code_its_text_and_its_details(
    stage: Stage, nursery: trio.Nursery, error: type[CallError], code: int, modern: int
) -> None:
    for kind in (Kind.RESOURCE, Kind.PROMPT, Kind.TEMPLATE):
        for server in ("alpha", "beta"):
            stage.offers(server, kind)
    stage.offers("alpha", Kind.PROMPT, "p")
    stage.alpha.refusal = error("What happened. What to do.", detail=7)
    client = await stage.client(nursery)
    for meta, wanted in (({}, code), ({"_meta": MODERN}, modern)):
        answer = await client.request("prompts/get", {"name": "p", **meta})
        assert answer["error"] == {
            "code": wanted,
            "message": f"{error.code}: What happened. What to do.",
            "data": {"code": error.code, "detail": 7},
        }
    assert [each[3] for each in stage.log.notes] == [error.code] * 2


async def test_a_request_is_logged_and_counted_without_what_it_was_given(
    stage: Stage, nursery: trio.Nursery
) -> None:
    stage.offers("alpha", Kind.PROMPT, "p")
    stage.offers("alpha", Kind.RESOURCE, "file:///listed")
    client = await stage.client(nursery)
    asked = [
        ("prompts/get", {"name": "p", "arguments": {"password": "hunter2"}}, "alpha/prompt:p"),
        ("resources/read", {"uri": "file:///listed"}, "alpha/resource:file:///listed"),
        ("resources/read", {"uri": "mcpd://alpha/x%3Ahunter2"}, "alpha/resource"),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "p"}}, "alpha/completion/complete"),
    ]
    for number, (method, params, label) in enumerate(asked, 1):
        await client.ask(method, params)
        sent = await stage.alpha.wait_sent(number)
        assert "hunter2" not in repr(sent.exchange)
        stage.answer(sent, b"{}")
        await client.get()
        assert stage.log.notes[-1][1] == label
    # It is counted apart from calls of tools.
    assert (stage.alpha.recorded, stage.tally.tools) == ([], {})
