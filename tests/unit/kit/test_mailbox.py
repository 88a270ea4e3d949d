"""Mailbox: telling never blocks, the newest fact of a key counts, and nobody waits for the dead."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from daemon.kit.waiting import ActorGone, Mailbox, Watch
from tests.waiting import beside, in_time

Fact = tuple[str, int]


class Actor:
    """Notes the batches that it is handed."""

    def __init__(self) -> None:
        self.mailbox: Mailbox[Fact] = Mailbox(key=lambda fact: fact[0])
        self.batches: list[list[Fact]] = []

    async def run(self) -> None:
        await self.mailbox.serve(self.batches.append)


async def test_facts_told_before_the_actor_runs_are_not_lost() -> None:
    actor = Actor()
    actor.mailbox.tell(("a", 1))
    with trio.fail_after(30):
        async with beside(actor.run):
            await wait_all_tasks_blocked()
    assert actor.batches == [[("a", 1)]]


async def test_only_the_newest_fact_of_a_key_is_handed_over_in_the_order_last_told() -> None:
    actor = Actor()
    for fact in (("a", 1), ("b", 1), ("c", 1), ("a", 2)):
        actor.mailbox.tell(fact)
    with trio.fail_after(30):
        async with beside(actor.run):
            await wait_all_tasks_blocked()
    assert actor.batches == [[("b", 1), ("c", 1), ("a", 2)]]


async def test_ten_thousand_facts_about_one_subject_become_one() -> None:
    actor = Actor()
    with trio.fail_after(30):
        async with beside(actor.run):
            await wait_all_tasks_blocked()
            for number in range(10_000):
                actor.mailbox.tell(("a", number))
            await wait_all_tasks_blocked()
    assert actor.batches == [[("a", 9_999)]]


async def test_a_fact_told_while_facts_are_taken_in_comes_in_the_next_batch() -> None:
    mailbox: Mailbox[Fact] = Mailbox(key=lambda fact: fact[0])
    batches: list[list[Fact]] = []

    def take(facts: list[Fact]) -> None:
        batches.append(facts)
        if len(batches) == 1:
            mailbox.tell(("b", 2))

    mailbox.tell(("a", 1))
    with trio.fail_after(30):
        async with beside(mailbox.serve, take):
            await wait_all_tasks_blocked()
    assert batches == [[("a", 1)], [("b", 2)]]


async def test_an_ask_is_answered_once_everything_told_before_it_was_taken_in() -> None:
    actor = Actor()
    with trio.fail_after(30):
        async with beside(actor.run):
            actor.mailbox.tell(("a", 1))
            await actor.mailbox.ask_settled()
            assert actor.batches == [[("a", 1)]]
            await actor.mailbox.ask_settled()
    assert actor.batches == [[("a", 1)]]


async def test_asks_that_wait_when_the_actor_ends_are_all_released() -> None:
    actor = Actor()
    released: list[int] = []

    async def ask(number: int) -> None:
        with pytest.raises(ActorGone):
            await actor.mailbox.ask_settled()
        released.append(number)

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(ask, number)
            await wait_all_tasks_blocked()
            with trio.CancelScope() as scope:
                scope.cancel()
                await actor.run()
    assert sorted(released) == [0, 1, 2]


async def test_asking_an_actor_that_has_ended_fails_at_once() -> None:
    actor = Actor()
    with trio.fail_after(30):
        with trio.CancelScope() as scope:
            scope.cancel()
            await actor.run()
        with pytest.raises(ActorGone):
            await actor.mailbox.ask_settled()


async def test_an_actor_that_fails_over_a_fact_releases_who_asked_and_does_not_call_it_settled() -> None:
    gone: list[bool] = []

    def fail(facts: list[Fact]) -> None:
        raise RuntimeError("a bug")

    async def ask(mailbox: Mailbox[Fact]) -> None:
        mailbox.tell(("a", 1))
        try:
            await mailbox.ask_settled()
        except ActorGone:
            gone.append(True)

    # Which of the actor's two tasks sees the fact first is the scheduler's choice: both must come up.
    for _ in range(20):
        mailbox: Mailbox[Fact] = Mailbox(key=lambda fact: fact[0])
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, mailbox)
                with pytest.RaisesGroup(RuntimeError):
                    await mailbox.serve(fail)
    assert len(gone) == 20


async def test_who_stops_waiting_for_an_answer_does_no_harm() -> None:
    actor = Actor()
    with trio.fail_after(30):
        with trio.move_on_after(0):
            await actor.mailbox.ask_settled()
        async with beside(actor.run):
            await actor.mailbox.ask_settled()


async def test_who_has_seen_an_older_value_does_not_wait() -> None:
    watch = Watch("new")
    assert await in_time(watch.wait_changed("old")) == "new"


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
