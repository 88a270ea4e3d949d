"""Measures calls in rounds: each target has a turn in each round, so that a busy moment hits all of them."""

from __future__ import annotations

import math
import statistics
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import attrs

from bench.calls.crowd import Crowd
from bench.calls.targets import BARE, BARE_HTTP, DIRECT, HTTP, OVER_TCP, WAYS, WS, Mcpd, among
from bench.calls.wires import Request, cpu_of, within
from bench.running import Unmeasurable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.calls.targets import Target
    from bench.calls.wires import Wire

KB, MB = 1000, 1000 * 1000

LEAST_CALLS = 3
"""Fewest calls of a turn, however slow."""

WARM_CALLS = 20
"""Calls before each turn of small calls, to fill the caches."""

LIMIT = 120.0
"""Seconds after which a turn fails."""


@attrs.frozen(kw_only=True)
class Case:
    """A kind of calls."""

    name: str
    targets: tuple[str, ...]
    size: int = 100
    """Bytes of the text."""
    echo: bool = True
    """Whether the client sends the text, too: mcpd accepts at most 4 MiB from a client."""
    window: int = 1
    """Calls in flight on each connection."""
    connections: int = 1


def cases(upstreams: Sequence[int], connections: int) -> list[Case]:
    """All cases with at most `connections` connections."""
    more = tuple(map(among, upstreams[1:]))
    return [
        Case(name="one at a time, 100 B", targets=(*WAYS, *OVER_TCP, BARE, BARE_HTTP, *more)),
        Case(name="one at a time, 10 KB", targets=(*WAYS, *OVER_TCP), size=10 * KB),
        Case(name="one at a time, 1 MB", targets=WAYS, size=MB),
        Case(name="one at a time, 10 MB answers", targets=(*WAYS, HTTP, WS), size=10 * MB, echo=False),
        Case(name="32 in flight, 100 B", targets=(*WAYS, WS, BARE, *more), window=32),
        Case(name="32 in flight, 10 KB", targets=WAYS, size=10 * KB, window=32),
        Case(
            name=f"{connections} clients, 100 B",
            targets=(*WAYS[1:], *OVER_TCP, BARE_HTTP, *more),
            connections=connections,
        ),
    ]


def crowded(upstreams: Sequence[int], connections: int) -> list[Case]:
    """All cases with many connections. They need several servers, since one takes only 128 calls at once."""
    targets = tuple(among(count) for count in upstreams[1:])
    return [Case(name=f"{connections} clients, 100 B", targets=targets, connections=connections)]


@attrs.frozen(kw_only=True)
class Turn:
    """A target's result in one round; times in seconds."""

    p50: float | None
    p99: float | None
    rate: float
    """Calls a second."""
    cpu: float | None
    """Seconds of CPU for a call, of the daemon or the proxy."""


@attrs.frozen(kw_only=True)
class Row:
    """A case at a target: medians over the rounds."""

    case: str
    target: str
    p50_us: float | None
    p50_ratio: float | None
    """Ratio to direct calls: the median of the rounds' ratios."""
    p99_us: float | None
    rate: float
    rate_ratio: float | None
    megabytes: float
    """Payload per second, one way."""
    cpu_us: float | None


class Stage:
    """Holds the connections to all targets over all rounds."""

    def __init__(self, targets: Sequence[Target]) -> None:
        """Remember the targets; connections are made at need."""
        self._targets = {target.name: target for target in targets}
        self._wires: dict[str, list[Wire]] = {}
        self._sizes: dict[tuple[str, str], int] = {}

    def turn(self, case: Case, name: str, seconds: float, pause: float = 0.0) -> Turn:
        """Run one target's turn, with a pause after each call if calls are made one at a time.

        Raises:
            Unmeasurable: a call failed.
        """
        target = self._targets[name]
        if isinstance(target, Mcpd) and target.way == WS:
            # Nobody answers its pings between two turns, so that it would be closed.
            for wire in self._wires.pop(name, ()):
                wire.close()
        wires = self.wires(name, case.connections)
        arguments: dict[str, object] = {"text": "x" * case.size} if case.echo else {"bytes": case.size}
        tool = "echo" if case.echo else "answer"
        requests = [wire.wrap(target.request(each, arguments, tool)) for each, wire in enumerate(wires)]
        if (case.name, name) not in self._sizes:
            found = {wire.try_out(request) for wire, request in zip(wires, requests, strict=True)}
            if len(found) > 1:
                raise Unmeasurable(f"{name}: answers of different sizes: {sorted(found)}")
            self._sizes[case.name, name] = found.pop()
        size = self._sizes[case.name, name]
        with within(LIMIT + seconds, f"{case.name} at {name}"):
            if case.connections == case.window == 1:
                return _one_at_a_time(target, wires[0], requests[0], size, seconds, pause)
            return _many(target, wires, case.window, requests, size, seconds)

    def wires(self, name: str, count: int) -> list[Wire]:
        """As many connections to a target; missing ones are made."""
        wires = self._wires.setdefault(name, [])
        wires += [self._targets[name].connect(number) for number in range(len(wires), count)]
        return wires[:count]

    def close(self) -> None:
        """Close all connections."""
        for wires in self._wires.values():
            for wire in wires:
                wire.close()
        self._wires.clear()


