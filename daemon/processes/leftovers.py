"""Records started processes (`Starts`), and ends those that a killed daemon left. Blocks.

A daemon is dead if its file is unlocked and the machine was not rebooted since. Its processes have one of its
marks, are recorded children (pid and start time), or descend from one of these. Other daemons and this
process's own ancestors are spared.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import select
import signal
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import msgspec
from loguru import logger

from daemon.host.private_files import try_to_take
from daemon.processes import marks, proc
from daemon.processes.cgroups import Delegation
from daemon.protocol import decoded

FOLDER = "starts"
"""The directory of these files, in the state directory."""

SUFFIX = ".jsonl"

FULL_BYTES = 64 * 1024
"""Bytes from which a file is rewritten with living servers only: about 500 starts."""

READ_BYTES = 1024 * 1024
"""Most bytes read of a file: 50 servers take 5 kB."""

WAITING = 1000
"""Most starts that wait for a slow disk; further ones are known by their marks only."""

FLUSH_SECONDS = 1.0
"""Seconds that a stopping daemon waits for the disk."""

_START_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


class Identity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Identifies a daemon by its pid and start time."""

    pid: int
    started: int
    """Ticks since boot."""
    series: int
    """The prefix of its marks."""
    boot: str
    """The boot id of the machine."""
    namespace: int
    """The inode of its pid namespace (pid_namespaces(7))."""

    @property
    def is_of_this_boot(self) -> bool:
        """Whether the machine was not rebooted since; after a reboot no process can be left."""
        return self.boot == boot()

    @property
    def is_of_this_namespace(self) -> bool:
        """Whether the daemon's pids are valid in this process's pid namespace."""
        return self.namespace == namespace()


