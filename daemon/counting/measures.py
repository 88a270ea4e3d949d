"""Small bounded memories of how a server behaves: its last words, its noise, its latencies. Values only."""

from __future__ import annotations

from collections import Counter, deque
from itertools import count, islice
from typing import TYPE_CHECKING

import attrs

from daemon.kit.wording import bytes_in_words

if TYPE_CHECKING:
    from collections.abc import Callable

STDERR_BYTES = 64 * 1024
"""How much of a server's stderr is kept: the chattiest real one writes 25 kB before its first call."""

STDERR_LINE = 8 * 1024
"""Characters of a line of it, or of a log notification, that are kept: it is for people."""

STDERR_LINES = 1000
"""And never more lines than this: empty ones cost memory too."""

LATENCIES = 512
"""Latencies that percentiles are taken over: the recent past, not the whole life."""

PACE_ENDS = 64
"""Ends of calls that the pace is taken from: the default line once over, so that it follows a change soon."""

NOISE_LINES = 1000
"""More lines of noise than this within `NOISE_SECONDS` make a server `degraded`."""

NOISE_END = 50_000
"""More than this within `NOISE_SECONDS`, and the connection is ended: it costs a core and says nothing."""

NOISE_SECONDS = 10.0

NOISE_CHARACTERS = 200
"""Of the first line of noise that are kept: enough to find out which print it is."""

MAX_CLIENTS = 64
"""Clients whose repairs are counted apart: more kinds of agents than anybody runs."""

LOG_BURST_BYTES = 256 * 1024
"""Of one server's stderr, so much goes to the log at once: ten times what the chattiest real one writes before
its first call."""

LOG_BYTES_PER_SECOND = 4 * 1024
"""And so much per second in the long run: at the most 350 MB a day, from a server that never stops writing."""

LOG_RESUMES_BYTES = LOG_BURST_BYTES // 2
"""A log that was closed to a server opens again when there is room for so much: what is written then can be
read in one piece, and of what was left out there is a line twice a minute at the most."""

LOG_LINE_COSTS = 64
"""Bytes that a line takes in the log besides its text: the time, the level, the server."""

_births = count(1)


class StderrTail:
    """The last lines of a server's stderr, at most `STDERR_BYTES` of them; survives restarts.

    Lines are numbered from 1, so that whoever follows them can ask for what is new.
    """

    def __init__(self) -> None:
        self.birth = next(_births)
        """Tells this memory from any other of the same daemon: numbers begin anew in each."""
        self.written = 0
        """The number of the newest line, i.e. how many there were."""
        self._lines: deque[str] = deque()
        self._size = 0

    def __len__(self) -> int:
        """How many lines are kept."""
        return len(self._lines)

    def add(self, line: str) -> None:
        """Append a line; the oldest make room."""
        self.written += 1
        self._lines.append(line)
        self._size += len(line.encode())
        while self._size > STDERR_BYTES or len(self._lines) > STDERR_LINES:
            self._size -= len(self._lines.popleft().encode())

    def last(self, most: int) -> list[str]:
        """The newest lines, oldest first."""
        return list(self._lines)[len(self._lines) - min(most, len(self._lines)) :]

    def after(self, number: int) -> list[tuple[int, str]]:
        """The lines that are kept of those that came after line `number`, each with its own number."""
        gone = self.written - len(self._lines)
        first = max(0, number - gone)
        return list(enumerate(islice(self._lines, first, None), start=gone + first + 1))


