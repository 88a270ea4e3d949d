"""Child processes: each started in a new session, watched, and ended with all its descendants.

Descendants can leave a group (`setsid`, a double fork), so mcpd kills every process that belongs to the server
by its place in the process tree or by its mark (`marks`). The daemon is a child subreaper and adopts orphans.
Only sandboxes use PR_SET_PDEATHSIG: it is bound to the *thread* that forked, so one thread forks all children.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import trio
from loguru import logger

from daemon.causes import Cause
from daemon.errors import CannotStart, ConnectionLost
from daemon.host import paths
from daemon.kit.later import later
from daemon.processes import cgroups, leftovers, marks, own, proc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping, Sequence

    import tenacity

    from daemon.config.tuning import ServerLimits
    from daemon.processes.cgroups import Delegation, Leaf
    from daemon.processes.leftovers import Starts
else:
    tenacity = later("tenacity", due=True)  # 10 ms, needed once a server has ended

PIPE_BYTES = 1024 * 1024
"""Size of a pipe in bytes: large messages take half the time; ordinary users may have this much (pipe(7))."""
SWEEPS = 10
"""Most sweeps: a tree that forks while it is killed is gone after a few; a fork bomb outlives them."""
SWEEP_PAUSE = 0.02
"""Seconds between sweeps: SIGKILL takes effect when a process is next scheduled."""
LOOK_SECONDS = 2.0
"""Seconds between checks for orphans if no child ends: the kernel reports no end of other descendants."""
INHERIT_SECONDS = leftovers.TERM_SECONDS + leftovers.KILL_SECONDS + 1.0
"""Most seconds that a new daemon waits, before it serves, until a killed daemon's leftovers have ended."""
DEAD_WITHIN = 0.5
"""Seconds that SIGKILL may take; longer means uninterruptible sleep, which nothing can end."""
LAST_SECONDS = 1.0
"""Seconds for a command's pipes to close after its processes ended: another program may hold one; also
seconds for mcpd's own command to end by itself."""
MOST_PRINTED = 64 * 1024
"""Most bytes kept of each output of a command, the last ones; a further byte shows that there were more."""


THIS_CODE = {"PYTHONPATH": str(Path(__file__).parents[2])}
"""The environment of a process that runs this very code, wherever it was found."""


class Helper(NamedTuple):
    """A process that does mcpd's own work, with mcpd's end of the socket that is its stdin, and its mark."""

    process: subprocess.Popen[bytes]
    connection: socket.socket
    mark: int

    def wait(self) -> None:
        """Close the connection, and wait for the end of the process. Blocks."""
        self.connection.close()
        self.process.wait()
        marks.forget(self.mark)


def start_helper(program: Sequence[str]) -> Helper:
    """Start a process that does mcpd's own work. Blocks; raises OSError: the system lacks a resource."""
    connection, inside = socket.socketpair()
    marks.started(mark := marks.new(), marks.ELSEWHERE)
    try:
        with inside:
            process = subprocess.Popen(
                program, stdin=inside.fileno(), stdout=subprocess.DEVNULL, env=THIS_CODE, start_new_session=True
            )
    except BaseException:
        connection.close()
        marks.forget(mark)
        raise
    marks.started(mark, process.pid)
    return Helper(process, connection, mark)


