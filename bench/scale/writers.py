"""Measures how fast daemons can write to one store: each process stores a session repeatedly."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from itertools import count
from typing import TYPE_CHECKING

import attrs

from bench.calls.rounds import quantiles
from bench.running import Unmeasurable
from daemon.catalog.loaded import Loaded, LoadedTool, SessionRecord, Source
from daemon.config.state_url import resolve
from daemon.state.sql import Batch, StoreFault
from daemon.state.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection
    from pathlib import Path

NUMBERS = (1, 2, 4)
"""Numbers of daemons on one PostgreSQL."""

ROUNDS = 3
"""Rounds; in each, every number of writers has a turn."""

SECONDS = 1.5
"""Seconds of writing in each turn."""

LIMIT = 60.0
"""Seconds for a writer to get ready, or to end."""

SESSIONS = 200
"""Sessions that each writer stores in turn: a table of ordinary size."""


@attrs.frozen(kw_only=True)
class Writing:
    """The medians of the rounds for a number of writers; each commit stores one load of one session."""

    writers: int
    rate: float
    """Commits a second of all writers together."""
    p50: float
    p99: float
    """Seconds of a commit."""


def writings(url: str | None, directory: Path) -> list[Writing]:
    """Measure all numbers of writers.

    Args:
        url: a PostgreSQL database for this measurement only; None for an SQLite file, which has one writer.
        directory: the place for the file.

    Raises:
        Unmeasurable: the store cannot be opened or written.
    """
    numbers = NUMBERS if url else NUMBERS[:1]
    turns = [[_together(url, directory, number) for number in numbers] for _ in range(ROUNDS)]
    return [_median([turn[index] for turn in turns]) for index in range(len(numbers))]


def _median(turns: Sequence[Writing]) -> Writing:
    return Writing(
        writers=turns[0].writers,
        rate=statistics.median(turn.rate for turn in turns),
        p50=statistics.median(turn.p50 for turn in turns),
        p99=statistics.median(turn.p99 for turn in turns),
    )


def _together(url: str | None, directory: Path, number: int) -> Writing:
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(number)]
    children = [
        context.Process(target=_write, args=(url, directory, f"writer {index}", theirs), daemon=True)
        for index, (_, theirs) in enumerate(pipes)
    ]
    for child in children:
        child.start()
    try:
        for ours, _ in pipes:
            _heard(ours)
        for ours, _ in pipes:
            ours.send(None)
        took = [_heard(ours) for ours, _ in pipes]
    finally:
        for child in children:
            child.kill()
            child.join()
    every = [each for one in took for each in one]
    _, p99 = quantiles(every)
    return Writing(writers=number, rate=len(every) / SECONDS, p50=statistics.median(every), p99=p99)


def _heard(ours: Connection) -> Sequence[float]:
    if not ours.poll(LIMIT):
        raise Unmeasurable(f"a writer has said nothing for {LIMIT:g} s")
    said: Sequence[float] | str = ours.recv()
    if isinstance(said, str):
        raise Unmeasurable(said)
    return said


def _write(url: str | None, directory: Path, name: str, news: Connection) -> None:
    try:
        store = Store.open(resolve(url, directory), writer=name)
        news.send([])
        news.recv()
        took, until = [], time.monotonic() + SECONDS
        for number in count():
            batch = Batch(at=time.time(), sessions=(_session(name, number),))
            begun = time.perf_counter()
            store.keep(batch)
            took.append(time.perf_counter() - begun)
            if time.monotonic() > until:
                break
        news.send(took)
    except StoreFault as fault:
        news.send(str(fault))


def _session(name: str, number: int) -> SessionRecord:
    key = ("git", f"tool {number}")
    tool = LoadedTool(key=key, schema_hash="0" * 32, epoch=1, source=Source.MANUAL, at=time.time())
    return SessionRecord(key=f"{name}, {number % SESSIONS}", loaded=Loaded({key: tool}), seen_at=time.time())
