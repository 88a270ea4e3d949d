"""Counts by the hour, before they are in the store."""

from __future__ import annotations

from daemon.state.event_rows import SECONDS
from daemon.state.notes import WAITING, HourlyCounts

HOUR = 500_000
START = HOUR * SECONDS + 7.0


class Clock:
    """A clock that is set by the test, and counters."""

    def __init__(self, **counted: int) -> None:
        self.now = START
        self.counted = dict(counted)
        self.hours = HourlyCounts(lambda: self.counted, lambda: self.now)


def test_what_is_counted_belongs_to_the_hour_of_now() -> None:
    clock = Clock(loads=5)
    assert clock.hours.gather() == {}, "what was counted before belongs to no hour"
    clock.counted["loads"] = 7
    assert clock.hours.gather() == {(HOUR, "loads"): 2}
    clock.now += SECONDS
    clock.counted["loads"] = 8
    assert clock.hours.gather() == {(HOUR, "loads"): 2, (HOUR + 1, "loads"): 1}


def test_what_was_written_is_no_news() -> None:
    clock = Clock()
    clock.counted["loads"] = 2
    written = clock.hours.gather()
    clock.counted["loads"] = 3
    clock.hours.gather()
    clock.hours.were_written(written)
    assert clock.hours.gather() == {(HOUR, "loads"): 1}


def test_a_server_that_was_away_counts_from_zero() -> None:
    clock = Clock(**{"calls:git": 10})
    clock.counted = {}
    clock.hours.gather()
    clock.counted = {"calls:git": 3}
    assert clock.hours.gather() == {(HOUR, "calls:git"): 3}
    clock.counted = {"calls:git": 1}
    assert clock.hours.gather() == {(HOUR, "calls:git"): 4}


def test_hours_that_wait_for_a_store_are_bounded() -> None:
    clock = Clock()
    for number in range(WAITING + 20):
        clock.now = START + number * SECONDS
        clock.counted["loads"] = number + 1
        clock.hours.gather()
    assert len(clock.hours.gather()) == WAITING


def test_what_waits_is_read_with_what_is_stored() -> None:
    clock = Clock()
    clock.counted = {"loads": 2, "calls:git": 1}
    stored = {(HOUR, "loads"): 5, (HOUR - 1, "loads"): 4}
    assert clock.hours.joined(stored, START - SECONDS) == {
        "loads": [((HOUR - 1) * SECONDS, 4), (HOUR * SECONDS, 7)],
        "calls:git": [(HOUR * SECONDS, 1)],
    }
    assert clock.hours.joined({}, START + SECONDS) == {}


def test_what_a_store_has_lost_is_news_again_as_far_as_it_is_recent() -> None:
    clock = Clock()
    clock.counted["loads"] = 1
    clock.hours.were_written(clock.hours.gather())
    clock.now += WAITING * SECONDS
    clock.counted["loads"] = 3
    clock.hours.were_written(clock.hours.gather())
    clock.counted["loads"] = 4

    clock.hours.start_over()

    assert clock.hours.gather() == {(HOUR + WAITING, "loads"): 3}
    clock.hours.were_written(clock.hours.gather())
    assert clock.hours.gather() == {}
