"""What both databases do with statements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as some

from daemon.state.sql import AT_ONCE, among, chunks, clean
from tests.unit.state.places import database_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daemon.state.sql import Database
    from tests.unit.state.places import Place


@pytest.fixture
def database(place: Place) -> Iterator[Database]:
    """With a table of three rows."""
    place.run("CREATE TABLE things (name TEXT, size BIGINT)", "INSERT INTO things VALUES ('a', 1), ('b', 2)")
    place.run("INSERT INTO things VALUES ('c', NULL)")
    made = database_of(place)
    yield made
    made.close()


def test_rows_are_read_by_the_names_of_their_columns(database: Database) -> None:
    with database.transaction(writes=False) as transaction:
        (row,) = transaction.rows("SELECT name, size FROM things WHERE size > :least", {"least": 1})
        assert (row["name"], row["size"], list(row.keys())) == ("b", 2, ["name", "size"])
        assert transaction.columns("things") == ["name", "size"]
        assert transaction.tables() == {"things"}


def test_a_value_is_never_read_as_a_statement(database: Database) -> None:
    odd = "x'; DROP TABLE things; --:name %s ? {} \\:"
    with database.transaction(writes=True) as transaction:
        assert transaction.change("UPDATE things SET name = :odd WHERE name = :name", {"odd": odd, "name": "a"})
        assert transaction.scalar("SELECT size FROM things WHERE name = :odd", {"odd": odd}) == 1


def test_as_many_names_as_there_are_stand_in_a_list(database: Database) -> None:
    marks, values = among(["a", "c", "not there"])
    with database.transaction(writes=False) as transaction:
        found = transaction.rows(f"SELECT name FROM things WHERE name IN {marks} ORDER BY name", values)
        assert [row["name"] for row in found] == ["a", "c"]


def test_a_change_tells_how_many_rows_it_changed_and_is_kept(database: Database) -> None:
    with database.transaction(writes=True) as transaction:
        assert transaction.change("UPDATE things SET size = 9 WHERE size IS NOT NULL") == 2
        transaction.change_each("DELETE FROM things WHERE name = :name", [{"name": "a"}, {"name": "c"}])
    with database.transaction(writes=False) as transaction:
        assert [(row["name"], row["size"]) for row in transaction.rows("SELECT * FROM things")] == [("b", 9)]


def test_a_block_that_raises_undoes_what_it_changed_and_the_next_one_works(database: Database) -> None:
    with pytest.raises(ZeroDivisionError), database.transaction(writes=True) as transaction:
        assert transaction.change("DELETE FROM things") / 0
    with database.transaction(writes=True) as transaction:
        assert transaction.scalar("SELECT count(*) FROM things") == 3


def test_of_no_rows_there_is_no_first_cell(database: Database) -> None:
    with database.transaction(writes=False) as transaction:
        assert transaction.scalar("SELECT name FROM things WHERE size = 77") is None


@pytest.mark.parametrize("count", [0, 1, AT_ONCE, AT_ONCE + 1, 3 * AT_ONCE])
def test_chunks_are_everything_in_order(count: int) -> None:
    found = list(chunks(range(count)))
    assert [each for chunk in found for each in chunk] == list(range(count))
    assert all(0 < len(chunk) <= AT_ONCE for chunk in found)


@given(some.text(alphabet=some.characters(codec=None)))
def test_clean_text_can_be_kept_and_stays_as_it_is(text: str) -> None:
    cleaned = clean(text)
    assert "\0" not in cleaned
    assert cleaned.encode().decode() == cleaned
    assert clean(cleaned) == cleaned


@given(some.text())
def test_ordinary_text_is_not_changed(text: str) -> None:
    assert clean(text) == text.replace("\0", "\ufffd")
