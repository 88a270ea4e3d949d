"""Calls of clients, from `tools/call` to a server and back, as bytes on sockets against real sessions."""

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw
from trio.testing import MockClock

from daemon import errors
from daemon.clients.client import CallRates, is_metered
from daemon.clients.dispatch import MAX_CALLS, MAX_PLAIN, PlainCall, plain_call
from daemon.clients.waits import INDEX_PATIENCE, LISTING_PATIENCE, REPORT_SECONDS, wait_indexed, wait_listed
from daemon.config.config_model import Config
from daemon.history.event import Event
from daemon.kit.waiting import Watch
from daemon.model import Kind
from daemon.protocol import MAX_SEARCHED, is_error
from daemon.search.index import Index
from daemon.states import ServerState
from daemon.surfaces.surface import AwaitListing
from daemon.wire.envelope import MAX_DEPTH, decode_strictly
from tests.fakes_upstream import MODERN, Client, Guest, Sent, Stage, described, error_of
from tests.unit.cases import cases
from tests.unit.clients.asking import asks, called, greeted, on_full_surface
from tests.unit.clients.inputs import ABLE, META, raw
from tests.unit.clients.inputs import asks as asks_about
from tests.unit.config.reading import config_of
from tests.waiting import in_time

# --- what passes through -----------------------------------------------------------------------------------


@cases("result", "told", raw={"result", "told"})
async def test_a_result_passes_byte_by_byte_and_a_modern_client_gets_a_type_where_the_server_gave_none(
    stage: Stage, client: Client, result: bytes, told: bytes | None
) -> None:
    await client.call("alpha", "echo", request_id="x")
    stage.answer(await stage.alpha.wait_sent(), result)
    assert await client.line() == b'{"jsonrpc":"2.0","id":"x","result":%b}' % result
    if told is not None:
        await client.call("alpha", "echo", _meta=MODERN)
        stage.answer(await stage.alpha.wait_sent(2), result)
        assert await client.line() == b'{"jsonrpc":"2.0","id":1,"result":%b}' % told


async def test_a_call_reaches_the_server_with_its_arguments(stage: Stage, client: Client) -> None:
    line = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"traceparent": "00-1",'
        b'"progressToken":9,'
        b'"io.modelcontextprotocol/logLevel":"debug","mcpd/session":"k"},"name":"call-category-tool","arguments":'
        b'{"category":"beta","name":"mcp__beta__echo","args":{"z" : 1.10, "a":[12345678901234567890]}}}}'
    )
    await client.send(line)
    sent = await stage.upstreams["beta"].wait_sent()
    assert sent.tool == "echo"
    assert sent.raw_arguments == b'{"z" : 1.10, "a":[12345678901234567890]}'
    assert {key: bytes(value) for key, value in sent.call.meta.items()} == {"traceparent": b'"00-1"'}
    assert sent.call.wants_progress


@cases("wire", "upstream", raw={"wire"})
async def test_a_server_s_own_error_is_shown_whole_to_the_model(
    stage: Stage, client: Client, wire: bytes, upstream: dict[str, Any]
) -> None:
    await client.call("alpha", "echo")
    stage.refuse(await stage.alpha.wait_sent(), wire)
    error = error_of(await client.get())
    assert error["code"] == errors.UpstreamCallError.code
    assert error["upstream"] == upstream
    assert stage.log.notes[0][1:4:2] == ("alpha/echo", "UpstreamCallError")


async def test_who_sees_the_server_as_itself_gets_its_own_error(stage: Stage, client: Client) -> None:
    await client.tell("mcpd/hello", {"servers": ["alpha"]})
    await client.ask("tools/call", {"name": "echo", "arguments": {}})
    stage.refuse(await stage.alpha.wait_sent(), b'{"code":-7,"message":"bad","data":{"why":[1.0]}}')
    assert (await client.get())["error"] == {"code": -7, "message": "bad", "data": {"why": [1.0]}}
    assert stage.log.notes[0][1:4:2] == ("alpha/echo", "UpstreamCallError")
    await client.ask("tools/call", {"name": "ecco", "arguments": {}})
    assert error_of(await client.get())["closest"] == ["echo"]


