"""The actor of one server, with real scripted children behind it."""

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from daemon.actors.upstream import QUESTIONS_SECONDS
from daemon.actors.warden import Warden
from daemon.causes import Cause, Reason
from daemon.clients.notifications import ConnectedClient
from daemon.config.config_model import Instance, Server, TransportType
from daemon.config.tuning import ServerLimits, Timeouts
from daemon.errors import UpstreamLost, UpstreamTimeout, UpstreamUnavailable
from daemon.model import Era
from daemon.ports import Upstream
from daemon.states import ServerState
from daemon.wire.requests import PeerRequest
from tests.faults.stage import Recorder, Stage, recording, scripted, stage
from tests.unit.upstreams.transports.serving import Request, answer, reply
from tests.unit.upstreams.transports.serving import scripted as http_server
from tests.waiting import PATIENCE, background, beside, in_time

BACKOFF, CRASHLOOP, DEGRADED, DORMANT, FAILED, READY, STARTING = (
    *(ServerState.BACKOFF, ServerState.CRASHLOOP, ServerState.DEGRADED, ServerState.DORMANT),
    *(ServerState.FAILED, ServerState.READY, ServerState.STARTING),
)
AT_ONCE = {"base": 0.01, "cap": 0.01, "floor": 0.0, "intensity": 1000}
"""Restarted without delay, for tests of what comes after."""
# --- eras ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("era", "spoken"), [("handshake", Era.HANDSHAKE), ("modern", Era.MODERN), ("both", Era.MODERN)]
)
async def test_a_server_is_spoken_to_in_its_own_era(era: str, spoken: Era, tmp_path: Path) -> None:
    timeouts = {"probe": PATIENCE}
    async with (
        recording(tmp_path) as record,
        stage(scripted(era=era, record=record.path, timeouts=timeouts)) as it,
    ):
        await it.ready()
        assert it.one.greeting is not None
        assert it.one.greeting.era is spoken
        assert await it.call("echo", a=1).text() == '{"a": 1}'
        assert bool(record.messages("initialize")) == (spoken is Era.HANDSHAKE)
        meta = (await record.wait_message("tools/call"))["params"].get("_meta", {})
        assert ("io.modelcontextprotocol/protocolVersion" in meta) == (spoken is Era.MODERN)


async def test_a_slow_answer_to_initialize_is_waited_for(tmp_path: Path) -> None:
    async with stage(scripted(on={"initialize": {"delay": 0.3}}, timeouts={"initialize": 5})) as it:
        await it.ready()
        assert it.states() == [STARTING, READY]


# --- the list -----------------------------------------------------------------------------------------------


# --- health -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("calls", "missed"), [(0, 10_000), (1, 1)])
async def test_a_stopped_server_is_degraded_and_ready_when_it_goes_on_and_so_does_a_call(
    calls: int, missed: int
) -> None:
    timeouts = {"ping_interval": 0.05, "ping": 0.2, "missed_pings": missed}
    async with stage(scripted(timeouts=timeouts)) as it:
        await it.ready()
        os.kill(it.one.pid or 0, signal.SIGSTOP)
        answer = it.call("echo") if calls else None
        status = await it.reach(DEGRADED)
        assert (status.cause, status.why.data["calls"]) == (Cause.UNANSWERED_PINGS, calls)
        assert status.reason.startswith("answers no pings")
        assert ("while it works on 1 call" in status.reason) is bool(calls)
        os.kill(it.one.pid or 0, signal.SIGCONT)
        await it.reach(READY)
        assert it.one.child.status.value.incarnation == 1
        assert await (answer or it.call("echo")).text() == "{}"


# --- calls --------------------------------------------------------------------------------------------------


async def test_progress_does_not_keep_a_call_alive_beyond_the_maximum(tmp_path: Path) -> None:
    async with recording(tmp_path) as record:
        server = scripted(record=record.path, timeouts={"call": 0.1, "call_max": 0.25})
        async with stage(server) as it:
            await it.ready()
            with pytest.raises(UpstreamTimeout):
                await it.call("progress", progress=True, count=10_000, interval=0.02).wait()
            await record.wait("cancelled")


# --- what a server says -------------------------------------------------------------------------------------


async def test_a_flood_that_ended_is_forgiven() -> None:
    """Degraded by noise; ready again once a listing has gone well in quiet."""
    async with stage(scripted(timeouts={"refresh": 0.3})) as it:
        await it.ready()
        await it.call("noise", count=1100).wait()
        await it.reach(DEGRADED)
        await it.reach(READY)


