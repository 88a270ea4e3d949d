"""Who may start now, in virtual time: places are for those who work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from daemon.processes.marks import Effort
from daemon.supervision.starts import (
    BRIEF_SECONDS,
    HOLD_SECONDS,
    IDLE_LOOKS,
    LOOK_SECONDS,
    QueuedStart,
    Rank,
    StartQueue,
)

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = pytest.mark.usefixtures("autojump_clock")

QUICKLY = LOOK_SECONDS * (IDLE_LOOKS + 1)
"""Seconds within which a start is seen to wait: a look to compare with, and as many as it takes."""


class Machine:
    """What servers do on a machine, by their marks: how much of a CPU each uses."""

    def __init__(self, nursery: trio.Nursery, places: int = 1) -> None:
        self.uses: dict[int, Callable[[float], Effort]] = {}
        self.looks = 0
        self.broken = False
        self.starts = StartQueue(places, self._look)
        nursery.start_soon(self.starts.watch)

    async def _look(self, marks: frozenset[int]) -> dict[int, Effort]:
        await trio.lowlevel.checkpoint()
        self.looks += 1
        if self.broken:
            raise OSError(24, "Too many open files")
        now = trio.current_time()
        return {mark: self.uses[mark](now) for mark in marks if mark in self.uses}

    def ask(self, rank: Rank = Rank.OTHER, *, mark: int | None = None, spawns: bool = True) -> QueuedStart:
        start = self.starts.ask(rank, lambda _before: None, spawns=spawns)
        if mark is not None:
            start.runs_as(mark)
        return start


def share(of_a_cpu: float) -> Callable[[float], Effort]:
    return lambda now: Effort(of_a_cpu * now, wants_more=False)


async def within(seconds: float, start: QueuedStart) -> bool:
    with trio.move_on_after(seconds):
        await start.granted.wait()
    return start.granted.is_set()


async def test_so_many_have_a_place_and_the_others_follow_as_they_came(nursery: trio.Nursery) -> None:
    machine = Machine(nursery, places=2)
    first, second, third, fourth = (machine.ask() for _ in range(4))
    assert [start.granted.is_set() for start in (first, second, third, fourth)] == [True, True, False, False]
    second.leave()
    second.leave()
    assert [third.granted.is_set(), fourth.granted.is_set()] == [True, False]


async def test_everybody_in_line_is_told_how_many_are_before_it(nursery: trio.Nursery) -> None:
    told: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    machine = Machine(nursery)
    holder = machine.ask()
    a, _b, _c = (machine.starts.ask(Rank.OTHER, before.append) for before in told.values())
    holder.leave()
    assert a.granted.is_set()
    assert {name: before[-1] for name, before in told.items()} == {"a": 0, "b": 0, "c": 1}
    assert told["c"] == [2, 1]


async def test_who_is_called_goes_first_then_who_was_in_use_then_the_others(nursery: trio.Nursery) -> None:
    machine = Machine(nursery)
    holder, other, late = machine.ask(Rank.SERVED), machine.ask(), machine.ask()
    served, called = machine.ask(Rank.SERVED), machine.ask(Rank.CALLED)
    late.hurry()
    order = []
    for leaving in (holder, called, late, served):
        leaving.leave()
        order.append([start.granted.is_set() for start in (called, late, served, other)])
    assert order == [[True] + [False] * 3, [True] * 2 + [False] * 2, [True] * 3 + [False], [True] * 4]


@pytest.mark.parametrize("rank", [Rank.CALLED, Rank.SERVED])
async def test_who_is_missed_does_not_wait_for_those_that_nobody_misses(
    rank: Rank, nursery: trio.Nursery
) -> None:
    machine = Machine(nursery, places=2)
    herd = [machine.ask() for _ in range(4)]
    missed = [machine.ask(rank) for _ in range(4)]
    assert [start.granted.is_set() for start in missed] == [True, True, False, False]
    assert [start.granted.is_set() for start in herd] == [True, True, False, False]
    missed[0].leave()
    assert [start.granted.is_set() for start in missed] == [True, True, True, False]
    for start in (missed[1], missed[2], missed[3], herd[0]):
        assert not herd[2].granted.is_set()
        start.leave()
    assert [start.granted.is_set() for start in herd] == [True, True, True, False]


async def test_no_more_than_may_start_of_many_that_are_lost_at_once(nursery: trio.Nursery) -> None:
    machine = Machine(nursery, places=4)
    lost = [machine.ask(Rank.SERVED) for _ in range(50)]
    assert [start.granted.is_set() for start in lost] == [True] * 4 + [False] * 46
    while lost:
        lost.pop(0).leave()
        assert sum(start.granted.is_set() for start in lost) == min(4, len(lost))


async def test_who_is_called_at_its_place_takes_none_of_those_that_others_miss(nursery: trio.Nursery) -> None:
    machine = Machine(nursery, places=2)
    for start in [machine.ask() for _ in range(2)]:
        start.hurry()
    assert machine.ask(Rank.SERVED).granted.is_set()


async def test_who_leaves_the_line_is_passed_over(nursery: trio.Nursery) -> None:
    machine = Machine(nursery)
    holder, gone, last = machine.ask(), machine.ask(), machine.ask()
    gone.leave()
    holder.leave()
    assert [gone.granted.is_set(), last.granted.is_set()] == [False, True]


async def test_who_runs_elsewhere_waits_for_a_place_and_keeps_it_briefly(nursery: trio.Nursery) -> None:
    machine = Machine(nursery)
    machine.ask(spawns=False)
    following = machine.ask(spawns=False)
    assert not await within(BRIEF_SECONDS - 0.01, following)
    assert await within(LOOK_SECONDS, following)
    assert await within(BRIEF_SECONDS + LOOK_SECONDS, machine.ask())
    assert machine.looks == 0


@pytest.mark.parametrize("used", [0.0, 0.05], ids=["hangs", "downloads"])
async def test_who_waits_gives_its_place_away_soon(used: float, nursery: trio.Nursery) -> None:
    machine = Machine(nursery)
    machine.uses[1] = share(used)
    machine.ask(mark=1)
    assert await within(QUICKLY + 0.01, machine.ask())


async def test_who_cannot_be_seen_counts_as_waiting(nursery: trio.Nursery) -> None:
    machine = Machine(nursery)
    machine.ask(mark=1)
    assert await within(QUICKLY + 0.01, machine.ask())


WORKING: dict[str, Callable[[float], Effort]] = {
    "it uses a quarter of a CPU": share(0.25),
    "it gets no CPU and would": lambda now: Effort(0.0, wants_more=True),
    "it works at every other look": lambda now: Effort(now // (2 * LOOK_SECONDS), wants_more=False),
    "its processes come and go": lambda now: Effort(-now, wants_more=False),
}


@pytest.mark.parametrize("work", WORKING)
async def test_who_works_keeps_its_place_until_it_is_over(work: str, nursery: trio.Nursery) -> None:
    machine = Machine(nursery)
    machine.uses[1] = WORKING[work]
    worker, waiting = machine.ask(mark=1), machine.ask()
    assert not await within(HOLD_SECONDS - 1, waiting)
    worker.leave()
    assert waiting.granted.is_set()


async def test_who_never_finishes_does_not_keep_its_place_for_ever(nursery: trio.Nursery) -> None:
    machine = Machine(nursery)
    machine.uses[1] = share(1.0)
    machine.ask(mark=1)
    assert await within(HOLD_SECONDS + LOOK_SECONDS, machine.ask())


async def test_what_has_not_begun_to_run_keeps_its_place_for_as_long(nursery: trio.Nursery) -> None:
    machine = Machine(nursery)
    machine.ask()
    waiting = machine.ask()
    assert not await within(HOLD_SECONDS - 1, waiting)
    assert await within(1 + LOOK_SECONDS, waiting)


async def test_a_second_process_of_the_same_start_is_looked_at_afresh(nursery: trio.Nursery) -> None:
    machine = Machine(nursery)
    machine.uses[1], machine.uses[2] = share(0.0), share(1.0)
    worker, waiting = machine.ask(mark=1), machine.ask()
    await trio.sleep(QUICKLY - LOOK_SECONDS / 2)
    worker.runs_as(2)
    assert not await within(QUICKLY, waiting)


async def test_while_nobody_can_look_places_are_kept_and_looking_goes_on(nursery: trio.Nursery) -> None:
    machine = Machine(nursery)
    machine.broken = True
    machine.ask(mark=1)
    waiting = machine.ask()
    assert not await within(10 * QUICKLY, waiting)
    machine.broken = False
    assert await within(QUICKLY + 0.01, waiting)


async def test_looking_goes_on_after_nobody_has_waited(nursery: trio.Nursery) -> None:
    machine = Machine(nursery)
    await trio.testing.wait_all_tasks_blocked()
    for _ in range(3):
        holder = machine.ask(mark=1)
        await trio.sleep(100)
        following = machine.ask()
        assert await within(QUICKLY + 0.01, following)
        holder.leave()
        following.leave()


async def test_nobody_looks_while_nobody_waits_for_a_place(nursery: trio.Nursery) -> None:
    machine = Machine(nursery)
    holder = machine.ask(mark=1)
    await trio.sleep(100)
    assert machine.looks == 0
    machine.ask()
    holder.leave()
    await trio.sleep(100)
    assert machine.looks <= 1
