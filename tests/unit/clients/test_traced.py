"""Calls with telemetry on: what a trace says of the way of a call, and what of it the server sees."""

from typing import Any

import msgspec
import pytest
import trio
from msgspec import Raw
from trio.testing import MockClock

from daemon.counting.tally import CANCELLED
from daemon.errors import UpstreamLost, UpstreamUnavailable
from daemon.history.event import Event, EventKind
from daemon.model import Kind
from daemon.protocol import SESSION_KEY, VERSION_KEY
from daemon.tracing.call_trace import CallTrace, trace_id
from daemon.tracing.tracer import Tracer
from tests.fakes_upstream import MODERN, Client, Stage
from tests.unit.clients.asking import greeted
from tests.unit.clients.permissions.agreeing import accept, reply

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


ASKING = {"default": {"surface": "category", "permissions": [{"match": "*", "then": "ask"}]}}


def traced(ratio: float = 1.0, *, arguments: bool = False, **written: Any) -> Stage:
    """A stage whose telemetry is on, and which nothing exports."""
    stage = Stage(**written)
    msgspec.structs.force_setattr(
        stage.context, "tracer", Tracer(lambda: None, (ratio, True), arguments=arguments)
    )
    return stage


def taken(stage: Stage) -> list[CallTrace]:
    tracer = stage.context.tracer
    assert tracer is not None
    return list(tracer.queues["traces"])


@pytest.fixture
def stage() -> Stage:
    return traced()


def queue(sent: Any) -> None:
    sent.call.in_line = True


async def answered(stage: Stage, client: Client, number: int = 1, **params: Any) -> CallTrace:
    """The trace of a call that is answered at once."""
    await client.call("alpha", "echo", {"a": 1}, request_id="x", **params)
    stage.answer(await stage.alpha.wait_sent(number))
    await client.get()
    return taken(stage)[-1]


async def test_a_call_is_a_trace_with_the_part_of_its_server(stage: Stage, nursery: trio.Nursery) -> None:
    guest = await greeted(stage, nursery, {})
    trace = await answered(stage, guest.client)
    assert trace.series == (
        ("mcp.server.operation.duration", "tools/call", "call-category-tool", "", ""),
        ("mcp.client.operation.duration", "tools/call", "echo", "alpha", ""),
    )
    assert trace.began <= trace.sent <= trace.ended
    sizes = len('{"category": "alpha", "name": "echo", "args": {"a": 1}}'), len('{"content":[]}')
    assert (trace.about, trace.code) == ((b'"x"', b"", "#1", "2025-11-25", "", *sizes), "")
    assert trace.waits == ()
    assert (await answered(stage, await stage.client(nursery), 2, _meta=MODERN)).about[3] == "2026-07-28"


async def test_the_server_gets_our_span_in_place_of_the_client_s_and_all_else_as_it_was(
    stage: Stage, client: Client
) -> None:
    meta = {"traceparent": PARENT, "tracestate": "a=b", "x": [1]}
    trace = await answered(stage, client, _meta=meta)
    sent = stage.alpha.sent[0].call.meta
    assert sent == {
        "traceparent": Raw(b'"00-%032x-%016x-01"' % (trace.trace, trace.sent_span)),
        "tracestate": Raw(b'"a=b"'),
        "x": Raw(b"[1]"),
    }
    assert f"{trace.trace:032x}" in PARENT


@pytest.mark.parametrize("meta", [{}, {"traceparent": PARENT[:-1] + "0"}])
async def test_a_call_that_is_not_kept_reaches_the_server_as_the_client_made_it(
    meta: dict[str, str], nursery: trio.Nursery
) -> None:
    stage = traced(0.0)
    client = await stage.client(nursery)
    await client.call("alpha", "echo", _meta=meta)
    sent = await stage.alpha.wait_sent()
    assert {key: bytes(value).decode() for key, value in sent.call.meta.items()} == {
        key: f'"{value}"' for key, value in meta.items()
    }
    stage.answer(sent)
    await client.get()
    assert taken(stage) == []
    assert stage.context.tracer is not None
    assert len(stage.context.tracer.durations) == 2