async def test_a_modern_client_gets_a_result_type_with_errors_too(client: Client) -> None:
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
    stage: Stage, client: Client, tool: str, arguments: str
) -> None:
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
async def test_progress_comes_under_the_callers_own_token(stage: Stage, client: Client, token: object) -> None:
    await client.call("alpha", "echo", _meta={"progressToken": token})
    sent = await stage.alpha.wait_sent()
    assert sent.call.wants_progress
    stage.progress(sent, progress=1, total=3, message="m")
    stage.answer(sent)
    report = await client.get()
    assert report["method"] == "notifications/progress"
    assert report["params"] == {"progressToken": token, "progress": 1, "total": 3, "message": "m"}
    assert (await client.get())["id"] == 1


async def test_nobody_gets_progress_without_having_asked(stage: Stage, client: Client) -> None:
    await client.call("alpha", "echo")
    sent = await stage.alpha.wait_sent()
    assert not sent.call.wants_progress
    stage.progress(sent, progress=1)
    stage.answer(sent)
    assert "result" in await client.get()


async def test_a_waiting_call_is_reported(stage: Stage, client: Client, autojump_clock: MockClock) -> None:
    stage.alpha.up, stage.alpha.wake_seconds = False, 25 * REPORT_SECONDS
    await client.call("alpha", "echo", _meta={"progressToken": "t"})
    await stage.alpha.wait_woken()
    await trio.sleep(2.5 * REPORT_SECONDS)
    stage.alpha.come_up()
    sent = await stage.alpha.wait_sent()
    for progress in (0, 1, 2, "much"):
        stage.progress(sent, progress=progress)
    stage.answer(sent)
    reports = []
    while "result" not in (message := await client.get()):
        assert message["method"] == "notifications/progress"
        reports.append(message["params"])
    assert {report["progressToken"] for report in reports} == {"t"}
    assert ["starting" in report.get("message", "") for report in reports] == [True, True, False, False, False]
    numbers = [report["progress"] for report in reports[:-1]]
    assert all(earlier < later for earlier, later in pairwise(numbers))
    # Its first report, 0, would have been a step back.
    assert numbers[2:] == [1, 2]
    assert reports[-1]["progress"] == "much"


async def test_nobody_hears_of_a_waiting_call_without_having_asked_or_after_having_cancelled_it(
    stage: Stage, client: Client, autojump_clock: MockClock
) -> None:
    stage.alpha.up, stage.alpha.wake_seconds = False, 2.5 * REPORT_SECONDS
    await client.call("alpha", "echo")
    assert error_of(await client.get())["code"] == "UpstreamUnavailable"
    stage.alpha.wake_seconds = 10 * REPORT_SECONDS
    await client.call("alpha", "echo", request_id="a", _meta={"progressToken": 1})
    await trio.testing.wait_all_tasks_blocked()
    await client.tell("notifications/cancelled", {"requestId": "a"})
    await trio.testing.wait_all_tasks_blocked()
    await trio.sleep(20 * REPORT_SECONDS)
    assert (await client.request("ping", request_id="p"))["id"] == "p"


# --- giving up ---------------------------------------------------------------------------------------------


async def test_a_cancelled_call_is_given_up_at_its_server_and_no_other(stage: Stage, client: Client) -> None:
    await client.call("alpha", "echo", request_id="a")
    await client.call("alpha", "echo", request_id="b")
    first, second = await stage.alpha.wait_sent(1), await stage.alpha.wait_sent(2)
    wrong: list[Any] = ["1", 2, None, [1], {}]
    for params in ({}, *({"requestId": each} for each in wrong)):
        await client.tell("notifications/cancelled", params)
    await client.request("ping", request_id=9)
    assert not stage.alpha.cancelled
    await client.tell("notifications/cancelled", {"requestId": "b", "reason": "user"})
    await stage.alpha.wait_cancelled()
    assert [key for key, _ in stage.alpha.cancelled] == [second.key]
    stage.answer(second)  # too late: nobody hears it
    stage.answer(first)
    assert (await client.get())["id"] == "a"
    assert (await client.request("ping", request_id=3))["id"] == 3


