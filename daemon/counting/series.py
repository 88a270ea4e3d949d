"""The measurements of each minute of the last day, of each server and of the daemon itself: 28 bytes each.

Minutes are those of the wall clock, which may jump: a repeated minute holds the latest values.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from daemon.counting.tally import MAX_SERVERS

KEPT = 24 * 60
"""Minutes that are kept: a day."""

SECONDS = 60
"""Seconds in a minute."""

_MOST = 2**32 - 1
"""The largest number that is kept: 4 TiB in KiB."""

_NEVER = 0
"""The minute before any measurement: the first one of 1970."""


class MinuteOfServer(NamedTuple):
    """One minute of a server, all its instances together."""

    at: int
    """The start of the minute, in seconds since the epoch."""
    calls: int = 0
    """Calls that ended in it."""
    errors: int = 0
    """Calls without a result from the server."""
    p50_ms: float | None = None
    """None without calls."""
    p95_ms: float | None = None
    """None without calls."""
    in_flight: int = 0
    """Most calls without an answer at a time, sampled each minute, and four times a second while calls end."""
    rss_bytes: int | None = None
    """Resident memory of its processes, at the end of the minute, to 1 KiB; None without local processes."""


class MinuteOfDaemon(NamedTuple):
    """One minute of the daemon's counters."""

    at: int
    """The start of the minute, in seconds since the epoch."""
    tokens_not_sent: int = 0
    """Tokens that clients were spared, less those that they were sent later: may be negative."""
    loads: int = 0
    """Tools that sessions loaded."""
    load_hits: int = 0
    """Calls of loaded tools."""
    load_misses: int = 0
    """Calls of tools that had to be loaded first."""
    invalidations: int = 0
    """Loaded tools that became invalid."""
    extra_round_trips: int = 0
    """Calls of meta-tools: round trips that a client without mcpd would not make."""


class _Ring:
    def __init__(self, columns: str) -> None:
        self._minutes = array("I", [_NEVER]) * KEPT
        self._columns: list[array[Any]] = [array(code, [0]) * KEPT for code in columns]

    def put(self, minute: int, row: Iterable[float]) -> None:
        place = minute % KEPT
        self._minutes[place] = minute
        for column, value in zip(self._columns, row, strict=True):
            column[place] = value

    def until(self, newest: int) -> Iterator[tuple[Any, ...]]:
        """The rows of the day that ends with a minute, oldest first, each after the number of its minute."""
        for minute in range(max(newest - KEPT, _NEVER) + 1, newest + 1):
            place = minute % KEPT
            if self._minutes[place] == minute:
                yield minute, *(column[place] for column in self._columns)


class Series:
    """The minutes of the last day. They change only on the event loop, and may be read directly."""

    def __init__(self) -> None:
        self._newest = _NEVER
        self._servers: dict[str, _Ring] = {}
        self._daemon = _Ring("iIIIII")

    def server(self, name: str) -> Sequence[MinuteOfServer]:
        """The minutes of a server, oldest first; none for an unknown one."""
        ring = self._servers.get(name)
        return [] if ring is None else [_of_server(row) for row in ring.until(self._newest)]

    def daemon(self) -> Sequence[MinuteOfDaemon]:
        """The minutes of the daemon, oldest first."""
        return [MinuteOfDaemon(row[0] * SECONDS, *row[1:]) for row in self._daemon.until(self._newest)]

    def note(self, daemon: MinuteOfDaemon, servers: Mapping[str, MinuteOfServer]) -> None:
        """Keep a minute of the daemon and of `MAX_SERVERS` servers; unnamed servers' minutes are deleted."""
        minute = daemon.at // SECONDS
        self._newest = minute
        self._daemon.put(minute, (max(-_MOST >> 1, min(daemon[1], _MOST >> 1)), *map(_bounded, daemon[2:])))
        kept = dict(islice(servers.items(), MAX_SERVERS))
        self._servers = {name: self._servers.get(name) or _Ring("IIffII") for name in kept}
        for name, each in kept.items():
            self._servers[name].put(minute, _row(each))


def _row(of: MinuteOfServer) -> tuple[float, ...]:
    rss = 0 if of.rss_bytes is None else max(1, of.rss_bytes >> 10)
    counts = _bounded(of.calls), _bounded(of.errors)
    return *counts, of.p50_ms or 0.0, of.p95_ms or 0.0, _bounded(of.in_flight), _bounded(rss)


def _of_server(row: tuple[Any, ...]) -> MinuteOfServer:
    minute, calls, errors, p50, p95, in_flight, rss = row
    p50, p95 = (round(p50, 3), round(p95, 3)) if calls else (None, None)
    return MinuteOfServer(minute * SECONDS, calls, errors, p50, p95, in_flight, rss << 10 or None)


def _bounded(value: int) -> int:
    return max(0, min(value, _MOST))
