"""What goes wrong with one instance of a server, and what it costs: the calls of its own clients."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from daemon.ports import Holder
from daemon.states import SERVING, ServerState
from tests.houses import ECHO, House, house, is_alive
from tests.process.upstreams.instances.test_server_instances import OWN, instanced, names, of, up
from tests.waiting import PATIENCE, until

MIB = 1024 * 1024
MOST = 16
"""Instances of one server, as many as it may have."""

SOON = {"base": 0.01, "floor": 0, "cap": 60, "intensity": 3}


@pytest.fixture
def directories(sockets: Path) -> tuple[str, str]:
    """Two workspaces: the servers here look for a file in theirs, and do what it says."""
    found = sockets / "sound", sockets / "faulty"
    for each in found:
        each.mkdir()
    return str(found[0]), str(found[1])


def first_doing(what: str) -> dict[str, object]:
    """A server that first does this (shell) in its directory."""
    command, arguments = str(ECHO["command"]), list(ECHO["args"])
    script = ["-c", f'{what}\nexec "$@"', "sh", command, *arguments]
    return {"command": "/bin/sh", "args": script, "share": "workspace", "start": "lazy", "restart": SOON}


def state_of(home: House) -> ServerState:
    return home.tree.registry.catalog.value.servers["s"].status.state


async def test_a_crash_loop_of_one_instance_concerns_no_other(
    nursery: trio.Nursery, sockets: Path, directories: tuple[str, str]
) -> None:
    sound, faulty = directories
    (Path(faulty) / "stop").touch()
    async with house(sockets, of(s=first_doing("test -e stop && exit 3"))) as home:
        works = await up(home, workspace=sound)
        pid = works.pid
        loops = instanced(home).instances.of(Holder(session="other", number=2, workspace=faulty))
        nursery.start_soon(loops.wake)
        with trio.fail_after(PATIENCE):
            status = await loops.child.status.wait_until(lambda it: it.state is ServerState.CRASHLOOP)
        assert status.attempt >= SOON["intensity"]
        assert (works.child.status.value.state in SERVING, works.pid) == (True, pid)
        assert state_of(home) is ServerState.READY


async def test_an_instance_whose_directory_is_gone_is_ended_so_that_the_next_one_starts_at_once(
    sockets: Path, directories: tuple[str, str]
) -> None:
    place = directories[0]
    async with house(sockets, of(s={**OWN, "share": "workspace"})) as home:
        await trio.Path(place).rmdir()
        lost = instanced(home).instances.of(Holder(session="one", number=1, workspace=place))
        assert not await lost.wake()
        await until(lambda: lost.is_gone, lambda: str(names(home)), seconds=PATIENCE)
        await trio.Path(place).mkdir()
        assert (await up(home, workspace=place)) is not lost


GREEDY = "import os\nif os.path.exists('greedy'): kept = b'x' * (200 << 20)\n"
"""Takes memory where it is told to."""


async def test_an_instance_above_its_memory_ceiling_is_ended_and_no_other(
    nursery: trio.Nursery, sockets: Path, directories: tuple[str, str]
) -> None:
    sound, greedy = directories
    (Path(greedy) / "greedy").touch()
    args = list(ECHO["args"])
    entry = {
        **ECHO,
        "args": [*args[:-1], GREEDY + args[-1]],
        "share": "workspace",
        "limits": {"memoryBytes": 100 * MIB},
        "restart": SOON,
    }
    async with house(sockets, of(s=entry)) as home:
        works = await up(home, workspace=sound)
        pid = works.pid
        grows = await up(home, session="other", number=2, workspace=greedy)
        with trio.fail_after(PATIENCE):
            await grows.child.status.wait_until(lambda it: "memory" in it.reason)
        assert (works.child.status.value.state in SERVING, works.pid) == (True, pid)
        nursery.cancel_scope.cancel()


async def test_sixteen_instances_that_end_only_of_a_kill_stop_within_the_seconds_of_all_stops(
    sockets: Path,
) -> None:
    # Each alone may take longer than anybody waits here: the limit of the daemon's end is what ends them.
    patient = {"stopEof": 2 * PATIENCE, "stopTerm": 2 * PATIENCE}
    deaf = {**OWN, "args": [*OWN["args"][:-1], '{"ignore": ["eof", "term"]}'], "timeouts": patient}
    async with house(sockets, of(s=deaf)) as home:
        async with trio.open_nursery() as starting:
            for number in range(MOST):
                actor = instanced(home).instances.of(Holder(session=number, number=number))
                starting.start_soon(actor.wake)
        actors = list(home.tree.servers.actors.values())
        await until(
            lambda: all(each.admission is not None for each in actors),
            lambda: str(names(home)),
            seconds=PATIENCE,
        )
        pids = [each.pid for each in actors if each.pid is not None]
        assert len(pids) == MOST
        home.stop.set()
        await until(lambda: not any(map(is_alive, pids)), lambda: str(pids), seconds=PATIENCE)