class ChildExit:
    """A started process whose exit any task may await."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self.pid, self._popen = popen.pid, popen
        self._descriptor: int | None = os.pidfd_open(popen.pid)
        self._waiting = trio.Lock()

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._popen.poll()

    async def wait(self) -> int:
        """Return the exit status once it has exited."""
        async with self._waiting:
            if self._descriptor is not None:
                await trio.lowlevel.wait_readable(self._descriptor)
                os.close(self._descriptor)
                self._descriptor = None
            return self._popen.wait()

    def drop(self) -> None:
        """Kill a process whose start failed after all; the reaper of orphans then waits for it."""
        self._popen.kill()
        self._popen.returncode = -signal.SIGKILL
        if self._descriptor is not None:
            os.close(self._descriptor)


class ChildProcess:
    """One running child, with mcpd's ends of its pipes: non-blocking descriptors that the caller closes."""

    def __init__(
        self, process: ChildExit, mark: int, pipes: tuple[int, int, int], leaf: Leaf | None, *, confined: bool
    ) -> None:
        self.process, self.confined, self.leaf = process, confined, leaf
        self.mark = mark
        self.stdin, self.stdout, self.stderr = pipes

    @property
    def pid(self) -> int:
        """The process id of the child, and also of its group and session."""
        return self.process.pid

    def signal_group(self, number: signal.Signals) -> None:
        """Signal every process of its group, which may be empty."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


class Children:
    """Starts and stops all children of the daemon, and reaps their orphans."""

    def __init__(self, starts: Starts | None = None, groups: Delegation | None = None) -> None:
        """`starts` records starts for the next daemon; `groups` provides a control group for each child."""
        self.fellows: set[int | None] = set()
        """Pids of mcpd's own command lines, which may control the daemon."""
        self._starts = starts
        self._groups = groups
        self._warned: set[str] = set()
        self._forking = trio.Lock()
        self._forks = ThreadPoolExecutor(1, "fork")
        self._none_starting = trio.Event()
        self._none_starting.set()
        self._stopping: set[trio.CancelScope] = set()
        self._hurried = False
        self._stop_by: float | None = None

    async def start(
        self,
        command: str,
        args: Sequence[str],
        env: Mapping[str, str],
        cwd: str | None,
        *,
        server: str = "",
        passed: Collection[int] = (),
        limits: ServerLimits | None = None,
    ) -> ChildProcess:
        """Start a child of a server, with descriptors 0, 1 and 2, and those in `passed` for a sandbox.

        Raises `CannotStart`: no such command or directory, no permission, not a program; `ConnectionLost`: the
        system lacks a resource, so another try is worthwhile.
        """
        inside, ours = _pipes()
        mark, leaf, process = marks.new(), None, None
        options = dict(zip(("stdin", "stdout", "stderr"), inside, strict=True), cwd=cwd, pass_fds=passed)
        try:
            leaf = await self._leaf(mark, server, limits)
            async with self._starting(mark):
                process = await self._fork([command, *args], leaf, **options, env=dict(env))
                marks.started(mark, process.pid)
                own.give_files(process.pid)
            if self._starts is not None:
                self._starts.note(mark, process.pid, server)
        except BaseException as error:
            _close(ours)
            marks.forget(mark)
            if process is not None:
                process.drop()
            if leaf is not None:
                leaf.end()
            if isinstance(error, OSError):
                raise _explain(error, command, cwd) from None
            raise
        finally:
            _close(inside)
        return ChildProcess(process, mark, ours, leaf, confined=bool(passed))

    async def _fork(self, command: Sequence[str], leaf: Leaf | None, **options: Any) -> ChildExit:
        """Start a process in the thread that forks all children, and in its leaf; cannot be cancelled."""
        forked, token = trio.Event(), trio.lowlevel.current_trio_token()
        start: Any = partial(_forked, command, leaf, **options)
        future = self._forks.submit(start)
        future.add_done_callback(lambda _: token.run_sync_soon(forked.set))
        with trio.CancelScope(shield=True):
            await forked.wait()
        return ChildExit(future.result())

    async def stop(self, child: ChildProcess, *, eof: float, term: float) -> None:
        """End a child and all its descendants; its stdin must be closed already.

        EOF, the only clean way to stop an MCP server, gets `eof` seconds, SIGTERM to the group `term` seconds,
        then SIGKILL ends the tree within `DEAD_WITHIN`. Cannot be cancelled.
        """
        with trio.CancelScope(shield=True):
            if not await self._ended_within(child, self._grace(eof, 0.5)):
                if child.confined:
                    with contextlib.suppress(
                        OSError, RuntimeError
                    ):  # out of descriptors or threads: SIGKILL follows
                        await trio.to_thread.run_sync(_ask_inside, child.mark)
                else:
                    child.signal_group(signal.SIGTERM)
                await self._ended_within(child, self._grace(term, 1.0))
            child.signal_group(signal.SIGKILL)
            if child.leaf is not None:
                await trio.to_thread.run_sync(child.leaf.end)
            await self._sweep(child.mark)
            with trio.move_on_after(DEAD_WITHIN) as scope:
                await child.process.wait()
            if scope.cancelled_caught:
                logger.error("pid {} survives SIGKILL: the process hangs in the kernel", child.pid)
            marks.forget(child.mark)

    async def run(
        self, words: Sequence[str], environ: Mapping[str, str], seconds: float, given: bytes | None = None
    ) -> tuple[int | None, bytearray, bytearray]:
        """Run a command in the home directory for at most `seconds`, then end its tree; raises as `start`.

        A command with stdin (`given`) may control the daemon, as mcpd's own do. Returns status, stdout, stderr.
        """
        child = await self.start(words[0], words[1:], environ, str(paths.home(environ)))
        printed, errors = bytearray(), bytearray()
        async with trio.open_nursery() as nursery:
            if given is not None:
                self.fellows.add(child.pid)
            nursery.start_soon(_write, child.stdin, given or b"")
            nursery.start_soon(_read, child.stdout, printed)
            nursery.start_soon(_read, child.stderr, errors)
            try:
                with trio.move_on_after(seconds) as limit:
                    await child.process.wait()
            finally:
                self.fellows.discard(child.pid)
                # A process that it has left would keep its pipes open.
                # mcpd's own takes back what it was trying.
                await self.stop(child, eof=0.0, term=0.0 if given is None else LAST_SECONDS)
                nursery.cancel_scope.deadline = trio.current_time() + LAST_SECONDS
        return None if limit.cancelled_caught else child.process.returncode, printed, errors

    async def end_leftovers(self) -> None:
        """End the leftovers of killed daemons before any start: a server may need their port or file."""
        if self._starts is None:
            return
        state = self._starts.path.parent.parent
        with trio.move_on_after(INHERIT_SECONDS) as scope:
            await trio.to_thread.run_sync(leftovers.end_and_log, state, self._groups, abandon_on_cancel=True)
        if scope.cancelled_caught:
            logger.warning("still ending processes left by a killed daemon: servers start meanwhile")

    def limit_stops(self, seconds: float) -> None:
        """Limit the time of all stops together, because the daemon is shutting down."""
        now = trio.current_time()
        self._stop_by = now + seconds
        for scope in self._stopping:
            scope.deadline = min(scope.deadline, now + seconds / 2)

    def hurry(self) -> None:
        """Skip every grace period, present and future."""
        self._hurried = True
        for scope in self._stopping:
            scope.cancel()

    async def reap_orphans(self) -> None:
        """Until cancelled, reap adopted orphans, and kill those that belong to no living server."""
        own.adopt_orphans()
        with trio.open_signal_receiver(signal.SIGCHLD) as signals:
            try:
                while True:
                    await self._look()
                    with trio.move_on_after(LOOK_SECONDS):
                        await anext(signals)
            finally:
                with trio.CancelScope(shield=True):
                    await self._look()

    async def _leaf(self, mark: int, server: str, limits: ServerLimits | None) -> Leaf | None:
        """The leaf for a child about to start; warns once about a server whose limits nothing enforces."""
        if server not in self._warned and (void := cgroups.void(limits, self._groups)):
            self._warned.add(server)
            logger.bind(server=server).warning("{} not enforced: {}", " and ".join(void), cgroups.REMEDY)
        if self._groups is None:
            return None
        return await trio.to_thread.run_sync(self._groups.leaf, mark, server, limits)

    async def _look(self) -> None:
        try:
            dead, strays = await trio.to_thread.run_sync(_orphans)
        except (RuntimeError, OSError) as error:
            # Out of threads or descriptors, which may be temporary.
            logger.warning("cannot look for orphans until the next check: {}", error)
            return
        # A child that is just being spawned is not registered yet: trio waits for it.
        await self._none_starting.wait()
        for pid in dead - marks.children():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - WNOHANG
        if strays:
            logger.warning("killing processes that left their server, with their descendants: {}", strays)
            await self._sweep(None)

    async def _sweep(self, mark: int | None) -> None:
        """Kill the tree of the server with this mark (if any) and all strays, until none is left."""
        sweeps = tenacity.AsyncRetrying(
            sleep=trio.sleep,
            stop=tenacity.stop_after_attempt(SWEEPS),
            wait=tenacity.wait_fixed(SWEEP_PAUSE),
            retry=tenacity.retry_if_result(bool) | tenacity.retry_if_exception_type(OSError),
            retry_error_callback=_log_survivors,
        )
        await sweeps(trio.to_thread.run_sync, _kill_tree, mark)

    @contextlib.asynccontextmanager
    async def _starting(self, mark: int) -> AsyncIterator[None]:
        """Give the child that is forked in the block its mark; one child at a time, some milliseconds each."""
        async with self._forking:
            self._none_starting = trio.Event()
            try:
                with own.handing_down(mark):
                    yield
            finally:
                self._none_starting.set()

    def _grace(self, seconds: float, share: float) -> float:
        """A grace period, cut to a share of the time left, so that all grace periods end before `_stop_by`."""
        if self._hurried:
            return 0.0
        if self._stop_by is None:
            return seconds
        return max(0.0, min(seconds, (self._stop_by - trio.current_time()) * share))

    async def _ended_within(self, child: ChildProcess, seconds: float) -> bool:
        with trio.move_on_after(seconds) as scope:
            self._stopping.add(scope)
            try:
                await child.process.wait()
            finally:
                self._stopping.discard(scope)
        return child.process.returncode is not None


