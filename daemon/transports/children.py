"""Child processes: started in a session of their own, watched, and taken down with all their descendants.

What a group kill misses is a descendant that left its group (`setsid`, a double fork): measured, it survives.
So every child gets a *mark* that its descendants inherit through fork, exec, setsid and a cleared environment
alike: a random number as its soft RLIMIT_LOCKS, a limit that the kernel keeps, hands down and has not looked at
since 2.4.25 (getrlimit(2)). After the group kill, a sweep over /proc kills whatever still carries the mark; of
60 random bits it is nobody else's, not another daemon's either. The daemon is a child subreaper, so orphans
come to it and it can reap them (prctl(2), PR_SET_CHILD_SUBREAPER).

PR_SET_PDEATHSIG is not used: it follows the *thread* that forked, trio's idle threads end after 10 s, and
healthy children were killed with them (measured).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import resource
import secrets
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import trio
from loguru import logger

from daemon.errors import CannotStart, ConnectionLost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

PR_SET_CHILD_SUBREAPER = 36
RLIMIT_LOCKS = 10
"""The resource that carries the mark (asm-generic/resource.h); Python's module has no name for it."""
MARK_BITS = 60
"""Size of a mark: it must fit a signed 64-bit limit and never meet another's."""
OOM_SCORE = "500"
"""Under memory pressure the kernel takes a child before the daemon (proc(5), oom_score_adj)."""
PIPE_BYTES = 1024 * 1024
"""Larger pipes halve the time of a large message; the limit of an ordinary user (pipe(7))."""
SWEEPS = 10
"""A tree that forks while it is killed is gone after a few sweeps; a fork bomb is not waited for for ever."""
SWEEP_PAUSE = 0.02
"""Seconds between sweeps: SIGKILL is carried out when its process is next scheduled, not when it is sent."""
DEAD_WITHIN = 0.5
"""Seconds that SIGKILL may take to be carried out; longer means uninterruptible sleep, which we cannot end."""


class Child:
    """One running child and our ends of its pipes (non-blocking descriptors; the taker closes them)."""

    def __init__(self, process: trio.Process, mark: int, pipes: tuple[int, int, int]) -> None:
        self.process = process
        self.mark = mark
        self.stdin, self.stdout, self.stderr = pipes

    @property
    def pid(self) -> int:
        """Its process id, which is also its group's and its session's."""
        return self.process.pid

    def signal_group(self, number: signal.Signals) -> None:
        """Signal every process of its group; nobody left is fine."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


class Children:
    """All children of the daemon: starts them, stops them, reaps what they leave behind."""

    def __init__(self) -> None:
        self._own: set[int] = set()
        self._forking = trio.Lock()
        self._none_starting = trio.Event()
        self._none_starting.set()
        self._stopping: set[trio.CancelScope] = set()
        self._hurried = False
        self._stop_by: float | None = None

    async def start(self, command: str, args: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Child:
        """Start a child with exactly descriptors 0, 1 and 2.

        Raises:
            CannotStart: no such command or directory, no permission, not a program.
            ConnectionLost: the system is short of something; worth another try.
        """
        inside, ours = _pipes()
        mark = 1 << MARK_BITS | secrets.randbits(MARK_BITS)
        try:
            async with self._inheriting(mark):
                process = await trio.lowlevel.open_process(
                    [command, *args],
                    stdin=inside[0],
                    stdout=inside[1],
                    stderr=inside[2],
                    env=dict(env),
                    cwd=cwd,
                    start_new_session=True,
                )
                self._own.add(process.pid)
        except OSError as error:
            _close(ours)
            raise _explain(error, command, cwd) from None
        except BaseException:
            _close(ours)
            raise
        finally:
            _close(inside)
        _offer_to_the_kernel(process.pid)
        return Child(process, mark, ours)

    async def stop(self, child: Child, *, eof: float, term: float) -> None:
        """End a child and everything it started. Its stdin must be closed already.

        EOF is the one clean way to stop an MCP server, so it comes first, then SIGTERM to the group, then
        SIGKILL to the whole tree. Bounded by `eof` + `term` + `DEAD_WITHIN` seconds, whatever cancels.
        """
        with trio.CancelScope(shield=True):
            if not await self._ended_within(child, self._grace(eof, 0.5)):
                child.signal_group(signal.SIGTERM)
                await self._ended_within(child, self._grace(term, 1.0))
            child.signal_group(signal.SIGKILL)
            await self._sweep(child.mark)
            with trio.move_on_after(DEAD_WITHIN) as scope:
                await child.process.wait()
            if scope.cancelled_caught:
                logger.error("pid {} does not die of SIGKILL: it hangs in the kernel", child.pid)
            self._own.discard(child.pid)

    def limit_stops(self, seconds: float) -> None:
        """From now on, all stops together may take so long: the daemon is going down."""
        now = trio.current_time()
        self._stop_by = now + seconds
        for scope in self._stopping:
            scope.deadline = min(scope.deadline, now + seconds / 2)

    def hurry(self) -> None:
        """Skip every grace period, present and future."""
        self._hurried = True
        for scope in self._stopping:
            scope.cancel()

    async def reap_adopted(self) -> None:
        """Collect orphans that the kernel handed to us, whenever one dies. Never touches our own children."""
        _become_subreaper()
        with trio.open_signal_receiver(signal.SIGCHLD) as signals:
            async for _ in signals:
                try:
                    zombies = await trio.to_thread.run_sync(_zombie_children)
                except RuntimeError as error:
                    logger.warning("orphans are not collected until the next one dies: {}", error)
                    continue
                # A child that is just being spawned is not known as ours yet: waiting for it is trio's.
                await self._none_starting.wait()
                for pid in zombies - self._own:
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - WNOHANG

    async def _sweep(self, mark: int) -> None:
        """Kill whoever carries a mark until nobody does."""
        found: list[int] = []
        for _ in range(SWEEPS):
            found = await trio.to_thread.run_sync(_kill_marked, mark)
            if not found:
                return
            await trio.sleep(SWEEP_PAUSE)
        logger.error("processes of a stopped server survive SIGKILL: {}", found)

    @contextlib.asynccontextmanager
    async def _inheriting(self, mark: int) -> AsyncIterator[None]:
        """Carry a mark ourselves while a child is forked, one start at a time, a few milliseconds each.

        Set on the child afterwards it would come too late for a descendant that detaches in its first moment.
        """
        async with self._forking:
            self._none_starting = trio.Event()
            before = resource.prlimit(0, RLIMIT_LOCKS)[0]
            _carry(mark)
            try:
                yield
            finally:
                _carry(before)
                self._none_starting.set()

    def _grace(self, seconds: float, share: float) -> float:
        """A grace period, cut so that all of them end by `_stop_by`; `share` is of what is left."""
        if self._hurried:
            return 0.0
        if self._stop_by is None:
            return seconds
        return max(0.0, min(seconds, (self._stop_by - trio.current_time()) * share))

    async def _ended_within(self, child: Child, seconds: float) -> bool:
        with trio.move_on_after(seconds) as scope:
            self._stopping.add(scope)
            try:
                await child.process.wait()
            finally:
                self._stopping.discard(scope)
        return child.process.returncode is not None


def memory_by_mark() -> dict[int, int]:
    """Resident bytes of each marked tree. Reads all of /proc: call it in a thread."""
    usage: dict[int, int] = {}
    page = os.sysconf("SC_PAGE_SIZE")
    for pid, mark in _marked():
        with contextlib.suppress(OSError, ValueError, IndexError):
            resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            usage[mark] = usage.get(mark, 0) + resident * page
    return usage


def _marked() -> Iterator[tuple[int, int]]:
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError, ValueError):
            limit = resource.prlimit(int(entry.name), RLIMIT_LOCKS)[0]
            if limit >> MARK_BITS == 1:
                yield int(entry.name), limit


def _kill_marked(mark: int) -> list[int]:
    """Kill what carries a mark; return whom, an empty list once nobody is left alive."""
    found = [pid for pid, found_mark in _marked() if found_mark == mark and not _is_zombie(pid)]
    for pid in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return found


def _is_zombie(pid: int) -> bool:
    return _state(pid) in {"Z", "X", ""}


def _state(pid: int) -> str:
    """The state letter of a process (proc(5)); the name before it may itself hold parentheses."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[0]


