"""The last day, minute by minute, and the last thousand calls with their errors, without arguments.

Minutes are those of the wall clock, which may jump: a repeated minute has the latest values. Names of tools and
texts of errors are kept verbatim up to a length; reports remove secrets.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec
import trio
from loguru import logger

from daemon.catalog.loaded import is_anonymous
from daemon.config.names import own_name
from daemon.counting.tally import MAX_SERVERS
from daemon.kit.waiting import Watch, keep_latest
from daemon.protocol import UNREADABLE, decode_members

MINUTES = 24 * 60
"""Minutes that are kept: one day."""

SECONDS = 60
"""Seconds in a minute."""

_MOST = 2**32 - 1
"""The largest number that is kept: 4 TiB in KiB."""

_NEVER = 0
"""Stands for no measurement: the first minute of 1970."""


class MinuteOfServer(NamedTuple):
    """One minute of a server, over all its instances."""

    at: int
    """The start of the minute, in seconds since the epoch."""
    calls: int = 0
    """Calls that ended in the minute."""
    errors: int = 0
    """Calls that failed: their result says so, or they have none."""
    p50_ms: float | None = None
    """The median latency; None without calls."""
    p95_ms: float | None = None
    """The 95th percentile of the latency; None without calls."""
    in_flight: int = 0
    """Most unanswered calls at once, sampled each minute, and four times a second while calls end."""
    rss_bytes: int | None = None
    """Resident memory of its processes at the end of the minute, to 1 KiB; None without local processes."""


class MinuteOfDaemon(NamedTuple):
    """One minute of the daemon's counters."""

    at: int
    """The start of the minute, in seconds since the epoch."""
    tokens_not_sent: int = 0
    """Tokens that clients were spared, less those sent to them later; may be negative."""
    loads: int = 0
    """Tools that sessions loaded."""
    load_hits: int = 0
    """Calls of loaded tools."""
    load_misses: int = 0
    """Calls of tools that first had to be loaded."""
    invalidations: int = 0
    """Loaded tools that became invalid."""
    extra_round_trips: int = 0
    """Calls of meta-tools: round trips that a client without mcpd would not make."""


class _Ring:
    def __init__(self, columns: str) -> None:
        self._minutes = array("I", [_NEVER]) * MINUTES
        self._columns: list[array[Any]] = [array(code, [0]) * MINUTES for code in columns]

    def put(self, minute: int, row: Iterable[float]) -> None:
        place = minute % MINUTES
        self._minutes[place] = minute
        for column, value in zip(self._columns, row, strict=True):
            column[place] = value

    def until(self, newest: int) -> Iterator[tuple[Any, ...]]:
        """The rows of the day that ends with minute `newest`, oldest first, each after its minute's number."""
        for minute in range(max(newest - MINUTES, _NEVER) + 1, newest + 1):
            place = minute % MINUTES
            if self._minutes[place] == minute:
                yield minute, *(column[place] for column in self._columns)


class Series:
    """The minutes of the last day. They change only on the event loop, where they may be read directly."""

    def __init__(self) -> None:
        self._newest = _NEVER
        self._servers: dict[str, _Ring] = {}
        self._daemon = _Ring("iIIIII")

    def server(self, name: str) -> Sequence[MinuteOfServer]:
        """The minutes of a server, oldest first; empty for an unknown one."""
        ring = self._servers.get(name)
        return [] if ring is None else [_of_server(row) for row in ring.until(self._newest)]

    def daemon(self) -> Sequence[MinuteOfDaemon]:
        """The minutes of the daemon, oldest first."""
        return [MinuteOfDaemon(row[0] * SECONDS, *row[1:]) for row in self._daemon.until(self._newest)]

    def note(self, daemon: MinuteOfDaemon, servers: Mapping[str, MinuteOfServer]) -> None:
        """Keep a minute of the daemon and of at most `MAX_SERVERS` servers; delete those of other servers."""
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