class LogShare:
    """One server's share of the daemon's log: a token bucket of bytes, and a count of what did not fit."""

    def __init__(self) -> None:
        self._room = float(LOG_BURST_BYTES)
        self._at = 0.0
        self._lines = 0
        self._bytes = 0

    def lines(self, text: str, now: float) -> tuple[str, ...]:
        """What is logged when the server has written a line.

        Args:
            text: the line.
            now: seconds.
        """
        self._room = min(LOG_BURST_BYTES, self._room + (now - self._at) * LOG_BYTES_PER_SECOND)
        self._at = now
        size = len(text.encode(errors="replace")) + LOG_LINE_COSTS
        if self._room < (LOG_RESUMES_BYTES if self._lines else size):
            self._lines += 1
            self._bytes += size
            return (_LEFT_OUT,) if self._lines == 1 else ()
        self._room -= size
        if not self._lines:
            return (f"stderr: {text}",)
        left_out = f"{self._lines} lines of its stderr were left out ({bytes_in_words(self._bytes)})"
        self._lines = self._bytes = 0
        return (left_out, f"stderr: {text}")


_LEFT_OUT = "writes more than there is room for: its stderr is left out for now; `mcpd logs` has the last of it"


class Noise:
    """What a server printed on its stdout besides the protocol."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""
        self._window = 0.0
        self._in_window = 0

    def add(self, line: bytes, now: float, cut: Callable[[bytes, int], str]) -> bool:
        """Count a line; True if that makes it too much, once in `NOISE_SECONDS`.

        Args:
            line: what was printed.
            now: seconds, on any clock.
            cut: how the beginning of a line is taken (`safety.redact.Redactor.cut`).
        """
        self.count += 1
        if not self.first:
            self.first = cut(line, NOISE_CHARACTERS)
        if now - self._window > NOISE_SECONDS:
            self._window = now
            self._in_window = 0
        self._in_window += 1
        return self._in_window == NOISE_LINES + 1

    @property
    def is_unbearable(self) -> bool:
        """Whether there is so much of it that the connection should end."""
        return self._in_window > NOISE_END


@attrs.define
class CallStats:
    """Calls forwarded to a server."""

    calls: int = 0
    """Calls that ended, successfully or not."""
    errors: int = 0
    """Those without a result of the server's."""
    _recent: deque[float] = attrs.field(factory=lambda: deque(maxlen=LATENCIES), init=False)

    def record(self, seconds: float, *, ok: bool) -> None:
        """Count a call that ended after `seconds`."""
        self.calls += 1
        self.errors += not ok
        self._recent.append(seconds)

    def percentile_ms(self, share: float) -> float | None:
        """A percentile of the recent latencies in milliseconds, e.g. 0.95; None without any."""
        if not self._recent:
            return None
        ordered = sorted(self._recent)
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000, 3)


class Pace:
    """How fast places at a server are freed while somebody waits for one. Times in seconds, on any clock."""

    def __init__(self, now: float) -> None:
        """Begin to measure."""
        self._ends = deque([now], maxlen=PACE_ENDS)

    def ended(self, now: float) -> None:
        """A call has ended."""
        self._ends.append(now)

    def seconds_for(self, calls: int, now: float) -> float:
        """How long so many ends take; before the first it may last as long again as it has lasted."""
        waited, ends = now - self._ends[0], len(self._ends) - 1
        return waited * calls / ends if ends else waited


class Mended:
    """How often the arguments of calls had to be repaired, by client and kind of repair."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def note(self, client: str, kind: str) -> None:
        """Count one repair. Clients beyond `MAX_CLIENTS` are counted together, under an empty name."""
        name = client if client in self._counts or len(self._counts) < MAX_CLIENTS else ""
        self._counts.setdefault(name, Counter())[kind] += 1

    def by_client(self) -> dict[str, dict[str, int]]:
        """`{client: {kind: times}}`."""
        return {client: dict(counts) for client, counts in self._counts.items()}


class Ceiling:
    """How often in a row something was found above a bound."""

    def __init__(self, most: int, looks: int) -> None:
        """Be content with `most`; be alarmed once `looks` in a row were above it."""
        self.most = most
        self._looks = looks
        self._above = 0

    def is_broken_by(self, measured: int) -> bool:
        """Note a measurement; True if it is one too many."""
        self._above = self._above + 1 if measured > self.most else 0
        return self._above >= self._looks
