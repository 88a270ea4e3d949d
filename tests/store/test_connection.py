"""What both databases do with statements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daemon.store import postgres, sqlite
from daemon.store.connection import among, scalar
from daemon.store.urls import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daemon.store.connection import Database
    from tests.store.places import Place


@pytest.fixture
def database(place: Place) -> Iterator[Database]:
    """With a table of three rows."""
    place.run("CREATE TABLE things (name TEXT, size BIGINT)", "INSERT INTO things VALUES ('a', 1), ('b', 2)")
    place.run("INSERT INTO things VALUES ('c', NULL)")
    url = parse(place.url)
    made: Database = postgres.Database(url.dsn) if url.path is None else sqlite.Database(url.path)
    yield made
    made.close()


def test_rows_are_read_by_the_names_of_their_columns(database: Database) -> None:
    with database.transaction(writes=False) as connection:
        (row,) = connection.rows("SELECT name, size FROM things WHERE size > :least", {"least": 1})
        assert (row["name"], row["size"], list(row.keys())) == ("b", 2, ["name", "size"])
        assert connection.columns("things") == ["name", "size"]
        assert connection.tables() == {"things"}


def test_a_value_is_never_read_as_a_statement(database: Database) -> None:
    odd = "x'; DROP TABLE things; --:name %s ? {} \\:"
    with database.transaction(writes=True) as connection:
        assert connection.change("UPDATE things SET name = :odd WHERE name = :name", {"odd": odd, "name": "a"})
        assert scalar(connection, "SELECT size FROM things WHERE name = :odd", {"odd": odd}) == 1


def test_as_many_names_as_there_are_stand_in_a_list(database: Database) -> None:
    marks, values = among(["a", "c", "not there"])
    with database.transaction(writes=False) as connection:
        found = connection.rows(f"SELECT name FROM things WHERE name IN {marks} ORDER BY name", values)
        assert [row["name"] for row in found] == ["a", "c"]


def test_a_change_tells_how_many_rows_it_changed_and_is_kept(database: Database) -> None:
    with database.transaction(writes=True) as connection:
        assert connection.change("UPDATE things SET size = 9 WHERE size IS NOT NULL") == 2
        connection.change_each("DELETE FROM things WHERE name = :name", [{"name": "a"}, {"name": "c"}])
    with database.transaction(writes=False) as connection:
        assert [(row["name"], row["size"]) for row in connection.rows("SELECT * FROM things")] == [("b", 9)]


def test_a_block_that_raises_undoes_what_it_changed_and_the_next_one_works(database: Database) -> None:
    with pytest.raises(ZeroDivisionError), database.transaction(writes=True) as connection:
        assert connection.change("DELETE FROM things") / 0
    with database.transaction(writes=True) as connection:
        assert scalar(connection, "SELECT count(*) FROM things") == 3


def test_of_no_rows_there_is_no_first_cell(database: Database) -> None:
    with database.transaction(writes=False) as connection:
        assert scalar(connection, "SELECT name FROM things WHERE size = 77") is None
