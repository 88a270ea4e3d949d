"""Backoff delays that double from failure to failure, with equal jitter. Standard library only.

Equal jitter (AWS, "Exponential backoff and jitter") leaves half of each delay to chance, against herds; full
jitter could return 0 s at any attempt, and so let a loop of failures spin.
"""

MAX_DOUBLINGS = 30
"""2^30 s is beyond any cap; without it the power of a long streak would overflow a float."""


def doubled(first: float, longest: float, failures: int) -> float:
    """The delay in seconds, without jitter, when `failures` came before the last one: `first` after none."""
    return min(longest, first * 2.0 ** min(failures, MAX_DOUBLINGS))


def jittered(seconds: float, chance: float) -> float:
    """Half of a delay plus a random part of the other half; `chance` is in [0, 1)."""
    return seconds / 2 * (1 + chance)
