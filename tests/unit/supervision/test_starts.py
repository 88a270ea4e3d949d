"""Who may start now, in virtual time: places are for those who work."""

from collections.abc import Callable

import pytest
import trio
import trio.testing

from daemon.processes.marks import Effort
from daemon.supervision import starts

pytestmark = pytest.mark.usefixtures("autojump_clock")

QUICKLY = starts.LOOK_SECONDS * (starts.IDLE_LOOKS + 1)
"""Seconds within which a start is seen to wait: a look to compare with, and as many as it takes."""


class Machine:
    """What servers do on a machine, by their marks: how much of a CPU each uses."""

    def __init__(self, nursery: trio.Nursery, places: int = 1) -> None:
        self.uses: dict[int, Callable[[float], Effort]] = {}
        self.looks = 0
        self.broken = False
        self.starts = starts.StartQueue(places, self._look)
        nursery.start_soon(self.starts.watch)

    async def _look(self, marks: frozenset[int]) -> dict[int, Effort]:
        await trio.lowlevel.checkpoint()
        self.looks += 1
        if self.broken:
            raise OSError(24, "Too many open files")
        now = trio.current_time()
        return {mark: self.uses[mark](now) for mark in marks if mark in self.uses}

    def ask(
        self, rank: starts.Rank = starts.Rank.OTHER, *, mark: int | None = None, spawns: bool = True
    ) -> starts.QueuedStart:
        start = self.starts.ask(rank, lambda _before: None, spawns=spawns)
        if mark is not None:
            start.runs_as(mark)
        return start


def share(of_a_cpu: float) -> Callable[[float], Effort]:
    return lambda now: Effort(of_a_cpu * now, wants_more=False)


async def within(seconds: float, start: starts.QueuedStart) -> bool:
    with trio.move_on_after(seconds):
        await start.granted.wait()
    return start.granted.is_set()


@pytest.mark.parametrize("rank", [starts.Rank.CALLED, starts.Rank.SERVED])
async def test_who_is_missed_does_not_wait_for_those_that_nobody_misses(
    rank: starts.Rank, nursery: trio.Nursery
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


async def test_who_is_called_at_its_place_takes_none_of_those_that_others_miss(nursery: trio.Nursery) -> None:
    machine = Machine(nursery, places=2)
    for start in [machine.ask() for _ in range(2)]:
        start.hurry()
    assert machine.ask(starts.Rank.SERVED).granted.is_set()


async def test_who_runs_elsewhere_waits_for_a_place_and_keeps_it_briefly(nursery: trio.Nursery) -> None:
    machine = Machine(nursery)
    machine.ask(spawns=False)
    following = machine.ask(spawns=False)
    assert not await within(starts.BRIEF_SECONDS - 0.01, following)
    assert await within(starts.LOOK_SECONDS, following)
    assert await within(starts.BRIEF_SECONDS + starts.LOOK_SECONDS, machine.ask())
    assert machine.looks == 0


@pytest.mark.parametrize("used", [0.0, 0.05, None], ids=["hangs", "downloads", "cannot be seen"])
async def test_who_waits_gives_its_place_away_soon(used: float | None, nursery: trio.Nursery) -> None:
    machine = Machine(nursery)
    if used is not None:
        machine.uses[1] = share(used)
    machine.ask(mark=1)
    assert await within(QUICKLY + 0.01, machine.ask())


WORKING: dict[str, Callable[[float], Effort]] = {
    "it uses a quarter of a CPU": share(0.25),
    "it gets no CPU and would": lambda now: Effort(0.0, wants_more=True),
    "it works at every other look": lambda now: Effort(now // (2 * starts.LOOK_SECONDS), wants_more=False),
    "its processes come and go": lambda now: Effort(-now, wants_more=False),
}


@pytest.mark.parametrize("work", WORKING)
async def test_who_works_keeps_its_place_until_it_is_over(work: str, nursery: trio.Nursery) -> None:
    machine = Machine(nursery)
    machine.uses[1] = WORKING[work]
    worker, waiting = machine.ask(mark=1), machine.ask()
    assert not await within(starts.HOLD_SECONDS - 1, waiting)
    worker.leave()
    assert waiting.granted.is_set()


@pytest.mark.parametrize(("used", "keeps"), [(1.0, QUICKLY), (0.0, starts.LOOK_SECONDS * starts.IDLE_LOOKS)])
async def test_a_second_process_of_the_same_start_is_looked_at_afresh(
    used: float, keeps: float, nursery: trio.Nursery
) -> None:
    machine = Machine(nursery)
    machine.uses[1], machine.uses[2] = share(0.0), share(used)
    worker, waiting = machine.ask(mark=1), machine.ask()
    await trio.sleep(QUICKLY - starts.LOOK_SECONDS / 2)
    worker.runs_as(2)
    assert not await within(keeps, waiting)


async def test_while_nobody_can_look_places_are_kept_and_looking_goes_on(nursery: trio.Nursery) -> None:
    machine = Machine(nursery)
    machine.broken = True
    machine.ask(mark=1)
    waiting = machine.ask()
    assert not await within(10 * QUICKLY, waiting)
    machine.broken = False
    assert await within(QUICKLY + 0.01, waiting)


@pytest.mark.parametrize("mark", [1, None], ids=["it works", "it has not begun to run"])
async def test_who_never_finishes_does_not_keep_its_place_for_ever(
    mark: int | None, nursery: trio.Nursery
) -> None:
    machine = Machine(nursery)
    machine.uses[1] = share(1.0)
    machine.ask(mark=mark)
    waiting = machine.ask()
    assert not await within(starts.HOLD_SECONDS - 1, waiting)
    assert await within(1 + starts.LOOK_SECONDS, waiting)


async def test_nobody_looks_while_nobody_waits_for_a_place_and_then_looking_goes_on(
    nursery: trio.Nursery,
) -> None:
    machine = Machine(nursery)
    for _ in range(3):
        before = machine.looks
        holder = machine.ask(mark=1)
        await trio.sleep(100)
        assert machine.looks <= before + 1
        following = machine.ask()
        assert await within(QUICKLY + 0.01, following)
        for start in (holder, following, following):
            start.leave()
