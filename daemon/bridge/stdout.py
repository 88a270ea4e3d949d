"""The client's end, which is written to without ever waiting for it.

The flags of stdout are shared with other processes, and therefore not ours to change. A pipe or a socket still
takes only what it has room for if a write asks for that (pwritev2(2), RWF_NOWAIT). Where that cannot be asked,
as of a terminal or an older kernel, stdout gets at most PIPE_BUF bytes at a time, when poll(2) promises to take
as much.
"""

from __future__ import annotations

import os
import select
import stat

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