async def test_a_call_has_a_trace_and_arguments_in_it_only_if_they_are_to_be(nursery: trio.Nursery) -> None:
    off, plain, full = Stage(), traced(), traced(arguments=True)
    await (await off.client(nursery)).call("alpha", "echo")
    sent = await off.alpha.wait_sent()
    assert (sent.call.trace, sent.call.meta) == (None, {})  # type: ignore[attr-defined]
    assert (await answered(plain, await plain.client(nursery))).about[1] == b""
    trace = await answered(full, await full.client(nursery))
    assert trace.about[1] == b'{"category": "alpha", "name": "echo", "args": {"a": 1}}'


async def test_a_wait_for_a_start_is_part_of_the_trace(
    stage: Stage, client: Client, autojump_clock: MockClock
) -> None:
    stage.alpha.up = False
    await client.call("alpha", "echo")
    await stage.alpha.wait_woken()
    await trio.sleep(1)
    stage.alpha.come_up()
    stage.answer(await stage.alpha.wait_sent())
    await client.get()
    (trace,) = taken(stage)
    ((name, began, ended),) = trace.waits
    assert (name, round(ended - began, 6)) == ("start", 1)
    assert trace.sent == ended


async def test_a_wait_in_line_is_part_of_the_trace(
    stage: Stage, client: Client, autojump_clock: MockClock
) -> None:
    stage.alpha.on_send = queue
    await trio.sleep(1)
    await client.call("alpha", "echo")
    sent = await stage.alpha.wait_sent()
    await trio.sleep(2)
    sent.call.in_line = False
    assert sent.call.check()
    await trio.sleep(1)
    stage.answer(sent)
    await client.get()
    (trace,) = taken(stage)
    ((name, began, ended),) = trace.waits
    assert (name, ended - began, trace.ended - trace.sent) == ("queue", 2, 1)
    assert trace.sent == ended


async def test_a_call_that_never_left_the_line_has_no_part_of_a_server(stage: Stage, client: Client) -> None:
    stage.alpha.on_send = queue
    await client.call("alpha", "echo")
    stage.lose(await stage.alpha.wait_sent(), UpstreamUnavailable("gone"))
    await client.get()
    (trace,) = taken(stage)
    assert trace.sent == 0
    assert trace.series[0][-1] == "UpstreamUnavailable"