async def test_the_child_is_known_while_it_lives(tmp_path: Path) -> None:
    async with recording(tmp_path) as record:
        async with stage(scripted(record=record.path, restart={"base": 60.0})) as it:
            await it.ready()
            assert it.one.pid == record.all("start")[0]["pid"]
            assert int(await it.call("pid").text()) == it.one.pid
            os.kill(it.one.pid, signal.SIGKILL)
            await it.reach(BACKOFF)
            with trio.fail_after(PATIENCE):
                await it.one.child.status.wait_until(lambda status: status.next_retry_at is not None)
            assert not it.one.children
        assert json.dumps(repr(it.one)) == '"<Upstream s: down, 0 calls>"'


async def test_the_end_of_a_run_is_known_before_its_clean_up_is_over() -> None:
    """A child that will not stop must not make callers wait for the news."""
    lasting: Any = {
        "ignore": ["term", "eof"],
        "timeouts": {"stop_eof": 3 * PATIENCE, "stop_term": 3 * PATIENCE},
    }
    async with stage(scripted(**lasting)) as it:
        await it.ready()
        with pytest.raises(UpstreamLost):
            await it.call("act", close_stdout=True, never=True).wait()
        await it.reach(BACKOFF)
        with pytest.raises(UpstreamUnavailable):
            it.call("echo")
        it.children.hurry()
    refusal = {"error": {"code": -32603, "message": "no licence"}}
    async with stage(scripted(**lasting, on={"initialize": refusal})) as it:
        assert "no licence" in (await it.reach(BACKOFF)).reason
        it.children.hurry()


# --- what a server asks before its first call is answered before calls are let in, however that --------------


ROOTS = b'{"roots":[]}'


class OnlyClient(ConnectedClient):
    """A client with roots, which it does not tell by itself."""

    def __init__(self, it: Stage) -> None:
        self.asked: list[PeerRequest] = []
        self.was_asked = trio.Event()
        self.sees = bool
        it.subscribers.roots.join(self)

    def ask_roots(self, request: PeerRequest) -> None:
        self.asked.append(request)
        self.was_asked.set()

    def tell_roots_changed(self, server: str) -> None:
        raise AssertionError(f"nothing has changed for {server}")


def asking(record: Recorder) -> Server:
    return scripted(record=record.path, requests=["roots/list"])


def order(record: Recorder) -> list[str]:
    """What the server was told, from its first call or answer on."""
    said = [event["message"] for event in record.all("message")]
    words = [message.get("method", "the answer") for message in said]
    return [word for word in words if word in {"the answer", "tools/call"}]


async def test_a_client_that_takes_its_time_is_waited_for(tmp_path: Path) -> None:
    async with recording(tmp_path) as record, stage(asking(record)) as it:
        client = OnlyClient(it)
        with trio.fail_after(PATIENCE):
            await client.was_asked.wait()
            await record.wait_message("tools/list")
            assert it.one.admission is None
            client.asked[0].answer(ROOTS)
            it.outbox.flush()
        await it.ready()
        await it.call("echo").text()
        await record.wait_message("tools/call")
        assert order(record) == ["the answer", "tools/call"]


@pytest.mark.parametrize("workspace", [None, "/srv/app"])
async def test_where_no_client_is_asked_nothing_is_waited_for(tmp_path: Path, workspace: str | None) -> None:
    """It is refused, or told the directory that it works in."""
    async with recording(tmp_path) as record:
        own = None if workspace is None else Instance(label="s@", workspace=workspace, capabilities=None)
        async with stage(attrs.evolve(asking(record), instance=own)) as it:
            await it.ready()
            await it.call("echo").text()
            await record.wait_message("tools/call")
        assert order(record) == ["the answer", "tools/call"]


async def test_a_client_that_never_answers_costs_a_moment(tmp_path: Path) -> None:
    async with recording(tmp_path) as record, stage(asking(record)) as it:
        client = OnlyClient(it)
        with trio.fail_after(PATIENCE):
            await client.was_asked.wait()
            began = trio.current_time()
            await it.reach(ServerState.READY)
        # It may have asked before it was asked for its list, and that may have taken a moment of its own.
        assert trio.current_time() - began >= QUESTIONS_SECONDS
        await it.call("echo").text()
        assert order(record) == ["tools/call"]


# --- what one server may take, and what happens beyond -------------------------------------------------------


MIB = 1 << 20
LONG = 30
"""Seconds for what real processes do on a busy machine."""
# --- memory -------------------------------------------------------------------------------------------------


