"""Later steps change a store, and one of a later mcpd is left alone."""

import re
import sqlite3
from collections.abc import Iterator

import psycopg
import pytest

from daemon.safety.redact import Redactor
from daemon.state.sql import Batch, Database, StoreCause, StoreFault, translated
from daemon.state.store import STEPS, complete, mend, migrate, version_of
from tests.unit.cases import cases
from tests.unit.state.places import Opener, Place, Sqlite, database_of
from tests.unit.state.samples import approval

LATER = (*STEPS, ("ALTER TABLE servers ADD COLUMN mood TEXT",), ("UPDATE servers SET mood = 'fine'",))


@pytest.fixture
def database(place: Place) -> Iterator[Database]:
    """An empty place, for several migrations."""
    place.run("SELECT 1")
    made = database_of(place)
    yield made
    made.close()


def version(database: Database) -> int:
    with database.transaction(writes=False) as transaction:
        return version_of(transaction, "here", LATER)


def test_a_step_that_fails_leaves_the_earlier_schema(database: Database) -> None:
    with database.transaction(writes=True) as transaction:
        migrate(transaction, "here")
    broken = (*STEPS, ("CREATE TABLE extra (x TEXT)", "UPDATE nothing SET x = 1"))
    with (
        pytest.raises(StoreFault, match="nothing"),
        translated("here", Redactor(()), (sqlite3.Error, psycopg.Error)),
        database.transaction(writes=True) as transaction,
    ):
        migrate(transaction, "here", broken)
    assert version(database) == len(STEPS)
    with database.transaction(writes=False) as transaction:
        assert "extra" not in transaction.tables()


def test_a_store_of_the_first_schema_keeps_what_it_has_and_takes_approvals(
    place: Place, database: Database, opening: Opener
) -> None:
    with database.transaction(writes=True) as transaction:
        migrate(transaction, "here", STEPS[:1])
        transaction.change("INSERT INTO version (value) VALUES (4)")
    place.run("INSERT INTO switches VALUES ('git', 'push', 1, 3.0, 4, 'earlier')")
    store = opening(place)
    assert store.recall().switched == {("git", "push")}
    assert store.recall().approvals == ()
    store.keep(Batch(at=1.0, approvals=(approval(),)))
    assert store.recall().approvals == (approval(),)
    with pytest.raises(StoreFault) as fault, database.transaction(writes=False) as transaction:
        version_of(transaction, "here", STEPS[:1])
    assert fault.value.cause is StoreCause.NEWER_SCHEMA


def test_a_later_schema_is_refused_and_not_touched(place: Place, sqlite_place: Sqlite) -> None:
    place.open().close()
    place.run("UPDATE mcpd_schema SET version = 99", "DROP TABLE switches")
    before = sqlite_place.path.read_bytes() if sqlite_place.path.exists() else b""
    with pytest.raises(StoreFault, match=f"schema 99, this mcpd knows up to {len(STEPS)}") as fault:
        place.open()
    assert fault.value.cause is StoreCause.NEWER_SCHEMA
    with pytest.raises(Exception, match="switches"):
        place.run("SELECT * FROM switches")
    assert before == (sqlite_place.path.read_bytes() if sqlite_place.path.exists() else b"")


@cases("theirs")
def test_tables_of_others_are_not_touched(place: Place, theirs: tuple[str, ...]) -> None:
    place.run(*theirs)
    with pytest.raises(StoreFault, match="of its own") as fault:
        place.open()
    assert fault.value.cause is StoreCause.MISCONFIGURED


def test_dropped_tables_are_made_as_the_steps_have_left_them(place: Place, database: Database) -> None:
    with database.transaction(writes=True) as transaction:
        migrate(transaction, "here")
        tables = transaction.tables()
    made = described(place)
    with database.transaction(writes=True) as transaction:
        for name in tables - {"mcpd_schema"}:
            transaction.change(f"DROP TABLE {name}")
        mend(transaction)
        assert complete(transaction)
    assert {"tools_by_hash", "sessions_by_use", "loaded_tools_by_verdict"} <= set(re.findall(r"\w+", str(made)))
    assert described(place) == made


def described(place: Place) -> list[tuple[object, ...]]:
    """All that a database itself knows of its tables and indexes."""
    if place.url.path is not None:
        return place.run("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite%' ORDER BY name")
    columns = "table_name, column_name, ordinal_position, column_default, is_nullable, data_type"
    return [
        *place.run(
            f"SELECT {columns} FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 3"
        ),
        *place.run("SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1"),
    ]