async def test_a_client_that_hangs_up_gives_all_its_calls_up(stage: Stage, nursery: trio.Nursery) -> None:
    leaving, staying = await stage.connect(nursery), await stage.connect(nursery)
    await staying.client.call("alpha", "echo")
    kept = await stage.alpha.wait_sent(1)
    await leaving.client.call("alpha", "echo", request_id=1)
    await leaving.client.call("alpha", "echo", request_id=2)
    keys = {(await stage.alpha.wait_sent(2)).key, (await stage.alpha.wait_sent(3)).key}
    leaving.client.close()
    await stage.alpha.wait_cancelled(2)
    assert {key for key, _ in stage.alpha.cancelled} == keys
    await in_time(leaving.ended.wait())
    assert leaving.session.in_flight == 0
    stage.answer(kept)
    assert (await staying.client.get())["id"] == 1


@pytest.mark.parametrize("late", [False, True])
async def test_a_call_that_waits_for_its_server_can_be_cancelled_even_as_that_comes_up(
    stage: Stage, guest: Guest, *, late: bool
) -> None:
    """Late, the waiting task is already scheduled when the cancellation comes; the call must not run anyway."""
    stage.alpha.up = False
    await guest.client.call("alpha", "echo")
    await stage.alpha.wait_woken()
    await trio.testing.wait_all_tasks_blocked()
    if late:
        stage.alpha.come_up()
    guest.session.on_notification("notifications/cancelled", raw({"requestId": 1}))
    stage.alpha.come_up()
    await trio.testing.wait_all_tasks_blocked()
    assert not {sent.key for sent in stage.alpha.sent} - {key for key, _ in stage.alpha.cancelled}
    assert late or not stage.alpha.sent
    assert guest.session.in_flight == 0


# --- ids ---------------------------------------------------------------------------------------------------


async def test_an_id_already_in_flight_is_refused(stage: Stage, client: Client) -> None:
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


async def test_clients_with_equal_ids_never_swap_their_answers(stage: Stage, nursery: trio.Nursery) -> None:
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


async def test_a_call_that_has_to_wait_may_be_the_first_message(stage: Stage, nursery: trio.Nursery) -> None:
    """A modern client needs no handshake, and its first line is often there before its session runs."""
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


@pytest.mark.parametrize("parked", [False, True])
async def test_a_call_fails_after_the_wake_limit_and_at_once_if_its_server_is_parked(
    stage: Stage, client: Client, autojump_clock: MockClock, *, parked: bool
) -> None:
    stage.alpha.up, stage.alpha.can_wake = False, not parked
    began = trio.current_time()
    await client.call("alpha", "echo")
    assert error_of(await client.get())["code"] == "UpstreamUnavailable"
    seconds = 0 if parked else stage.alpha.wake_seconds
    assert trio.current_time() - began == pytest.approx(seconds, abs=0.1)
    assert stage.alpha.woken == (not parked)


async def test_a_server_that_takes_no_more_says_so(stage: Stage, nursery: trio.Nursery) -> None:
    noted: list[Event] = []
    stage.context = msgspec.structs.replace(stage.context, gather=noted.append)
    stage.alpha.refusal = errors.Overloaded("full", server="alpha", bound="limits.queue")
    client = await stage.client(nursery)
    await client.call("alpha", "echo")
    error = error_of(await client.get())
    assert (error["code"], error["bound"]) == ("Overloaded", "limits.queue")
    assert [(event.server, event.details) for event in noted] == [("alpha", {"bound": "limits.queue"})]


