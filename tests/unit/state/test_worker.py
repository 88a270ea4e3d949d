"""One piece of work after another, in one thread, whoever waits."""

from __future__ import annotations

import threading

import pytest
import trio

from daemon.state.store_access import Job, Worker
from tests.waiting import PATIENCE, until


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