async def _write(fd: int, given: bytes) -> None:
    async with trio.lowlevel.FdStream(fd) as stream:
        with contextlib.suppress(trio.BrokenResourceError):  # it does not read
            await stream.send_all(given)


async def _read(fd: int, kept: bytearray) -> None:
    async with trio.lowlevel.FdStream(fd) as stream:
        async for chunk in stream:
            kept += chunk
            del kept[: -MOST_PRINTED - 1]


def _forked(command: Sequence[str], leaf: Leaf | None, **options: Any) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(command, start_new_session=True, **options)
    if leaf is not None:
        leaf.take(process.pid)
    return process


def _kill_tree(mark: int | None) -> list[int]:
    """Kill the processes of a server, and strays; return those found: none once all are dead."""
    found = marks.find()
    doomed = found.strays + (found.trees.get(mark, []) if mark is not None else [])
    for pid in doomed:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return doomed


def _ask_inside(mark: int) -> None:
    """Send SIGTERM to the processes in a sandbox, except bubblewrap, which would end all others with it."""
    for pid in marks.find().trees.get(mark, ()):
        if proc.name(pid) != "bwrap":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM)


def _log_survivors(last: tenacity.RetryCallState) -> None:
    assert last.outcome is not None
    if last.outcome.failed:
        logger.error("cannot see the processes left by a stopped server: {}", last.outcome.exception())
    else:
        logger.error("processes of a stopped server survive SIGKILL: {}", last.outcome.result())


