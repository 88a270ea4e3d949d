"""Who uses the store, and how long anybody waits for it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
import trio

from daemon.config.state_url import parse
from daemon.state.faults import StoreCause, StoreFault
from daemon.state.store_access import Broadcast, Job, Opener, StoreAccess, TrustedSwitches, Worker, opener_of
from tests.unit.state.scripted_store import WHERE, Disk, fault
from tests.waiting import PATIENCE, until

if TYPE_CHECKING:
    from trio.testing import MockClock

    from tests.unit.state.places import Sqlite


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


def test_it_brings_what_the_store_remembers() -> None:
    disk = Disk()
    disk.off = {("a", "")}
    opened = Opener(disk.open, where=WHERE)()
    assert opened.memory.switched == {("a", "")}
    assert not opened.replaces


def test_a_store_that_cannot_be_read_is_closed_again() -> None:
    disk = Disk()
    disk.fails("recall", StoreCause.UNAVAILABLE)
    with pytest.raises(StoreFault):
        Opener(disk.open, where=WHERE, set_aside=disk.set_aside)()
    assert disk.open_stores == 0
    assert disk.asides == 0


@pytest.mark.parametrize("operation", ["open", "recall"])
def test_a_corrupt_one_is_set_aside_and_said_with_the_new_one(operation: str) -> None:
    disk = Disk()
    disk.fails(operation, StoreCause.CORRUPT)
    opener = Opener(disk.open, where=WHERE, set_aside=disk.set_aside)
    assert opener().replaces
    assert opener.aside == "disk.corrupt-1"
    assert not opener().replaces


def test_one_that_was_found_corrupt_in_use_is_set_aside_unseen() -> None:
    disk = Disk()
    opener = Opener(disk.open, where=WHERE, set_aside=disk.set_aside)
    opener()
    opener.mark_corrupt(fault(StoreCause.CORRUPT))
    assert opener().replaces
    assert disk.asides == 1
    opener.mark_corrupt(fault(StoreCause.CORRUPT))
    with pytest.raises(StoreFault, match="corrupt"):
        opener()
    assert disk.asides == 1


def test_a_new_one_that_does_not_open_at_first_is_still_a_new_one() -> None:
    disk = Disk()
    opener = Opener(disk.open, where=WHERE, set_aside=disk.set_aside)
    opener.mark_corrupt(fault(StoreCause.CORRUPT))
    disk.set_aside_leaves = StoreCause.LOCKED
    with pytest.raises(StoreFault, match="locked"):
        opener()
    disk.works()
    assert opener().replaces


def test_a_corrupt_one_that_cannot_be_set_aside_stays_corrupt() -> None:
    disk = Disk()
    disk.fails("open", StoreCause.CORRUPT)
    with pytest.raises(StoreFault, match="the test says so"):
        Opener(disk.open, where=WHERE)()
    disk.fails("set_aside", OSError("no such directory"))
    with pytest.raises(StoreFault, match="cannot be set aside: no such directory") as raised:
        Opener(disk.open, where=WHERE, set_aside=disk.set_aside)()
    assert raised.value.cause is StoreCause.CORRUPT


def test_a_file_that_is_no_store_is_set_aside_under_the_time_of_the_daemon(sqlite_place: Sqlite) -> None:
    opener = opener_of(sqlite_place.url, writer="one", wall=lambda: 0.0, trusted=TrustedSwitches())
    opener().store.close()
    sqlite_place.path.write_bytes(b"no store" * 1000)
    opened = opener()
    opened.store.close()
    assert opened.replaces
    assert "1970" in opener.aside
    assert not opener.shared
    assert opener.listen is None


def test_a_shared_database_tells_when_others_write() -> None:
    opener = opener_of(parse("postgresql://h/db"), writer="one", wall=lambda: 0.0, trusted=TrustedSwitches())
    assert opener.shared
    assert opener.listen is not None


def refuse() -> None:
    raise ZeroDivisionError


async def test_what_the_work_brings_stays_with_the_job() -> None:
    job = Worker("test").send(lambda: 7)
    with trio.fail_after(PATIENCE):
        await job.done.wait()
    assert job.result() == job.result() == 7


async def test_what_the_work_raises_is_raised_where_it_is_looked_at() -> None:
    job = Worker("test").send(refuse)
    with trio.fail_after(PATIENCE):
        await job.done.wait()
    with pytest.raises(ZeroDivisionError):
        job.result()


async def test_worker_are_done_in_their_order_and_never_side_by_side() -> None:
    worker, order, at_once, most = Worker("test"), list[int](), list[int](), list[int]()

    def work(number: int) -> None:
        at_once.append(number)
        most.append(len(at_once))
        order.append(number)
        at_once.remove(number)

    sent = [worker.send(lambda number=number: work(number)) for number in range(50)]  # type: ignore[misc]
    await until(lambda: all(job.done.is_set() for job in sent))
    assert order == list(range(50))
    assert max(most) == 1


async def test_one_that_hangs_holds_the_others_and_goes_on_when_nobody_waits() -> None:
    worker, release = Worker("test"), threading.Event()
    hanging = worker.send(lambda: release.wait(PATIENCE))
    behind = worker.send(lambda: "done")
    with trio.move_on_after(0):
        await hanging.done.wait()
    await trio.testing.wait_all_tasks_blocked()
    assert not hanging.done.is_set()
    assert not behind.done.is_set()
    release.set()
    await until(behind.done.is_set)
    assert hanging.result()
    assert behind.result() == "done"


async def test_one_that_is_withdrawn_is_not_begun() -> None:
    worker, release, begun = Worker("test"), threading.Event(), list[str]()
    hanging = worker.send(lambda: release.wait(PATIENCE))
    unwanted = worker.send(lambda: begun.append("unwanted"))
    wanted = worker.send(lambda: begun.append("wanted"))
    worker.withdraw(unwanted)
    worker.withdraw(hanging)
    release.set()
    await until(wanted.done.is_set)
    assert begun == ["wanted"]
    assert hanging.done.is_set()


async def test_where_no_thread_can_be_started_the_job_says_so_and_the_next_is_tried() -> None:
    class Threadless(Worker):
        refused = 0

        def _start(self, job: Job[object]) -> None:
            if self.refused == 0:
                self.refused = 1
                raise RuntimeError("can't start new thread")
            super()._start(job)

    worker = Threadless("test")
    failed, done = worker.send(lambda: 1), worker.send(lambda: 2)
    await until(done.done.is_set)
    with pytest.raises(RuntimeError, match="new thread"):
        failed.result()
    assert done.result() == 2


def test_a_thread_that_hangs_does_not_hold_the_loop() -> None:
    release, ended = threading.Event(), threading.Event()

    def hang() -> None:
        release.wait(PATIENCE)
        ended.set()

    async def main() -> None:
        Worker("test").send(hang)

    trio.run(main)
    release.set()
    assert ended.wait(PATIENCE)