@pytest.mark.parametrize("fails", [False, True])
async def test_describing_waits_for_the_first_list_or_failure(nursery: trio.Nursery, *, fails: bool) -> None:
    stage = Stage(listed=False)
    stage.becomes("alpha", ServerState.STARTING)
    client = await stage.client(nursery)
    await client.describe("alpha")
    await stage.alpha.wait_woken()
    stage.becomes("alpha", ServerState.DEGRADED if fails else ServerState.READY)
    if fails:
        stage.fails_to_list("alpha", "it answered nonsense")
        error = error_of(await client.get())
        assert (error["code"], "it answered nonsense" in error["message"]) == ("SchemaFetchError", True)
    else:
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
    assert (answer["tools"], answer["meta"]["unavailableServers"]["alpha"]["state"]) == ({}, "starting")
    assert trio.current_time() - began == pytest.approx(seconds, abs=0.1)


# --- bounds and bugs ---------------------------------------------------------------------------------------


async def test_a_client_has_so_many_calls_in_flight_and_no_more(stage: Stage, nursery: trio.Nursery) -> None:
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


@pytest.mark.parametrize("waited", [False, True])
async def test_a_bug_while_a_call_is_sent_costs_this_call(stage: Stage, guest: Guest, *, waited: bool) -> None:
    stage.alpha.up, stage.alpha.refusal = not waited, None if waited else KeyError("a bug")
    await guest.client.call("alpha", "echo")
    if waited:
        await stage.alpha.wait_woken()
        stage.alpha.refusal = KeyError("a bug")
        stage.alpha.come_up()
    assert (await guest.client.get())["error"]["code"] == -32603
    assert guest.session.in_flight == 0, "the call is over, or its id stays taken for ever"
    stage.alpha.refusal = None
    await guest.client.call("alpha", "echo")
    stage.answer(await stage.alpha.wait_sent())
    assert "result" in await guest.client.get()


async def test_calls_are_noted_with_outcome(stage: Stage, client: Client, autojump_clock: MockClock) -> None:
    await client.call("alpha", "mcp__alpha__echo")
    sent = await stage.alpha.wait_sent()
    await trio.sleep(0.25)
    stage.answer(sent)
    await client.get()
    await client.call("beta", "add")
    stage.lose(await stage.upstreams["beta"].wait_sent(), errors.UpstreamLost("gone"))
    assert "server beta: gone. Check the call's effects" in error_of(await client.get())["message"]
    await client.call("alpha", "nonsense")
    await client.get()
    (number, label, seconds, outcome), *others = stage.log.notes
    assert (number, label, outcome) == (1, "alpha/echo", "ok")
    assert seconds == pytest.approx(0.25, abs=0.05)
    assert [note[3] for note in others] == ["UpstreamLost", "UnknownTool"]
    assert stage.alpha.recorded == [(seconds, True)]
    assert [ok for _, ok in stage.upstreams["beta"].recorded] == [False]


@cases("surface", "session", "name", "arguments", "label")
async def test_the_log_names_session_and_subject_of_a_call_and_no_arguments(
    nursery: trio.Nursery,
    surface: str,
    session: str | None,
    name: str,
    arguments: dict[str, object],
    label: str,
) -> None:
    stage = Stage(profiles={"default": {"surface": surface}})
    client = await stage.client(nursery)
    if session is not None:
        await client.tell("mcpd/hello", {"session": session})
    await client.request("tools/call", {"name": name, "arguments": arguments})
    assert [note[1] for note in stage.log.notes] == [label]


async def test_an_error_whose_details_cannot_be_written_still_answers(stage: Stage, client: Client) -> None:
    await client.call("alpha", "echo")
    stage.lose(await stage.alpha.wait_sent(), errors.UpstreamLost("gone", details=object()))
    assert error_of(await client.get())["code"] == "InternalError"


