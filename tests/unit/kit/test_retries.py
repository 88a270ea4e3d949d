"""Delays between attempts: doubled up to a cap, half of each left to chance, never below the floor."""

import pytest

from daemon.kit.waiting import RetryPolicy


@pytest.mark.parametrize(("failures", "seconds"), [(0, 1.0), (1, 2.0), (5, 32.0), (6, 60.0), (5000, 60.0)])
def test_a_delay_doubles_with_each_failure_up_to_the_cap(failures: int, seconds: float) -> None:
    assert RetryPolicy(2.0, 120.0, lambda: 0.0).delay(failures) == seconds


@pytest.mark.parametrize(("chance", "seconds"), [(0.0, 5.0), (0.5, 7.5), (0.999, 9.995)])
def test_half_of_a_delay_is_left_to_chance(chance: float, seconds: float) -> None:
    assert RetryPolicy(10.0, 60.0, lambda: chance).delay(0) == pytest.approx(seconds)


def test_no_delay_is_shorter_than_the_floor() -> None:
    assert RetryPolicy(0.2, 60.0, lambda: 0.0, floor=0.5).delay(0) == 0.5
