"""Bounded records of how a server behaves: its stderr, its noise, its latencies. Values only."""

from __future__ import annotations

from collections import Counter, deque
from itertools import count, islice
from typing import TYPE_CHECKING

import attrs

from daemon.kit.wording import bytes_in_words

if TYPE_CHECKING:
    from collections.abc import Callable

STDERR_BYTES = 64 * 1024
"""The most bytes of a server's stderr that are kept: the chattiest real one writes 25 kB before its first
call."""

STDERR_LINE = 8 * 1024
"""The most characters of a line of stderr, or of a log notification, that are kept: they are for people."""

STDERR_LINES = 1000
"""The most lines of stderr that are kept: empty ones cost memory, too."""

LATENCIES = 512
"""Latencies that percentiles are computed over: the recent past only."""

PACE_ENDS = 64
"""Ends of calls that the pace is computed from: as many as the default queue holds, so that it adapts soon."""

NOISE_LINES = 1000
"""Lines of noise within `NOISE_SECONDS` beyond which a server is `degraded`."""

NOISE_END = 50_000
"""Lines of noise within `NOISE_SECONDS` beyond which the connection is ended: they cost a core."""

NOISE_SECONDS = 10.0

NOISE_CHARACTERS = 200
"""Characters of the first line of noise that are kept: enough to find the print statement."""

MAX_CLIENTS = 64
"""Clients whose repairs are counted separately: more kinds of agents than anybody runs."""

LOG_BURST_BYTES = 256 * 1024
"""Bytes of one server's stderr that may be logged in a burst: ten times what the chattiest real one writes
before its first call."""

LOG_BYTES_PER_SECOND = 4 * 1024
"""Bytes of it that may be logged per second in the long run: at most 350 MB a day."""

LOG_RESUMES_BYTES = LOG_BURST_BYTES // 2
"""Logging of a server's stderr resumes when there is room for this many bytes: what follows can be read in one
piece, and omissions are reported at most twice a minute."""

LOG_LINE_COSTS = 64
"""Bytes of a log line in addition to its text: the time, the level, the server."""

_births = count(1)


class StderrTail:
    """The last lines of a server's stderr, at most `STDERR_BYTES` of them; survives restarts.

    Lines are numbered from 1, so that a reader can ask for the new ones.
    """

    def __init__(self) -> None:
        self.birth = next(_births)
        """Distinguishes this record from others of the same daemon, as line numbers start at 1 in each."""
        self.written = 0
        """The number of the newest line, which is the count of all lines."""
        self._lines: deque[str] = deque()
        self._size = 0

    def __len__(self) -> int:
        """How many lines are kept."""
        return len(self._lines)

    def add(self, line: str) -> None:
        """Append a line, dropping the oldest ones if necessary."""
        self.written += 1
        self._lines.append(line)
        self._size += len(line.encode())
        while self._size > STDERR_BYTES or len(self._lines) > STDERR_LINES:
            self._size -= len(self._lines.popleft().encode())

    def last(self, most: int) -> list[str]:
        """The newest lines, oldest first."""
        return list(self._lines)[len(self._lines) - min(most, len(self._lines)) :]

    def after(self, number: int) -> list[tuple[int, str]]:
        """The kept lines after line `number`, each with its number."""
        gone = self.written - len(self._lines)
        first = max(0, number - gone)
        return list(enumerate(islice(self._lines, first, None), start=gone + first + 1))


class LogShare:
    """One server's share of the daemon's log: a token bucket of bytes, and a count of omitted lines."""

    def __init__(self) -> None:
        self._room = float(LOG_BURST_BYTES)
        self._at = 0.0
        self._lines = 0
        self._bytes = 0

    def lines(self, text: str, now: float) -> tuple[str, ...]:
        """The lines to log after the server has written a line.

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
    """Lines on a server's stdout that are not messages of the protocol."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""
        self._window = 0.0
        self._in_window = 0

    def add(self, line: bytes, now: float, cut: Callable[[bytes, int], str]) -> bool:
        """Count a line; True if that is one too many, once in `NOISE_SECONDS`.

        Args:
            line: the printed line.
            now: seconds, on any clock.
            cut: returns the beginning of a line without secrets (`safety.redact.Redactor.cut`).
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
    """Counts and latencies of calls forwarded to a server."""

    calls: int = 0
    """Calls that ended, successfully or not."""
    errors: int = 0
    """Calls that ended without a result from the server."""
    _recent: deque[float] = attrs.field(factory=lambda: deque(maxlen=LATENCIES), init=False)

    def record(self, seconds: float, *, ok: bool) -> None:
        """Count a call that ended after `seconds`."""
        self.calls += 1
        self.errors += not ok
        self._recent.append(seconds)

    def percentile_ms(self, share: float) -> float | None:
        """A percentile (0.95, say) of the recent latencies, in milliseconds; None if there are none."""
        if not self._recent:
            return None
        ordered = sorted(self._recent)
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000, 3)


class Pace:
    """How fast a server finishes calls while others wait. Times are in seconds, on any clock."""

    def __init__(self, now: float) -> None:
        """Start to measure."""
        self._ends = deque([now], maxlen=PACE_ENDS)

    def ended(self, now: float) -> None:
        """Note that a call has ended."""
        self._ends.append(now)

    def seconds_for(self, calls: int, now: float) -> float:
        """Seconds that this many calls take to end; before the first end, as long as it has taken so far."""
        waited, ends = now - self._ends[0], len(self._ends) - 1
        return waited * calls / ends if ends else waited


class RepairCounts:
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
    """Detects that several measurements in a row are above a bound."""

    def __init__(self, most: int, looks: int) -> None:
        """Tolerate values up to `most`, and less than `looks` in a row above it."""
        self.most = most
        self._looks = looks
        self._above = 0

    def is_broken_by(self, measured: int) -> bool:
        """Note a measurement; True if it completes such a row."""
        self._above = self._above + 1 if measured > self.most else 0
        return self._above >= self._looks
