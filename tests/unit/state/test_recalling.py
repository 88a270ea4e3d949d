"""What the store holds is told once, and nothing is compared before it has been taken in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from daemon.catalog.loaded import anonymous_key
from daemon.catalog.snapshot import fold
from daemon.facts import ServerRecord, Switched
from daemon.kit.waiting import ActorGone, Watch
from daemon.model import Kind
from daemon.state.notes import SessionNotes
from daemon.state.poll import (
    ANONYMOUS_SECONDS,
    CLOCK_JUMP,
    FORGET_SECONDS,
    LAST_SETTLE_SECONDS,
    MAX_BEGUN,
    MAX_STORED,
    SHORTEST_SECONDS,
    Expiry,
    Recalling,
)
from daemon.state.server_notes import ServerNotes
from daemon.state.sql import FORGOTTEN_AT_ONCE
from daemon.state.store_access import Opener, StoreAccess
from tests.unit.actors.recording import START, session
from tests.unit.catalog.samples import catalog_of, listed, servers
from tests.unit.state.samples import with_lists
from tests.unit.state.scripted_store import WHERE, Disk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trio.testing import MockClock

    from daemon.facts import Fact


CONFIG = {"mcpServers": servers("a", "b")}


class Bench:
    def __init__(self) -> None:
        self.told: list[Fact] = []
        self.settled = 0
        self.settling: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
        self.catalog = Watch(catalog_of(CONFIG))
        self.recalling = Recalling(
            ServerNotes(), catalog=self.catalog, tell=self.told.append, settle=self.settle, where="disk"
        )

    async def settle(self) -> None:
        self.settled += 1
        await self.settling()


def record() -> ServerRecord:
    (found,) = ServerNotes().difference(fold(catalog_of(CONFIG), listed("a", "read"))).batch.servers
    return with_lists(found, prompt=["review"])


def test_a_record_is_told_when_it_is_news() -> None:
    bench = Bench()
    bench.recalling.servers([record()], (), by_another=False)
    bench.recalling.servers([record()], ())
    (fact,) = bench.told
    assert isinstance(fact, ServerRecord)
    assert (fact.server, fact.epoch, fact.by_another) == ("a", 1, False)
    assert fact.lists == {Kind.TOOL: record().tools, **record().definitions}
    assert len(fact.lists) > 1


def test_switches_are_told_at_the_start_and_when_they_differ() -> None:
    bench = Bench()
    bench.recalling.switches(frozenset())
    assert bench.told == []
    bench.recalling.switches(frozenset(), certainly=True)
    bench.recalling.switches(frozenset({("a", "")}))
    assert bench.told == [Switched(off=frozenset()), Switched(off=frozenset({("a", "")}))]


async def test_at_the_end_nobody_waits_for_a_catalog_that_does_not_settle(autojump_clock: MockClock) -> None:
    bench = Bench()
    bench.recalling.switches(frozenset(), certainly=True)
    bench.settling = trio.sleep_forever
    await bench.recalling.settle_at_last()
    assert trio.current_time() == LAST_SETTLE_SECONDS
    bench.settling = gone
    await bench.recalling.settle_at_last()
    assert bench.recalling.untaken
    bench.settling = trio.lowlevel.checkpoint
    await bench.recalling.settle_at_last()
    assert not bench.recalling.untaken


async def gone() -> None:
    raise ActorGone


def test_of_an_epoch_that_the_store_gave_only_that_is_told() -> None:
    bench = Bench()
    bench.recalling.epochs([record()], {"a": 9, "b": 3})
    (fact,) = bench.told
    assert isinstance(fact, ServerRecord)
    assert (fact.server, fact.epoch, fact.by_another) == ("a", 9, True)
    assert fact.lists == {}


async def test_it_waits_for_the_catalog_only_after_something_was_told() -> None:
    bench = Bench()
    await bench.recalling.settle()
    assert bench.settled == 0
    bench.recalling.servers([record()], ())
    assert bench.recalling.untaken
    await bench.recalling.settle()
    await bench.recalling.settle()
    assert bench.settled == 1
    assert not bench.recalling.untaken


class ExpiryBench:
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
    bench = ExpiryBench(idle=100)
    bench.disk.sessions = {str(age): session(str(age), at=START - age) for age in (99, 101)}
    await bench.access.open()
    bench.expiry.start()
    assert await bench.sweep() == {"99"}


async def test_those_that_nobody_has_named_go_after_minutes(mock_clock: MockClock) -> None:
    bench = ExpiryBench(idle=30 * 24 * 3600)
    ages = {anonymous_key(letter * 32) or "": age for letter, age in (("a", 1), ("b", -1), ("c", 1))}
    now = START - ANONYMOUS_SECONDS
    bench.disk.sessions = {key: session(key, at=now - age) for key, age in {**ages, "named": 1}.items()}
    bench.live = [list(ages)[2]]
    await bench.access.open()
    bench.expiry.start()
    assert await bench.sweep() == {"named", *list(ages)[1:]}


async def test_those_in_use_stay_and_say_so(mock_clock: MockClock) -> None:
    bench = ExpiryBench(idle=100)
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
    bench = ExpiryBench(idle=1, shared=True)
    bench.disk.sessions = {str(age): session(str(age), at=START - age) for age in (1100, 1300)}
    await bench.access.open()
    bench.expiry.start()
    assert await bench.sweep() == {"1100"}


@pytest.mark.parametrize(
    ("idle", "period"), [(30 * 24 * 3600, FORGET_SECONDS), (60, 30), (0.1, SHORTEST_SECONDS)]
)
def test_a_short_bound_is_looked_after_more_often(idle: float, period: float) -> None:
    assert ExpiryBench(idle=idle).expiry.period == period
    assert ExpiryBench(idle=idle, shared=True).expiry.period == FORGET_SECONDS


@pytest.mark.parametrize("jump", [CLOCK_JUMP + 1, -CLOCK_JUMP - 1])
async def test_a_clock_that_was_set_puts_it_off_until_the_next_look(jump: float, mock_clock: MockClock) -> None:
    bench = ExpiryBench(idle=100)
    bench.disk.sessions = {"old": session("old", at=START - 1000)}
    await bench.access.open()
    bench.expiry.start()
    bench.wall += jump
    assert await bench.sweep() == {"old"}
    assert await bench.sweep() == set()


async def test_of_too_many_those_go_that_were_used_before_others(mock_clock: MockClock) -> None:
    bench = ExpiryBench(idle=100_000)
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
    bench = ExpiryBench(idle=100_000)
    assert not bench.expiry.is_crowded(MAX_BEGUN - 1)
    assert bench.expiry.is_crowded(1)
    await bench.access.open()
    bench.expiry.start()
    assert await bench.expiry.sweep(lambda: bench.live, bench.write) == FORGET_SECONDS
    assert not bench.expiry.is_crowded(1)
    ages = range(200_000, 200_000 + FORGOTTEN_AT_ONCE)
    bench.disk.sessions = {str(age): session(str(age), at=START - age) for age in ages}
    assert await bench.expiry.sweep(lambda: bench.live, bench.write) == SHORTEST_SECONDS