Digest = tuple[int, list["RecentCall"]]
"""The number of ended calls, and the newest ones to keep."""


GATHERED = 10_000
"""Most calls that wait to be logged: more than one interval brings. Older ones are dropped and counted."""

EVERY_SECONDS = 0.25
"""Most seconds from a call's end to its line in the log."""

CALLS_PER_RECORD = 250
"""Calls formatted together, in a third of a millisecond, before the event loop runs again."""


class Caller(Protocol):
    """The client of a call."""

    number: int
    """The connection's number."""
    name: str
    """The client's name and version, in its own words."""

    @property
    def token(self) -> str:
        """The name of the client's token; empty without a token or a name."""


EndedCall: TypeAlias = tuple[Caller, str | None, str, float, str, str, str, float, str]
"""Client, key of the session, label, seconds, outcome; the server and its own name of the tool, or empty; the
end, in seconds since the epoch; an error's text, up to `TEXT` characters. The label may be any name from a
client, unchecked and of any length."""


NAMING = ("category", "server_name", "name", "names", "tool_name", "toolNames")
"""The arguments of meta-tools that name tools, servers or categories."""

MAX_READ = 64 * 1024
"""Bytes of the longest meta-tool arguments decoded for the log: a tenth of a millisecond."""

MAX_NAMES = 5
"""Names in a log line, which has its own bound (`host.logs.LABEL_BYTES`)."""

_SAID = msgspec.json.Decoder(str | list[str] | None)

MAX_NAME = 64
"""Characters of the longest logged name; longer values are not names."""


def named_in(arguments: bytes) -> str:
    """The names in a meta-tool's arguments, shortened; never the arguments of the tool that it calls."""
    if len(arguments) > MAX_READ:
        return ""
    names: list[str] = []
    with suppress(*UNREADABLE):
        members = decode_members(arguments)
        for key in NAMING:
            if key in members:
                said = _SAID.decode(members[key])
                names += [said] if isinstance(said, str) else said or []
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(name if _is_name(name) else "…" for name in names[:MAX_NAMES]) + more


def _is_name(said: str) -> bool:
    """Whether a text is a name and may be logged: a request in the user's own words may reveal secrets."""
    # Not cut: half a secret would not be recognised as one.
    return len(said) <= MAX_NAME and not any(map(str.isspace, said))


class CallLogger:
    """Logs calls: session, category and name, latency, outcome."""

    def __init__(self, ended: RecentCalls) -> None:
        self._ended = ended
        self._notes: deque[EndedCall] = deque(maxlen=GATHERED)
        self._some = trio.Event()
        self._rests = True
        self.dropped = 0

    def note(self, ended: EndedCall) -> None:
        """Note an ended call. Never blocks."""
        notes = self._notes
        if len(notes) == GATHERED:
            self.dropped += 1
        notes.append(ended)
        if self._rests:
            self._rests = False
            self._some.set()

    async def run(self) -> None:
        """Log the noted calls until cancelled, and the remaining ones at the end."""
        try:
            while True:
                await self._some.wait()
                await trio.sleep(EVERY_SECONDS)
                self._some = trio.Event()
                self._rests = True
                try:
                    self._ended.publish(await trio.to_thread.run_sync(self._write))
                except RuntimeError as error:
                    # No thread can be started: the machine is at its limit of tasks, and these lines can wait.
                    logger.debug("no thread for the log of calls: {}", error)
                    self._rests = False
                    self._some.set()
        finally:
            self._write()

    def _write(self) -> Digest:
        written: list[EndedCall] = []
        if self.dropped:
            lost, self.dropped = self.dropped, 0
            logger.warning("{} calls were not logged: they came faster than mcpd could log them", lost)
        while self._notes:
            notes = [self._notes.popleft() for _ in range(min(len(self._notes), CALLS_PER_RECORD))]
            lines = [
                (caller.number, label, seconds, outcome, at)
                for caller, _, label, seconds, outcome, _, _, at, _ in notes
            ]
            logger.bind(calls=lines).info("{} calls", len(lines))
            written += notes
        return self._ended.digest(written)


