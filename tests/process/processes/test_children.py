"""Real child processes: how they are started, and that nothing of them is left."""

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from loguru import logger

from daemon.causes import Cause
from daemon.errors import CannotStart, ConnectionLost
from daemon.processes import leftovers, marks, proc
from daemon.processes.children import ChildProcess, Children
from daemon.processes.leftovers import Identity, Start
from tests.faults.stage import Recorder, children_of_ours, is_alive, leaving_nothing, recording
from tests.scripted_server import command
from tests.unit.cases import cases
from tests.unit.processes.dying import DyingDaemon
from tests.unit.processes.scripts import told_by
from tests.waiting import PATIENCE, beside, in_time, until

LONG = 2 * PATIENCE
"""Seconds of a grace that no test waits for, however busy the machine: `stop` fails before."""
SHAPES: list[dict[str, Any]] = [
    {"kind": "plain"},
    {"kind": "setsid"},
    {"kind": "daemon"},
    {"kind": "plain", "ignore_term": True},
    {"kind": "daemon", "ignore_term": True},
    {"kind": "daemon", "keep_stdout": True},
]


@asynccontextmanager
async def keeping(path: Path) -> AsyncIterator[tuple[Children, Recorder]]:
    """A keeper of children that reaps orphans; afterwards nobody is left."""
    children, others = Children(), set(children_of_ours())
    async with recording(path) as recorder, leaving_nothing(recorder), beside(children.reap_orphans):
        yield children, recorder
        with trio.fail_after(PATIENCE):
            while set(children_of_ours()) - others:  # noqa: ASYNC110 - the kernel does not tell who was reaped
                await trio.sleep(0.005)


async def test_leftovers_that_do_not_end_hold_up_the_start_for_a_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, ended = threading.Event(), list[bool]()

    def end(*_of: object) -> None:
        ended.append(over.wait(PATIENCE))

    monkeypatch.setattr(leftovers, "end_and_log", end)
    monkeypatch.setattr("daemon.processes.children.INHERIT_SECONDS", 0.01)
    starts = SimpleNamespace(path=tmp_path / "a" / "b")
    try:
        await Children(starts).end_leftovers()  # type: ignore[arg-type]
        assert ended == []
    finally:
        over.set()


async def start(children: Children, recorder: Recorder, **script: Any) -> ChildProcess:
    """Start a scripted child and wait until it plays."""
    program, *args = command(record=recorder.path, **script)
    number = len(recorder.all("start")) + 1
    child = await in_time(children.start(program, args, {}, None))
    await recorder.wait("start", number)
    return child


def close_stdin(child: ChildProcess) -> None:
    os.close(child.stdin)
    os.close(child.stdout)
    os.close(child.stderr)


