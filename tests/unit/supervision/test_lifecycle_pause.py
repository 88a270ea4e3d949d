"""The wait between two runs; virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from daemon.supervision.lifecycle import Pause

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio.testing import MockClock


async def test_it_lasts_as_long_as_it_is_told_to_or_is_shortened_to(autojump_clock: MockClock) -> None:
    pause = Pause()
    await pause.wait(30.0)
    assert trio.current_time() == 30.0
    pause.renew()
    pause.shorten(31.0)
    await pause.wait(30.0)
    assert trio.current_time() == 31.0


async def test_who_nudges_before_the_wait_is_heard_unless_it_is_renewed(autojump_clock: MockClock) -> None:
    pause = Pause()
    pause.nudge()
    await pause.wait(30.0)
    assert trio.current_time() == 0.0
    pause.renew()
    await pause.wait(30.0)
    assert trio.current_time() == 30.0


@pytest.mark.parametrize("cut", [Pause.nudge, lambda pause: pause.shorten(1.0)], ids=["nudged", "shortened"])
async def test_it_is_open_until_somebody_cuts_it(cut: Callable[[Pause], None]) -> None:
    pause = Pause()
    assert pause.is_open
    cut(pause)
    assert [pause.is_open] == [False]


async def test_a_hold_counts_down_forgets_earlier_nudges_and_can_be_released(autojump_clock: MockClock) -> None:
    pause = Pause()
    pause.nudge()
    pause.hold(20.0)
    assert pause.is_open
    await trio.sleep(5.0)
    assert pause.held == 15.0
    pause.release()
    assert pause.held == 0