class Start(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One child that a daemon has started."""

    mark: int
    pid: int
    started: int
    """Ticks since boot; together with the pid, they identify one process."""
    server: str


class Starts:
    """The record of this daemon's starts."""

    def __init__(self, path: Path, fd: int, identity: Identity) -> None:
        self.path = path
        self.failure: OSError | None = None
        """Why the newest starts could not be written; None if they were."""
        self._fd = fd
        self._head = _line(identity)
        self._lines: dict[int, bytes] = {}
        self._size = os.pwrite(fd, self._head, 0)
        self._notes: queue.Queue[tuple[int, int, str] | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._write, name="mcpd-starts", daemon=True)
        self._thread.start()

    @classmethod
    def begin(cls, state: Path) -> Self:
        """Create this daemon's file in the state directory, before any start; raises `OSError`."""
        own = proc.read(os.getpid())
        folder = state / FOLDER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        identity = Identity(
            pid=os.getpid(),
            started=own.started if own else 0,
            series=marks.series(),
            boot=boot(),
            namespace=namespace(),
        )
        path = folder / f"{identity.series:x}{SUFFIX}"
        # Under another name until it is locked: an unlocked file looks like a dead daemon's.
        new = path.with_suffix(".new")
        fd = os.open(new, _START_FLAGS | os.O_CREAT, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            begun = cls(path, fd, identity)
            new.rename(path)
        except BaseException:
            os.close(fd)
            raise
        return begun

    def note(self, mark: int, pid: int, server: str) -> None:
        """Record a start; never blocks."""
        with contextlib.suppress(queue.Full):
            self._notes.put_nowait((mark, pid, server))

    def end(self, *, keep: bool) -> None:
        """Write the queued starts, then remove the file unless `keep`: a descendant may still run."""
        with contextlib.suppress(queue.Full):
            self._notes.put(None, timeout=FLUSH_SECONDS)
        self._thread.join(FLUSH_SECONDS)
        if not keep:
            with contextlib.suppress(OSError):
                self.path.unlink()
        if not self._thread.is_alive():
            os.close(self._fd)

    def _write(self) -> None:
        while (note := self._notes.get()) is not None:
            try:
                self._add(*note)
            except OSError as error:
                if self.failure is None:
                    logger.warning("cannot record started servers in {}: {}", self.path, error)
                self.failure = error
            else:
                self.failure = None

    def _add(self, mark: int, pid: int, server: str) -> None:
        process = proc.read(pid)
        if process is None or process.parent != os.getpid():
            return
        line = _line(Start(mark=mark, pid=pid, started=process.started, server=server))
        self._lines[mark] = line
        if self._size > FULL_BYTES:
            self._rewrite()
        else:
            self._size += os.pwrite(self._fd, line, self._size)

    def _rewrite(self) -> None:
        """Rewrite the file with the living servers only. An interruption leaves old lines, and loses none."""
        living = marks.living()
        self._lines = {mark: line for mark, line in self._lines.items() if mark in living}
        whole = b"".join([self._head, *self._lines.values()])
        self._size = os.pwrite(self._fd, whole, 0)
        os.ftruncate(self._fd, self._size)


def read(fd: int) -> tuple[Identity, list[Start]] | None:
    """Read a file; None if its first line is invalid. Truncated lines are skipped."""
    head, *lines = os.pread(fd, READ_BYTES, 0).split(b"\n")
    identity = decoded(_decode_identity, head)
    starts = (decoded(_decode_start, line) for line in lines)
    return None if identity is None else (identity, [start for start in starts if start is not None])


_decode_identity = msgspec.json.Decoder(Identity).decode
_decode_start = msgspec.json.Decoder(Start).decode


def boot() -> str:
    """The boot id of the machine (proc(5), /proc/sys/kernel/random/boot_id)."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def namespace() -> int:
    """The inode of our pid namespace."""
    return Path("/proc/self/ns/pid").stat().st_ino


def _line(written: Identity | Start) -> bytes:
    return msgspec.json.encode(written) + b"\n"


TERM_SECONDS = 2.0
"""Seconds from SIGTERM to SIGKILL: as for a stopped server (`timeouts.stopTerm`)."""

KILL_SECONDS = 2.0
"""Seconds to wait after SIGKILL; longer means uninterruptible sleep, which nothing can end."""

AT_ONCE = 256
"""Most processes ended in one round, each with a descriptor; the others follow in the next round."""

ROUNDS = 10
"""Most rounds of signals: a tree that forks while it is ended is gone after a few."""

DYING_SECONDS = 0.5
"""Seconds to wait for a dead daemon's locked file: the daemon is still dying, or another command reads the
file."""

ENDED_SECONDS = TERM_SECONDS + KILL_SECONDS + DYING_SECONDS
"""Seconds to wait for the lock before ending leftovers: another daemon may be ending them."""

LOOK_SECONDS = 0.01
"""Seconds between two attempts to lock such a file."""

FOREIGN_SECONDS = 7 * 24 * 3600.0
"""Seconds that a file from another pid namespace is kept: its processes are invisible here."""

_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """The processes that one server of a dead daemon left."""

    daemon: int
    """The dead daemon's pid."""
    server: str
    """The server's name; empty if the daemon had no time to record it."""
    processes: tuple[proc.Process, ...]

    def __str__(self) -> str:
        numbers = ", ".join(str(process.pid) for process in self.processes)
        owner = f"server {self.server}" if self.server else "a server that was just being started"
        return f"{owner}: pid {numbers}"


class DeadDaemon(msgspec.Struct, frozen=True, kw_only=True):
    """A killed daemon, with its record of starts."""

    path: Path
    identity: Identity
    starts: Sequence[Start]


def look(state: Path) -> list[Leftover]:
    """Running leftovers of dead daemons, by server. Raises `OSError`: /proc or a file cannot be read."""
    with _dead(state, tidy=False) as dead:
        return _find(dead)


def end(state: Path, groups: Delegation | None = None) -> tuple[list[Leftover], list[Leftover]]:
    """End the leftovers of dead daemons, and remove their files; return those that ended and that survived."""
    with _dead(state, tidy=True) as dead:
        ended, left = _end_all(dead)
        survivors = {each.daemon for each in left}
        for each in dead:
            if groups is not None:
                groups.end_dead(each.identity.series, marks.COUNT_BITS)
            if each.identity.pid not in survivors:
                each.path.unlink(missing_ok=True)
    return ended, left


def end_and_log(state: Path, groups: Delegation | None = None) -> None:
    """Do the work of `end` before a new daemon starts a server, and log the result."""
    try:
        ended, left = end(state, groups)
    except OSError as error:
        logger.warning("cannot look for processes left by a killed daemon: {}", error)
        return
    for each in ended:
        logger.warning("ended processes left by a killed daemon (pid {}): {}", each.daemon, each)
    for each in left:
        logger.error("processes left by a killed daemon (pid {}) survive SIGKILL: {}", each.daemon, each)


def any_alive() -> bool:
    """Whether any descendant of this daemon's servers is alive."""
    return any(
        limit[0] >> marks.COUNT_BITS == marks.series() and _is_alive(pid)
        for pid in proc.numbers()
        if (limit := proc.limit(pid)) is not None
    )


def _is_alive(pid: int) -> bool:
    process = proc.read(pid)
    return process is not None and not process.is_dead


def _end_all(dead: Sequence[DeadDaemon]) -> tuple[list[Leftover], list[Leftover]]:
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
    alive = {(process.pid, process.started) for each in left for process in each.processes}
    gone = [
        msgspec.structs.replace(
            each, processes=tuple(one for one in each.processes if (one.pid, one.started) not in alive)
        )
        for each in found
    ]
    return [each for each in gone if each.processes]


def _signal(doomed: Sequence[proc.Process], number: signal.Signals, seconds: float) -> None:
    with contextlib.ExitStack() as stack:
        poll, waiting = select.poll(), set[int]()
        for process in doomed[:AT_ONCE]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                fd = os.pidfd_open(process.pid)
                stack.callback(os.close, fd)
                # Compared once we hold the descriptor: the pid may have been reused.
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
    owners: dict[int, tuple[int, str]] = {}
    for daemon, root, server in roots:
        waiting = [root]
        while waiting:
            pid = waiting.pop()
            if pid not in owners and pid not in spared:
                owners[pid] = daemon, server
                waiting += below.get(pid, ())
    return _by_server(owners, alive)


def _roots(
    dead: DeadDaemon, alive: Mapping[int, proc.Process], limits: Mapping[int, int]
) -> Iterator[tuple[int, str]]:
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
    """Whether a process is, or descends from, another daemon (which itself has a mark only during a start)."""
    marked = limit >> marks.MARK_BITS == 1
    return limit == marks.HIGHEST or (marked and limit >> marks.COUNT_BITS not in dead)


def _by_server(owners: Mapping[int, tuple[int, str]], alive: Mapping[int, proc.Process]) -> list[Leftover]:
    found: dict[tuple[int, str], list[proc.Process]] = {}
    for pid in sorted(owners):
        found.setdefault(owners[pid], []).append(alive[pid])
    return [
        Leftover(daemon=daemon, server=server, processes=tuple(processes))
        for (daemon, server), processes in found.items()
    ]


def _own_line(alive: Mapping[int, proc.Process]) -> set[int]:
    """This process's pid and its ancestors': ending the user's terminal would hide the result."""
    line, pid = {os.getpid()}, os.getppid()
    while pid in alive and pid not in line:
        line.add(pid)
        pid = alive[pid].parent
    return line


@contextlib.contextmanager
def _dead(state: Path, *, tidy: bool) -> Iterator[list[DeadDaemon]]:
    """Dead daemons, whose files stay locked during the block; `tidy` removes useless files."""
    found, held = [], []
    until = time.monotonic() + (ENDED_SECONDS if tidy else DYING_SECONDS)
    try:
        for path in _files(state / FOLDER):
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
        return [folder / name for name in sorted(os.listdir(folder)) if name.endswith(SUFFIX)]  # noqa: PTH208
    except FileNotFoundError:
        return []


def _judge(path: Path, fd: int, until: float, *, tidy: bool) -> DeadDaemon | None:
    """The dead daemon that wrote a file; None if the daemon is alive, or cannot have left processes."""
    # Another user's file could name any process, and we might be root.
    if os.fstat(fd).st_uid != os.geteuid() or not _take(fd, until):
        return None
    record = read(fd)
    if record is not None and record[0].is_of_this_boot and record[0].is_of_this_namespace:
        return DeadDaemon(path=path, identity=record[0], starts=record[1])
    age = time.time() - os.fstat(fd).st_mtime
    if tidy and ((record is not None and not record[0].is_of_this_boot) or age > FOREIGN_SECONDS):
        path.unlink(missing_ok=True)
    return None


def _take(fd: int, until: float) -> bool:
    """Lock a dead daemon's file once it is free; False if the daemon lives or time is up."""
    while not try_to_take(fd):
        if _lives(fd) or time.monotonic() > until:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def _lives(fd: int) -> bool:
    """Whether the daemon that locked a file is alive, as far as this pid namespace shows."""
    record = read(fd)
    if record is None or not record[0].is_of_this_namespace:
        return True
    process = proc.read(record[0].pid)
    return process is not None and not process.is_dead and process.started == record[0].started