@contextmanager
def stage(targets: Sequence[Target]) -> Iterator[Stage]:
    """A stage whose connections are closed in the end."""
    made = Stage(targets)
    try:
        yield made
    finally:
        made.close()


def measured(targets: Sequence[Target], asked: Sequence[Case], rounds: int, seconds: float) -> list[Row]:
    """Measure every case at each of its targets.

    Args:
        targets: running targets.
        asked: the cases.
        rounds: number of rounds.
        seconds: length of each turn.
    """
    turns: dict[tuple[str, str], list[Turn]] = {}
    with stage(targets) as connected:
        for _ in range(rounds):
            for case in asked:
                for name in case.targets:
                    turns.setdefault((case.name, name), []).append(connected.turn(case, name, seconds))
    return [
        _row(case, name, turns[case.name, name], turns.get((case.name, DIRECT)))
        for case in asked
        for name in case.targets
    ]


def _one_at_a_time(
    target: Target, wire: Wire, request: Request, size: int, seconds: float, pause: float
) -> Turn:
    for _ in range(WARM_CALLS if size < MB else 1):
        wire.exchange(request.line(wire.number), size)
        wire.number += 1
    took: list[float] = []
    clock = time.perf_counter
    used, begun = _cpu(target), clock()
    until = begun + seconds
    now = begun
    while now < until or len(took) < LEAST_CALLS:
        line = request.line(wire.number)
        wire.number += 1
        before = clock()
        got = wire.exchange(line, size)
        now = clock()
        took.append(now - before)
        if got != size:
            raise Unmeasurable(f"an answer of {got} bytes came instead of one of {size}")
        if pause:
            time.sleep(pause)
    p50, p99 = quantiles(took)
    cpu = None if target.pid is None else (_cpu(target) - used) / len(took)
    return Turn(p50=p50, p99=p99, rate=len(took) / (now - begun), cpu=cpu)


def _many(
    target: Target, wires: Sequence[Wire], window: int, requests: Sequence[Request], size: int, seconds: float
) -> Turn:
    crowd = Crowd(wires, window, requests, size)
    used = _cpu(target)
    ran = crowd.run(seconds)
    cpu = None if target.pid is None else (_cpu(target) - used) / ran.calls
    p50, p99 = quantiles(ran.latencies) if ran.latencies else (None, None)
    return Turn(p50=p50, p99=p99, rate=ran.calls / ran.seconds, cpu=cpu)


def _cpu(target: Target) -> float:
    return 0.0 if target.pid is None else cpu_of(target.pid)


def quantiles(values: Sequence[float]) -> tuple[float, float]:
    """The median and the 99th percentile: the value that so many do not exceed."""
    ordered = sorted(values)
    return statistics.median(ordered), ordered[math.ceil(0.99 * len(ordered)) - 1]


def _row(case: Case, name: str, turns: Sequence[Turn], direct: Sequence[Turn] | None) -> Row:
    rate = statistics.median(turn.rate for turn in turns)
    pairs = [] if direct is None else list(zip(turns, direct, strict=True))
    return Row(
        case=case.name,
        target=name,
        p50_us=_micro([turn.p50 for turn in turns]),
        p50_ratio=ratio([(ours.p50, best.p50) for ours, best in pairs]),
        p99_us=_micro([turn.p99 for turn in turns]),
        rate=rate,
        rate_ratio=ratio([(ours.rate, best.rate) for ours, best in pairs]),
        megabytes=rate * case.size / MB,
        cpu_us=_micro([turn.cpu for turn in turns]),
    )


def _micro(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) * 1e6 if known else None


def ratio(pairs: Sequence[tuple[float | None, float | None]]) -> float | None:
    """The median of the ratios of paired values."""
    known = [ours / theirs for ours, theirs in pairs if ours is not None and theirs is not None]
    return statistics.median(known) if known else None
