"""A server of both eras, each of whose processes takes twenty seconds to start (virtual clock)."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

from daemon.config.config_model import Server
from daemon.config.sandbox_keys import SandboxRules
from daemon.config.tuning import Timeouts
from daemon.errors import ConnectionLost
from daemon.supervision.lifecycle import ChildSpec
from daemon.upstreams.second import SecondConnection
from daemon.upstreams.upstream_access import UpstreamAccess, succeed
from tests.faults.stage import Stage, at_work
from tests.unit.upstreams.test_handshake import DISCOVERED, INITIALIZED
from tests.unit.upstreams.transports.replies import TableConnection, refusal

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


class Machine:
    """Where the processes of the server run."""

    def __init__(self) -> None:
        self.begun: list[float] = []
        """The times at which processes were started."""
        self.running = 0
        self.is_modern = True
        self.lessons: dict[str, object] = {}
        self.broken: set[int] = set()
        """The numbers of processes that cannot be started."""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Starting]:
        self.begun.append(trio.current_time())
        if len(self.begun) in self.broken:
            raise ConnectionLost("no such luck")
        replies = {"initialize": [INITIALIZED], "tools__list": [{"tools": []}]}
        self.running += 1
        try:
            yield Starting(**replies, server__discover=[MODERN if self.is_modern else refusal()])
        finally:
            self.running -= 1

    async def connector(self, context: Any) -> Any:
        await trio.lowlevel.checkpoint()
        self.lessons = context.lessons
        return self.opened()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr("daemon.actors.upstream.connector", made.connector)
    monkeypatch.setattr("daemon.upstreams.second.connector", made.connector)
    return made


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


async def test_both_processes_of_a_server_that_had_two_start_at_once(machine: Machine) -> None:
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
        begun = machine.begun
        assert [later - first for first, later in zip(begun[::2], begun[1::2], strict=True)] == [START, 0, 0]
        # Only the reload has kept what was open.
        again.child.restart()
        await trio.sleep(2 * START)
        assert len(begun) == 7


@pytest.mark.parametrize(
    "changed", [{"args": ("another",)}, {"confined": SandboxRules()}], ids=["another program", "in a sandbox"]
)
async def test_what_may_have_to_be_installed_is_started_once_at_first(
    machine: Machine, changed: dict[str, Any]
) -> None:
    async with at_work(SERVER) as it:
        await waited(it.one, 1)
        assert await waited(reloaded(it, **changed), 2) == 2 * START
        assert len(machine.begun) == 4


async def test_a_lesson_which_has_other_caches_begins_with_one_process(machine: Machine) -> None:
    async with at_work(SERVER) as it:
        await waited(it.one, 1)
        machine.lessons["s"] = object()
        it.one.child.restart()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(waited, it.one, 2)
            await trio.sleep(1)
            nursery.start_soon(waited, it.one, 2)
        assert machine.begun[3] - machine.begun[2] == START


async def test_the_second_process_ends_if_the_first_speaks_the_older_era_by_now(machine: Machine) -> None:
    async with at_work(SERVER) as it:
        await waited(it.one, 1)
        machine.is_modern = False
        it.one.child.restart()
        await it.one.child.status.wait_until(lambda now: now.incarnation == 2)
        second = it.one.second
        assert second is not None
        assert await second.wake()
        await trio.sleep(START)
        assert (it.one.second, it.one.second_admission, machine.running) == (None, None, 1)
        assert not it.one.has_both_eras


async def test_a_second_process_that_fails_meanwhile_is_tried_once_however_many_call(machine: Machine) -> None:
    async with at_work(SERVER) as it:
        await waited(it.one, 1)
        machine.broken = {4}
        it.one.child.restart()
        await it.one.child.status.wait_until(lambda now: now.incarnation == 2)
        second = it.one.second
        assert second is not None
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(second.wake)
                await trio.sleep(1)
        assert len(machine.begun) == 4
