"""Watch: waiters see the newest value, once."""

from __future__ import annotations

import trio
from trio.testing import wait_all_tasks_blocked

from daemon.kit.watch import Watch


async def test_who_has_seen_an_older_value_does_not_wait() -> None:
    watch = Watch("new")
    with trio.fail_after(30):
        assert await watch.wait_changed("old") == "new"


async def test_a_burst_of_changes_wakes_each_waiter_once_with_the_last() -> None:
    watch = Watch(0)
    woken: list[tuple[str, int]] = []

    async def wait(name: str) -> None:
        seen = 0
        while seen < 50:
            seen = await watch.wait_changed(seen)
            woken.append((name, seen))

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, "a")
            nursery.start_soon(wait, "b")
            await wait_all_tasks_blocked()
            for value in range(1, 51):
                watch.set(value)
    assert sorted(woken) == [("a", 50), ("b", 50)]


async def test_the_identical_object_is_no_change_but_an_equal_one_is() -> None:
    first, second = [1], [1]
    watch = Watch(first)
    woken: list[list[int]] = []

    async def wait() -> None:
        woken.append(await watch.wait_changed(first))

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            watch.set(first)
            await wait_all_tasks_blocked()
            assert not woken
            watch.set(second)
    assert woken[0] is second


async def test_a_value_that_went_and_came_back_is_not_news() -> None:
    first = object()
    watch = Watch(first)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch.wait_changed, first)
            await wait_all_tasks_blocked()
            watch.set(object())
            watch.set(first)
            await wait_all_tasks_blocked()
            assert nursery.child_tasks
            watch.set(object())


async def test_waiting_for_a_condition_ends_when_it_holds_and_not_before() -> None:
    watch = Watch(0)
    seen: list[int] = []

    async def wait() -> None:
        seen.append(await watch.wait_until(lambda value: value >= 3))

    with trio.fail_after(30):
        assert await watch.wait_until(lambda value: value == 0) == 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            for value in (1, 2, 3):
                await wait_all_tasks_blocked()
                assert not seen
                watch.set(value)
    assert seen == [3]


async def test_a_cancelled_waiter_does_not_keep_the_others_from_waking() -> None:
    watch = Watch(0)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            with trio.move_on_after(0):
                await watch.wait_changed(0)
            nursery.start_soon(watch.wait_changed, 0)
            await wait_all_tasks_blocked()
            watch.set(1)
