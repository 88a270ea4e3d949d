"""Delays between attempts: they double up to a cap, half of each is chance, and none is below a floor.

That half (equal jitter in AWS's "Exponential backoff and jitter") keeps many from coming back in step; full
jitter could return 0 s at any attempt, and so let a loop of failures spin. Imports nothing, for the bridge.
"""

MAX_DOUBLINGS = 30
"""2^30 s is beyond any cap; without it the power of a long streak would overflow a float."""


def doubled(first: float, cap: float, failures: int) -> float:
    """The delay in seconds, without jitter, where `failures` came before the last one: `first` after none."""
    return min(cap, first * 2.0 ** min(failures, MAX_DOUBLINGS))


def backoff(first: float, cap: float, failures: int, chance: float, *, floor: float = 0.0) -> float:
    """The delay in seconds; `chance` is a random number in [0, 1)."""
    return max(floor, doubled(first, cap, failures) / 2 * (1 + chance))