class FullDisk:
    """Takes no record of a start."""

    def note(self, *_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_a_start_that_fails_once_the_child_runs_leaves_no_child_and_no_descriptor(tmp_path: Path) -> None:
    failing: Any = FullDisk()
    async with keeping(tmp_path):
        held = 0
        for _ in range(4):
            with pytest.raises(CannotStart, match="No space left"):
                await Children(failing).start("sleep", [str(LONG)], {"PATH": os.environ["PATH"]}, None)
            held = held or len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        # Another thread may have one open at a time: four starts that each left one would have left more.
        await until(lambda: len(os.listdir("/proc/self/fd")) <= held)  # noqa: PTH208


async def stop(
    children: Children, child: ChildProcess, *, eof: float = 0.1, term: float = 0.1, close: bool = True
) -> float:
    """Stop a child; how long it took."""
    before = trio.current_time()
    if close:
        close_stdin(child)
    await in_time(children.stop(child, eof=eof, term=term))
    return trio.current_time() - before


# --- starting -----------------------------------------------------------------------------------------------


async def test_one_lasting_thread_forks_all_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox dies with the thread that forked it, and idle threads of trio end after 10 s."""
    forked, popen = list[threading.Thread](), subprocess.Popen

    def noted(*words: Any, **options: Any) -> Any:
        forked.append(threading.current_thread())
        return popen(*words, **options)

    monkeypatch.setattr(subprocess, "Popen", noted)
    async with keeping(tmp_path) as (children, recorder):
        for _ in range(3):
            await stop(children, await start(children, recorder))
            await trio.to_thread.run_sync(str)
        assert {each.name for each in forked} == {"fork_0"}
        assert len(set(forked)) == 1
        assert forked[0].is_alive()


async def test_a_child_gets_three_descriptors_its_own_group_and_no_death_signal(tmp_path: Path) -> None:
    """PR_SET_PDEATHSIG would kill it when an idle thread of ours ends."""
    other = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(other, True)  # not even what somebody left inheritable
    try:
        async with keeping(tmp_path) as (children, recorder):
            child = await start(children, recorder)
            found = recorder.all("start")[0]
            assert (found["fds"], found["pdeathsig"], found["blocked"]) == ([0, 1, 2], 0, [])
            assert found["pid"] == found["pgid"] == child.pid
            assert not any(map(os.get_blocking, (child.stdin, child.stdout, child.stderr)))
            await stop(children, child)
    finally:
        os.close(other)


@cases("content", "mode", "command", "cwd", "text", "cause", raw={"content"})
async def test_what_cannot_be_started_is_named_with_the_reason(
    content: bytes, mode: int, command: str, cwd: str, text: str, cause: str, tmp_path: Path
) -> None:
    file = tmp_path / "program"
    file.write_bytes(content)
    file.chmod(mode)
    places = {"file": file, "home": tmp_path, "python": sys.executable}
    command, cwd, text = (each.format(**places) for each in (command, cwd, text))
    async with keeping(tmp_path) as (children, _):
        with pytest.raises(CannotStart) as raised:
            await children.start(command, [], {}, cwd or None)
    assert text in str(raised.value)
    assert raised.value.reason.cause == cause
    wanted = {"directory": cwd} if cause == Cause.DIRECTORY_UNUSABLE else {"command": command}
    assert wanted.items() <= raised.value.reason.data.items()


async def test_a_cancelled_start_leaves_no_child(tmp_path: Path) -> None:
    """A child that came into being is returned, or has ended."""
    async with keeping(tmp_path) as (children, recorder):
        program, *args = command(record=recorder.path)
        others = set(children_of_ours())
        for steps in range(12):
            got: list[ChildProcess] = []
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:

                    async def begin(got: list[ChildProcess] = got) -> None:
                        got.append(await children.start(program, args, {}, None))

                    nursery.start_soon(begin)
                    for _ in range(steps):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()
            for child in got:
                await stop(children, child)
            assert set(children_of_ours()) <= others, steps


# --- stopping -----------------------------------------------------------------------------------------------


async def test_a_polite_child_ends_by_eof_and_is_not_signalled(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (children, recorder):
        child = await start(children, recorder, ignore=["term"])
        assert await stop(children, child, eof=LONG, term=LONG) < LONG
        await recorder.wait("eof")
        assert child.process.returncode == 0
        assert not recorder.all("term")
        # One that ended long ago can be stopped all the same.
        assert await stop(children, child, eof=LONG, term=LONG, close=False) < LONG


async def test_a_child_that_ignores_eof_and_sigterm_is_killed(tmp_path: Path) -> None:
    """And one that ignores EOF alone is asked by SIGTERM."""
    async with keeping(tmp_path) as (children, recorder):
        deaf = await start(children, recorder, ignore=["eof"])
        assert 0.1 <= await stop(children, deaf, eof=0.1, term=LONG) < LONG
        assert deaf.process.returncode == -signal.SIGTERM
        child = await start(children, recorder, ignore=["eof", "term"])
        assert await stop(children, child, eof=0.1, term=0.1) >= 0.2
        assert child.process.returncode == -signal.SIGKILL


async def test_a_stopped_child_is_killed_too(tmp_path: Path) -> None:
    """SIGSTOP keeps it from seeing EOF and SIGTERM alike."""
    async with keeping(tmp_path) as (children, recorder):
        child = await start(children, recorder, spawn=[{"kind": "plain"}, {"kind": "daemon"}])
        await recorder.wait("spawned", 2)
        os.killpg(child.pid, signal.SIGSTOP)
        await stop(children, child)
        assert child.process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("leader", ["exits", "is killed", "has crashed"])
async def test_the_whole_tree_ends_with_its_child(leader: str, tmp_path: Path) -> None:
    async with keeping(tmp_path) as (children, recorder):
        ignore = ["eof", "term"] if leader == "is killed" else []
        child = await start(children, recorder, spawn=[*SHAPES, *SHAPES], ignore=ignore)
        await recorder.wait("spawned", 2 * len(SHAPES))
        below = recorder.all("spawned")
        assert all(is_alive(each["pid"]) for each in below)
        if leader == "has crashed":
            os.kill(child.pid, signal.SIGKILL)
            await in_time(child.process.wait())
        await stop(children, child)
        assert [each for each in below if is_alive(each["pid"])] == []


async def test_a_descendant_that_leaves_in_the_first_moment_ends_too(tmp_path: Path) -> None:
    """A wrapper script forks, detaches and exits faster than we get to look at it."""
    wrapper = "(setsid /bin/sleep 1000 & echo $!) </dev/null 2>/dev/null; exec >&-"
    left: list[int] = []

    async def one(children: Children) -> None:
        child = await children.start("/bin/sh", ["-c", wrapper], {"PATH": "/bin:/usr/bin"}, None)
        await child.process.wait()
        pid = int(os.read(child.stdout, 20))
        await stop(children, child)
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)
            left.append(pid)

    async with keeping(tmp_path) as (children, _):
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                for _number in range(20):
                    nursery.start_soon(one, children)
    assert left == []


async def test_a_cancelled_stop_stops_all_the_same(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (children, recorder):
        child = await start(children, recorder, ignore=["eof", "term"], spawn=[{"kind": "daemon"}])
        await recorder.wait("spawned")
        with trio.CancelScope() as scope:
            scope.cancel()
            await stop(children, child)
        assert child.process.returncode == -signal.SIGKILL


async def test_hurry_skips_the_grace_of_stops_under_way_and_of_later_ones(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (children, recorder):
        first = await start(children, recorder, ignore=["eof", "term"])
        second = await start(children, recorder, ignore=["eof", "term"])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(stop, children, first, eof=LONG, term=LONG))
            await recorder.wait("eof")
            before = trio.current_time()
            children.hurry()
        assert trio.current_time() - before < LONG
        assert await stop(children, second, eof=LONG, term=LONG) < LONG


async def test_all_stops_together_keep_their_limit(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (children, recorder):
        stubborn = [await start(children, recorder, ignore=["eof", "term"]) for _ in range(8)]
        before = trio.current_time()
        children.limit_stops(0.4)
        async with trio.open_nursery() as nursery:
            for child in stubborn:
                nursery.start_soon(partial(stop, children, child, eof=LONG, term=LONG))
        assert 0.2 < trio.current_time() - before < LONG
        assert all(child.process.returncode == -signal.SIGKILL for child in stubborn)


async def test_a_limit_makes_no_grace_period_longer(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (children, recorder):
        child = await start(children, recorder, ignore=["eof", "term"])
        before = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(stop, children, child, eof=0.2, term=0.2))
            await recorder.wait("eof")
            children.limit_stops(LONG)
        assert trio.current_time() - before < LONG / 2


async def test_within_a_limit_sigterm_still_comes_before_sigkill(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (children, recorder):
        child = await start(children, recorder, ignore=["eof"])
        children.limit_stops(4.0)  # of which the last two seconds are for SIGTERM
        await stop(children, child, eof=LONG, term=LONG)
        assert child.process.returncode == -signal.SIGTERM


# --- neighbours and orphans ---------------------------------------------------------------------------------


async def test_a_sweep_does_not_touch_neighbours(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (children, recorder):
        one = await start(children, recorder, spawn=[{"kind": "daemon"}], ignore=["eof", "term"])
        other = await start(children, recorder, spawn=[{"kind": "daemon"}, {"kind": "setsid"}])
        await recorder.wait("spawned", 3)
        assert one.mark != other.mark
        await stop(children, one, eof=0.0, term=0.0)
        alive = [found["pid"] for found in recorder.all("spawned") if is_alive(found["pid"])]
        assert len(alive) == 2
        assert other.process.returncode is None
        await stop(children, other)


async def test_a_sweep_does_not_touch_the_children_of_another_daemon(tmp_path: Path) -> None:
    """Two daemons of one user, or one within the other's tree, must not share marks."""
    async with keeping(tmp_path) as (children, recorder):
        neighbour = Children()
        ours = await start(children, recorder)
        theirs = await start(neighbour, recorder)
        await stop(children, ours)
        survived = is_alive(theirs.pid)
        await stop(neighbour, theirs)
        assert survived
        assert ours.mark != theirs.mark


async def test_adopted_orphans_are_reaped(tmp_path: Path) -> None:
    """But never our own children, which may be zombies for a while before their owner asks."""
    async with keeping(tmp_path) as (children, recorder):
        ended = [await children.start("/bin/sh", ["-c", "exit 7"], {}, None) for _ in range(5)]
        parent = await start(children, recorder, spawn=[{"kind": "daemon"}])
        orphan = (await recorder.wait("spawned"))["pid"]
        os.kill(orphan, signal.SIGKILL)
        with trio.fail_after(PATIENCE):
            while orphan in children_of_ours() or any(is_alive(child.pid) for child in ended):  # noqa: ASYNC110
                await trio.sleep(0.005)
            assert [await child.process.wait() for child in ended] == [7] * 5
        for child in [*ended, parent]:
            await stop(children, child)


async def test_a_shortage_of_descriptors_is_worth_another_try(tmp_path: Path) -> None:
    import resource  # noqa: PLC0415

    async with keeping(tmp_path) as (children, _):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        held = [os.dup(0) for _ in range(4)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(held), hard))
        try:
            with pytest.raises(ConnectionLost, match="Too many open files") as raised:
                await children.start(sys.executable, [], {}, None)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for fd in held:
                os.close(fd)
    assert raised.value.reason.cause is Cause.OUT_OF_FILES


