"""Calls of clients, from `tools/call` to a server and back, as bytes on sockets against real sessions."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
import trio.testing
from msgspec import Raw

from daemon.clients.dispatch import MAX_CALLS
from daemon.clients.waits import LISTING_PATIENCE, REPORT_SECONDS
from daemon.errors import Overloaded, UpstreamCallError, UpstreamLost
from daemon.states import ServerState
from tests.fakes_upstream import MODERN, Stage, described, error_of

if TYPE_CHECKING:
    from trio.testing import MockClock

    from daemon.history.event import Event
    from tests.fakes_upstream import Client, Sent

RESULTS = [
    b"{}",
    b'{"content":[]}',
    b'{ "content" : [ ] , "isError":false }',
    b'{"zzz":1,"content":[{"type":"text","text":"\\u0041\\u00e9"}],"aaa":{"b":2,"a":1}}',
    b'{"content":[],"structuredContent":{"n":123456789012345678901234567890,"f":1.10}}',
    b'{"content":[{"type":"hologram","data":null}],"_meta":{"x":[[[1]]]}}',
    '{"content":[{"type":"text","text":"é\u2028"}]}'.encode(),
]
"""Results that a lesser proxy would change."""


def raw(value: object) -> Raw:
    return Raw(json.dumps(value).encode())


# --- what passes through -----------------------------------------------------------------------------------


@pytest.mark.parametrize("result", [*RESULTS, b'{"resultType":"complete"}', b"null", b"[1 , 2]"])
async def test_a_result_reaches_a_client_of_the_handshake_era_byte_by_byte(
    nursery: trio.Nursery, result: bytes
) -> None:
    stage = Stage()
    client = await stage.client(nursery)
    await client.call("alpha", "echo", request_id="x")
    stage.answer(await stage.alpha.wait_sent(), result)
    assert await client.line() == b'{"jsonrpc":"2.0","id":"x","result":%b}' % result


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (b"{}", b'{"resultType":"complete"}'),
        (b"{ }", b'{"resultType":"complete"}'),
        (b' { "a":1}', b'{"resultType":"complete","a":1}'),
        (b'{"content":[]}', b'{"resultType":"complete","content":[]}'),
        (b'{"n":[1, {"resultType":2}]}', b'{"resultType":"complete","n":[1, {"resultType":2}]}'),
        (b'{"content":[],"resultType":"complete"}', b'{"content":[],"resultType":"complete"}'),
        (b'{"resultType":"input_required"}', b'{"resultType":"input_required"}'),
    ],
)
async def test_a_modern_client_gets_a_result_type_exactly_where_the_server_gave_none(
    nursery: trio.Nursery, result: bytes, told: bytes
) -> None:
    stage = Stage()
    client = await stage.client(nursery)
    await client.call("alpha", "echo", _meta=MODERN)
    stage.answer(await stage.alpha.wait_sent(), result)
    assert await client.line() == b'{"jsonrpc":"2.0","id":1,"result":%b}' % told


@pytest.mark.parametrize("result", [b"null", b"[]", b"5", b'"text"'])
async def test_a_result_that_is_no_object_still_answers_a_modern_client(
    nursery: trio.Nursery, result: bytes
) -> None:
    """A server's nonsense must neither leave the client without an answer nor hurt the server's connection."""
    stage = Stage()
    client = await stage.client(nursery)
    await client.call("alpha", "echo", _meta=MODERN)
    stage.answer(await stage.alpha.wait_sent(), result)
    message = await client.get()
    assert message["id"] == 1
    assert "result" in message or "error" in message


async def test_a_call_reaches_the_server_with_its_arguments_and_foreign_meta_unopened(
    nursery: trio.Nursery,
) -> None:
    stage = Stage()
    client = await stage.client(nursery)
    line = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"traceparent": "00-1",'
        b'"progressToken":9,'
        b'"io.modelcontextprotocol/logLevel":"debug"},"name":"call-category-tool","arguments":'
        b'{"category":"beta","name":"mcp__beta__echo","args":{"z" : 1.10, "a":[12345678901234567890]}}}}'
    )
    await client.send(line)
    sent = await stage.upstreams["beta"].wait_sent()
    assert sent.tool == "echo"
    assert sent.raw_arguments == b'{"z" : 1.10, "a":[12345678901234567890]}'
    assert {key: bytes(value) for key, value in sent.call.meta.items()} == {"traceparent": b'"00-1"'}
    assert sent.call.wants_progress


@pytest.mark.parametrize(
    ("wire", "upstream"),
    [
        (
            b'{"code":-32602,"message":"bad","data":{"why":[1]}}',
            {"code": -32602, "message": "bad", "data": {"why": [1]}},
        ),
        (b'{"code":1,"message":"m"}', {"code": 1, "message": "m", "data": None}),
        (b'{"code":"E","message":7}', {"code": 0, "message": "7", "data": None}),
        (b'"no object"', {"code": -32603, "message": "an error object that is not one", "data": None}),
    ],
)
async def test_a_server_s_own_error_is_shown_whole_to_the_model(
    nursery: trio.Nursery, wire: bytes, upstream: dict[str, Any]
) -> None:
    stage = Stage()
    client = await stage.client(nursery)
    await client.call("alpha", "echo")
    stage.refuse(await stage.alpha.wait_sent(), wire)
    error = error_of(await client.get())
    assert error["code"] == UpstreamCallError.code
    assert error["upstream"] == upstream
    assert stage.log.notes[0][1:4:2] == ("alpha/echo", "UpstreamCallError")


async def test_who_sees_the_server_as_itself_gets_its_error_as_it_is_and_ours_as_ever(
    nursery: trio.Nursery,
) -> None:
    stage = Stage()
    client = await stage.client(nursery)
    await client.tell("mcpd/hello", {"servers": ["alpha"]})
    await client.ask("tools/call", {"name": "echo", "arguments": {}})
    stage.refuse(await stage.alpha.wait_sent(), b'{"code":-7,"message":"bad","data":{"why":[1.0]}}')
    assert (await client.get())["error"] == {"code": -7, "message": "bad", "data": {"why": [1.0]}}
    assert stage.log.notes[0][1:4:2] == ("alpha/echo", "UpstreamCallError")
    await client.ask("tools/call", {"name": "ecco", "arguments": {}})
    assert error_of(await client.get())["closest"] == ["echo"]


async def test_a_modern_client_gets_a_result_type_with_errors_too(nursery: trio.Nursery) -> None:
    stage = Stage()
    client = await stage.client(nursery)
    await client.call("nowhere", "echo", _meta=MODERN)
    message = await client.get()
    assert message["result"]["resultType"] == "complete"
    assert error_of(message)["code"] == "UnknownCategory"


@pytest.mark.parametrize(
    "arguments",
    ["[]", "5", '"text"', "null", '{"category":"alpha","name":"echo","args":[]}', '{"category":1}', '{"x":1}'],
)
@pytest.mark.parametrize("tool", ["get-category-tools", "call-category-tool"])
async def test_arguments_that_do_not_fit_are_answered_as_a_result_the_model_can_read(
    nursery: trio.Nursery, tool: str, arguments: str
) -> None:
    stage = Stage()
    client = await stage.client(nursery)
    await client.ask("tools/call", {"name": tool, "arguments": json.loads(arguments)})
    assert error_of(await client.get())["code"] == "InvalidArguments"
    assert not stage.alpha.sent
    await client.request("ping", request_id=2)


async def test_a_tool_of_a_disabled_server_is_unavailable(nursery: trio.Nursery) -> None:
    stage = Stage(
        mcpServers={"alpha": {"command": "x", "enabled": False}},
        categories={"c": {"description": "C", "server": "alpha", "tools": {"includeNames": ["echo"]}}},
    )
    client = await stage.client(nursery)
    await client.call("c", "echo")
    error = error_of(await client.get())
    assert (error["code"], error["state"]) == ("UpstreamUnavailable", "disabled")


# --- progress ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["tok", 7, 0, "", 2**70])
async def test_progress_comes_under_the_callers_own_token(nursery: trio.Nursery, token: object) -> None:
    stage = Stage()
    client = await stage.client(nursery)
    await client.call("alpha", "echo", _meta={"progressToken": token})
    sent = await stage.alpha.wait_sent()
    assert sent.call.wants_progress
    stage.progress(sent, progress=1, total=3, message="m")
    stage.answer(sent)
    report = await client.get()
    assert report["method"] == "notifications/progress"
    assert report["params"] == {"progressToken": token, "progress": 1, "total": 3, "message": "m"}
    assert (await client.get())["id"] == 1


async def test_nobody_gets_progress_without_having_asked(nursery: trio.Nursery) -> None:
    stage = Stage()
    client = await stage.client(nursery)
    await client.call("alpha", "echo")
    sent = await stage.alpha.wait_sent()
    assert not sent.call.wants_progress
    stage.progress(sent, progress=1)
    stage.answer(sent)
    assert "result" in await client.get()


async def waiting_call(stage: Stage, client: Client, seconds: float, **params: Any) -> list[dict[str, Any]]:
    """A call whose server comes up after so long. Returns the reports until then."""
    stage.alpha.up, stage.alpha.wake_seconds = False, 10 * seconds
    await client.call("alpha", "echo", **params)
    await stage.alpha.wait_woken()
    await trio.sleep(seconds)
    stage.alpha.come_up()
    sent = await stage.alpha.wait_sent()
    for progress in (0, 1, 2):
        stage.progress(sent, progress=progress)
    stage.progress(sent, progress="much")
    stage.answer(sent)
    reports = []
    while "result" not in (message := await client.get()):
        assert message["method"] == "notifications/progress"
        reports.append(message["params"])
    return reports


async def test_who_waits_for_a_server_is_told_so_and_its_progress_only_ever_rises(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    stage = Stage()
    client = await stage.client(nursery)
    reports = await waiting_call(stage, client, 2.5 * REPORT_SECONDS, _meta={"progressToken": "t"})
    assert {report["progressToken"] for report in reports} == {"t"}
    assert ["starting" in report.get("message", "") for report in reports] == [True, True, False, False, False]
    numbers = [report["progress"] for report in reports[:-1]]
    assert all(earlier < later for earlier, later in pairwise(numbers))
    # Its first report, 0, would have been a step back.
    assert numbers[2:] == [1, 2]
    assert reports[-1]["progress"] == "much"


async def test_who_waits_for_a_server_and_has_not_asked_is_told_nothing(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    stage = Stage()
    client = await stage.client(nursery)
    stage.alpha.up, stage.alpha.wake_seconds = False, 2.5 * REPORT_SECONDS
    await client.call("alpha", "echo")
    assert error_of(await client.get())["code"] == "UpstreamUnavailable"


async def test_who_gives_a_waiting_call_up_is_told_nothing_more(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    stage = Stage()
    stage.alpha.up, stage.alpha.wake_seconds = False, 10 * REPORT_SECONDS
    client = await stage.client(nursery)
    await client.call("alpha", "echo", request_id="a", _meta={"progressToken": 1})
    await stage.alpha.wait_woken()
    await client.tell("notifications/cancelled", {"requestId": "a"})
    await trio.sleep(20 * REPORT_SECONDS)
    assert (await client.request("ping", request_id="p"))["id"] == "p"


# --- giving up ---------------------------------------------------------------------------------------------


async def test_a_cancelled_call_is_given_up_at_its_server_and_not_answered(nursery: trio.Nursery) -> None:
    stage = Stage()
    client = await stage.client(nursery)
    await client.call("alpha", "echo", request_id="a")
    await client.call("alpha", "echo", request_id="b")
    first, second = await stage.alpha.wait_sent(1), await stage.alpha.wait_sent(2)
    await client.tell("notifications/cancelled", {"requestId": "b", "reason": "user"})
    await stage.alpha.wait_cancelled()
    assert [key for key, _ in stage.alpha.cancelled] == [second.key]
    stage.answer(second)  # too late: nobody hears it
    stage.answer(first)
    assert (await client.get())["id"] == "a"
    assert (await client.request("ping", request_id=3))["id"] == 3


@pytest.mark.parametrize("wrong", ["1", 2, None, [1], {}])
async def test_a_cancellation_of_something_else_leaves_a_call_alone(
    nursery: trio.Nursery, wrong: object
) -> None:
    stage = Stage()
    client = await stage.client(nursery)
    await client.call("alpha", "echo", request_id=1)
    sent = await stage.alpha.wait_sent()
    await client.tell("notifications/cancelled", {"requestId": wrong})
    await client.tell("notifications/cancelled", {})
    await client.request("ping", request_id=9)
    assert not stage.alpha.cancelled
    stage.answer(sent)
    assert (await client.get())["id"] == 1


async def test_a_client_that_hangs_up_gives_all_its_calls_up_and_nobody_elses(nursery: trio.Nursery) -> None:
    stage = Stage()
    leaving, staying = await stage.connect(nursery), await stage.connect(nursery)
    await staying.client.call("alpha", "echo")
    kept = await stage.alpha.wait_sent(1)
    await leaving.client.call("alpha", "echo", request_id=1)
    await leaving.client.call("alpha", "echo", request_id=2)
    keys = {(await stage.alpha.wait_sent(2)).key, (await stage.alpha.wait_sent(3)).key}
    leaving.client.close()
    await stage.alpha.wait_cancelled(2)
    assert {key for key, _ in stage.alpha.cancelled} == keys
    with trio.fail_after(30):
        await leaving.ended.wait()
    assert leaving.session.in_flight == 0
    stage.answer(kept)
    assert (await staying.client.get())["id"] == 1


async def test_a_call_that_waits_for_its_server_can_be_cancelled(nursery: trio.Nursery) -> None:
    stage = Stage()
    stage.alpha.up = False
    guest = await stage.connect(nursery)
    await guest.client.call("alpha", "echo")
    await stage.alpha.wait_woken()
    await guest.client.tell("notifications/cancelled", {"requestId": 1})
    await guest.client.request("ping", request_id=2)
    stage.alpha.come_up()
    await trio.testing.wait_all_tasks_blocked()
    assert not stage.alpha.sent
    assert guest.session.in_flight == 0


async def test_a_call_cancelled_in_the_moment_its_server_comes_up_is_not_sent(nursery: trio.Nursery) -> None:
    """The waiting task is already scheduled when the cancellation comes; the effect must not happen anyway."""
    stage = Stage()
    stage.alpha.up = False
    guest = await stage.connect(nursery)
    await guest.client.call("alpha", "echo")
    await stage.alpha.wait_woken()
    await trio.testing.wait_all_tasks_blocked()
    stage.alpha.come_up()
    guest.session.on_notification("notifications/cancelled", raw({"requestId": 1}))
    await trio.testing.wait_all_tasks_blocked()
    unwanted = {sent.key for sent in stage.alpha.sent} - {key for key, _ in stage.alpha.cancelled}
    assert not unwanted


# --- ids ---------------------------------------------------------------------------------------------------


async def test_an_id_already_in_flight_is_refused_and_the_first_call_still_answered(
    nursery: trio.Nursery,
) -> None:
    stage = Stage()
    client = await stage.client(nursery)
    await client.call("alpha", "echo", {"n": 1}, request_id="same")
    sent = await stage.alpha.wait_sent()
    await client.call("alpha", "echo", {"n": 2}, request_id="same")
    refused = await client.get()
    assert (refused["id"], refused["error"]["code"]) == ("same", -32600)
    stage.answer(sent, b'{"first":true}')
    assert await client.get() == {"jsonrpc": "2.0", "id": "same", "result": {"first": True}}
    assert len(stage.alpha.sent) == 1
    # Once answered, the id is free again.
    await client.call("alpha", "echo", {"n": 3}, request_id="same")
    stage.answer(await stage.alpha.wait_sent(2), b'{"third":true}')
    assert (await client.get())["result"] == {"third": True}


async def test_clients_with_the_same_ids_never_get_each_others_answers(nursery: trio.Nursery) -> None:
    stage = Stage()
    waiting: list[Sent] = []
    for upstream in stage.upstreams.values():
        upstream.on_send = waiting.append
    clients = [await stage.client(nursery) for _ in range(16)]
    ids = [0, 1, "1", "", "0", 2**64, -1]
    for place, client in enumerate(clients):
        for request_id in ids:
            server = "alpha" if place % 2 else "beta"
            await client.call(server, "echo", {"nonce": [place, request_id]}, request_id=request_id)
    with trio.fail_after(30):
        await stage.alpha.wait_sent(8 * len(ids))
        await stage.upstreams["beta"].wait_sent(8 * len(ids))
    # Answered in an order that has nothing to do with that of the calls.
    for sent in sorted(waiting, key=lambda sent: hash(str(sent.arguments)) % 1009):
        stage.answer(sent, json.dumps(sent.arguments).encode())
    for place, client in enumerate(clients):
        answers = [await client.get() for _ in ids]
        assert {repr(answer["id"]) for answer in answers} == {repr(one) for one in ids}
        assert all(answer["result"] == {"nonce": [place, answer["id"]]} for answer in answers)


# --- servers that are not up -------------------------------------------------------------------------------


async def test_a_call_wakes_a_server_in_backoff_and_is_answered_when_it_comes_up(nursery: trio.Nursery) -> None:
    stage = Stage()
    stage.alpha.up = False
    stage.becomes("alpha", ServerState.BACKOFF)
    client = await stage.client(nursery)
    await client.call("alpha", "echo", _meta={"progressToken": "p"})
    await stage.alpha.wait_woken()
    assert (await client.request("ping", request_id=2))["id"] == 2  # others need not wait
    stage.alpha.come_up()
    stage.answer(await stage.alpha.wait_sent())
    assert (await client.get())["id"] == 1


async def test_a_call_that_has_to_wait_may_be_the_very_first_message(nursery: trio.Nursery) -> None:
    """A modern client needs no handshake, and its first line is often there before its session runs."""
    stage = Stage()
    stage.alpha.up = False
    params = {"name": "call-category-tool", "arguments": {"category": "alpha", "name": "echo", "args": {}}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**params, "_meta": MODERN}}
    clients = []
    for number in range(1, 21):  # trio shuffles the order of tasks: every order must do
        clients.append(stage.arrive(nursery, json.dumps(call).encode()).client)
        await trio.testing.wait_all_tasks_blocked()
        assert stage.alpha.woken == number
    stage.alpha.come_up()
    await stage.alpha.wait_sent(len(clients))
    for sent in stage.alpha.sent:
        stage.answer(sent)
    for client in clients:
        assert (await client.get())["result"]["resultType"] == "complete"


async def test_a_call_to_a_server_that_stays_down_fails_after_the_wake_limit(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    stage = Stage()
    stage.alpha.up = False
    client = await stage.client(nursery)
    began = trio.current_time()
    await client.call("alpha", "echo")
    assert error_of(await client.get())["code"] == "UpstreamUnavailable"
    assert trio.current_time() - began == pytest.approx(stage.alpha.wake_seconds, abs=0.1)
    assert stage.alpha.woken == 1


async def test_a_call_to_a_parked_server_fails_at_once(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    stage = Stage()
    stage.alpha.up = stage.alpha.can_wake = False
    client = await stage.client(nursery)
    began = trio.current_time()
    await client.call("alpha", "echo")
    assert error_of(await client.get())["code"] == "UpstreamUnavailable"
    assert trio.current_time() == began
    assert stage.alpha.woken == 0


async def test_a_server_that_takes_no_more_says_so(nursery: trio.Nursery) -> None:
    stage = Stage()
    noted: list[Event] = []
    stage.context = attrs.evolve(stage.context, gather=noted.append)
    stage.alpha.refusal = Overloaded("full", server="alpha", bound="limits.queue")
    client = await stage.client(nursery)
    await client.call("alpha", "echo")
    error = error_of(await client.get())
    assert (error["code"], error["bound"]) == ("Overloaded", "limits.queue")
    assert [(event.server, event.details) for event in noted] == [("alpha", {"bound": "limits.queue"})]


async def test_describing_waits_for_the_first_list(nursery: trio.Nursery) -> None:
    stage = Stage(listed=False)
    stage.becomes("alpha", ServerState.STARTING)
    client = await stage.client(nursery)
    await client.describe("alpha")
    await stage.alpha.wait_woken()
    stage.becomes("alpha", ServerState.READY)
    stage.lists("alpha", "echo")
    assert list(described(await client.get())["tools"]) == ["echo"]


@pytest.mark.parametrize(("up", "seconds"), [(True, LISTING_PATIENCE), (False, 0.75)])
async def test_describing_waits_no_longer_than_its_patience(
    nursery: trio.Nursery, autojump_clock: MockClock, up: bool, seconds: float
) -> None:
    """A server that is up has `LISTING_PATIENCE` to list; how long it may take to come up, `wake` says."""
    stage = Stage(listed=False)
    stage.becomes("alpha", ServerState.STARTING)
    stage.alpha.up, stage.alpha.wake_seconds = up, 0.75
    client = await stage.client(nursery)
    began = trio.current_time()
    await client.describe("alpha")
    answer = described(await client.get())
    assert answer["tools"] == {}
    assert answer["meta"]["unavailableServers"]["alpha"]["state"] == "starting"
    assert trio.current_time() - began == pytest.approx(seconds, abs=0.1)


async def test_describing_a_server_that_fails_to_list_says_why_at_once(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    stage = Stage(listed=False)
    stage.becomes("alpha", ServerState.STARTING)
    client = await stage.client(nursery)
    began = trio.current_time()
    await client.describe("alpha")
    await stage.alpha.wait_woken()
    stage.becomes("alpha", ServerState.DEGRADED)
    stage.fails_to_list("alpha", "it answered nonsense")
    error = error_of(await client.get())
    assert error["code"] == "SchemaFetchError"
    assert "it answered nonsense" in error["message"]
    assert trio.current_time() - began < LISTING_PATIENCE


async def test_a_call_to_a_server_that_never_listed_goes_out_once_it_has(nursery: trio.Nursery) -> None:
    stage = Stage(listed=False)
    client = await stage.client(nursery)
    await client.call("alpha", "echo", {"n": 1})
    await stage.alpha.wait_woken()
    stage.lists("alpha", "echo")
    sent = await stage.alpha.wait_sent()
    assert (sent.tool, sent.arguments) == ("echo", {"n": 1})
    stage.answer(sent)
    assert (await client.get())["id"] == 1


# --- bounds and bugs ---------------------------------------------------------------------------------------


async def test_a_client_has_so_many_calls_in_flight_and_no_more(nursery: trio.Nursery) -> None:
    stage = Stage()
    guest, other = await stage.connect(nursery), await stage.connect(nursery)
    for number in range(MAX_CALLS + 1):
        await guest.client.call("alpha", "echo", request_id=number)
    message = await guest.client.get()
    assert message["id"] == MAX_CALLS
    assert error_of(message)["code"] == "Overloaded"
    assert error_of(message)["bound"] == "calls in flight of one client"
    assert len(stage.alpha.sent) == MAX_CALLS
    assert guest.session.in_flight == MAX_CALLS
    # Another client has room of its own, and one answer makes room for one call.
    await other.client.call("alpha", "echo")
    stage.answer(await stage.alpha.wait_sent(MAX_CALLS + 1))
    assert (await other.client.get())["id"] == 1
    stage.answer(stage.alpha.sent[0])
    assert (await guest.client.get())["id"] == 0
    await guest.client.call("alpha", "echo", request_id="next")
    stage.answer(await stage.alpha.wait_sent(MAX_CALLS + 2))
    assert (await guest.client.get())["id"] == "next"


async def test_a_bug_while_a_call_is_sent_costs_this_call_and_leaves_no_trace(nursery: trio.Nursery) -> None:
    stage = Stage()
    guest = await stage.connect(nursery)
    stage.alpha.refusal = KeyError("a bug")
    await guest.client.call("alpha", "echo")
    assert (await guest.client.get())["error"]["code"] == -32603
    assert guest.session.in_flight == 0, "the call is over, or its id stays taken for ever"
    stage.alpha.refusal = None
    await guest.client.call("alpha", "echo")
    stage.answer(await stage.alpha.wait_sent())
    assert "result" in await guest.client.get()


async def test_a_bug_after_the_wait_for_a_server_costs_this_call_alone(
    nursery: trio.Nursery,
) -> None:
    stage = Stage()
    stage.alpha.up = False
    guest = await stage.connect(nursery)
    await guest.client.call("alpha", "echo")
    await stage.alpha.wait_woken()
    stage.alpha.refusal = KeyError("a bug")
    stage.alpha.come_up()
    answer = await guest.client.get()
    assert answer["id"] == 1
    assert (await guest.client.request("ping", request_id=2))["id"] == 2


async def test_calls_are_noted_with_label_latency_and_outcome(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    stage = Stage()
    client = await stage.client(nursery)
    await client.call("alpha", "mcp__alpha__echo")
    sent = await stage.alpha.wait_sent()
    await trio.sleep(0.25)
    stage.answer(sent)
    await client.get()
    await client.call("beta", "add")
    stage.lose(await stage.upstreams["beta"].wait_sent(), UpstreamLost("gone"))
    assert error_of(await client.get())["code"] == "UpstreamLost"
    await client.call("alpha", "nonsense")
    await client.get()
    (number, label, seconds, outcome), *others = stage.log.notes
    assert (number, label, outcome) == (1, "alpha/echo", "ok")
    assert seconds == pytest.approx(0.25, abs=0.05)
    assert [note[3] for note in others] == ["UpstreamLost", "UnknownTool"]
    assert stage.alpha.recorded == [(seconds, True)]
    assert [ok for _, ok in stage.upstreams["beta"].recorded] == [False]


async def test_the_log_names_what_was_asked_for_and_the_session_where_no_server_had_the_call(
    nursery: trio.Nursery,
) -> None:
    stage = Stage(profiles={"default": {"surface": "load"}})
    client = await stage.client(nursery)
    await client.tell("mcpd/hello", {"session": "project"})
    secret = {"name": "hunter2"}
    told = {"names": ["echo", "my password is hunter2"]}
    await client.ask("tools/call", {"name": "load_mcp_tool", "arguments": told}, request_id=1)
    await client.get()
    await client.ask("tools/call", {"name": "load_mcp_server", "arguments": {"name": "alpha"}}, request_id=2)
    await client.get()
    await client.ask("tools/call", {"name": "beta__add", "arguments": secret}, request_id=3)
    await client.get()
    assert [(label, outcome) for _, label, _, outcome in stage.log.notes] == [
        ("load_mcp_tool(echo, …) in project", "ok"),
        ("load_mcp_server(alpha) in project", "ok"),
        ("beta__add in project", "ToolNotLoaded"),
    ]


async def test_what_the_log_names_is_bounded_and_never_what_a_tool_is_given(nursery: trio.Nursery) -> None:
    stage = Stage()
    client = await stage.client(nursery)
    long = {"category": "x" * 999, "tool_name": "echo", "args": {"password": "hunter2"}}
    await client.ask("tools/call", {"name": "call-category-tool", "arguments": long}, request_id=1)
    await client.get()
    many = {"category": "alpha", "toolNames": [f"t{number}" for number in range(9)]}
    await client.ask("tools/call", {"name": "get-category-tools", "arguments": many}, request_id=2)
    await client.get()
    await client.ask("tools/call", {"name": "get-category-tools", "arguments": {"category": 7}}, request_id=3)
    await client.get()
    assert [label for _, label, _, _ in stage.log.notes] == [
        "call-category-tool(…, echo)",
        "get-category-tools(alpha, t0, t1, t2, t3 and 5 more)",
        "get-category-tools",
    ]


async def test_a_tool_that_says_that_it_failed_is_logged_so_and_its_result_passed_on(
    nursery: trio.Nursery,
) -> None:
    stage = Stage()
    client = await stage.client(nursery)
    await client.call("alpha", "echo")
    stage.answer(await stage.alpha.wait_sent(), b'{"content":[],"isError":true}')
    assert (await client.get())["result"]["isError"]
    assert [note[3] for note in stage.log.notes] == ["isError"]
    assert [ok for _, ok in stage.alpha.recorded] == [True]


async def test_an_error_whose_details_cannot_be_written_still_answers(nursery: trio.Nursery) -> None:
    stage = Stage()
    client = await stage.client(nursery)
    await client.call("alpha", "echo")
    stage.lose(await stage.alpha.wait_sent(), UpstreamLost("gone", details=object()))
    assert error_of(await client.get())["code"] == "InternalError"


async def test_a_server_is_told_whose_call_it_is(nursery: trio.Nursery) -> None:
    stage = Stage()
    for number in (1, 2):
        client = await stage.client(nursery)
        await client.call("alpha", "echo")
        await stage.alpha.wait_sent(number)
    assert len(set(stage.alpha.clients)) == 2