def _zombie_children() -> set[int]:
    """Children of any thread of ours that have ended and wait to be reaped."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            pids = map(int, (task / "children").read_text().split())
            found.update(pid for pid in pids if _state(pid) == "Z")
    return found


def _become_subreaper() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        logger.warning("not a child subreaper: {}", os.strerror(ctypes.get_errno()))


def _carry(mark: int) -> None:
    """Set our own soft RLIMIT_LOCKS, which children inherit. Best effort: a sandbox may forbid it.

    Through prlimit(2), which systemd's @system-service allows; setrlimit(2) is in its @resources.
    """
    try:
        hard = resource.prlimit(0, RLIMIT_LOCKS)[1]
        resource.prlimit(0, RLIMIT_LOCKS, (mark, hard))
    except (OSError, ValueError) as error:
        logger.warning("children carry no mark, only their groups can be killed: {}", error)


def _offer_to_the_kernel(pid: int) -> None:
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text(OOM_SCORE)


def _pipes() -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Three pipes: the child's ends and ours, ours non-blocking."""
    fds: list[int] = []
    try:
        for _ in range(3):
            fds += os.pipe2(os.O_CLOEXEC)
    except OSError as error:
        _close(fds)
        raise ConnectionLost(f"no pipe for a new process: {error.strerror}") from None
    stdin_r, stdin_w, stdout_r, stdout_w, stderr_r, stderr_w = fds
    for fd in (stdin_w, stdout_r, stderr_r):
        os.set_blocking(fd, False)
    for fd in (stdin_w, stdout_r):
        with contextlib.suppress(OSError):
            _set_pipe_size(fd)
    return (stdin_r, stdout_w, stderr_w), (stdin_w, stdout_r, stderr_r)


def _set_pipe_size(fd: int) -> None:
    fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


def _explain(error: OSError, command: str, cwd: str | None) -> CannotStart | ConnectionLost:
    """Say what is missing; what the machine is merely short of is worth another try."""
    if error.errno in _SHORTAGES:
        return ConnectionLost(f"cannot start {command}: {error.strerror}")
    if cwd is not None and error.filename == cwd:
        return CannotStart(f"cannot start {command}: its directory {cwd}: {error.strerror}")
    if error.errno == errno.ENOENT:
        return CannotStart(f"command not found: {command}. Install it, or write its full path in the config")
    return CannotStart(f"cannot start {command}: {error.strerror}")


_SHORTAGES = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