def _orphans() -> tuple[set[int], list[int]]:
    """Dead children to reap, and living strays."""
    dead = {pid for pid in proc.own_children() if (child := proc.read_child(pid)) and child.is_dead}
    return dead, marks.strays()


def _pipes() -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Create three pipes: the child's ends, and mcpd's, which are non-blocking."""
    fds: list[int] = []
    try:
        for _ in range(3):
            fds += os.pipe2(os.O_CLOEXEC)
    except OSError as error:
        _close(fds)
        raise ConnectionLost(f"no pipe for a new process: {error.strerror}", Cause.OUT_OF_FILES) from None
    stdin_r, stdin_w, stdout_r, stdout_w, stderr_r, stderr_w = fds
    for fd in (stdin_w, stdout_r, stderr_r):
        os.set_blocking(fd, False)
    for fd in (stdin_w, stdout_r):
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return (stdin_r, stdout_w, stderr_w), (stdin_w, stdout_r, stderr_r)


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


def _explain(error: OSError, command: str, cwd: str | None) -> CannotStart | ConnectionLost:
    text, why = f"cannot start {command}: {error.strerror}", str(error.strerror)
    if error.errno in SHORTAGES:
        return ConnectionLost(text, SHORTAGES[error.errno], command=command)
    if cwd is not None and error.filename == cwd:
        text = f"cannot start {command}: its directory {cwd}: {why}"
        return CannotStart(text, Cause.DIRECTORY_UNUSABLE, command=command, directory=cwd, error=why)
    if error.errno == errno.ENOENT:
        return not_found(command, cwd)
    if error.errno in _UNFIT:
        return CannotStart(text, _UNFIT[error.errno], command=command)
    return CannotStart(text, Cause.CANNOT_START, command=command, error=why)


def not_found(command: str, cwd: str | None) -> CannotStart:
    """The error for a command that does not exist."""
    data = {"command": command}
    begins = ""
    if "/" in command:
        data["file"] = os.path.normpath(os.path.join(cwd or "/", command))  # noqa: PTH118 - of a path as written
        if cwd is not None and not command.startswith("/"):
            begins = f"; the path is relative to {cwd} (`cwd`, or the home directory without one)"
    text = f"command not found: {command}{begins}. Install it, or write its full path in the config"
    return CannotStart(text, Cause.COMMAND_NOT_FOUND, **data)


SHORTAGES = {
    errno.EAGAIN: Cause.OUT_OF_PROCESSES,
    errno.ENOMEM: Cause.OUT_OF_MEMORY,
    errno.EMFILE: Cause.OUT_OF_FILES,
    errno.ENFILE: Cause.OUT_OF_FILES,
}

_UNFIT = {errno.EACCES: Cause.NOT_EXECUTABLE, errno.ENOEXEC: Cause.NOT_A_PROGRAM}
