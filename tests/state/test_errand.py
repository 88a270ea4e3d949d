"""One piece of work after another, in one thread, whoever waits."""

from __future__ import annotations

import threading

import pytest
import trio

from daemon.state.errand import Errand, Errands
from tests.state.scripted_store import PATIENCE, until


def refuse() -> None:
    raise ZeroDivisionError


async def test_what_the_work_brings_stays_with_the_errand() -> None:
    errand = Errands("test").send(lambda: 7)
    with trio.fail_after(PATIENCE):
        await errand.back.wait()
    assert errand.result() == errand.result() == 7


async def test_what_the_work_raises_is_raised_where_it_is_looked_at() -> None:
    errand = Errands("test").send(refuse)
    with trio.fail_after(PATIENCE):
        await errand.back.wait()
    with pytest.raises(ZeroDivisionError):
        errand.result()


async def test_errands_are_done_in_their_order_and_never_side_by_side() -> None:
    errands, order, at_once, most = Errands("test"), list[int](), list[int](), list[int]()

    def work(number: int) -> None:
        at_once.append(number)
        most.append(len(at_once))
        order.append(number)
        at_once.remove(number)

    sent = [errands.send(lambda number=number: work(number)) for number in range(50)]  # type: ignore[misc]
    await until(lambda: all(errand.back.is_set() for errand in sent))
    assert order == list(range(50))
    assert max(most) == 1


async def test_one_that_hangs_holds_the_others_and_goes_on_when_nobody_waits() -> None:
    errands, release = Errands("test"), threading.Event()
    hanging = errands.send(lambda: release.wait(PATIENCE))
    behind = errands.send(lambda: "done")
    with trio.move_on_after(0):
        await hanging.back.wait()
    await trio.testing.wait_all_tasks_blocked()
    assert not hanging.back.is_set()
    assert not behind.back.is_set()
    release.set()
    await until(behind.back.is_set)
    assert hanging.result()
    assert behind.result() == "done"


async def test_one_that_is_withdrawn_is_not_begun() -> None:
    errands, release, begun = Errands("test"), threading.Event(), list[str]()
    hanging = errands.send(lambda: release.wait(PATIENCE))
    unwanted = errands.send(lambda: begun.append("unwanted"))
    wanted = errands.send(lambda: begun.append("wanted"))
    errands.withdraw(unwanted)
    errands.withdraw(hanging)
    release.set()
    await until(wanted.back.is_set)
    assert begun == ["wanted"]
    assert hanging.back.is_set()


async def test_where_no_thread_can_be_started_the_errand_says_so_and_the_next_is_tried() -> None:
    class Threadless(Errands):
        refused = 0

        def _start(self, errand: Errand[object]) -> None:
            if self.refused == 0:
                self.refused = 1
                raise RuntimeError("can't start new thread")
            super()._start(errand)

    errands = Threadless("test")
    failed, done = errands.send(lambda: 1), errands.send(lambda: 2)
    await until(done.back.is_set)
    with pytest.raises(RuntimeError, match="new thread"):
        failed.result()
    assert done.result() == 2


def test_a_thread_that_hangs_does_not_hold_the_loop() -> None:
    release, ended = threading.Event(), threading.Event()

    def hang() -> None:
        release.wait(PATIENCE)
        ended.set()

    async def main() -> None:
        Errands("test").send(hang)

    trio.run(main)
    release.set()
    assert ended.wait(PATIENCE)
