"""Delays between attempts."""

from __future__ import annotations

from daemon.cli.bridging.retry import FIRST_SECONDS, LONGEST_SECONDS, STABLE_SECONDS, Retry


def test_the_first_attempt_is_made_at_once() -> None:
    assert Retry().delay() == 0.0


def test_delays_double_to_a_bound_and_half_of_each_is_chance() -> None:
    retry = Retry()
    for failure in range(12):
        retry.failed()
        whole = min(LONGEST_SECONDS, FIRST_SECONDS * 2**failure)
        delays = {retry.delay() for _ in range(200)}
        assert all(whole / 2 <= delay <= whole for delay in delays)
        assert len(delays) > 10


def test_they_do_not_overflow_however_long_it_takes() -> None:
    retry = Retry()
    for _ in range(5000):
        retry.failed()
    assert LONGEST_SECONDS / 2 <= retry.delay() <= LONGEST_SECONDS


def test_a_connection_that_lasted_forgives_all_and_a_short_one_all_but_itself() -> None:
    retry = Retry()
    for _ in range(10):
        retry.failed()
    retry.ended(STABLE_SECONDS / 2)
    assert 0 < retry.delay() <= FIRST_SECONDS
    retry.ended(STABLE_SECONDS)
    assert retry.delay() == 0.0