# --- what a daemon writes down of what it starts, and what is read of that -----------------------------------


@pytest.fixture
def log() -> Iterator[list[str]]:
    lines: list[str] = []
    sink = logger.add(lines.append, format="{level} {message}")
    yield lines
    logger.remove(sink)


def said(path: Path) -> tuple[Identity, list[Start]]:
    fd = os.open(path, os.O_RDONLY)
    try:
        found = leftovers.read(fd)
    finally:
        os.close(fd)
    assert found is not None
    return found


def test_a_daemon_writes_down_who_it_is_and_what_it_starts(tmp_path: Path) -> None:
    with DyingDaemon(tmp_path, {"a": ["polite", "marked"], "b": ["polite", "marked"]}) as daemon:
        [path] = (tmp_path / leftovers.FOLDER).iterdir()
        identity, found = said(path)
        own, first = proc.read(daemon.pid), proc.read(daemon.pids["a"][0])
        assert own is not None
        assert first is not None
        assert (identity.pid, identity.started) == (daemon.pid, own.started)
        assert identity.is_of_this_boot
        assert identity.is_of_this_namespace
        assert [start.server for start in found] == ["a", "b"]
        assert (found[0].pid, found[0].started) == (first.pid, first.started)
        limit = proc.limit(first.pid)
        assert limit is not None
        assert found[0].mark == limit[0]
        assert found[0].mark >> marks.COUNT_BITS == identity.series
        assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        assert path.name == f"{identity.series:x}{leftovers.SUFFIX}"


