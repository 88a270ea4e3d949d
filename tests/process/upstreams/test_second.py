"""A server that speaks both eras, called by clients of either, with real scripted children behind it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from daemon.config.config_model import EraWish
from daemon.errors import UpstreamLost, UpstreamUnavailable
from daemon.model import Era
from daemon.safety.redact import Redactor
from daemon.upstreams.events import ServerEvents
from daemon.upstreams.second import SecondConnection
from daemon.upstreams.transports.server_connection import OpenContext
from tests.fakes_upstream import tool_call
from tests.faults.stage import Answer, Stage, recording, scripted, stage
from tests.waiting import PATIENCE, until

if TYPE_CHECKING:
    from pathlib import Path

    import trio

    from daemon.config.config_model import Server

TIMEOUTS = {"probe": PATIENCE}


def both(era: EraWish = EraWish.AUTO, **script: Any) -> Server:
    return attrs.evolve(scripted(era="both", timeouts=TIMEOUTS, **script), era=era)


def second_of(it: Stage) -> SecondConnection:
    assert isinstance(it.one.second, SecondConnection)
    return it.one.second


async def call(it: Stage, second: SecondConnection, tool: str) -> Any:
    answer = Answer()
    second.send(tool_call(tool, b"{}"), answer)
    it.outbox.flush()
    return json.loads(await answer.text())


async def test_a_handshake_client_is_served_by_a_child_of_its_era_and_the_others_by_the_first() -> None:
    async with stage(both()) as it:
        await it.ready()
        second = second_of(it)
        with pytest.raises(UpstreamUnavailable):
            second.send(tool_call("pid", b"{}"), Answer())
        assert second.can_wake
        assert await second.wake()
        theirs = await call(it, second, "pid")
        assert theirs != json.loads(await it.call("pid").text())
        assert it.one.pid != theirs
        # Its calls may have to go over the first connection, whose results may ask for input.
        assert second.is_modern
        assert second.name == it.one.name
        # Both processes are the server's, and what is called over either counts as the server's, too.
        assert list(it.one.children) == [it.one.pid, theirs]
        counted: list[tuple[float, ...]] = []
        it.one.record = lambda seconds, **_: counted.append(seconds)
        second.record((0.1,), ok=True)
        assert counted == [(0.1,)]
        second.close()
        assert list(it.one.children) == [it.one.pid]


async def test_where_a_second_child_does_not_start_its_calls_go_over_the_first(tmp_path: Path) -> None:
    runs = [{}, {"on": {"initialize": {"exit": 3}}}]
    async with stage(both(runs=runs, count=str(tmp_path / "runs"))) as it:
        await it.ready()
        second = second_of(it)
        assert await second.wake()
        assert await call(it, second, "pid") == it.one.pid


async def test_a_second_child_that_dies_costs_its_calls_and_is_started_again() -> None:
    async with stage(both()) as it:
        await it.ready()
        second = second_of(it)
        assert await second.wake()
        first = await call(it, second, "pid")
        answer = Answer()
        second.send(tool_call("act", b'{"exit": 1}'), answer)
        it.outbox.flush()
        with pytest.raises(Exception, match="whether the call ran is unknown"):
            await answer.wait()
        assert it.one.admission is not None
        assert await second.wake()
        assert await call(it, second, "pid") not in (first, it.one.pid)


async def test_it_is_closed_when_nobody_calls(nursery: trio.Nursery) -> None:
    async with stage(both()) as it:
        await it.ready()
        events = ServerEvents(it.one, Redactor(()))
        context = OpenContext(server=it.one.server, events=events, outbox=it.outbox, children=it.children)
        brief = SecondConnection(it.one, events, context, lambda: PATIENCE, idle=0.05)
        nursery.start_soon(brief.keep)
        assert await brief.wake()
        await until(lambda: "down" in repr(brief))
        assert await brief.wake()
        nursery.cancel_scope.cancel()


async def take(it: Stage, era: str) -> None:
    """Have a call wait for a server that is down."""
    waiting = second_of(it)
    with pytest.raises(UpstreamUnavailable):
        waiting.send(tool_call("pid", b"{}"), Answer())
    await until(lambda: waiting.can_wake)
    assert await waiting.wake()
    theirs = await call(it, waiting, "pid")
    assert (theirs != it.one.pid) == (era == "both")


@pytest.mark.parametrize("era", ["both", "modern", "handshake"])
async def test_a_call_that_waits_for_a_start_is_taken_by_the_connection_that_it_may_have(era: str) -> None:
    async with stage(scripted(era=era, timeouts=TIMEOUTS, lazy=True)) as it:
        await take(it, era)
        assert (it.one.second is None) == (era == "handshake")
        if era != "handshake":
            with pytest.raises(UpstreamLost):
                await it.call("act", exit=1).wait()
            await take(it, era)


async def test_it_goes_with_the_first_connection() -> None:
    async with stage(both()) as it:
        await it.ready()
        second = second_of(it)
        assert await second.wake()
        answer = Answer()
        second.send(tool_call("sleep", b'{"seconds": 1000}'), answer)
        it.outbox.flush()
        with pytest.raises(Exception):  # noqa: B017,PT011 - whatever its kill looks like
            await it.call("act", exit=1).wait()
        with pytest.raises(Exception, match="unknown"):
            await answer.wait()


@pytest.mark.parametrize(("wish", "spoken"), [(EraWish.MODERN, Era.MODERN), (EraWish.HANDSHAKE, Era.HANDSHAKE)])
async def test_the_configuration_may_name_one_era(wish: EraWish, spoken: Era) -> None:
    async with stage(both(wish)) as it:
        await it.ready()
        assert it.one.greeting is not None
        assert it.one.greeting.era is spoken
        assert it.one.second is None


async def test_a_server_that_speaks_only_the_modern_era_is_asked_once(tmp_path: Path) -> None:
    async with (
        recording(tmp_path) as record,
        stage(scripted(era="modern", timeouts=TIMEOUTS, record=record.path)) as it,
    ):
        await it.ready()
        second = second_of(it)
        for _ in range(2):
            assert await second.wake()
            assert await call(it, second, "pid") == it.one.pid
        assert len(record.messages("initialize")) == 1
