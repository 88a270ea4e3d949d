"""Delays between attempts, by tenacity: exponential up to a cap, with equal jitter, and never below a floor.

Equal jitter (AWS, "Exponential backoff and jitter") leaves half of each delay to chance, against herds; full
jitter could return 0 s at any attempt, and so let a loop of failures spin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from daemon.kit.later import later

if TYPE_CHECKING:
    from collections.abc import Callable

    import tenacity
else:
    tenacity = later("tenacity", due=True)  # 10 ms, needed once something has failed


@attrs.frozen
class RetryPolicy:
    """The delays of one thing that is tried until it succeeds."""

    first: float
    """Seconds of the delay after the first failure, without jitter; it doubles with each failure."""
    cap: float
    """Seconds of the longest delay, without jitter."""
    rng: Callable[[], float]
    """Returns random numbers in [0, 1), for the jitter."""
    floor: float = attrs.field(default=0.0, kw_only=True)
    """Seconds of the shortest delay, with jitter."""

    def delay(self, failures: int) -> float:
        """The seconds to wait, where `failures` came before the last one."""
        # The loops here await more than one function, so tenacity computes their delays and does not run them.
        state = tenacity.RetryCallState(tenacity.AsyncRetrying(), None, (), {})
        state.attempt_number = failures + 1
        nominal = tenacity.wait_exponential(multiplier=self.first, max=self.cap)(state)
        return max(self.floor, nominal / 2 * (1 + self.rng()))
