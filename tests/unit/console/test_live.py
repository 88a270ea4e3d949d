"""Views are computed once for all who follow them, when something has changed, and at most once a second."""

from collections.abc import Mapping
from contextlib import AsyncExitStack

import pytest
import trio
import trio.testing

from daemon.console.live import EVERY_SECONDS, KEPT, ChangeSignal, Snapshot, Views
from daemon.console.page import Fragment, Holders
from daemon.errors import McpdError
from daemon.kit.waiting import Watch
from tests.unit.cases import cases

pytestmark = pytest.mark.usefixtures("autojump_clock")

BOUND = 60.0
"""Seconds of the virtual clock that a test may take."""


def fragments(**values: int) -> Holders:
    return {"rows": [Fragment(id=key, template="t", values={"n": number}) for key, number in values.items()]}


class Drawer:
    """Draws fragments as their values, and counts."""

    def __init__(self) -> None:
        self.drawn: list[str] = []

    def __call__(self, fragment: Fragment) -> str:
        self.drawn.append(fragment.id)
        return f"<p id={fragment.id}>{fragment.values['n']}</p>"


class Counted:
    """A page whose numbers a test sets."""

    def __init__(self, **values: int) -> None:
        self.values: Mapping[str, int] = values
        self.watch: Watch[object] = Watch(object())
        self.views = Views(ChangeSignal(self.watch, Watch(None)))
        self.draw = Drawer()
        self.computed = 0
        self.takes = 0.0
        self.fault: Exception | None = None

    def set(self, **values: int) -> None:
        self.values = values
        self.watch.set(object())

    async def compute(self, before: Snapshot | None) -> Snapshot:
        self.computed += 1
        await trio.sleep(self.takes)
        if self.fault is not None:
            raise self.fault
        return Snapshot.drawn(fragments(**self.values), self.draw, before)


def test_only_what_has_changed_is_drawn_and_told() -> None:
    draw = Drawer()
    one = Snapshot.drawn(fragments(a=1, b=2), draw, None)
    two = Snapshot.drawn(fragments(a=1, b=3), draw, one)
    assert draw.drawn == ["a", "b", "b"]
    assert two.since(one) == {"rows": {"changed": {"b": "<p id=b>3</p>"}}}
    assert two.since(None) == {
        "rows": {"order": ["a", "b"], "changed": {k: d.html for k, d in two.holders["rows"].items()}}
    }


def test_what_moves_comes_and_goes_is_told_by_the_order() -> None:
    draw = Drawer()
    one = Snapshot.drawn(fragments(a=1, b=2, c=3), draw, None)
    two = Snapshot.drawn(fragments(c=3, a=1, d=4), draw, one)
    assert two.since(one) == {"rows": {"order": ["c", "a", "d"], "changed": {"d": "<p id=d>4</p>"}}}


async def test_many_followers_cost_one_computation_each_change() -> None:
    page = Counted(a=0)
    told: list[int] = []

    async def follow() -> None:
        async with page.views.following("key", "", page.compute) as (view, had):
            seen = had
            for _ in range(3):
                seen = await view.next(seen)
                told.append(page.values["a"])

    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(follow)
            for number in (1, 2):
                await trio.sleep(10)
                page.set(a=number)
    assert told == [0] * 20 + [1] * 20 + [2] * 20
    assert page.computed == 3


async def test_a_burst_of_changes_is_one_computation_a_second() -> None:
    page = Counted(a=0)
    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery, page.views.following("key", "", page.compute) as (view, had):
            seen = await view.next(had)

            async def change() -> None:
                for number in range(1, 1001):
                    page.set(a=number)
                    await trio.sleep(0.01)

            nursery.start_soon(change)
            began = trio.current_time()
            for _ in range(5):
                seen = await view.next(seen)
            assert trio.current_time() - began == pytest.approx(5 * EVERY_SECONDS, abs=0.1)
            nursery.cancel_scope.cancel()
    assert page.computed == 6


@cases("views", "takes", "rest")
async def test_slow_or_many_views_are_computed_less_often(views: int, takes: float, rest: float) -> None:
    page = Counted(a=0)
    page.takes = takes
    async with AsyncExitStack() as stack:
        followed = [
            await stack.enter_async_context(page.views.following(key, "", page.compute)) for key in range(views)
        ]
        view, had = followed[0]
        seen = await view.next(had)
        began = trio.current_time()
        page.set(a=1)
        await view.next(seen)
    assert trio.current_time() - began == pytest.approx(rest + takes)


class Called(Counted):
    """A page with calls."""

    EVERY = 3.0

    def __init__(self) -> None:
        super().__init__(a=0)
        self.under_way: list[int] = []
        self.ended: Watch[object] = Watch(object())
        self.views = Views(ChangeSignal(self.watch, calls=self.ended, busy=lambda: bool(self.under_way)))

    def end(self, number: int) -> None:
        self.values = {"a": number}
        self.ended.set(object())


async def test_while_calls_are_under_way_time_itself_is_a_change() -> None:
    page = Called()
    page.under_way.append(1)
    async with page.views.following("key", "", page.compute, page.EVERY) as (view, had):
        seen = await view.next(had)
        for number in (1, 2):
            began = trio.current_time()
            page.values = {"a": number}
            seen = await view.next(seen)
            assert trio.current_time() - began == pytest.approx(page.EVERY)
        page.under_way.clear()
        page.set(a=3)
        seen = await view.next(seen)
        with trio.move_on_after(60):
            await view.next(seen)
    assert page.computed == 4


async def test_a_change_that_does_not_show_is_told_to_nobody() -> None:
    page = Counted(a=0)
    async with page.views.following("key", "", page.compute) as (view, had):
        seen = await view.next(had)
        page.set(a=0)
        with trio.move_on_after(30) as scope:
            await view.next(seen)
    assert scope.cancelled_caught
    assert page.computed == 2


async def test_when_who_waits_for_all_leaves_another_takes_over() -> None:
    page = Counted(a=0)
    told = []

    async def follow(until: trio.CancelScope) -> None:
        with until:
            async with page.views.following("key", "", page.compute) as (view, had):
                seen = await view.next(had)
                await view.next(seen)
                told.append(page.values["a"])

    first, second = trio.CancelScope(), trio.CancelScope()
    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, first)
            await trio.sleep(1)
            nursery.start_soon(follow, second)
            await trio.sleep(1)
            first.cancel()
            await trio.sleep(1)
            page.set(a=7)
    assert told == [7]


async def test_a_page_that_ends_ends_for_all_who_follow() -> None:
    page = Counted(a=0)
    ended = 0

    async def follow() -> None:
        nonlocal ended
        async with page.views.following("key", "", page.compute) as (view, had):
            first = await view.next(had)
            with pytest.raises(McpdError):
                await view.next(first)
        ended += 1

    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(follow)
            await trio.sleep(5)
            page.fault = McpdError("it is gone")
            page.set(a=1)
    assert ended == 3


async def test_only_the_newest_snapshots_are_kept() -> None:
    page = Counted(a=0)
    first, *others = [page.views.keep("key", await page.compute(None)) for _ in range(KEPT + 1)]
    for name, is_known in ((first, False), (others[0], True)):
        async with page.views.following("key", name, page.compute) as (_view, seen):
            assert (seen is not None) is is_known
