"""Pairwise testing: most faults show with two values, so each run tries every pair, the nightly run all."""

from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import Any

import pytest


def covering(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rows that together hold each pair of values that stands in any row.

    Greedy, as in D. M. Cohen et al., "The AETG System", IEEE TSE 23(7), 1997: most new pairs first.
    """
    left = {row: _pairs(row) for row in rows}
    chosen: list[tuple[Any, ...]] = []
    while left:
        best = max(left, key=lambda row: len(left[row]))
        if not (found := left.pop(best)):
            break
        chosen.append(best)
        left = {row: pairs - found for row, pairs in left.items()}
    return chosen


def pairwise(*factors: Iterable[Any]) -> list[Any]:
    """All combinations as parameters of a test; those beyond the pairs are marked `nightly`."""
    rows = list(product(*factors))
    each_run = set(covering(rows))
    return [pytest.param(*row, marks=() if row in each_run else pytest.mark.nightly) for row in rows]


def each_once(*factors: Sequence[Any], rows: int | None = None) -> list[Any]:
    """All combinations as parameters; each run has every value once, or so many; `nightly` has the rest."""
    last = rows or max(map(len, factors))
    each_run = {tuple(factor[number % len(factor)] for factor in factors) for number in range(last)}
    return [
        pytest.param(*row, marks=() if row in each_run else pytest.mark.nightly) for row in product(*factors)
    ]


def at_night(values: Iterable[Any], *each_run: Any) -> list[Any]:
    """Values, or rows, as parameters of a test; each run has those that are named, and `nightly` the rest."""
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else [value]),
            marks=() if value in each_run else pytest.mark.nightly,
        )
        for value in values
    ]


def _pairs(row: tuple[Any, ...]) -> set[tuple[Any, ...]]:
    return {(i, row[i], j, row[j]) for i, j in combinations(range(len(row)), 2)}
