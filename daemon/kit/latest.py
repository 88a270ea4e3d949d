"""Dictionaries that keep only what was put into them last."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def keep_latest(known: dict[K, V], key: K, value: V, most: int) -> None:
    """Put something at the end of a dictionary, and let go of what was put there longest ago.

    Args:
        known: the dictionary, which nothing else puts into.
        key: what is put there, or put to the end if it is there.
        value: what belongs to it.
        most: how many are kept.
    """
    known.pop(key, None)
    known[key] = value
    while len(known) > most:
        del known[next(iter(known))]
