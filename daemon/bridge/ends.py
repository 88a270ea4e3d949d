"""The bridge's two ends: stdout, written without waiting, and the daemon's socket, dialled until it answers.

Other processes share the flags of stdout, so the bridge must not change them. It writes to a pipe or socket
with RWF_NOWAIT (pwritev2(2)), and to anything else at most PIPE_BUF bytes when poll(2) promises that much room.
"""

from __future__ import annotations

import _socket
import os
import select
import stat
import sys
from collections.abc import Callable

from daemon.host.paths import distrust

MAX_DOUBLINGS = 30  # 2^30 s exceeds any cap; a higher power would overflow a float


def doubled(first: float, longest: float, failures: int) -> float:
    """The delay in seconds before jitter: `first`, doubled with each earlier failure."""
    return min(longest, first * 2.0 ** min(failures, MAX_DOUBLINGS))


def jittered(seconds: float, chance: float) -> float:
    """Half of a delay, plus a random part of the other half; `chance` is in [0, 1)."""
    return seconds / 2 * (1 + chance)


START_SECONDS = 2.0  # least time between two starts, doubled with each failure

LONGEST_START_SECONDS = 30.0  # the most: the wait of a request, so that each one sees a start

REASON_BYTES = 64 * 1024  # bytes kept of a start's stderr: a faulty configuration takes some hundred

IN_PROGRESS = "the daemon is starting. If this lasts, `mcpd start` says why."
"""The reason why there is no daemon while one is being started."""


class Starting:
    """The starts of daemons that one bridge requests."""

    def __init__(self, allowed: Callable[[], bool]) -> None:
        self.pipe: int | None = None  # readable when the running start speaks or ends; None without a start
        self.reason = ""  # the reason why the last start failed
        self._allowed = allowed
        self._has_ended = False
        self._knows = False  # whether a start has ended since a daemon was last there
        self._failures = 0
        self._next = 0.0
        self._pid = 0
        self._stderr = b""

    @property
    def trouble(self) -> str:
        """The reason why there is no daemon: the last failed start's, or a start in progress."""
        return IN_PROGRESS if self.pipe is not None and not self._knows else self.reason

    def lost(self) -> None:
        """Record that the daemon was lost: the next start need not wait for a request."""
        self._failures, self._next, self.reason, self._has_ended = 0, 0.0, "", False
        self._knows = False

    def ask(self, now: float, *, awaited: bool, known: bool) -> None:
        """Start a daemon unless it is too early (`now` in seconds, monotonic).

        After a failure, start only for an `awaited` request. A bridge that has `known` a daemon starts none
        after a deliberate stop.
        """
        if self.pipe is not None or now < self._next or (self._failures and not awaited) or not self._allowed():
            return
        self._next = now + doubled(START_SECONDS, LONGEST_START_SECONDS, self._failures)
        self._failures += 1
        try:
            self._spawn("known" if known else "new")
        except (OSError, NotImplementedError) as error:
            self.reason = f"the daemon is not running, and `mcpd start` cannot be run: {error}"

    def take_ended(self) -> bool:
        """Whether a start has ended since the last call."""
        ended, self._has_ended = self._has_ended, False
        return ended

    def hear(self) -> bool:
        """Read the start's stderr. Returns whether the start has ended."""
        assert self.pipe is not None
        data = os.read(self.pipe, REASON_BYTES)
        self._stderr = (self._stderr + data)[:REASON_BYTES]
        if data:
            return False
        os.close(self.pipe)
        self.pipe, self._has_ended, self._knows = None, True, True
        os.waitpid(self._pid, 0)
        text = self._stderr.decode(errors="replace").strip().removeprefix("mcpd: ")
        self.reason = text and f"the daemon is not running: {text}"
        return True

    def _spawn(self, window: str) -> None:
        """Run `mcpd start` in its own session, which outlives this window, with its stderr on our pipe."""
        ours, theirs = os.pipe()
        # -P: nothing is imported from this directory, which may be a repository just cloned.
        command = [sys.executable, "-P", "-m", "daemon", "start", "--window", window]
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        actions = [
            (os.POSIX_SPAWN_DUP2, null, 0),
            (os.POSIX_SPAWN_DUP2, null, 1),
            (os.POSIX_SPAWN_DUP2, theirs, 2),
        ]
        try:
            self._pid = os.posix_spawn(command[0], command, os.environ, file_actions=actions, setsid=True)
        except OSError:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
            os.close(null)
        self.pipe, self._stderr = ours, b""


GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL


class Stdout:
    """The client's end of the bridge."""

    def __init__(self, descriptor: int) -> None:
        self.gone = False  # whether the reader has gone away
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        kind = os.fstat(descriptor).st_mode
        # Not for a file: poll always promises room, however often the file refuses.
        self._takes_what_it_can = hasattr(os, "RWF_NOWAIT") and (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind))

    def give(self, data: bytes | bytearray) -> int:
        """Write as many bytes as fit now, and return their number."""
        if self._takes_what_it_can:
            try:
                return os.pwritev(self._descriptor, (data,), -1, os.RWF_NOWAIT)
            except BlockingIOError:
                return 0
            except OSError:
                # Either the flag is unsupported or the reader is gone: the other way of writing shows which.
                self._takes_what_it_can = False
        return self._give_portion(data)

    def drain(self, down: bytearray) -> None:
        """Move as much of `down` to stdout as fits now."""
        while down and (taken := self.give(down)):
            del down[:taken]

    def _give_portion(self, data: bytes | bytearray) -> int:
        for _, events in self._poll.poll(0):
            try:
                if not events & GONE:
                    return os.write(self._descriptor, data[: select.PIPE_BUF])
            except BlockingIOError:
                break  # another process made it non-blocking, or filled it first
            except OSError:
                pass
            self.gone = True
        return 0


FIRST_SECONDS = 0.1  # delay after the first failure; an attempt costs microseconds

LONGEST_SECONDS = 5.0
"""Most seconds between attempts: a client that wakes up finds its daemon within this time."""

STABLE_SECONDS = 1.0  # A longer connection ended for a reason of its own, so the next attempt is immediate

AWAITED_SECONDS = 0.5  # longest delay between attempts while nobody listens and a request waits

TURNED_AWAY = (
    "the daemon at {path} closed the connection without an answer: it may not accept this user"
    " (listen.uids), this may be a process of one of its servers (listen.servers names those that may be"
    " clients), or its configuration may be faulty. See `mcpd check` and the daemon's log."
)  # the listener closes each connection at once

HUNG_UP = (
    "the daemon at {path} closed the connection. Its log says why; if it does not come back, start it:"
    " `mcpd start`."
)  # A daemon that had answered closes the connection

SILENT = (
    "the daemon at {path} accepted the connection and has not answered yet: it is starting, hangs, or is too"
    " busy. If that lasts, see its log; `systemctl --user restart mcpd`, or `mcpd run` again, restarts it."
)  # the connection is open, and nothing has come over it

MUTE = (
    "the daemon at {path} accepted the connection and sent nothing for {seconds:.0f} s: it hangs, or is"
    " overloaded. See its log; `systemctl --user restart mcpd`, or `mcpd run` again, restarts it."
)  # A daemon has not answered within its time


def reach(path: str) -> tuple[_socket.socket | None, str, bool]:
    """Connect without waiting; returns a non-blocking link, or the trouble, and whether nothing listens."""
    nobody = False
    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    link.setblocking(False)
    try:
        link.connect(path)
        reason = distrust(link, path)
        trouble = f"{reason}." if reason else ""
    except OSError as error:
        from daemon.bridge.unreachable import CLIENTS, explain  # noqa: PLC0415 - only a failure pays for it

        trouble = ".\n".join(explain(path, error, CLIENTS))
        nobody = isinstance(error, (FileNotFoundError, ConnectionRefusedError))
    if trouble:
        link.close()
        return None, trouble, nobody
    return link, "", nobody


class Dialer:
    """Dials one socket again and again, and knows when the next attempt is due."""

    def __init__(self, path: str, starting: Starting) -> None:
        self._path = path
        self._starting = starting
        self._failures = 0
        self._next = 0.0
        self._absent: float | None = None
        """When the last attempt failed; None after a connection: quick attempts would load its daemon."""

    def dial(
        self, now: float, *, awaited: bool = False, known: bool = False
    ) -> tuple[_socket.socket | None, str]:
        """Try to connect, as `reach` does. If nothing listens, have a daemon started (`Starting.ask`)."""
        link, trouble, nobody_listens = reach(self._path)
        if nobody_listens:
            self._starting.ask(now, awaited=awaited, known=known)
            trouble = self._starting.trouble or trouble
        if link is None:
            self._wait(now, self._failures + 1)
            self._absent = now
        return link, trouble

    def ended(self, now: float, lasted: float | None) -> None:
        """Record that a connection ended after `lasted` seconds; None for a useless connection."""
        self._absent = None
        if lasted is None:
            self._wait(now, self._failures + 1)
        else:
            self._wait(now, 0 if lasted >= STABLE_SECONDS else 1)

    def due(self, *, awaited: bool) -> float:
        """When the next attempt is due (seconds, monotonic); sooner if a request is `awaited`."""
        if self._absent is None or not awaited:
            return self._next
        return min(self._next, self._absent + AWAITED_SECONDS)

    def _wait(self, now: float, failures: int) -> None:
        """Double the wait with each failure. Half of it is random, so that bridges do not retry in step."""
        self._failures, self._next = failures, now
        if failures:
            delay = doubled(FIRST_SECONDS, LONGEST_SECONDS, failures - 1)
            self._next += jittered(delay, os.urandom(1)[0] / 256)