ARGUMENTS = b'{"x":[1,{"id":2}]}'
CALL = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"x":[1,{"id":2}]}}}'
JUNK = [b"", b" ", b"\xc3\xa9", *b'0 - .0 e1 " \\ ,"id":8 "id":8, { [] NaN'.split()]
CALLS = st.builds(
    lambda line, at, junk, gone: line[:at] + junk + line[at + gone :],
    st.sampled_from(
        [
            CALL,
            b'{"method":"tools/call","params":{"arguments":{},"name":"a"},"jsonrpc":"2.0","id":-1}',
            b'{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{"name":"","arguments":{"\\u0041":"\\\\"}}}',
        ]
    ),
    st.integers(0, 100),
    st.sampled_from(JUNK) | st.binary(max_size=2),
    st.integers(0, 9),
)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 3, 0, 1)])
def test_a_call_as_nearly_all_are_written_is_read_in_one_look(order: tuple[int, ...]) -> None:
    arguments = '{"text":"a \\"quoted\\" word"}'
    members = (
        '"jsonrpc":"2.0"',
        '"id":17',
        '"method":"tools/call"',
        f'"params":{{"name":"echo","arguments":{arguments}}}',
    )
    line = "{" + ",".join(members[each] for each in order) + "}"
    assert plain_call(line.encode()) == PlainCall(b"17", "echo", arguments.encode())


@cases("line", raw={"line"})
def test_a_call_that_is_written_otherwise_is_left_to_a_closer_look(line: bytes) -> None:
    assert plain_call(line) is None


def test_a_long_call_is_read_in_one_look_unless_it_is_too_long_or_nested_too_deeply() -> None:
    arguments = b'{"x":"' + b"long" * 1000 + b'"}'
    assert plain_call(CALL.replace(ARGUMENTS, arguments)) == PlainCall(b"7", "echo", arguments)
    brackets = b'{"x":"' + b"[" * MAX_DEPTH + b"}" * MAX_DEPTH + b'"}'
    assert plain_call(CALL.replace(ARGUMENTS, brackets)) is None
    assert plain_call(CALL.replace(ARGUMENTS, b'{"x":"' + b" " * MAX_PLAIN + b'"}')) is None
    # The message, its params and its arguments are three levels.
    inside = MAX_DEPTH - 3
    deepest = b'{"":' + b"[" * inside + b"]" * inside + b"}"
    assert plain_call(CALL.replace(ARGUMENTS, deepest)) == PlainCall(b"7", "echo", deepest)
    assert plain_call(CALL.replace(ARGUMENTS, deepest.replace(b"[]", b"[[]]"))) is None


@given(CALLS)
@example(CALL)
def test_what_is_read_in_one_look_reads_the_same_in_a_closer_one(line: bytes) -> None:
    found = plain_call(line)
    if found is not None:
        closer = decode_strictly(line)
        assert (bytes(Raw(closer.id or b"")), closer.method) == (found.request_id, "tools/call")
        assert msgspec.json.decode(closer.params or b"") == {
            "name": found.name,
            "arguments": msgspec.json.decode(found.arguments),
        }
        assert found.arguments in line


def limited(server: int | None = None, profile: int | None = None) -> Config:
    entry: dict[str, object] = {"command": "x", "timeouts": {"queue": 5}}
    if server is not None:
        entry["limits"] = {"callsPerMinute": server}
    default = {} if profile is None else {"limits": {"callsPerMinute": profile}}
    return config_of({"mcpServers": {"a": entry, "b": {"command": "x"}}, "profiles": {"default": default}})


def test_a_limit_lets_ten_seconds_worth_go_at_once_and_the_rest_a_call_at_a_time() -> None:
    now = 100.0
    rates, config = CallRates(lambda: now), limited(server=30)
    profile = config.profiles["default"]
    assert [rates.take(config, profile, "a") for _ in range(7)] == [0, 0, 0, 0, 0, 2, 4]
    with pytest.raises(
        errors.Overloaded, match=r"server a may have 30 calls a minute .* try again in about 1 s"
    ) as caught:
        rates.take(config, profile, "a")
    assert caught.value.details["bound"] == "limits.callsPerMinute of server a"
    assert caught.value.details["retryAfterMs"] == 1000
    assert rates.take(config, profile, "b") == 0, "it has no limit"
    assert rates.take(config, profile, "gone") == 0, "a reload is removing it"
    now += 4
    assert rates.take(config, profile, "a") == 2, "what was refused has spent nothing"
    rates, config = CallRates(lambda: 0.0), limited(server=6)
    assert rates.take(config, profile, "a") == 0
    config = limited(server=600)
    assert [rates.take(config, profile, "a") for _ in range(2)] == [pytest.approx(0.1), pytest.approx(0.2)]