KEPT = 1000
"""Calls that are kept: the last minutes of a busy daemon, in half a megabyte."""

FAILURES = 10
"""Errors kept for each server: they show the latest kinds of errors, not how many there were."""

NAME = 256
"""Most characters of a tool's name, which a client may have invented."""

TEXT = 500
"""Most characters of a server's error text: enough to find its cause."""


class RecentCall(NamedTuple):
    """An ended call, or another request of a client that went to a server."""

    at: float
    """The time of the end, in seconds since the epoch."""
    session: int | None
    """The number of its client's connection; None for an operator's (`mcpd call`)."""
    key: str | None
    """The key of its session, or None."""
    client: str
    """The client's name and version; may be empty."""
    token: str
    """The name of the client's token; empty without a token or a name."""
    server: str
    """The server's name in the configuration; empty if mcpd answered the call itself."""
    tool: str
    """The server's own name of the tool, or else the log's label; up to `NAME` characters."""
    seconds: float
    """Seconds from the client's request to its answer."""
    outcome: str
    """`ok`, an error code, or `isError` if the tool's result says that it failed."""
    rule: str = ""
    """The rule of a profile that refused an operator's call."""
    text: str = ""
    """The error's text, as in `CallFailure`."""


class CallFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A failed call of a server."""

    at: float
    """Seconds since the epoch."""
    tool: str
    """The server's own name of the tool, with up to `NAME` characters."""
    code: str
    """The error code, or `isError` if the tool's result says that it failed."""
    text: str
    """The client's error text, up to `TEXT` characters; it may quote the server and contain a secret."""


def named_key(key: str | None) -> str | None:
    """A session's key for operators; None for a generated key, a secret that opens the session."""
    return None if key is None or is_anonymous(key) else key


class RecentCalls:
    """The newest calls of all clients and operators, and the newest errors of each server."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self.newest = Watch(0)
        """The number of the newest call."""
        self._calls: deque[RecentCall] = deque(maxlen=KEPT)
        self._failures: dict[str, deque[CallFailure]] = {}
        self._wall = wall

    def after(self, number: int) -> Sequence[tuple[int, RecentCall]]:
        """The kept calls with a higher number, oldest first, each with its number; numbers start at 1."""
        first = self.newest.value - len(self._calls) + 1
        return [(each, call) for each, call in enumerate(self._calls, first) if each > number]

    def failures(self, server: str) -> Sequence[CallFailure]:
        """The last `FAILURES` errors of a server and its instances, oldest first."""
        return tuple(self._failures.get(server, ()))

    def digest(self, notes: Sequence[EndedCall]) -> Digest:
        """The calls to keep, of those that just ended; for a worker thread."""
        kept = islice(notes, max(0, len(notes) - KEPT), None)
        return len(notes), [
            RecentCall(
                *(at, caller.number, named_key(key), caller.name, caller.token),
                *(server, (tool or own_name(label, server))[:NAME], seconds, outcome),
                text=text,
            )
            for caller, key, label, seconds, outcome, server, tool, at, text in kept
        ]

    def publish(self, digest: Digest) -> None:
        """Keep the calls of a digest; call it on the event loop."""
        count, calls = digest
        self._calls.extend(calls)
        self.newest.set(self.newest.value + count)

    def failed(self, server: str, tool: str, code: str, text: str) -> None:
        """Keep the error with which a server's call has just ended."""
        failure = CallFailure(at=self._wall(), tool=tool[:NAME], code=code, text=text[:TEXT])
        if server not in self._failures:
            keep_latest(self._failures, server, deque(maxlen=FAILURES), MAX_SERVERS)
        self._failures[server].append(failure)
