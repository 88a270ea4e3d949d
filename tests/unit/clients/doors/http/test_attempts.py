"""Failed attempts by address, in a table that stays small."""

from __future__ import annotations

import pytest

from daemon.clients.doors.http.admission import (
    FIRST_DELAY,
    FORGET_SECONDS,
    LONGEST_DELAY,
    MAX_ADDRESSES,
    SAY_SECONDS,
    Attempts,
    neighbourhood,
)
from tests.unit.cases import cases


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def attempts(clock: Clock) -> Attempts:
    return Attempts(clock)


def test_the_first_is_answered_at_once_and_none_later_than_the_longest_delay(attempts: Attempts) -> None:
    delays = [attempts.failed("10.0.0.1") for _ in range(2000)]
    assert delays[:3] == [0.0, FIRST_DELAY, 2 * FIRST_DELAY]
    assert delays == sorted(delays)
    assert delays[-1] == LONGEST_DELAY


def test_who_stays_away_long_enough_begins_anew(attempts: Attempts, clock: Clock) -> None:
    for _ in range(9):
        attempts.failed("10.0.0.1")
    clock.now += FORGET_SECONDS
    assert attempts.failed("10.0.0.1") == LONGEST_DELAY
    clock.now += FORGET_SECONDS + 1
    assert attempts.failed("10.0.0.1") == 0.0


@cases("one", "other", "same")
def test_whoever_has_an_address_of_ipv6_has_its_neighbours(one: str, other: str, same: bool) -> None:
    assert (neighbourhood(one) == neighbourhood(other)) is same


def test_the_table_is_bounded_and_the_latest_stay(attempts: Attempts) -> None:
    for number in range(MAX_ADDRESSES + 100):
        attempts.failed(f"10.0.{number // 250}.{number % 250}")
    assert len(attempts) == MAX_ADDRESSES
    assert attempts.failed("10.0.0.200") == FIRST_DELAY
    assert attempts.failed("10.0.0.1") == 0.0


def test_each_address_has_its_own_line_in_the_log(attempts: Attempts, clock: Clock, log: list[str]) -> None:
    for _ in range(3):
        attempts.say("10.0.0.1", "a wrong token")
        attempts.say("10.0.0.2", "no token")
    assert [line.split(" ", 1)[1].strip() for line in log] == [
        "http: refused 10.0.0.1: a wrong token",
        "http: refused 10.0.0.2: no token",
    ]
    clock.now += SAY_SECONDS
    attempts.say("10.0.0.1", "a wrong token")
    assert "and 2 refusals since" in log[-1]
