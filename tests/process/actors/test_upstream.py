"""The actor of one server, with real scripted children behind it."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
import trio

from daemon.causes import Cause
from daemon.errors import Overloaded, UpstreamLost, UpstreamTimeout, UpstreamUnavailable
from daemon.model import Era
from daemon.states import ServerState
from tests.faults.stage import recording, scripted, stage
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

BACKOFF, CRASHLOOP, DEGRADED, DORMANT, FAILED, READY, STARTING = (
    *(ServerState.BACKOFF, ServerState.CRASHLOOP, ServerState.DEGRADED, ServerState.DORMANT),
    *(ServerState.FAILED, ServerState.READY, ServerState.STARTING),
)
AT_ONCE = {"base": 0.01, "cap": 0.01, "floor": 0.0, "intensity": 1000}
"""Restarted without delay, for tests of what comes after."""

# --- eras ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("era", "spoken"),
    [("handshake", Era.HANDSHAKE), ("modern", Era.MODERN), ("both", Era.MODERN)],
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


@pytest.mark.parametrize("death", [{"exit": 1}, {"close_stdout": True}])
async def test_a_server_that_dies_of_the_probe_twice_is_not_probed_any_more(
    death: dict[str, Any], tmp_path: Path
) -> None:
    async with recording(tmp_path) as record:
        on = {"server/discover": {**death, "never": True}}
        server = scripted(record=record.path, on=on, timeouts={"probe": PATIENCE}, restart=AT_ONCE)
        async with stage(server) as it:
            await it.ready(incarnation=2)
            # The first death may have had another reason, so the next run is probed again.
            it.one.child.restart()
            await it.ready(incarnation=4)
            it.one.child.restart()
            await it.ready(incarnation=5)
            assert [len(record.messages(m)) for m in ("server/discover", "initialize")] == [2, 3]


async def test_the_era_is_remembered_by_the_next_run(tmp_path: Path) -> None:
    async with recording(tmp_path) as record:
        async with stage(scripted(record=record.path, restart=AT_ONCE)) as it:
            for incarnation in (1, 2, 3):
                await it.ready(incarnation=incarnation)
                it.one.child.restart()
            await it.ready(incarnation=4)
        assert len(record.messages("server/discover")) == 1
        assert len(record.messages("initialize")) == 4


async def test_a_slow_answer_to_initialize_is_waited_for(tmp_path: Path) -> None:
    async with stage(scripted(on={"initialize": {"delay": 0.3}}, timeouts={"initialize": 5})) as it:
        await it.ready()
        assert it.states() == [STARTING, READY]


# --- the list -----------------------------------------------------------------------------------------------


# --- health -------------------------------------------------------------------------------------------------

PINGS = {"ping_interval": 0.05, "ping": PATIENCE, "missed_pings": 3}


async def test_missed_pings_in_between_do_not_add_up(tmp_path: Path) -> None:
    on = {"ping": [{"never": True}, None] * 2 + [None]}
    timeouts = {**PINGS, "ping": 1.0, "missed_pings": 2}
    async with (
        recording(tmp_path) as record,
        stage(scripted(record=record.path, on=on, timeouts=timeouts)) as it,
    ):
        await it.ready()
        await record.wait_message("ping", 5)
        assert it.states()[:6] == [STARTING, READY, DEGRADED, READY, DEGRADED, READY]


async def test_a_stopped_server_is_degraded_and_ready_when_it_goes_on(tmp_path: Path) -> None:
    timeouts = {"ping_interval": 0.05, "ping": 0.2, "missed_pings": 10_000}
    async with stage(scripted(timeouts=timeouts)) as it:
        await it.ready()
        os.kill(it.one.pid or 0, signal.SIGSTOP)
        status = await it.reach(DEGRADED)
        assert status.cause is Cause.UNANSWERED_PINGS
        assert "answers no pings" in status.reason
        os.kill(it.one.pid or 0, signal.SIGCONT)
        await it.reach(READY)
        assert it.one.child.status.value.incarnation == 1
        assert await it.call("echo").text() == "{}"


async def test_a_stopped_server_with_a_call_is_degraded_too_and_the_call_goes_on(tmp_path: Path) -> None:
    timeouts = {"ping_interval": 0.05, "ping": 0.2, "missed_pings": 1}
    async with stage(scripted(timeouts=timeouts)) as it:
        await it.ready()
        os.kill(it.one.pid or 0, signal.SIGSTOP)
        answer = it.call("echo")
        status = await it.reach(DEGRADED)
        assert status.cause_data["calls"] == 1
        assert "while it works on 1 call" in status.reason
        os.kill(it.one.pid or 0, signal.SIGCONT)
        assert await answer.text() == "{}"
        await it.reach(READY)
        assert it.one.child.status.value.incarnation == 1


# --- calls --------------------------------------------------------------------------------------------------


async def test_progress_does_not_keep_a_call_alive_beyond_the_maximum(tmp_path: Path) -> None:
    async with recording(tmp_path) as record:
        server = scripted(record=record.path, timeouts={"call": 0.1, "call_max": 0.25})
        async with stage(server) as it:
            await it.ready()
            with pytest.raises(UpstreamTimeout):
                await it.call("progress", progress=True, count=10_000, interval=0.02).wait()
            await record.wait("cancelled")


async def test_a_cancel_of_an_earlier_connections_call_is_ignored(tmp_path: Path) -> None:
    """Ids start anew with each connection: the same id is somebody else's call by then."""
    async with recording(tmp_path) as record, stage(scripted(record=record.path, restart=AT_ONCE)) as it:
        await it.ready()
        old = it.call("sleep")
        it.one.child.restart()
        with pytest.raises(UpstreamLost):
            await old.wait()
        await it.ready(incarnation=2)
        new = [it.call("sleep", seconds=0.3) for _ in range(5)]
        assert old.key not in {answer.key for answer in new}
        it.one.cancel(old.key, "late")
        it.outbox.flush()
        assert [await answer.text() for answer in new] == ["awake"] * 5
        assert not record.all("cancelled")


async def test_calls_beyond_the_limit_are_refused_until_one_ends(tmp_path: Path) -> None:
    async with (
        recording(tmp_path) as record,
        stage(scripted(record=record.path, limits={"in_flight": 3, "queue": 2})) as it,
    ):
        await it.ready()
        held = [it.call("sleep") for _ in range(5)]
        with pytest.raises(Overloaded, match="works on 3 calls, 2 are in line"):
            it.call("echo")
        for answer in held[:3]:
            it.one.cancel(answer.key, "make room")
        assert await it.call("echo").text() == "{}"
        await record.wait_message("tools/call", 6)
        # The rest was in line on our side until there was room.
        sent = [each.get("message", {}).get("method") for each in record.events]
        assert sent[: sent.index("notifications/cancelled")].count("tools/call") == 3


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
    server = scripted(ignore=["term", "eof"], timeouts={"stop_eof": 3 * PATIENCE, "stop_term": 3 * PATIENCE})
    async with stage(server) as it:
        await it.ready()
        with pytest.raises(UpstreamLost):
            await it.call("act", close_stdout=True, never=True).wait()
        await it.reach(BACKOFF)
        with pytest.raises(UpstreamUnavailable):
            it.call("echo")
        it.children.hurry()