async def test_a_server_above_its_ceiling_is_ended_and_everybody_is_told_why(tmp_path: Path) -> None:
    limits = {"in_flight": 1, "memory_bytes": MIB}
    policy = {"base": 50.0, "free_after": 1000.0}
    patient = {"stop_eof": LONG}
    async with (
        recording(tmp_path) as record,
        stage(scripted(record=record.path, limits=limits, restart=policy, timeouts=patient)) as it,
    ):
        await it.ready()
        sent, waiting = it.call("sleep"), it.call("echo")
        await record.wait_message("tools/call")
        async with beside(Warden(it.upstreams, seconds=0.1).run):
            with pytest.raises(UpstreamLost, match=r"uses .* of memory, more than 1 MiB") as lost:
                await in_time(sent.wait(), LONG)
        assert it.one.child.status.value.state is BACKOFF
        assert "(limits.memoryBytes): mcpd ended it; whether the call ran is unknown" in lost.value.message
        with pytest.raises(UpstreamUnavailable, match="was not sent"):
            await waiting.wait()
        it.one.end(Reason("ended before, for another reason"))
        status = await it.reach(BACKOFF)
        assert re.fullmatch(r"uses [\d.]+ MiB of memory, more than 1 MiB .*: mcpd ended it", status.reason)
        with pytest.raises(UpstreamUnavailable, match="of memory, more than 1 MiB"):
            it.call("echo")
        # Stopped as politely as ever: it was told to cancel, and saw its stdin close.
        await record.wait("cancelled")
        await record.wait("eof")


# --- time, line, size ---------------------------------------------------------------------------------------


# --- Retry-After --------------------------------------------------------------------------------------------

BUSY = "429 Too Many Requests"


def at(port: int, **members: Any) -> Server:
    url = f"http://127.0.0.1:{port}/mcp"
    return Server(name="s", type=TransportType.HTTP, url=url, **members)


def refusal(upstream: Upstream, it: Any) -> UpstreamUnavailable:
    with pytest.raises(UpstreamUnavailable) as refused:
        it.call("echo")
    assert not upstream.can_wake
    return refused.value


async def test_a_server_that_has_no_time_at_connect_is_tried_again_when_it_said() -> None:

    async def decline(_request: Request) -> bytes:
        return reply(b"", BUSY, retry_after="200")

    async with background() as nursery:
        port = await http_server(nursery, decline)
        async with stage(at(port, timeouts=Timeouts(wake=LONG))) as it:
            with trio.fail_after(LONG):
                status = await it.one.child.status.wait_until(lambda status: status.next_retry_at is not None)
            assert f"127.0.0.1:{port} answered HTTP 429 Too Many Requests, retry after 200 s" in status.reason
            assert 190 < it.one.child.pause.held <= 200
            error = refusal(it.one, it)
            wait = error.details["nextRetryInMs"]
            assert isinstance(wait, int)
            assert 150_000 < wait <= 201_000
            assert "retry after 200 s" in error.message
            assert not await in_time(it.one.wake(), LONG)
            assert it.one.child.status.value == status


async def test_a_server_that_has_no_time_for_a_call_gets_no_other_before_it_said() -> None:
    calls: list[str] = []

    async def decline(request: Request) -> bytes:
        if request.method != "POST":
            return reply(b"", "405 Method Not Allowed")
        method = request.body["method"]
        if method == "tools/call":
            calls.append(request.body["params"]["name"])
            return reply(b"", BUSY, retry_after="86400")
        if method == "initialize":
            info = {"name": "busy", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
            return answer(request, result)
        if method == "tools/list":
            return answer(request, {"tools": [{"name": "one", "inputSchema": {"type": "object"}}]})
        return reply(b"", "202 Accepted" if "id" not in request.body else "400 Bad Request")

    async with background() as nursery:
        port = await http_server(nursery, decline)
        async with stage(at(port, limits=ServerLimits(in_flight=1))) as it:
            await it.ready()
            first, second = it.call("one"), it.call("two")
            with pytest.raises(UpstreamUnavailable, match=r"retry after 300 s \(it asks for 86400 s\)") as told:
                await first.wait()
            assert told.value.details["retryAfterMs"] == 300_000
            with pytest.raises(UpstreamUnavailable, match=r"no requests for \d+ s more"):
                await second.wait()
            with pytest.raises(UpstreamUnavailable, match="was not sent") as later:
                it.call("three")
            wait = later.value.details["retryAfterMs"]
            assert isinstance(wait, int)
            assert 200_000 < wait <= 300_000
            assert calls == ["one"]
            assert it.states()[-1] is READY
