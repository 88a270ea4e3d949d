"""The promises, and the findings about them."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@attrs.frozen
class Promise:
    """One line of the table."""

    name: str
    """R1 to R25, as in the reliability study."""
    text: str
    """The promise in words."""
    bar: str
    """The measurement that keeps the promise."""


PROMISES = (
    Promise("R1", "Calls in flight are answered when their server dies", "p99 ≤ 50 ms, longest ≤ 250 ms"),
    Promise("R2", "A call succeeds again after a crash, beyond the server's own start", "p99 ≤ 250 ms"),
    Promise(
        "R3", "19 servers while the 20th dies in every way", "0 calls lost, p99 ≤ 1.5 times that of quiet times"
    ),
    Promise("R4", "A call to a server that is down", "an error with reason: p99 ≤ 50 ms, with wake ≤ 2.1 s"),
    Promise("R5", "A server that is down stands in `unavailableTools`", "exit ≤ 100 ms, silent hang ≤ 60 s"),
    Promise(
        "R6", "Never gives up: an outage of 24 h (virtual time)", "ready ≤ 61 s after it, ≤ 1,500 attempts"
    ),
    Promise(
        "R7", "No herd: 50 servers lost at once (virtual time)", "≤ 4 starting at once, ≤ 15 % in any second"
    ),
    Promise("R8", "Crash and restart leave nothing", "fds, zombies, threads, tasks +0, memory ≤ +1 MiB"),
    Promise("R9", "Calls leave nothing", "memory ≤ 1 MiB per 250,000 calls, in the end ≤ +8 MiB, 0 wrong"),
    Promise(
        "R10",
        "Malformed input, from clients and from servers",
        "0 crashes, 0 stalls > 100 ms, next call served",
    ),
    Promise("R11", "A line of 100 MB, an object of a million keys", "no stall > 100 ms, memory ≤ +32 MiB"),
    Promise("R12", "kill -9 of the daemon: its state", "0 acknowledged writes lost, 0 files spoilt"),
    Promise("R13", "kill -9 of the daemon: new clients (socket unit)", "0 refused, first answer ≤ 1 s"),
    Promise(
        "R14",
        "kill -9 of the daemon: connected clients",
        "0 broken, calls in flight answered ≤ 1 s after restart",
    ),
    Promise("R15", "kill -9 of the daemon: its children", "0 orphans after 1 s"),
    Promise("R16", "A daemon that is stuck", "replaced ≤ WatchdogSec + 1 s"),
    Promise("R17", "A clean end", "≤ 1 s idle, ≤ 5 s with 50 children that ignore TERM, nothing left"),
    Promise("R18", "READY with 50 servers that do not answer", "≤ 500 ms"),
    Promise("R19", "Reload", "invalid: nothing restarts; 1 of 20 changed: 19 keep their pid; ≤ 1 s"),
    Promise("R20", "32 clients that all use id 1", "0 answers misrouted"),
    Promise("R21", "Cancel and progress", "cancel at the server ≤ 50 ms, 0 progress after the answer"),
    Promise("R22", "Side effects across crashes", "at most once for each call"),
    Promise(
        "R23", "A client that never reads", "memory ≤ +16 MiB, p99 of others ≤ 2 times that of quiet times"
    ),
    Promise("R24", "A server's process tree, in four shapes", "0 survivors"),
    Promise("R25", "Soak: hours of calls, a fault every 5 s", "every call answered once, nothing grows"),
)

BY_NAME = {promise.name: promise for promise in PROMISES}


@attrs.frozen(kw_only=True)
class Finding:
    """The measurement of one promise."""

    name: str
    """The promise's name."""
    measured: str
    """The result in words, with numbers."""
    kept: bool | None
    """Whether the bar was met; None: measured elsewhere, as `measured` says."""


@attrs.frozen
class Scale:
    """The extent of a measurement."""

    share: float = 1.0
    """The share of the full numbers."""

    @property
    def is_full(self) -> bool:
        """Whether the full numbers are measured."""
        return self.share >= 1

    def of(self, full: int, least: int = 1) -> int:
        """The number to take instead of the full one."""
        return max(least, round(full * self.share))


def percentile(values: Sequence[float], share: float) -> float:
    """A percentile by nearest rank, e.g. 0.99: always one of the values."""
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


def milliseconds(seconds: float) -> str:
    """For people: `3.7 ms`, `1,204 ms`."""
    value = seconds * 1000
    return f"{value:.1f} ms" if value < 100 else f"{value:,.0f} ms"


def mebibytes(size: float) -> str:
    """For people, with a sign: `+0.3 MiB`."""
    return f"{size / 2**20:+.1f} MiB"


def chosen(names: str) -> list[str]:
    """The promises of a list like `R1,R8`.

    Raises:
        ValueError: one does not exist.
    """
    wanted = [name.strip().upper() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in BY_NAME]
    if unknown or not wanted:
        raise ValueError(f"no such promise: {', '.join(unknown) or names!r}; there are R1 to R{len(PROMISES)}")
    return wanted


def sliding(total: int, rounds: int) -> Iterator[int]:
    """Split a number into nearly equal rounds."""
    done = 0
    for number in range(1, rounds + 1):
        upto = total * number // rounds
        yield upto - done
        done = upto
