"""Sessions that nobody uses are forgotten, never those that somebody does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daemon.catalog.loaded import anonymous_key
from daemon.state.notes import SessionNotes
from daemon.state.recalling import (
    ANONYMOUS_SECONDS,
    CLOCK_JUMP,
    FORGET_SECONDS,
    MAX_BEGUN,
    MAX_STORED,
    SHORTEST_SECONDS,
    Expiry,
)
from daemon.state.sql import FORGOTTEN_AT_ONCE
from daemon.state.store_access import Opener, StoreAccess
from tests.unit.actors.recording import START, session
from tests.unit.state.scripted_store import WHERE, Disk

if TYPE_CHECKING:
    from trio.testing import MockClock


class Bench:
    def __init__(self, *, idle: float, shared: bool = False) -> None:
        self.disk = Disk()
        self.live: list[str] = []
        self.wall = START
        self.notes = SessionNotes()
        opener = Opener(self.disk.open, where=WHERE, shared=shared)
        self.access = StoreAccess(opener, patience=60, on_overdue=lambda _fault: None)
        self.expiry = Expiry(self.notes, self.access, idle=idle, wall=lambda: self.wall)

    async def sweep(self) -> set[str]:
        """What is left on the disk after a look."""
        await self.expiry.sweep(lambda: self.live, self.write)
        return set(self.disk.sessions)

    async def write(self) -> None:
        self.notes.were_written(*self.notes.next_batch())


async def test_those_idle_for_longer_than_the_bound_go(mock_clock: MockClock) -> None:
    bench = Bench(idle=100)
    bench.disk.sessions = {str(age): session(str(age), at=START - age) for age in (99, 101)}
    await bench.access.open()
    bench.expiry.start()
    assert await bench.sweep() == {"99"}


async def test_those_that_nobody_has_named_go_after_minutes(mock_clock: MockClock) -> None:
    bench = Bench(idle=30 * 24 * 3600)
    ages = {anonymous_key(letter * 32) or "": age for letter, age in (("a", 1), ("b", -1), ("c", 1))}
    now = START - ANONYMOUS_SECONDS
    bench.disk.sessions = {key: session(key, at=now - age) for key, age in {**ages, "named": 1}.items()}
    bench.live = [list(ages)[2]]
    await bench.access.open()
    bench.expiry.start()
    assert await bench.sweep() == {"named", *list(ages)[1:]}


async def test_those_in_use_stay_and_say_so(mock_clock: MockClock) -> None:
    bench = Bench(idle=100)
    bench.disk.sessions = {"used": session("used", at=START - 101)}
    bench.live = ["used"]
    bench.notes.read(bench.disk.sessions["used"])
    await bench.access.open()
    bench.expiry.start()
    assert await bench.sweep() == {"used"}
    known = bench.notes.known("used")
    assert known is not None
    assert known.seen_at == START


async def test_where_others_use_the_store_they_have_time_to_say_so(mock_clock: MockClock) -> None:
    bench = Bench(idle=1, shared=True)
    bench.disk.sessions = {str(age): session(str(age), at=START - age) for age in (1100, 1300)}
    await bench.access.open()
    bench.expiry.start()
    assert await bench.sweep() == {"1100"}


@pytest.mark.parametrize(
    ("idle", "period"), [(30 * 24 * 3600, FORGET_SECONDS), (60, 30), (0.1, SHORTEST_SECONDS)]
)
def test_a_short_bound_is_looked_after_more_often(idle: float, period: float) -> None:
    assert Bench(idle=idle).expiry.period == period
    assert Bench(idle=idle, shared=True).expiry.period == FORGET_SECONDS


@pytest.mark.parametrize("jump", [CLOCK_JUMP + 1, -CLOCK_JUMP - 1])
async def test_a_clock_that_was_set_puts_it_off_until_the_next_look(jump: float, mock_clock: MockClock) -> None:
    bench = Bench(idle=100)
    bench.disk.sessions = {"old": session("old", at=START - 1000)}
    await bench.access.open()
    bench.expiry.start()
    bench.wall += jump
    assert await bench.sweep() == {"old"}
    assert await bench.sweep() == set()


async def test_of_too_many_those_go_that_were_used_before_others(mock_clock: MockClock) -> None:
    bench = Bench(idle=100_000)
    ages = range(MAX_STORED + 2)
    bench.disk.sessions = {str(age): session(str(age), at=START - age) for age in ages}
    bench.live = [str(MAX_STORED + 1)]
    bench.notes.read(bench.disk.sessions[bench.live[0]])
    await bench.access.open()
    bench.expiry.start()
    left = await bench.sweep()
    assert len(left) == MAX_STORED + 1
    assert bench.live[0] in left


async def test_it_looks_at_once_when_many_are_new_and_again_soon_while_there_are_more(
    mock_clock: MockClock,
) -> None:
    bench = Bench(idle=100_000)
    assert not bench.expiry.is_crowded(MAX_BEGUN - 1)
    assert bench.expiry.is_crowded(1)
    await bench.access.open()
    bench.expiry.start()
    assert await bench.expiry.sweep(lambda: bench.live, bench.write) == FORGET_SECONDS
    assert not bench.expiry.is_crowded(1)
    ages = range(200_000, 200_000 + FORGOTTEN_AT_ONCE)
    bench.disk.sessions = {str(age): session(str(age), at=START - age) for age in ages}
    assert await bench.expiry.sweep(lambda: bench.live, bench.write) == SHORTEST_SECONDS