def test_a_full_file_is_written_anew_with_the_servers_that_live(tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
from daemon.processes import leftovers as starts
own.adopt_orphans()
child = sleeper()
begun = starts.Starts.begin(Path({str(tmp_path)!r}))
living = marks.new()
begun.note(living, child.pid, "lives")
for _ in range(100):
    mark = marks.new()
    marks.forget(mark)
    begun.note(mark, child.pid, "x" * 1000)
begun.end(keep=True)
fd = os.open(begun.path, os.O_RDONLY)
tell([os.fstat(fd).st_size < starts.FULL_BYTES, starts.read(fd)[1][0].server])
"""
    assert told_by(script) == [True, "lives"]


def test_lines_that_were_cut_off_are_left_out(tmp_path: Path) -> None:
    begun = leftovers.Starts.begin(tmp_path)
    begun.end(keep=True)
    whole = b'{"mark": 1, "pid": 2, "started": 3, "server": "a"}\n'
    with begun.path.open("ab") as file:
        file.write(b'rted": 3, "server": "z"}\n' + whole + b'{"mark": "1"}\n[]\n\xff\n{"mark": 4, "pi')
    assert said(begun.path)[1] == [leftovers.Start(mark=1, pid=2, started=3, server="a")]


def test_who_is_not_our_child_is_not_written_down(tmp_path: Path) -> None:
    """It would be another process of that number: ours has ended meanwhile."""
    begun = leftovers.Starts.begin(tmp_path)
    begun.note(1, os.getpid(), "a")
    begun.note(2, 1 << 22, "b")
    begun.end(keep=True)
    assert said(begun.path)[1] == []


def test_a_disk_that_takes_nothing_is_told_of_once_and_the_daemon_goes_on(
    tmp_path: Path, log: list[str]
) -> None:
    begun = leftovers.Starts.begin(tmp_path)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    whole, full = begun.path.read_bytes(), os.open("/dev/full", os.O_RDWR)
    os.dup2(full, begun._fd)
    os.close(full)
    for number in range(3):
        begun.note(number, child.pid, "a")
    child.communicate(b"", PATIENCE)
    begun.end(keep=True)
    assert begun.path.read_bytes() == whole
    assert len([line for line in log if "cannot record started servers" in line]) == 1


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / leftovers.FOLDER).write_text("")
    with pytest.raises(OSError, match="exists"):
        leftovers.Starts.begin(tmp_path)
