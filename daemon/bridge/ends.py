"""The bridge's two ends: stdout, written without waiting, and the daemon's socket, dialled until it answers.

Other processes share the flags of stdout, so the bridge must not change them. A pipe or socket takes RWF_NOWAIT
(pwritev2(2)); anything else gets at most PIPE_BUF bytes at a time when poll(2) promises that much room.
"""

from __future__ import annotations

import _socket
import os
import select
import stat

from daemon.bridge.starting import Starting, doubled, jittered
from daemon.host.paths import distrust

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
        """Write the bytes that fit now; return their number."""
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
"""Longest delay between attempts: a client that wakes up finds its daemon within this time."""

STABLE_SECONDS = 1.0  # A longer connection ended for a reason of its own, so the next attempt is immediate

AWAITED_SECONDS = 0.5  # longest delay between attempts while nobody listens and a request waits

TURNED_AWAY = (
    "the daemon at {path} closed the connection before it said anything: it may not accept this user"
    " (listen.uids), this may be a process of one of its servers (listen.servers names those that may be"
    " clients), or its configuration may be faulty. See `mcpd check` and the daemon's log."
)  # the listener closes each connection at once

HUNG_UP = (
    "the daemon at {path} closed the connection. Its log says why; if it does not come back, start it:"
    " `mcpd start`."
)  # A daemon that had answered closes the connection

SILENT = (
    "the daemon at {path} took the connection and has not answered yet: it is starting, hangs, or is too"
    " busy. If that lasts, see its log; `systemctl --user restart mcpd`, or `mcpd run` again, restarts it."
)  # the connection is open, and nothing has come over it

MUTE = (
    "the daemon at {path} took the connection and said nothing for {seconds:.0f} s: it hangs, or is overloaded."
    " See its log; `systemctl --user restart mcpd`, or `mcpd run` again, restarts it."
)  # A daemon has not answered within its time


def reach(path: str) -> tuple[_socket.socket | None, str, bool]:
    """Connect without waiting; return a non-blocking connection, or the trouble, and whether nobody listens."""
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


class Retry:
    """Delays that double with each failure; half of each is random, so that bridges do not retry in step."""

    def __init__(self) -> None:
        self._failures = 0

    def delay(self) -> float:
        """Seconds until the next attempt."""
        if not self._failures:
            return 0.0
        return jittered(doubled(FIRST_SECONDS, LONGEST_SECONDS, self._failures - 1), os.urandom(1)[0] / 256)

    def failed(self) -> None:
        """Count a failed attempt."""
        self._failures += 1

    def ended(self, lasted: float) -> None:
        """Take the end of a useful connection that lasted `lasted` seconds."""
        self._failures = 0 if lasted >= STABLE_SECONDS else 1


class Dialer:
    """Dials one socket repeatedly, and knows when the next attempt is due."""

    def __init__(self, path: str, starting: Starting) -> None:
        self._path = path
        self._starting = starting
        self._retry = Retry()
        self._next = 0.0
        self._absent: float | None = None
        """Time of the last attempt without a listener; None if one listened, whom more attempts would load."""

    def dial(
        self, now: float, *, awaited: bool = False, known: bool = False
    ) -> tuple[_socket.socket | None, str]:
        """Make an attempt, as `reach` does, and have a daemon started if nobody listens (`Starting.ask`)."""
        link, trouble, nobody_listens = reach(self._path)
        if nobody_listens:
            self._starting.ask(now, awaited=awaited, known=known)
            trouble = self._starting.trouble or trouble
        if link is None:
            self._failed(now)
            self._absent = now
        return link, trouble

    def ended(self, now: float, lasted: float | None) -> None:
        """Take the end of a connection after `lasted` seconds; None if the connection was useless."""
        self._absent = None
        if lasted is None:
            self._failed(now)
        else:
            self._retry.ended(lasted)
            self._next = now + self._retry.delay()

    def due(self, *, awaited: bool) -> float:
        """The time of the next attempt (seconds, monotonic); sooner if a request is `awaited`."""
        if self._absent is None or not awaited:
            return self._next
        return min(self._next, self._absent + AWAITED_SECONDS)

    def _failed(self, now: float) -> None:
        self._retry.failed()
        self._next = now + self._retry.delay()
