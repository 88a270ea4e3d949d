"""Who uses the store, and how long anybody waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from daemon.state.faults import StoreCause, StoreFault
from daemon.state.store_access import Broadcast, Opener, StoreAccess
from tests.unit.state.scripted_store import WHERE, Disk
from tests.waiting import until

if TYPE_CHECKING:
    from trio.testing import MockClock


def access(disk: Disk, overdue: list[StoreFault] | None = None) -> StoreAccess:
    heard = [] if overdue is None else overdue
    return StoreAccess(Opener(disk.open, where=WHERE), patience=1.5, on_overdue=heard.append)


async def test_a_broadcast_wakes_everybody_who_waits_each_time() -> None:
    broadcast, woken = Broadcast(), list[int]()

    async def wait(number: int) -> None:
        for _ in range(2):
            await broadcast.wait()
            woken.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(2):
            nursery.start_soon(wait, number)
        for times in (1, 2):
            await trio.testing.wait_all_tasks_blocked()
            broadcast.notify()
            await until(lambda times=times: len(woken) == 2 * times)  # type: ignore[misc]
    assert sorted(woken) == [0, 0, 1, 1]


async def test_who_asks_before_it_is_open_waits_for_it(mock_clock: MockClock) -> None:
    it = access(Disk())
    answers: list[object] = []

    async def ask() -> None:
        answers.append(await it.ask(lambda store: store.session("key")))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        assert answers == []
        await it.open()
    assert answers == [None]


async def test_who_asks_when_it_was_given_up_hears_why_at_once(mock_clock: MockClock) -> None:
    it = access(Disk())
    it.give_up(StoreFault(StoreCause.LOCKED, WHERE, "somebody has it"))
    with pytest.raises(StoreFault, match="somebody has it"):
        await it.ask(lambda store: store.session("key"))


async def test_a_reader_that_meets_a_fault_leaves_word_of_it_if_it_costs_the_store(
    mock_clock: MockClock,
) -> None:
    disk = Disk()
    it = access(disk)
    await it.open()
    for kind, suspected in (
        (StoreCause.LOCKED, False),
        (StoreCause.FULL, False),
        (StoreCause.CORRUPT, True),
        (StoreCause.LOST, True),
    ):
        disk.fails("session", kind)
        it.suspicion = None
        with pytest.raises(StoreFault):
            await it.ask(lambda store: store.session("key"))
        assert (it.suspicion is not None) == suspected


async def test_its_owner_waits_and_everybody_else_is_told_that_it_does_not_answer(
    mock_clock: MockClock,
) -> None:
    disk, overdue = Disk(), list[StoreFault]()
    it = access(disk, overdue)
    await it.open()
    disk.hangs("check")
    done: list[str] = []

    async def use() -> None:
        await it.use(lambda store: store.check())
        done.append("used")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(use)
        await until(lambda: disk.asked["check"] == 1)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(1.6)
        await until(lambda: len(overdue) == 1)
        with pytest.raises(StoreFault, match=r"has not answered for 1\.5 s"):
            await it.ask(lambda store: store.session("key"))
        assert done == []
        disk.goes_on()
    assert done == ["used"]
    assert await it.ask(lambda store: store.session("key")) is None


async def test_letting_go_closes_it_after_what_is_under_way(mock_clock: MockClock) -> None:
    disk = Disk()
    it = access(disk)
    await it.open()
    assert disk.open_stores == 1
    closing = it.close()
    assert closing is not None
    await until(closing.done.is_set)
    assert disk.open_stores == 0
    assert it.close() is None


async def test_a_store_that_does_not_close_well_is_let_go_all_the_same(mock_clock: MockClock) -> None:
    disk = Disk()
    it = access(disk)
    await it.open()
    disk.fails("close", ZeroDivisionError())
    closing = it.close()
    assert closing is not None
    await until(closing.done.is_set)
    closing.result()


async def test_who_is_cancelled_while_the_store_works_hears_what_came_of_it(mock_clock: MockClock) -> None:
    disk = Disk()
    it = access(disk)
    await it.open()
    disk.hangs("check")
    done: list[str] = []

    async def write() -> None:
        await it.use(lambda store: store.check())
        done.append("written")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await until(lambda: disk.asked["check"] == 1)
        nursery.cancel_scope.cancel()
        disk.goes_on()
    assert done == ["written"]


async def test_an_attempt_to_open_it_that_nobody_waited_for_is_taken_up_again(mock_clock: MockClock) -> None:
    disk = Disk()
    it = access(disk)
    disk.hangs("open")
    with trio.CancelScope() as scope:
        scope.cancel()
        await it.open()
    assert it.being_opened
    disk.goes_on()
    await it.open()
    assert disk.asked["open"] == 1
    assert not it.being_opened