def test_clients_of_a_profile_share_its_calls_over_all_servers() -> None:
    rates, config = CallRates(lambda: 0.0), limited(profile=6)
    profile = config.profiles["default"]
    assert rates.take(config, profile, "a") == 0
    with pytest.raises(errors.Overloaded, match="profile default may have 6 calls a minute"):
        rates.take(config, profile, "a")
    assert rates.take(config, profile, "b") == 10, "the queue of the server that is called decides"
    for config, metered in ((limited(), False), (limited(server=1), True), (limited(profile=1), True)):
        assert is_metered(config, config.profiles["default"]) is metered


async def test_calls_over_the_limit_wait(nursery: trio.Nursery, mock_clock: trio.testing.MockClock) -> None:
    stage = on_full_surface(profiles={"default": {"surface": "full", "limits": {"callsPerMinute": 6}}})
    guest = await greeted(stage, nursery)
    await called(stage, guest.client)
    await guest.client.ask("tools/call", {"name": "echo", "arguments": {}}, request_id=8)
    await trio.testing.wait_all_tasks_blocked()
    assert len(stage.alpha.sent) == 1
    mock_clock.jump(10)
    await stage.alpha.wait_sent(2)
    await guest.client.ask("tools/call", {"name": "echo", "arguments": {}}, request_id=9)
    await guest.client.tell("notifications/cancelled", {"requestId": 9})
    await trio.testing.wait_all_tasks_blocked()
    mock_clock.jump(60)
    await trio.testing.wait_all_tasks_blocked()
    assert len(stage.alpha.sent) == 2, "the client has taken it back"


