"""What goes wrong with one instance of a server, and what it costs: the calls of its own clients."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from daemon.facts import Switched
from daemon.ports import Holder
from daemon.states import SERVING, ServerState
from daemon.upstreams import servers
from tests.e2e.harness import scripted
from tests.houses import ECHO, House, house, is_alive
from tests.process.upstreams.instances.test_server_instances import OWN, instanced, made, names, of, text_of, up
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


# --- servers with instances are listed once before any client, each by an instance that leaves  --------------


@pytest.fixture
def tmp_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Short, as sockets are in it; directories for lists are made there, too."""
    with tempfile.TemporaryDirectory(prefix="mcpd-") as directory:
        monkeypatch.setattr(tempfile, "tempdir", directory)
        yield Path(directory)


SHORT = '{"cwd": ""}'
"""What a server writes down that ends at once."""


def divided(path: Path, **more: Any) -> dict[str, Any]:
    """A server that writes down where it is started."""
    return {**scripted(tools=["pid"], record=str(path / "record")), "share": "workspace", **more}


def runs(path: Path) -> list[dict[str, Any]]:
    record = path / "record"
    lines = record.read_text().splitlines() if record.exists() else []
    return [each for each in map(json.loads, lines) if "cwd" in each]


def left(path: Path) -> list[str]:
    return [each.name for each in path.glob(f"{servers.PREFIX}*")]


async def over(home: House, begun: int = 1, server: str = "s") -> None:
    """Until that many instances have been and nothing of them is left."""
    instances: Any = home.tree.upstreams[server].instances
    await until(
        lambda: instances.ended == begun and not instances.running and not left(home.directory),
        lambda: f"{instances.begun} {instances.ended} {names(home)} {left(home.directory)}",
        seconds=PATIENCE,
    )


def tools(home: House, server: str = "s") -> list[str] | None:
    listed = home.tree.registry.catalog.value.servers[server].tools
    return None if listed is None else list(listed)


@pytest.mark.parametrize("share", ["workspace", "session"])
async def test_a_divided_server_is_listed_once_in_an_empty_directory_that_is_removed(
    tmp_path: Path, share: str
) -> None:
    entry = divided(tmp_path, share=share, env={"WHERE": "${workspace}/x"}, limits={"instances": 1})
    async with house(tmp_path, of(s=entry)) as home:
        await over(home)
        assert tools(home) == ["pid"]
        (start,) = runs(tmp_path)
        assert Path(start["cwd"]).name.startswith(servers.PREFIX)
        assert (Path(start["cwd"]).parent, start["env"]["WHERE"]) == (tmp_path, f"{start['cwd']}/x")
        project = tmp_path / "project"
        project.mkdir()
        actor = await up(home, workspace=str(project))
        assert actor.name in {f"s@{project}", "s#1"}
        assert [each["cwd"] for each in runs(tmp_path)] == [start["cwd"], str(project)]
        # Known by now, also after a reload that changes no more than a bound.
        await home.reload(of(s={**entry, "limits": {"instances": 2}}))
        assert len(runs(tmp_path)) == 2
    for door in ("front", "control"):
        (tmp_path / door).unlink()
    async with house(tmp_path, of(s=entry)) as home:
        # The next daemon knows the tools from the store, and starts nothing.
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert (tools(home), names(home), left(tmp_path), len(runs(tmp_path))) == (["pid"], [], [], 2)


async def test_a_server_that_a_reload_adds_is_listed_and_a_lazy_one_is_not(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    async with house(tmp_path, of()) as home:
        await home.reload(of(lazy=divided(tmp_path, start="lazy"), s=divided(tmp_path)))
        await over(home)
        assert (tools(home), tools(home, "lazy")) == (["pid"], None)
        pid = await text_of(await home.connect(nursery))
        assert [str(run["pid"]) == pid for run in runs(tmp_path)] == [False, True]


async def test_one_that_does_not_come_up_is_tried_once_and_again_for_a_client(tmp_path: Path) -> None:
    entry = {
        **divided(tmp_path),
        "command": "/bin/sh",
        "args": ["-c", f"echo '{SHORT}' >> {tmp_path}/record; echo \"No module named 'x'\" >&2; exit 3"],
    }
    async with house(tmp_path, of(s=entry)) as home:
        await over(home)
        assert (len(runs(tmp_path)), tools(home)) == (1, None)
        status: Any = home.tree.registry.catalog.value.servers["s"].status
        assert (status.state, status.reason) == ("dormant", "exited with status 3")
        assert "`mcpd restart s`" in status.why.remedy.helps
        await home.reload(of(s={**entry, "limits": {"instances": 2}}))
        home.tree.registry.tell(Switched(off=frozenset({("other", "")})))
        await home.tree.registry.settle()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert (len(runs(tmp_path)), names(home)) == (1, [])
        assert not await made(home, workspace=str(tmp_path)).wake()
        assert len(runs(tmp_path)) > 1


async def test_the_instance_that_lists_makes_room_for_a_client_s(tmp_path: Path) -> None:
    silent = scripted(on={"initialize": {"never": True}, "server/discover": {"never": True}})
    deaf = {**silent, "share": "workspace", "limits": {"instances": 1}}
    async with house(tmp_path, of(s=deaf)) as home:
        await until(lambda: bool(names(home)), lambda: "", seconds=PATIENCE)
        actor = made(home, workspace=str(tmp_path))
        assert actor.name in names(home)
        await until(lambda: not left(tmp_path), lambda: str(left(tmp_path)), seconds=PATIENCE)
        assert list(home.tree.servers.actors.values()) == [actor]
