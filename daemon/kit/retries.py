"""Delays between attempts, by tenacity: exponential up to a cap, with equal jitter, and never below a floor.

Equal jitter (AWS, "Exponential backoff and jitter") leaves half of each delay to chance, against herds; full
jitter could return 0 s at any attempt, and so let a loop of failures spin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenacity import AsyncRetrying, RetryCallState
from tenacity.wait import wait_base, wait_exponential

if TYPE_CHECKING:
    from collections.abc import Callable


class EqualJitter(wait_base):
    """Half of another strategy's delay, and a random part of the other half; not below a floor."""

    def __init__(self, nominal: wait_base, rng: Callable[[], float], floor: float = 0.0) -> None:
        """Compose the strategy.

        Args:
            nominal: computes the delay without jitter.
            rng: returns random numbers in [0, 1).
            floor: seconds of the shortest delay.
        """
        self._nominal = nominal
        self._rng = rng
        self._floor = floor

    def __call__(self, retry_state: RetryCallState) -> float:
        """The delay in seconds after a failed attempt."""
        return max(self._floor, self._nominal(retry_state) / 2 * (1 + self._rng()))


class RetryPolicy:
    """The delays of one thing that is tried until it succeeds."""

    def __init__(self, first: float, cap: float, rng: Callable[[], float], *, floor: float = 0.0) -> None:
        """Compose the policy.

        Args:
            first: seconds of the delay after the first failure, without jitter; it doubles with each failure.
            cap: seconds of the longest delay, without jitter.
            rng: returns random numbers in [0, 1), for the jitter.
            floor: seconds of the shortest delay, with jitter.
        """
        self._wait = EqualJitter(wait_exponential(multiplier=first, max=cap), rng, floor)

    def delay(self, failures: int) -> float:
        """The seconds to wait, where `failures` came before the last one."""
        state = RetryCallState(_UNUSED, None, (), {})
        state.attempt_number = failures + 1
        return self._wait(state)


_UNUSED = AsyncRetrying()
"""Stands in the state that strategies are given: the loops here await more than one function."""
