"""Counts by the hour in the store, on both databases."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from daemon.state.event_rows import KEPT, SECONDS, read_hours
from daemon.state.sql import Batch

if TYPE_CHECKING:
    from daemon.state.store import Store
    from tests.unit.state.places import Opener, Place

HOUR = 500_000
NOW = float(HOUR * SECONDS + 7)


def stored(store: Store, since: float) -> dict[tuple[int, str], int]:
    """What the store has."""
    return store.within(partial(read_hours, since))


def test_daemons_add_to_the_same_hours(place: Place, opening: Opener) -> None:
    one, two = opening(place), opening(place, "two")
    one.keep(Batch(at=NOW, hours={(HOUR, "loads"): 2, (HOUR - 1, "loads"): 1}))
    two.keep(Batch(at=NOW, hours={(HOUR, "loads"): 3, (HOUR, "calls:git"): 4}))
    assert stored(one, NOW - SECONDS) == {
        (HOUR - 1, "loads"): 1,
        (HOUR, "loads"): 5,
        (HOUR, "calls:git"): 4,
    }
    assert stored(two, NOW) == {(HOUR, "loads"): 5, (HOUR, "calls:git"): 4}


def test_hours_that_are_too_old_are_deleted_with_the_next_write(store: Store) -> None:
    store.keep(
        Batch(at=NOW, hours={(HOUR, "loads"): 1, (HOUR - KEPT, "loads"): 1, (HOUR - KEPT - 1, "loads"): 1})
    )
    assert stored(store, 0) == {(HOUR, "loads"): 1, (HOUR - KEPT, "loads"): 1}
