"""Bounded records of a server's behaviour: its stderr, its noise, its pace."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from itertools import count, islice
from typing import NamedTuple

from daemon.kit.waiting import Watch
from daemon.kit.wording import bytes_in_words

STDERR_BYTES = 64 * 1024
"""Most bytes of a server's stderr that are kept: the chattiest real one writes 25 kB before its first call."""

STDERR_LINE = 8 * 1024
"""Most characters of a line of stderr or of a log notification."""

STDERR_LINES = 1000
"""Most lines of stderr that are kept: even empty ones use memory."""

NOTICE = "npm notice"
"""The beginning of npm's lines about its own new version, which hide a server's last words."""

PACE_ENDS = 64
"""Ends of calls from which the pace is computed: as many as the default queue holds, so that it adapts soon."""

NOISE_LINES = 1000
"""Lines of noise within `NOISE_SECONDS` beyond which a server is `degraded`."""

NOISE_END = 50_000
"""Lines of noise within `NOISE_SECONDS` beyond which mcpd ends the connection: so many use a whole core."""

NOISE_SECONDS = 10.0

NOISE_CHARACTERS = 200
"""Characters of the first line of noise that are kept: enough to find the print statement."""

MAX_CLIENTS = 64
"""Most clients whose repairs are counted separately: more kinds of agents than anybody runs."""

LOG_BURST_BYTES = 256 * 1024
"""Most bytes of one server's stderr logged in a burst: ten times the most of a real server."""

LOG_BYTES_PER_SECOND = 4 * 1024
"""Bytes of one server's stderr logged per second in the long run: at most 350 MB a day."""

LOG_RESUMES_BYTES = LOG_BURST_BYTES // 2
"""Free bytes at which a server's stderr is logged again: omissions are reported twice a minute at most."""

LOG_LINE_COSTS = 64
"""Bytes of a log line besides its text: the time, the level, the server."""

_births = count(1)


class StderrLine(NamedTuple):
    """A line of a server's stderr."""

    number: int
    """The line's number among all lines, from 1."""
    text: str
    at: float
    """The time when it was read, in seconds since the epoch."""
    run: int
    """The server's run that wrote it, or 0."""


class StderrTail:
    """The last lines of a server's stderr, numbered from 1, at most `STDERR_BYTES`; reloads keep them."""

    def __init__(self) -> None:
        self.birth = next(_births)
        """Distinguishes this record from the daemon's other ones, whose lines have the same numbers."""
        self.newest = Watch(0)
        """The newest line's number, which is also the count of all lines."""
        self._lines: deque[StderrLine] = deque()
        self._size = 0
        self._former = -1
        """The last run of the earlier configuration."""

    def __len__(self) -> int:
        """The number of kept lines."""
        return len(self._lines)

    def add(self, line: str, at: float = 0.0, run: int = 0) -> None:
        """Append a line of a run, read at `at` (seconds since the epoch); the oldest lines make room."""
        number = self.newest.value + 1
        self._lines.append(StderrLine(number, line, at, run))
        self._size += len(line.encode())
        while self._size > STDERR_BYTES or len(self._lines) > STDERR_LINES:
            self._size -= len(self._lines.popleft().text.encode())
        self.newest.set(number)

    def begin(self, former: int) -> None:
        """Note that later runs have another configuration."""
        self._former = former

    def last(self, most: int, run: int | None = None) -> list[str]:
        """The newest lines without npm's notices, oldest first; of one run if `run` is given."""
        of_it = (each.text for each in reversed(self._lines) if run is None or each.run == run)
        newest = (text for text in of_it if not text.startswith(NOTICE))
        return list(islice(newest, most))[::-1]

    def of_last_run(self, most: int) -> list[str]:
        """The newest lines, oldest first, of this configuration's last run that wrote any."""
        newest = self._lines[-1].run if self._lines else self._former
        return self.last(most, newest) if newest > self._former else []

    def after(self, number: int) -> list[StderrLine]:
        """The kept lines after line `number`."""
        gone = self.newest.value - len(self._lines)
        return list(islice(self._lines, max(0, number - gone), None))


class LogShare:
    """One server's share of the daemon's log: a token bucket of bytes, and a count of omitted lines."""

    def __init__(self) -> None:
        self._room = float(LOG_BURST_BYTES)
        self._at = 0.0
        self._lines = 0
        self._bytes = 0

    def lines(self, text: str, now: float) -> tuple[str, ...]:
        """The lines to log after the server has written `text`, at `now` (seconds)."""
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


_LEFT_OUT = "writes more stderr than mcpd logs: the rest is left out for now; `mcpd logs` has the last lines"


class Noise:
    """Lines on a server's stdout that are not messages of the protocol."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""
        self._window = 0.0
        self._in_window = 0

    def add(self, line: bytes, now: float, cut: Callable[[bytes, int], str]) -> bool:
        """Count a line; True once in `NOISE_SECONDS`, if there are too many. `cut` removes secrets."""
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
        """Whether there is so much noise that the connection should end."""
        return self._in_window > NOISE_END


class Pace:
    """The rate at which a server finishes calls while others wait. Times are in seconds, on any clock."""

    def __init__(self, now: float) -> None:
        self._ends = deque([now], maxlen=PACE_ENDS)

    def ended(self, now: float) -> None:
        """Note the end of a call."""
        self._ends.append(now)

    def seconds_for(self, calls: int, now: float) -> float:
        """Seconds until this many calls have ended; before the first end, the time waited so far."""
        waited, ends = now - self._ends[0], len(self._ends) - 1
        return waited * calls / ends if ends else waited


class RepairCounts:
    """Repairs of calls' arguments, by client and kind."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def note(self, client: str, kind: str) -> None:
        """Count one repair. Clients beyond `MAX_CLIENTS` share one count, under an empty name."""
        name = client if client in self._counts or len(self._counts) < MAX_CLIENTS else ""
        self._counts.setdefault(name, Counter())[kind] += 1

    def by_client(self) -> dict[str, dict[str, int]]:
        """The counts as `{client: {kind: times}}`."""
        return {client: dict(counts) for client, counts in self._counts.items()}


class Ceiling:
    """Detects that several measurements in a row are above a bound."""

    def __init__(self, most: int, looks: int) -> None:
        """`looks` measurements in a row above `most` are too many."""
        self.most = most
        self._looks = looks
        self._above = 0

    def is_broken_by(self, measured: int) -> bool:
        """Note a measurement; True if it is the last of too many in a row."""
        self._above = self._above + 1 if measured > self.most else 0
        return self._above >= self._looks
