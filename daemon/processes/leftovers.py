"""What a daemon has left that was killed: found by what it wrote down (`starts`), and ended.

Only what belongs to a dead daemon for certain: its file is locked by nobody, the machine was not started since,
and a process carries one of its marks, or is a child that it wrote down, by number and time; and what stands
below such a process. Another daemon is left alone with all below it, whoever has started it, and so is the line
of processes that whoever looks stands in. Everything here blocks: call it in a thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import time
from typing import TYPE_CHECKING

import attrs
from loguru import logger

from daemon.processes import marks, proc, starts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

TERM_SECONDS = 2.0
"""After SIGTERM, before SIGKILL: as a server is given that is stopped (`timeouts.stopTerm`)."""

KILL_SECONDS = 2.0
"""After SIGKILL; longer means uninterruptible sleep, which nobody can end."""

AT_ONCE = 256
"""Processes that are ended in one go, a descriptor each; further ones come in the next."""

ROUNDS = 10
"""Looks at what is left: a tree that forks while it is ended is gone after a few."""

DYING_SECONDS = 0.5
"""How long a file is looked at that is locked though its daemon is gone: it is just dying, or somebody else
looks."""

ENDED_SECONDS = TERM_SECONDS + KILL_SECONDS + DYING_SECONDS
"""Likewise, by one who wants to end what is left: somebody else may be ending it, and who goes on before that
is done starts servers beside leftovers that hold what they want."""

LOOK_SECONDS = 0.01
"""Seconds between two tries at such a file."""

FOREIGN_SECONDS = 7 * 24 * 3600.0
"""How long a file is kept whose numbers count elsewhere, as a container's: nobody here can see what is left."""

_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


@attrs.frozen(kw_only=True)
class Leftover:
    """What one server of a dead daemon has left."""

    daemon: int
    """The daemon's number when it lived."""
    server: str
    """The server's name; empty if the daemon had no time to write it down."""
    processes: tuple[proc.Process, ...]

    def __str__(self) -> str:
        numbers = ", ".join(str(process.pid) for process in self.processes)
        whose = f"server {self.server}" if self.server else "a server that was just being started"
        return f"{whose}: pid {numbers}"


@attrs.frozen(kw_only=True)
class DeadDaemon:
    """A daemon that has ended without a word."""

    path: Path
    identity: starts.Identity
    starts: Sequence[starts.Start]


def look(state: Path) -> list[Leftover]:
    """What is left of dead daemons, by server. Ends nothing.

    Raises:
        OSError: that cannot be seen.
    """
    with _dead(state, tidy=False) as dead:
        return _find(dead)


def end(state: Path) -> tuple[list[Leftover], list[Leftover]]:
    """End what is left of dead daemons, and forget them.

    Returns:
        What was ended, and what survives even SIGKILL.

    Raises:
        OSError: that cannot be seen.
    """
    with _dead(state, tidy=True) as dead:
        ended, left = _end_all(dead)
        survivors = {each.daemon for each in left}
        for each in dead:
            if each.identity.pid not in survivors:
                each.path.unlink(missing_ok=True)
    return ended, left


def end_and_log(state: Path) -> None:
    """As `end`, said in the log: what a new daemon does before it starts a server."""
    try:
        ended, left = end(state)
    except OSError as error:
        logger.warning("what a killed daemon may have left cannot be looked for: {}", error)
        return
    for each in ended:
        logger.warning("ended what the daemon with pid {}, which was killed, had left of {}", each.daemon, each)
    for each in left:
        logger.error(
            "left by the daemon with pid {}, which was killed, and survives SIGKILL: {}", each.daemon, each
        )


def any_alive() -> bool:
    """Whether anything is alive that this daemon has started, or that was started below it."""
    return any(
        limit[0] >> marks.COUNT_BITS == marks.series() and _is_alive(pid)
        for pid in proc.numbers()
        if (limit := proc.limit(pid)) is not None
    )


def _is_alive(pid: int) -> bool:
    process = proc.read(pid)
    return process is not None and not process.is_dead


def _end_all(dead: Sequence[DeadDaemon]) -> tuple[list[Leftover], list[Leftover]]:
    """SIGTERM to all, and SIGKILL to who is left, until nobody is."""
    first = left = _find(dead)
    for turn in range(ROUNDS):
        if not left:
            break
        doomed = [process for each in left for process in each.processes]
        if turn == 0:
            _signal(doomed, signal.SIGTERM, TERM_SECONDS)
        else:
            _signal(doomed, signal.SIGKILL, KILL_SECONDS / ROUNDS)
        left = _find(dead)
    return _without(first, left), left


def _without(found: Sequence[Leftover], left: Sequence[Leftover]) -> list[Leftover]:
    """What was found, but for processes that are left."""
    alive = {(process.pid, process.started) for each in left for process in each.processes}
    gone = [
        attrs.evolve(
            each, processes=tuple(one for one in each.processes if (one.pid, one.started) not in alive)
        )
        for each in found
    ]
    return [each for each in gone if each.processes]


def _signal(doomed: Sequence[proc.Process], number: signal.Signals, seconds: float) -> None:
    """Signal processes, and wait until they have ended, for so long at the most."""
    with contextlib.ExitStack() as stack:
        poll, waiting = select.poll(), set[int]()
        for process in doomed[:AT_ONCE]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                fd = os.pidfd_open(process.pid)
                stack.callback(os.close, fd)
                # Compared once we hold it: the number may have become another's.
                if _is_still(process):
                    signal.pidfd_send_signal(fd, number)
                    poll.register(fd, select.POLLIN)
                    waiting.add(fd)
        until = time.monotonic() + seconds
        while waiting and (rest := until - time.monotonic()) > 0:
            for fd, _ in poll.poll(rest * 1000):
                poll.unregister(fd)
                waiting.discard(fd)


