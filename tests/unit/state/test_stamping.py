"""Every row that is written says which version of the store it belongs to, and who wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daemon.state.store import migrate
from daemon.state.writer import StampedRows
from tests.unit.state.places import database_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daemon.state.sql import Database
    from tests.unit.state.places import Place

ROW = {"server": "git", "tool": "push", "switched_off": 1, "at": 5.0}
KEYS = ("server", "tool")


@pytest.fixture
def database(place: Place) -> Iterator[Database]:
    """A store with a switch that somebody else has written."""
    place.run("SELECT 1")
    made = database_of(place)
    with made.transaction(writes=True) as transaction:
        migrate(transaction, "here")
        StampedRows(transaction, version=1, writer="other").put("switches", KEYS, [ROW, {**ROW, "tool": "log"}])
    yield made
    made.close()


def stamps(place: Place) -> list[tuple[object, ...]]:
    """All switches with their stamps."""
    return place.run("SELECT tool, switched_off, version, writer FROM switches ORDER BY tool")


def test_a_row_that_is_put_replaces_the_one_of_its_keys(database: Database, place: Place) -> None:
    with database.transaction(writes=True) as transaction:
        StampedRows(transaction, version=2, writer="me").put("switches", KEYS, [{**ROW, "switched_off": 0}])
    assert stamps(place) == [("log", 1, 1, "other"), ("push", 0, 2, "me")]


def test_only_rows_with_the_old_values_are_changed(database: Database, place: Place) -> None:
    with database.transaction(writes=True) as transaction:
        rows = StampedRows(transaction, version=2, writer="me")
        assert rows.change("switches", {"tool": "log", "switched_off": 1}, {"switched_off": 0}) == 1
        assert rows.change("switches", {"tool": "log", "switched_off": 1}, {"switched_off": 0}) == 0
    assert stamps(place) == [("log", 0, 2, "me"), ("push", 1, 1, "other")]


def test_rows_can_be_stamped_as_they_are_and_dropped(database: Database, place: Place) -> None:
    with database.transaction(writes=True) as transaction:
        rows = StampedRows(transaction, version=2, writer="me")
        rows.touch("switches", "tool", {"log"})
        rows.touch("switches", "tool", set())
        rows.drop("switches", KEYS, [{"server": "git", "tool": "push"}])
        rows.drop("switches", KEYS, [])
        rows.put("switches", KEYS, [])
    assert stamps(place) == [("log", 1, 2, "me")]
