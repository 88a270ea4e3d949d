"""Faults of the machine that the daemon runs on: it lacks descriptors, it lacks time."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import trio

from daemon.processes.own import OPEN
from tests.e2e.harness import running, scripted
from tests.faults.arena import BOUND, CANARY, arena, code_of, visiting
from tests.faults.history import History
from tests.waiting import LOOK_SECONDS, eventually, until

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.faults.arena import Arena, Visitors

SPARE = 12
"""Descriptors that are left: a client takes one, a start of a server a few."""

STARVED_SERVERS = 10
"""They start on a machine whose processors have all been taken twice over."""


async def test_a_daemon_without_descriptors_serves_on_and_recovers(rng: random.Random) -> None:
    with arena() as it:
        async with visiting(it, History(), rng) as visitors:
            client, operator = await visitors.client(), await visitors.operator()
            pid = (await (await operator.ask("status")).wait())["result"]["servers"][CANARY]["pid"]
            # What calls need is loaded just after READY, which may be just now.
            assert code_of(await (await client.call(CANARY, "echo")).wait()) == ""
            async with _without_descriptors(it, visitors):
                # Who is there is served.
                assert code_of(await (await client.call(CANARY, "echo")).wait()) == ""
                os.kill(pid, signal.SIGKILL)
                await until(
                    lambda: "killed by SIGKILL" in it.daemon.said(),
                    it.daemon.said,
                    seconds=BOUND,
                    every=LOOK_SECONDS,
                )
            late = await visitors.client()
            await (await late.ask("ping")).wait()
            with trio.fail_after(BOUND):
                # A call wakes the server, however long its wait has become.
                while code_of(await (await client.call(CANARY, "echo")).wait()):
                    pass


@asynccontextmanager
async def _without_descriptors(it: Arena, visitors: Visitors) -> AsyncIterator[None]:
    """Clients that say nothing take all that there are while the block runs."""
    had = resource.prlimit(it.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(it.pid, resource.RLIMIT_NOFILE, (_highest(it.pid) + SPARE, had[1]))
    silent = [await visitors.silent() for _ in range(4 * SPARE)]
    try:
        await until(
            lambda: "kept for operators" in it.daemon.said(), it.daemon.said, seconds=BOUND, every=LOOK_SECONDS
        )
        yield
    finally:
        resource.prlimit(it.pid, resource.RLIMIT_NOFILE, had)
        for stream in silent:
            stream.socket.close()


def _highest(pid: int) -> int:
    return max(int(name) for name in os.listdir(f"/proc/{pid}/fd")) + 1  # noqa: PTH208 - names are numbers


@contextmanager
def starved() -> Iterator[None]:
    """Two busy loops for each processor."""
    count = 2 * (os.cpu_count() or 1)
    hogs = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def test_on_a_starved_machine_nobody_is_taken_for_dead(sockets: Path) -> None:
    record = sockets / "record"
    entry = {**scripted(record=str(record)), "timeouts": {"pingInterval": 0.3}}
    config = {"mcpServers": {f"s{number}": entry for number in range(STARVED_SERVERS)}}
    with running(config, {OPEN: "1"}) as daemon, starved():
        daemon.ready()
        eventually(lambda: record.read_text().count('"ping"') >= 3 * STARVED_SERVERS, daemon.said)
        servers = daemon.status()["servers"].values()
        assert {(server["state"], server["restarts"]) for server in servers} == {("ready", 0)}