async def test_the_index_is_waited_for_until_it_knows_the_catalog_or_patience_ends(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    catalog, index, began = Stage().catalog, Watch(Index()), trio.current_time()
    await wait_indexed(index, catalog)
    assert trio.current_time() - began == pytest.approx(INDEX_PATIENCE, abs=0.1)

    async def learn() -> None:
        await trio.sleep(1)
        index.set(index.value.updated(catalog.value.servers))

    nursery.start_soon(learn)
    await wait_indexed(index, catalog)
    assert trio.current_time() - began == pytest.approx(INDEX_PATIENCE + 1, abs=0.1)


@pytest.mark.parametrize("calling", [True, False])
async def test_only_who_calls_is_told_how(autojump_clock: MockClock, calling: bool) -> None:
    unlisted = Stage(listed=False)
    unlisted.alpha.up, unlisted.alpha.wake_seconds = False, 2.5 * REPORT_SECONDS
    told: list[str] = []
    awaited = AwaitListing(servers=("alpha",), calling=calling)
    await wait_listed(awaited, [unlisted.alpha], unlisted.catalog, told.append)
    line = "server alpha is starting (waiting for {:.0f} s)"
    each = [line.format(REPORT_SECONDS), line.format(2 * REPORT_SECONDS)]
    assert told == (each if calling else [])


async def test_what_a_server_asks_is_withdrawn_on_the_stream_of_its_call(nursery: trio.Nursery) -> None:
    """Its call is forgotten only afterwards: over HTTP, what belongs to no call goes another way."""
    full = on_full_surface()
    known = await greeted(full, nursery)
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


@pytest.mark.parametrize("holds", [True, False])
async def test_a_bridge_gets_back_what_was_not_sent(nursery: trio.Nursery, *, holds: bool) -> None:
    full = on_full_surface()
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
        await known.client.tell("notifications/cancelled", {"requestId": 7})
        assert known.session.is_awaited  # until the bridge says that nothing is on its way
        await known.client.tell("mcpd/held", {})
        await trio.testing.wait_all_tasks_blocked()
    assert known.session.is_awaited is not holds


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


@pytest.mark.parametrize(
    ("modern", "able", "became"),
    [(True, True, "parked"), (True, False, "refused"), (False, True, "relayed"), (False, False, "refused")],
)
async def test_what_a_client_is_asked_is_counted(
    stage: Stage, client: Client, modern: bool, able: bool, became: str
) -> None:
    more: dict[str, Any] = {"_meta": META if able else MODERN} if modern else {}
    if not modern:
        said = {"protocolVersion": "2025-11-25", "capabilities": ABLE if able else {}}
        await client.request("initialize", said)
    await client.call("alpha", "echo", request_id="x", **more)
    asks_about(stage, await stage.alpha.wait_sent(), "roots/list", None)
    assert stage.tally.servers["alpha"].relays == {("roots/list", became): 1}


async def test_calls_that_end_together_are_recorded_after_their_answers(stage: Stage, client: Client) -> None:
    for number in range(3):
        await client.call("alpha", "echo", request_id=number)
    results = b'{"content":[]}', b'{"content":[]}', b'{"content":[{"type":"text","text":"no"}],"isError":true}'
    await stage.alpha.wait_sent(3)
    for sent, result in zip(stage.alpha.sent, results, strict=True):
        sent.exchange.answered(result)
    assert (stage.alpha.recorded, stage.tally.servers["alpha"].count) == ([], 0)
    stage.outbox.flush()
    assert [ok for _, ok in stage.alpha.recorded] == [True, True, False]
    assert stage.tally.servers["alpha"].outcomes == {("category", "ok"): 2, ("category", "isError"): 1}
    assert (stage.tally.servers["alpha"].errors, [*stage.tally.tools.values()]) == (1, [3])
    assert [note[3] for note in stage.log.notes] == ["ok", "ok", "isError"]
    assert stage.log.texts == ["", "", "no"]
    stage.outbox.flush()
    assert stage.tally.servers["alpha"].count == 3


@cases("error", "code", "modern")
async def test_an_error_has_its_code_its_text_and_its_details(
    stage: Stage, nursery: trio.Nursery, error: str, code: int, modern: int
) -> None:
    for kind in (Kind.RESOURCE, Kind.PROMPT, Kind.TEMPLATE):
        for server in ("alpha", "beta"):
            stage.offers(server, kind)
    stage.offers("alpha", Kind.PROMPT, "p")
    stage.alpha.refusal = getattr(errors, error)("What happened. What to do.", detail=7)
    client = await stage.client(nursery)
    for meta, wanted in (({}, code), ({"_meta": MODERN}, modern)):
        answer = await client.request("prompts/get", {"name": "p", **meta})
        assert answer["error"] == {
            "code": wanted,
            "message": f"{error}: What happened. What to do.",
            "data": {"code": error, "detail": 7},
        }
    assert [each[3] for each in stage.log.notes] == [error] * 2


async def test_a_request_is_logged_without_what_it_was_given_and_counted_apart_from_calls(
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
    # It is counted apart from calls of tools, and by what became of it.
    await client.ask("prompts/get", {"name": "p"})
    stage.lose(await stage.alpha.wait_sent(5), errors.UpstreamLost("gone", server="alpha"))
    await client.get()
    counted = stage.tally.servers["alpha"]
    requests = {"prompts/get": 1, "resources/read": 2, "completion/complete": 1}
    lost = {("prompts/get", errors.UpstreamLost.code): 1}
    assert counted.requests == {(method, "ok"): count for method, count in requests.items()} | lost
    assert (stage.alpha.recorded, stage.tally.tools, counted.count, counted.outcomes) == ([], {}, 0, {})