@pytest.mark.parametrize("choice", ["allow once", "refuse"])
async def test_asking_the_user_is_part_of_the_trace_whatever_the_user_says(
    choice: str, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    stage = traced(profiles=ASKING)
    events: list[Event] = []
    msgspec.structs.force_setattr(stage.context, "note", events.append)
    client = (await greeted(stage, nursery, {"elicitation": {}})).client
    await client.call("alpha", "echo", request_id=7)
    question = await client.get()
    await trio.sleep(3)
    await reply(client, question, accept(choice))
    if choice == "allow once":
        stage.answer(await stage.alpha.wait_sent())
    await client.get()
    trace = taken(stage)[-1]
    ((name, began, ended),) = trace.waits
    assert (name, ended - began) == ("ask", 3)
    assert trace.ended - trace.began == pytest.approx(3), "the wait is part of the whole"
    assert trace.series[0][-1] == ("" if choice == "allow once" else "PermissionDenied")
    (told,) = [event for event in events if event.kind in {EventKind.ALLOWED, EventKind.DECLINED}]
    assert told.details["traceId"] == trace_id(trace), "what the user decides belongs to the trace"


async def test_a_failure_that_the_tool_reports_is_an_error_and_a_server_s_own_has_its_code(
    stage: Stage, client: Client
) -> None:
    await client.tell("mcpd/hello", {"servers": ["alpha"]})
    await client.ask("tools/call", {"name": "echo", "arguments": {}})
    stage.refuse(await stage.alpha.wait_sent(), b'{"code":-7,"message":"bad"}')
    await client.get()
    (trace,) = taken(stage)
    assert trace.code == "-7"
    assert trace.series[0][1:] == ("tools/call", "echo", "", "UpstreamCallError")
    await client.ask("tools/call", {"name": "echo", "arguments": {}}, request_id=2)
    stage.answer(await stage.alpha.wait_sent(2), b'{"content":[],"isError":true}')
    await client.get()
    assert [series[-1] for series in taken(stage)[1].series] == ["tool_error"] * 2


async def test_a_name_that_a_client_makes_up_is_none(stage: Stage, client: Client) -> None:
    await client.ask("tools/call", {"name": "made-up-7f3a", "arguments": {}})
    await client.get()
    await client.call("alpha", "made-up", request_id=2)
    await client.get()
    named = [trace.series[0][2:] for trace in taken(stage)]
    assert named == [("", "", "UnknownTool"), ("call-category-tool", "", "UnknownTool")]


async def test_prompts_and_resources_are_traced_by_their_methods(stage: Stage, client: Client) -> None:
    stage.offers("alpha", Kind.PROMPT, "greet")
    stage.offers("alpha", Kind.RESOURCE, "file:///a")
    await client.ask("prompts/get", {"name": "greet"})
    stage.answer(await stage.alpha.wait_sent(), b'{"messages":[]}')
    await client.get()
    await client.ask("resources/read", {"uri": "file:///a"}, request_id=2)
    stage.answer(await stage.alpha.wait_sent(2), b'{"contents":[]}')
    await client.get()
    assert [[series[1:4] for series in trace.series] for trace in taken(stage)] == [
        [("prompts/get", "greet", ""), ("prompts/get", "greet", "alpha")],
        [("resources/read", "", ""), ("resources/read", "", "alpha")],
    ]
    assert [trace.about[4] for trace in taken(stage)] == ["", "file:///a"]


async def test_requests_that_are_no_calls_are_traced_also_if_they_wait_or_fail(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    stage = traced(listed=False)
    guest = await greeted(stage, nursery, {})
    await guest.client.ask("prompts/list", {"_meta": {"traceparent": PARENT}}, request_id=2)
    await guest.client.get()
    await guest.client.ask("tools/list", {"cursor": "x"}, request_id=3)
    await guest.client.get()
    for method, meta in (("ping", {VERSION_KEY: "2030-01-01"}), ("logging/setLevel", MODERN)):
        await guest.client.ask(method, {"_meta": meta}, request_id=4)
        assert "error" in await guest.client.get()
    handshake, waited, wrong, *refused = taken(stage)
    assert [each.series[0][-1] for each in refused] == ["UnsupportedVersion", "RemoteError"]
    assert [each.series[0][1:] for each in (handshake, waited, wrong)] == [
        ("initialize", "", "", ""),
        ("prompts/list", "", "", ""),
        ("tools/list", "", "", "ValidationError"),
    ]
    assert waited.ended - waited.began > 1
    assert (f"{waited.trace:032x}" in PARENT, waited.about[:4]) == (True, (b"2", b"", "#1", "2025-11-25"))


async def test_the_trace_of_a_request_lasts_while_its_session_is_recalled(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    stage = traced(profiles={"default": {"surface": "load"}})
    client = await stage.client(nursery)
    stage.memory.open = trio.Event()
    for number, key in enumerate(("mine", "theirs")):
        await client.ask("tools/list", {"_meta": {SESSION_KEY: key}}, request_id=number)
    await trio.sleep(0.5)
    await client.tell("notifications/cancelled", {"requestId": 1})
    await trio.sleep(0.5)
    stage.memory.open.set()
    await client.get()
    ends = [(each.ended - each.began, each.series[0][-1]) for each in taken(stage)]
    assert ends == [(0.5, CANCELLED), (1, "")]


async def test_a_call_without_an_answer_ends_its_trace_once(stage: Stage, client: Client) -> None:
    await client.call("alpha", "echo")
    sent = await stage.alpha.wait_sent()
    await client.tell("notifications/cancelled", {"requestId": 1})
    await stage.alpha.wait_cancelled()
    (trace,) = taken(stage)
    assert [series[-1] for series in trace.series] == ["cancelled", "cancelled"]
    stage.lose(sent, UpstreamLost("late"))
    assert len(taken(stage)) == 1


async def test_a_request_that_ends_with_a_question_is_a_trace_and_its_retry_another(
    nursery: trio.Nursery,
) -> None:
    stage = traced(profiles=ASKING)
    client = await stage.client(nursery)
    able = {**MODERN, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    await client.call("alpha", "echo", _meta=able)
    asked = (await client.get())["result"]
    said = {"requestState": asked["requestState"], "inputResponses": {"permission": accept()}}
    await client.call("alpha", "echo", request_id=2, _meta=able, **said)
    stage.answer(await stage.alpha.wait_sent())
    await client.get()
    first, second = taken(stage)
    assert (first.about[0], first.sent, first.series[0][-1]) == (b"1", 0, "")
    assert (second.about[0], second.sent > 0) == (b"2", True)
