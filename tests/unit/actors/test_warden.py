"""Servers that take too much memory: found by measuring, ended with the reason, not for one large moment."""

import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
import trio
from loguru import logger
from trio.testing import MockClock

from daemon.actors.warden import LOOKS, WALK_SECONDS, Warden
from daemon.causes import Cause, Reason
from daemon.config.config_model import Server
from daemon.config.tuning import ServerLimits
from daemon.processes import cgroups
from daemon.processes.cgroups import Leaf
from daemon.processes.children import Children
from daemon.processes.marks import memory_by_mark, memory_of
from tests.waiting import beside

MIB = 1 << 20
BETWEEN = WALK_SECONDS / 2
"""Seconds after a look, and before the next."""


@attrs.define
class Fake:
    """An upstream that remembers why it was ended."""

    server: Server
    children: dict[int, int]
    ended: list[Reason] = attrs.field(factory=list)

    def end(self, reason: Reason) -> None:
        self.ended.append(reason)
        self.children = {}


@attrs.define
class Machine:
    """Where memory is what a test says, by mark."""

    used: dict[int, int] = attrs.field(factory=dict)
    looks: list[Mapping[int, int]] = attrs.field(factory=list)
    broken: bool = False
    meanwhile: Callable[[], None] = lambda: None
    """What happens while it measures."""

    def measure(self, ceilings: Mapping[int, int]) -> Mapping[int, int]:
        self.looks.append(dict(ceilings))
        self.meanwhile()
        if self.broken:
            raise OSError("no /proc here")
        return {mark: used for mark, used in self.used.items() if mark in ceilings}


def upstream(mark: int | None, ceiling: int | None = 100 * MIB) -> Fake:
    limits = ServerLimits(memory_bytes=ceiling)
    return Fake(Server(name=f"s{mark}", command="x", limits=limits), {} if mark is None else {1: mark})


@asynccontextmanager
async def watched(servers: dict[str, Fake]) -> AsyncIterator[Machine]:
    """A warden at work over these servers."""
    machine = Machine()
    async with beside(Warden(cast("Any", servers), machine.measure).run):
        yield machine


async def test_a_server_that_stays_above_its_ceiling_is_ended_with_both_numbers(
    autojump_clock: MockClock,
) -> None:
    greedy, modest = upstream(1), upstream(2)
    async with watched({"a": greedy, "b": modest}) as machine:
        machine.used.update({1: 133 * MIB, 2: 99 * MIB})
        await trio.sleep(LOOKS * WALK_SECONDS - 0.1)
        assert greedy.ended == []
        await trio.sleep(0.2)
        text = "uses 133 MiB of memory, more than 100 MiB (limits.memoryBytes): mcpd ended it"
        data = {"used": 133 * MIB, "limit": 100 * MIB}
        assert greedy.ended == [Reason(text, Cause.MEMORY_CEILING, data)]
        await trio.sleep(10 * WALK_SECONDS)
    assert (len(greedy.ended), modest.ended) == (1, [])


async def test_one_large_moment_is_forgiven(autojump_clock: MockClock) -> None:
    server = upstream(1)
    async with watched({"a": server}) as machine:
        await trio.sleep(BETWEEN)
        for look in range(20):
            machine.used[1] = (200 if look % LOOKS else 50) * MIB
            await trio.sleep(WALK_SECONDS)
    assert server.ended == []
    assert len(machine.looks) == 20


async def test_a_new_run_of_a_server_begins_anew(autojump_clock: MockClock) -> None:
    server = upstream(1)
    async with watched({"a": server}) as machine:
        machine.used.update(dict.fromkeys(range(1, 30), 200 * MIB))
        await trio.sleep(BETWEEN)
        for mark in range(2, 20):
            await trio.sleep(WALK_SECONDS)
            server.children = {1: mark}
    assert server.ended == []


async def test_a_process_that_began_during_a_look_is_not_ended_for_its_predecessor(
    autojump_clock: MockClock,
) -> None:
    server = upstream(1)

    def begins_anew() -> None:
        if len(machine.looks) == LOOKS:
            server.children = {1: 2}

    async with watched({"a": server}) as machine:
        machine.used[1] = 200 * MIB
        machine.meanwhile = begins_anew
        await trio.sleep((LOOKS + 2) * WALK_SECONDS + BETWEEN)
    assert [[*look] for look in machine.looks] == [[1]] * LOOKS + [[2], [2]]
    assert server.ended == []


async def test_without_ceilings_nothing_is_measured(autojump_clock: MockClock) -> None:
    servers = {"none": upstream(1, None), "down": upstream(None)}
    async with watched(servers) as machine:
        await trio.sleep(10 * WALK_SECONDS)
        assert machine.looks == []
        servers["new"] = upstream(3, 7 * MIB)
        await trio.sleep(WALK_SECONDS + 0.1)
    assert machine.looks[0] == {3: 7 * MIB}


async def test_a_look_that_fails_is_told_once_and_the_next_counts(autojump_clock: MockClock) -> None:
    server = upstream(1)
    logged: list[str] = []
    sink = logger.add(logged.append, format="{message}")
    try:
        async with watched({"a": server}) as machine:
            machine.used[1] = 200 * MIB
            machine.broken = True
            await trio.sleep(5 * WALK_SECONDS + 0.1)
            machine.broken = False
            await trio.sleep(LOOKS * WALK_SECONDS)
    finally:
        logger.remove(sink)
    assert len([line for line in logged if "cannot measure" in line]) == 1
    assert len(server.ended) == 1


async def test_a_server_whose_ceiling_the_kernel_holds_is_not_measured(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Leaf(path=tmp_path, mark=1, outside=tmp_path, ceiling=100 * MIB)
    unheld = Leaf(path=tmp_path, mark=2, outside=tmp_path)
    monkeypatch.setattr(cgroups, "_leaves", {1: held, 2: unheld})
    async with watched({"a": upstream(1), "b": upstream(2), "c": upstream(3)}) as machine:
        await trio.sleep(WALK_SECONDS + BETWEEN)
        assert [look.keys() for look in machine.looks] == [{2, 3}]


# --- what is measured: real processes ------------------------------------------------------------------------

HOG = """
import os, sys
block = bytearray(os.urandom(1024)) * (64 * 1024)
if os.fork() == 0:
    os.setsid()
print("ready", flush=True)
sys.stdin.read()
"""
"""Fills 64 MiB, which a child of its own shares, and says so twice."""


@pytest.mark.process
async def test_a_page_that_two_processes_share_counts_once() -> None:
    with trio.fail_after(30):
        children = Children()
        child = await children.start(sys.executable, ["-S", "-E", "-c", HOG], {}, None)
        link = trio.lowlevel.FdStream(child.stdout)
        said = b""
        while said.count(b"ready") < 2:
            said += await link.receive_some()
        resident = (await trio.to_thread.run_sync(memory_by_mark))[child.mark]
        far_below, far_above = {child.mark: MIB}, {child.mark: 1000 * MIB}
        shared = (await trio.to_thread.run_sync(memory_of, far_below))[child.mark]
        summed = (await trio.to_thread.run_sync(memory_of, far_above))[child.mark]
        await trio.lowlevel.FdStream(child.stdin).aclose()
        await children.stop(child, eof=10, term=10)
        await link.aclose()
        await trio.lowlevel.FdStream(child.stderr).aclose()
    assert resident > 128 * MIB
    assert summed > 128 * MIB
    assert 64 * MIB < shared < 100 * MIB
