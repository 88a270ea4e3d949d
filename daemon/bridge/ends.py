"""The way to the daemon: a connection, or why there is none. Standard library only."""

from __future__ import annotations

import _socket
import os
import select
import stat

from daemon.host.trust import distrust
from daemon.kit.delay import doubled, jittered

_GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL


class Stdout:
    """Who is written to."""

    def __init__(self, descriptor: int) -> None:
        """Take an open descriptor, of whatever kind; it stays the caller's."""
        self.gone = False
        """Whether nobody reads it any more."""
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        kind = os.fstat(descriptor).st_mode
        # Not of a file: poll always says that it has room, however often it refuses.
        self._takes_what_it_can = hasattr(os, "RWF_NOWAIT") and (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind))

    def give(self, data: bytes | bytearray) -> int:
        """Write what it takes now; returns how many bytes that is."""
        if self._takes_what_it_can:
            try:
                return os.pwritev(self._descriptor, (data,), -1, os.RWF_NOWAIT)
            except BlockingIOError:
                return 0
            except OSError:
                # Whether it cannot be asked, or is gone: the other way shows.
                self._takes_what_it_can = False
        return self._give_portion(data)

    def drain(self, down: bytearray) -> None:
        """Write the beginning of what waits, as much as it takes now, and take that away."""
        while down and (taken := self.give(down)):
            del down[:taken]

    def _give_portion(self, data: bytes | bytearray) -> int:
        for _, events in self._poll.poll(0):
            try:
                if not events & _GONE:
                    return os.write(self._descriptor, data[: select.PIPE_BUF])
            except BlockingIOError:
                break  # somebody else made it non-blocking, or filled it first
            except OSError:
                pass
            self.gone = True
        return 0


FIRST_SECONDS = 0.1
"""After the first failure; an attempt on a socket in the file system costs microseconds."""

LONGEST_SECONDS = 5.0
"""Between two attempts, at the most: a client that is used again finds its daemon within that."""

STABLE_SECONDS = 1.0
"""A connection that lasted as long ended for a reason of its own, so the next attempt is made at once."""

AWAITED_SECONDS = 0.5
"""Between two attempts on a socket that nobody listens on, at the most, while a request waits."""

TURNED_AWAY = (
    "the daemon at {path} closed the connection before it said anything: it may not accept this user"
    " (listen.uids), this may be a process of one of its servers (listen.servers names those that may be"
    " clients), or its configuration may be faulty. See `mcpd check` and the daemon's log."
)
"""Somebody listens, and hangs up on us at once."""

HUNG_UP = (
    "the daemon at {path} closed the connection. Its log says why; if it does not come back, start it:"
    " `mcpd run`, or `systemctl --user start mcpd`."
)
"""It was there."""

SILENT = (
    "the daemon at {path} took the connection and has not answered yet: it is starting, hangs, or is too"
    " busy. If that lasts, see its log; `systemctl --user restart mcpd`, or `mcpd run` anew, restarts it."
)
"""It is connected, and that is all we know."""

MUTE = (
    "the daemon at {path} took the connection and said nothing for {seconds:.0f} s: it hangs, or is overloaded."
    " See its log; `systemctl --user restart mcpd`, or `mcpd run` anew, restarts it."
)
"""It may be there."""


def reach(path: str) -> tuple[_socket.socket | None, str]:
    """Connect, without waiting, to whoever listens and may be the daemon.

    Returns:
        The connection, which never blocks; if there is none, why, and what to do.
    """
    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    link.setblocking(False)
    try:
        link.connect(path)
        reason = distrust(link, path)
        trouble = f"{reason}." if reason else ""
    except OSError as error:
        from daemon.bridge.unreachable import CLIENTS, explain  # noqa: PLC0415 - only a failure pays for it

        trouble = ".\n".join(explain(path, error, CLIENTS))
    if trouble:
        link.close()
        return None, trouble
    return link, ""


class Retry:
    """Delays that double from failure to failure; half of each is left to chance, against herds of bridges."""

    def __init__(self) -> None:
        self._failures = 0

    def delay(self) -> float:
        """Seconds until the next attempt."""
        if not self._failures:
            return 0.0
        return jittered(doubled(FIRST_SECONDS, LONGEST_SECONDS, self._failures - 1), os.urandom(1)[0] / 256)

    def failed(self) -> None:
        """An attempt has come to nothing."""
        self._failures += 1

    def ended(self, lasted: float) -> None:
        """A connection that was of use has ended, after so many seconds."""
        self._failures = 0 if lasted >= STABLE_SECONDS else 1


class Dialer:
    """Connects to one socket again and again, and knows when the next attempt is due."""

    def __init__(self, path: str) -> None:
        """Begin with an attempt that is due at once."""
        self._path = path
        self._retry = Retry()
        self._next = 0.0
        self._vain: float | None = None
        """When nobody was found; None: somebody was, and more attempts would trouble them."""

    def dial(self, now: float) -> tuple[_socket.socket | None, str]:
        """As `reach`; `now` in seconds, monotonic."""
        link, trouble = reach(self._path)
        if link is None:
            self._failed(now)
            self._vain = now
        return link, trouble

    def ended(self, now: float, lasted: float | None) -> None:
        """A connection has ended after so many seconds; None: it was of no use."""
        self._vain = None
        if lasted is None:
            self._failed(now)
        else:
            self._retry.ended(lasted)
            self._next = now + self._retry.delay()

    def due(self, *, awaited: bool) -> float:
        """When the next attempt is made (seconds, monotonic); sooner if a request waits for it."""
        if self._vain is None or not awaited:
            return self._next
        return min(self._next, self._vain + AWAITED_SECONDS)

    def _failed(self, now: float) -> None:
        self._retry.failed()
        self._next = now + self._retry.delay()
