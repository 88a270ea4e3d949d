"""Approvals over the lives of a daemon, and with two daemons on one store."""

from collections.abc import Iterable
from itertools import permutations

import pytest
from trio.testing import MockClock

from daemon.catalog.snapshot import Catalog, fold
from daemon.catalog.trust import FIRST, HeldBecause
from daemon.facts import Approved, Fact, ServerRecord
from daemon.history.event import EventKind
from daemon.model import Approval, Tool
from daemon.state.sql import StoreCause
from tests.unit.actors.recording import START, Stage, begin, life
from tests.unit.actors.test_recorder import retried
from tests.unit.actors.test_recorder_shared import two, url
from tests.unit.catalog.samples import catalog_of, listed, servers, tool
from tests.unit.state.postgres import postgres
from tests.unit.state.scripted_store import Disk
from tests.waiting import until

__all__ = ["postgres", "url"]

LOG, OTHER_LOG = (tool("a", "log", description=text) for text in ("Shows commits.", "Deletes commits."))
DIFF = tool("a", "diff")


async def lists(stage: Stage, *tools: Tool) -> None:
    """Server a lists these, and the catalog knows."""
    stage.registry.tell(listed("a", *tools))
    await stage.registry.settle()


def held(catalog: Catalog) -> dict[str, HeldBecause]:
    """The held tools of server a."""
    return {name: each.because for name, each in catalog.servers["a"].tool_list.held.items()}


def offered(stage: Stage) -> set[str]:
    return set(stage.entry().tools or {})


def of_another_run(approvals: Iterable[Approval]) -> set[tuple[str, str, float]]:
    return {(each.name, each.by, each.at) for each in approvals}


async def approve(stage: Stage, *tools: Tool, by: str = "olga") -> None:
    """Somebody approves tools of server a in this form."""
    identity = stage.entry().gate.identity
    given = [Approval(identity=identity, kind=each.kind, name=each.name, raw=each.raw, by=by) for each in tools]
    stage.tell(Approved(approvals=tuple(given), at=START))
    await stage.registry.settle()


@pytest.mark.parametrize("early", [True, False], ids=["listed before the store is read", "after"])
async def test_what_changed_while_the_daemon_was_away_is_held_and_becomes_no_baseline(
    early: bool, disk: Disk
) -> None:
    async with life(begin(disk.open, trust="changes"), disk) as stage:
        await lists(stage, LOG)
        await stage.written()
    assert of_another_run(disk.approvals) == {("", FIRST, 0.0), ("log", FIRST, 0.0)}
    told: list[EventKind] = []
    for number in range(3):
        if early:
            disk.fails("open", StoreCause.UNAVAILABLE)
        stage = begin(disk.open, trust="changes", note=lambda event: told.append(event.kind))
        async with life(stage, disk):
            if early:
                await lists(stage, OTHER_LOG, DIFF)
                assert held(stage.registry.catalog.value) == dict.fromkeys(("log", "diff"), HeldBecause.UNKNOWN)
                assert told.count(EventKind.HELD) == number
                disk.works()
                await stage.recorder.open()
                await stage.registry.settle()
            else:
                assert offered(stage) == ({"log"} if not number else set())
                await lists(stage, OTHER_LOG, DIFF)
            now = {"log": HeldBecause.CHANGED, "diff": HeldBecause.NEW}
            assert (offered(stage), held(stage.registry.catalog.value)) == (set(), now)
            assert told.count(EventKind.HELD) == number + 1
            await stage.written()
        assert len(disk.approvals) == 2


def test_in_any_order_of_what_is_known_what_changed_is_held(disk: Disk) -> None:
    config = {"trust": "changes", "mcpServers": servers("a")}
    before = fold(fold(catalog_of(config), Approved()), listed("a", LOG))
    entry = before.servers["a"]
    stored = ServerRecord(
        server="a",
        fingerprint=entry.fingerprint,
        epoch=entry.epoch,
        lists={kind: tuple(known.all.values()) for kind, known in entry.lists.items()},
    )
    (known,) = (before.approvals or {}).values()
    approved = Approved(approvals=tuple(each for forms in known.values() for each in forms))
    facts: tuple[Fact, ...] = (approved, stored, listed("a", OTHER_LOG))
    for order in permutations(facts):
        catalog = catalog_of(config)
        for fact in order:
            catalog = fold(catalog, fact)
        assert held(catalog) == {"log": HeldBecause.CHANGED}, order
        assert catalog.approvals == before.approvals, order


