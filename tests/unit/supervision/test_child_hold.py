"""A server that says when to come back is left alone until then; virtual time."""

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from daemon.causes import Reason
from daemon.supervision.lifecycle import Lifecycle
from tests.plays import BACKOFF, FOREVER, LOST, READY, Actor, play, supervised


def sent_away(seconds: float, *, healthy: float | None = None) -> Callable[[Lifecycle], Awaitable[None]]:
    """A run that ends with a wish to be left alone; `healthy`: after so many seconds of service."""

    async def run(life: Lifecycle) -> None:
        if healthy is not None:
            life.ready()
            await trio.sleep(healthy)
        life.hold_off(seconds)
        raise LOST

    return run


@pytest.mark.parametrize("healthy", [None, 5.0, 60.0, 700.0], ids=str)
async def test_it_is_started_again_when_it_has_said_and_not_before(
    healthy: float | None, autojump_clock: MockClock
) -> None:
    actor = Actor(sent_away(200.0, healthy=healthy), FOREVER)
    async with supervised(actor.spec()) as stage:
        status = await stage.reach(BACKOFF)
        assert status.next_retry_at == (healthy or 0.0) + 200.0
        await stage.reach(READY)
        assert actor.gaps == [(healthy or 0.0) + 200.0]


async def test_a_longer_backoff_of_ours_counts_more(autojump_clock: MockClock) -> None:
    actor = Actor(sent_away(0.25))
    async with supervised(actor.spec(), rng=lambda: 0.999):
        await trio.sleep(20)
    assert all(gap > 0.9 for gap in actor.gaps)
    assert actor.gaps[-1] > actor.gaps[0]


async def test_no_call_starts_it_before_and_an_operator_does(autojump_clock: MockClock) -> None:
    async def wishes_in_its_clean_up(life: Lifecycle) -> None:
        try:
            await FOREVER(life)
        finally:
            life.hold_off(30.0)
            life.ending(Reason("too late"))

    actor = Actor(sent_away(200.0), wishes_in_its_clean_up, FOREVER)
    async with supervised(actor.spec()) as stage:
        await stage.reach(BACKOFF)
        for _ in range(10):
            await trio.sleep(5.0)
            stage.child.wake()
        await trio.testing.wait_all_tasks_blocked()
        assert (actor.starts, stage.child.pause.held) == ([0.0], 150.0)
        stage.child.restart()
        await stage.reach(READY)
        assert actor.starts == [0.0, 50.0]
        stage.child.restart()
        await stage.reach(BACKOFF)
        await stage.reach(READY)
        assert (actor.starts[2], stage.child.pause.held) == (50.0, 0)
        assert "too late" not in {status.reason for _, status in stage.history}


async def test_a_call_that_came_while_it_was_ending_does_not_start_it_either(autojump_clock: MockClock) -> None:
    async def run(life: Lifecycle) -> None:
        life.ready()
        await trio.sleep(5.0)
        life.ending(Reason("busy"))
        stage.child.wake()
        life.hold_off(100.0)
        raise LOST

    actor = Actor(run, FOREVER)
    async with supervised(actor.spec()) as stage:
        await stage.reach(READY)
        await stage.reach(BACKOFF)
        await stage.reach(READY)
    assert actor.gaps == [105.0]


async def test_the_wish_is_forgotten_with_the_next_run(autojump_clock: MockClock) -> None:
    actor = Actor(sent_away(100.0), play(LOST), FOREVER)
    async with supervised(actor.spec()) as stage:
        await stage.reach(READY)
    assert actor.gaps[0] == 100.0
    assert actor.gaps[1] < 5.0