def _is_still(process: proc.Process) -> bool:
    now = proc.read(process.pid)
    return now is not None and now.started == process.started


def _find(dead: Sequence[DeadDaemon]) -> list[Leftover]:
    """What is alive of dead daemons: one look at all processes, none if nobody has died."""
    if not dead:
        return []
    alive, both = proc.alive()
    limits = {pid: soft for pid, (soft, _) in both.items()}
    below: dict[int, list[int]] = {}
    for pid, process in alive.items():
        below.setdefault(process.parent, []).append(pid)
    roots = [(each.identity.pid, *root) for each in dead for root in _roots(each, alive, limits)]
    series = {each.identity.series for each in dead}
    others = {pid for pid in alive if _is_anothers(limits[pid], series)}
    spared = _own_line(alive) | others.difference(pid for _, pid, _ in roots)
    whose: dict[int, tuple[int, str]] = {}
    for daemon, root, server in roots:
        waiting = [root]
        while waiting:
            pid = waiting.pop()
            if pid not in whose and pid not in spared:
                whose[pid] = daemon, server
                waiting += below.get(pid, ())
    return _by_server(whose, alive)


def _roots(
    dead: DeadDaemon, alive: Mapping[int, proc.Process], limits: Mapping[int, int]
) -> Iterator[tuple[int, str]]:
    """Processes that are a dead daemon's by themselves, and their servers."""
    names = {start.mark: start.server for start in dead.starts}
    for pid, process in alive.items():
        is_marked = limits[pid] >> marks.COUNT_BITS == dead.identity.series
        if is_marked and process.started >= dead.identity.started:
            yield pid, names.get(limits[pid], "")
    for start in dead.starts:
        there = alive.get(start.pid)
        if there is not None and there.started == start.started:
            yield start.pid, start.server


def _is_anothers(limit: int, dead: Collection[int]) -> bool:
    """Whether a process is a daemon, which has a mark only while it starts a server, or stems from one."""
    marked = limit >> marks.MARK_BITS == 1
    return limit == marks.HIGHEST or (marked and limit >> marks.COUNT_BITS not in dead)


def _by_server(whose: Mapping[int, tuple[int, str]], alive: Mapping[int, proc.Process]) -> list[Leftover]:
    found: dict[tuple[int, str], list[proc.Process]] = {}
    for pid in sorted(whose):
        found.setdefault(whose[pid], []).append(alive[pid])
    return [
        Leftover(daemon=daemon, server=server, processes=tuple(processes))
        for (daemon, server), processes in found.items()
    ]


def _own_line(alive: Mapping[int, proc.Process]) -> set[int]:
    """Ourselves and whom we stem from: who ends his own terminal sees nothing any more."""
    line, pid = {os.getpid()}, os.getppid()
    while pid in alive and pid not in line:
        line.add(pid)
        pid = alive[pid].parent
    return line


@contextlib.contextmanager
def _dead(state: Path, *, tidy: bool) -> Iterator[list[DeadDaemon]]:
    """Daemons whose files nobody holds; as long as the block runs we do.

    Args:
        state: their state directory.
        tidy: wait for whoever else is ending what they have left, and remove the files of those of whom nothing
            can be left.
    """
    found, held = [], []
    until = time.monotonic() + (ENDED_SECONDS if tidy else DYING_SECONDS)
    try:
        for path in _files(state / starts.FOLDER):
            with contextlib.suppress(FileNotFoundError):
                held.append(os.open(path, _FLAGS))
                one = _judge(path, held[-1], until, tidy=tidy)
                if one is not None:
                    found.append(one)
                else:
                    os.close(held.pop())
        yield found
    finally:
        for fd in held:
            os.close(fd)


def _files(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in sorted(os.listdir(folder)) if name.endswith(starts.SUFFIX)]  # noqa: PTH208
    except FileNotFoundError:
        return []


def _judge(path: Path, fd: int, until: float, *, tidy: bool) -> DeadDaemon | None:
    """The dead daemon that a file is of; None if it lives, or nothing can be left of it."""
    # Another user's file could name anybody's processes, and we might be root.
    if os.fstat(fd).st_uid != os.geteuid() or not _take(fd, until):
        return None
    said = starts.read(fd)
    if said is not None and said[0].is_of_this_boot and said[0].is_of_this_namespace:
        return DeadDaemon(path=path, identity=said[0], starts=said[1])
    age = time.time() - os.fstat(fd).st_mtime
    if tidy and ((said is not None and not said[0].is_of_this_boot) or age > FOREIGN_SECONDS):
        path.unlink(missing_ok=True)
    return None


def _take(fd: int, until: float) -> bool:
    """Lock a file whose daemon is dead, as soon as nobody else holds it."""
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if _lives(fd) or time.monotonic() > until:
                return False
            time.sleep(LOOK_SECONDS)
        else:
            return True


def _lives(fd: int) -> bool:
    """Whether the daemon of a file that somebody holds is there, as far as can be told from here."""
    said = starts.read(fd)
    if said is None or not said[0].is_of_this_namespace:
        return True
    process = proc.read(said[0].pid)
    return process is not None and not process.is_dead and process.started == said[0].started