async def test_what_somebody_approved_is_offered_in_the_next_life_and_who_and_when_is_known(disk: Disk) -> None:
    async with life(begin(disk.open, trust="none"), disk) as stage:
        await lists(stage, LOG, DIFF)
        await approve(stage, LOG)
        assert offered(stage) == {"log"}
        assert await stage.recorder.kept()
        assert [each.name for each in disk.approvals] == ["log"], "it has waited for the store"
        await stage.written()
    async with life(begin(disk.open, trust="none"), disk) as stage:
        await lists(stage, LOG, DIFF)
        assert (offered(stage), held(stage.registry.catalog.value)) == ({"log"}, {"diff": HeldBecause.NEW})
        (known,) = (stage.registry.catalog.value.approvals or {}).values()
        assert [each.by for forms in known.values() for each in forms] == ["olga"]
        await stage.written()
    assert len(disk.approvals) == 1, "what is known is not written again"


@pytest.mark.parametrize("cause", [StoreCause.UNAVAILABLE, StoreCause.LOST])
async def test_a_store_that_is_edited_behind_a_running_daemon_approves_nothing_and_gets_back_what_it_lost(
    disk: Disk, mock_clock: MockClock, cause: StoreCause
) -> None:
    async with life(begin(disk.open, trust="none"), disk) as stage:
        await lists(stage, LOG, DIFF)
        await approve(stage, LOG)
        await stage.written()
        (log,) = disk.approvals
        disk.approvals = [Approval(identity=log.identity, kind=DIFF.kind, name="diff", raw=DIFF.raw)]
        disk.fails_once("check", cause)
        mock_clock.jump(10.1)
        await retried(mock_clock, lambda: log in disk.approvals)
        assert offered(stage) == {"log"}


async def test_without_a_store_nothing_is_approved_and_the_rest_is_served(
    disk: Disk, logged: list[str], mock_clock: MockClock
) -> None:
    disk.fails("open", StoreCause.UNAVAILABLE)
    async with life(begin(disk.open, trust="changes"), disk, finish=False) as stage:
        await lists(stage, LOG)
        assert held(stage.registry.catalog.value) == {"log": HeldBecause.UNKNOWN}
        assert stage.registry.catalog.value.approvals is None
    async with life(begin(disk.open), disk, finish=False) as stage:
        await lists(stage, LOG)
        assert offered(stage) == {"log"}


async def test_approvals_that_could_not_be_written_are_counted_at_the_end(
    disk: Disk, logged: list[str]
) -> None:
    async with life(begin(disk.open, trust="none"), disk) as stage:
        await stage.written()
        await lists(stage, LOG)
        await stage.written()
        disk.fails("keep", StoreCause.FULL)
        await approve(stage, LOG)
        assert not await stage.recorder.kept()
        await until(lambda: stage.degraded)
        # The server's epoch, and the approval.
        assert stage.recorder.persistence.value.waiting == 2
    assert [line for line in logged if "2 changes could not be written" in line]


async def test_what_one_daemon_approved_counts_at_the_other_and_what_changed_is_held_at_both(
    url: str, mock_clock: MockClock
) -> None:
    async with two(url, trust="changes") as (one, other):
        await lists(one, LOG)
        await until(lambda: offered(other) == {"log"})
        await lists(other, LOG, DIFF)
        await lists(one, OTHER_LOG)
        assert held(other.registry.catalog.value) == {"diff": HeldBecause.NEW}
        assert held(one.registry.catalog.value) == {"log": HeldBecause.CHANGED}
        await approve(one, DIFF, OTHER_LOG)
        await until(lambda: offered(other) == {"log", "diff"})
        await lists(other, OTHER_LOG)
        assert offered(other) == {"log"}
        await one.written()
        await other.written()
        assert one.registry.catalog.value.approvals == other.registry.catalog.value.approvals
