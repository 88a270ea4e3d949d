"""A server of both eras, each of whose processes takes twenty seconds to start (virtual clock)."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

from daemon.config.config_model import Server
from daemon.config.tuning import Timeouts
from daemon.supervision.lifecycle import ChildSpec
from daemon.upstreams.second import SecondConnection
from daemon.upstreams.upstream_access import UpstreamAccess, succeed
from tests.faults.stage import Stage, at_work
from tests.unit.upstreams.test_handshake import DISCOVERED, INITIALIZED
from tests.unit.upstreams.transports.replies import TableConnection

pytestmark = pytest.mark.usefixtures("autojump_clock")

START = 20.0
TIMEOUTS = Timeouts(probe=90, initialize=90, wake=90, ping_interval=900)
SERVER = Server(name="s", command="both", timeouts=TIMEOUTS)
MODERN = {**DISCOVERED, "capabilities": {"tools": {}}}


class Starting(TableConnection):
    async def request(self, method: str, params: dict[str, object], *, timeout: float) -> bytes:  # noqa: ASYNC109
        if method != "tools/list":
            await trio.sleep(START)
        return await super().request(method, params, timeout=timeout)

    async def run(self) -> None:
        await trio.sleep_forever()


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times at which processes were started."""
    times: list[float] = []

    @asynccontextmanager
    async def opened() -> AsyncIterator[Starting]:
        times.append(trio.current_time())
        replies = {"server__discover": [MODERN], "initialize": [INITIALIZED], "tools__list": [{"tools": []}]}
        yield Starting(**replies)

    async def connector(_context: object) -> Any:
        await trio.lowlevel.checkpoint()
        return opened()

    monkeypatch.setattr("daemon.actors.upstream.connector", connector)
    monkeypatch.setattr("daemon.upstreams.second.connector", connector)
    return times


async def waited(server: UpstreamAccess, run: int) -> float:
    """Seconds that a call of an old client waits during a run."""
    await server.child.status.wait_until(lambda now: now.incarnation == run)
    before = trio.current_time()
    assert isinstance(server.second, SecondConnection)
    assert await server.second.wake()
    assert server.second_admission is not None
    return trio.current_time() - before


def reloaded(it: Stage, **changed: Any) -> UpstreamAccess:
    again = Stage((attrs.evolve(SERVER, **changed),), 1, random.random).one
    again.child = it.one.child
    succeed(again, it.one)
    again.child.replace(ChildSpec(name="s", run=again.run, policy=SERVER.restart), 0.0)
    return again


async def test_both_processes_of_a_server_that_had_two_start_at_once(begun: list[float]) -> None:
    async with at_work(SERVER) as it:
        # That it has both eras is not known before its first answer.
        assert await waited(it.one, 1) == 2 * START
        it.one.child.restart()
        assert await waited(it.one, 2) == START
        again = reloaded(it, env={"TOKEN": "new"})
        await again.child.status.wait_until(lambda now: now.incarnation == 3)
        # Nobody calls meanwhile.
        await trio.sleep(START + 1)
        assert await waited(again, 3) == 0
        assert [later - first for first, later in zip(begun[::2], begun[1::2], strict=True)] == [START, 0, 0]


async def test_another_program_may_have_to_be_installed_by_its_first_process(begun: list[float]) -> None:
    async with at_work(SERVER) as it:
        await waited(it.one, 1)
        assert await waited(reloaded(it, args=("another",)), 2) == 2 * START
        assert len(begun) == 4
