"""When a server was last used, where that decides how long it runs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import trio

from daemon.config.model import Share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daemon.config.model import Server
    from daemon.counting.measures import CallStats

INSTANCE_IDLE = 600.0
"""Seconds without use after which an instance is ended if its server's `idle` does not say: an agent at work
calls again within minutes, and a browser that nobody looks at holds hundreds of megabytes."""


def idle_seconds(server: Server) -> float:
    """Seconds without use after which a server, or an instance of it, is ended; infinite for never."""
    if server.idle is not None:
        return server.idle
    return math.inf if server.shared_by is Share.ALL else INSTANCE_IDLE


class LastUse:
    """The last use of one server: a call that was sent or has ended."""

    def __init__(self, seconds: float) -> None:
        """Begin unused.

        Args:
            seconds: seconds without use after which it is ended.
        """
        self.seconds = seconds
        self.at = -math.inf
        """When it was, on trio's clock."""

    def note(self) -> None:
        """Note that it is used now."""
        self.at = trio.current_time()

    def counted(self, seconds: Sequence[float], *, ok: bool, stats: tuple[CallStats, ...]) -> None:
        """Count calls that have ended, in each of these."""
        self.note()
        for each in stats:
            each.record(seconds, ok=ok)

    @property
    def due(self) -> float:
        """When it has been unused for long enough, on trio's clock."""
        return self.at + self.seconds


def last_use_of(server: Server) -> LastUse | None:
    """What notes the last use of a server; None if nothing depends on it."""
    seconds = idle_seconds(server)
    return LastUse(seconds) if server.instance is not None or seconds < math.inf else None
