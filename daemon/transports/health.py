"""How a server that is asked over HTTP does: when it last showed life, and which failure ends the connection.

What ends it, while everything else costs only the request that met it:
- 401, a certificate that does not verify, the end of the session: whatever was asked. The supervisor starts
  again, in the last case with a new session.
- No connection could be made, 403, 429, 502, 503, 504: when we asked on our own account (handshake, listing,
  ping, subscription). Of a call, only `UNREACHABLE_CALLS` in a row without a sign of life between them.

A server that says when to come back (Retry-After) gets no call and no ping before.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import trio

from daemon.transports.failures import FailureKind

if TYPE_CHECKING:
    from daemon.errors import RunError
    from daemon.transports.failures import Failure

UNREACHABLE_CALLS = 3
"""Calls in a row that could not connect: one may be a restart that is over in a moment, three are an outage."""

FATAL = frozenset({FailureKind.UNAUTHORIZED, FailureKind.UNTRUSTED, FailureKind.SESSION_OVER})
"""These end the connection whatever was asked."""

FATAL_TO_OURS = frozenset({FailureKind.FORBIDDEN, FailureKind.BUSY, FailureKind.GATEWAY})
"""These only if we asked on our own account."""


class Health:
    """The signs of life of one server, and the end of the connection to it. Times in seconds, trio's clock."""

    def __init__(self) -> None:
        self.last_heard = -math.inf
        self.busy_until = -math.inf
        """Until when the server wants to be left alone."""
        self.end: RunError | None = None
        """Why the connection is over."""
        self.ended = trio.Event()
        self._unreachable = 0

    def heard(self) -> None:
        """Note that the server showed life; while it wants to be left alone, its silence is no lack of it."""
        self.last_heard = max(trio.current_time(), self.busy_until)
        self._unreachable = 0

    def end_with(self, end: RunError) -> None:
        """The connection is over; the first reason counts."""
        if self.end is None:
            self.end = end
            self.ended.set()

    def judge(self, failure: Failure, *, own: bool) -> RunError | None:
        """Take a failure in; the end of the connection if it is one.

        Args:
            failure: what a request met.
            own: whether it was a request of our own, and no call.
        """
        if failure.wait:
            self.busy_until = max(self.busy_until, trio.current_time() + failure.wait)
            self.last_heard = max(self.last_heard, self.busy_until)
        fatal = failure.kind in FATAL or (own and failure.kind in FATAL_TO_OURS)
        if failure.kind is FailureKind.UNREACHABLE:
            self._unreachable += 1
            fatal = own or self._unreachable >= UNREACHABLE_CALLS
        if not fatal:
            return None
        end = failure.for_run()
        self.end_with(end)
        return end
