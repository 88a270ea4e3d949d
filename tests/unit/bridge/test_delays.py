"""Delays double up to a cap, and half of each is chance."""

from __future__ import annotations

import pytest

from daemon.bridge.starting import doubled, jittered


@pytest.mark.parametrize(("failures", "seconds"), [(0, 1.0), (1, 2.0), (3, 8.0), (6, 60.0), (100_000, 60.0)])
def test_each_failure_doubles_the_delay_up_to_the_cap(failures: int, seconds: float) -> None:
    assert doubled(1.0, 60.0, failures) == seconds


@pytest.mark.parametrize(("chance", "seconds"), [(0.0, 5.0), (0.5, 7.5), (1.0, 10.0)])
def test_half_of_a_delay_is_chance(chance: float, seconds: float) -> None:
    assert jittered(10.0, chance) == seconds
