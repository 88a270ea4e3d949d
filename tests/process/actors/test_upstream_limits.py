"""What one server may take, and what happens beyond: real children, and an HTTP server that has no time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import trio

from daemon.actors.warden import Warden
from daemon.config.config_model import Server, TransportType
from daemon.config.tuning import ServerLimits, Timeouts
from daemon.errors import UpstreamLost, UpstreamUnavailable
from daemon.states import ServerState
from tests.faults.stage import recording, scripted, stage
from tests.unit.upstreams.transports.serving import Request, answer, reply
from tests.unit.upstreams.transports.serving import scripted as http_server

if TYPE_CHECKING:
    from pathlib import Path

    from daemon.ports import Upstream

BACKOFF, CRASHLOOP, READY = ServerState.BACKOFF, ServerState.CRASHLOOP, ServerState.READY
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
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Warden(it.upstreams, seconds=0.1).run)
            with pytest.raises(UpstreamLost, match=r"uses .* of memory, its ceiling is 1 MiB") as lost:
                with trio.fail_after(LONG):
                    await sent.wait()
            nursery.cancel_scope.cancel()
        assert "(limits.memoryBytes): mcpd ended it; whether the call ran is unknown" in lost.value.message
        with pytest.raises(UpstreamUnavailable, match="was not sent"):
            await waiting.wait()
        status = await it.reach(BACKOFF)
        assert re.fullmatch(r"uses [\d.]+ MiB of memory, its ceiling is 1 MiB .*: mcpd ended it", status.reason)
        with pytest.raises(UpstreamUnavailable, match="its ceiling is 1 MiB"):
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

    async with trio.open_nursery() as nursery:
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
            with trio.fail_after(LONG):
                assert not await it.one.wake()
            assert it.one.child.status.value == status
        nursery.cancel_scope.cancel()


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

    async with trio.open_nursery() as nursery:
        port = await http_server(nursery, decline)
        async with stage(at(port, limits=ServerLimits(in_flight=1))) as it:
            await it.ready()
            first, second = it.call("one"), it.call("two")
            with pytest.raises(UpstreamUnavailable, match=r"retry after 300 s \(it asks for 86400 s\)") as told:
                await first.wait()
            assert told.value.details["retryAfterMs"] == 300_000
            with pytest.raises(UpstreamUnavailable, match=r"left alone for \d+ s more"):
                await second.wait()
            with pytest.raises(UpstreamUnavailable, match="was not sent") as later:
                it.call("three")
            wait = later.value.details["retryAfterMs"]
            assert isinstance(wait, int)
            assert 200_000 < wait <= 300_000
            assert calls == ["one"]
            assert it.states()[-1] is READY
        nursery.cancel_scope.cancel()
