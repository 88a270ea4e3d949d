"""What the store holds is told once, and nothing is compared before it has been taken in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from daemon.catalog.snapshot import fold
from daemon.facts import ServerRecord, Switched
from daemon.kit.waiting import ActorGone, Watch
from daemon.model import Kind
from daemon.state.recalling import LAST_SETTLE_SECONDS, Recalling
from daemon.state.server_notes import ServerNotes
from tests.unit.catalog.samples import catalog_of, listed, servers
from tests.unit.state.samples import with_lists

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
