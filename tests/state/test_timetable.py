"""What is done now and then is due when it was said to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from daemon.state.timetable import Timetable

if TYPE_CHECKING:
    from trio.testing import MockClock


async def test_what_is_due_is_taken_once_and_has_a_next_time(mock_clock: MockClock) -> None:
    times, now = Timetable(), trio.current_time()
    times.put("a", 2)
    times.put_if_none("a", 1)
    times.put_if_none("b", 5)
    assert times.next == now + 2
    assert not times.take("a", 10)
    assert not times.take("nothing", 10)
    mock_clock.jump(2)
    assert times.take("a", 10)
    assert not times.take("a", 10)
    assert times.next == now + 5
    times.drop("b")
    times.drop("nothing")
    assert times.next == now + 12
    times.put("a", 0)
    assert times.take("a", 1)
