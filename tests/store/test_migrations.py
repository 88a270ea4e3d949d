"""From every earlier schema to the present one; a later one is left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from daemon.redact import Redactor
from daemon.store import postgres, sqlite
from daemon.store.faults import Kind, StoreFault
from daemon.store.migrations import STEPS, complete, mend, migrate, refuse_newer
from daemon.store.schema import TABLES
from daemon.store.translating import translated
from daemon.store.urls import parse
from daemon.store.values import Batch
from tests.store.samples import server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daemon.store.connection import Database
    from tests.store.places import Opener, Place, Postgres, Sqlite

LATER = (*STEPS, ("ALTER TABLE servers ADD COLUMN mood TEXT",), ("UPDATE servers SET mood = 'fine'",))


@pytest.fixture
def database(place: Place) -> Iterator[Database]:
    """An empty place, for several migrations."""
    place.run("SELECT 1")
    url = parse(place.url)
    made: Database = postgres.Database(url.dsn) if url.path is None else sqlite.Database(url.path)
    yield made
    made.close()


def version(database: Database) -> int:
    with database.transaction(writes=False) as connection:
        return refuse_newer(connection, "here", LATER)


@pytest.mark.parametrize("earlier", range(len(STEPS)))
def test_every_earlier_schema_becomes_the_present_one(database: Database, earlier: int) -> None:
    with database.transaction(writes=True) as connection:
        if earlier:
            migrate(connection, "here", STEPS[:earlier])
    with database.transaction(writes=True) as connection:
        migrate(connection, "here")
        mend(connection)
        assert complete(connection)
    assert version(database) == len(STEPS)


def test_what_was_kept_is_there_after_later_steps(place: Place, opening: Opener, database: Database) -> None:
    store = opening(place)
    store.keep(Batch(at=1.0, servers=(server("read"),)))
    store.close()
    with database.transaction(writes=True) as connection:
        migrate(connection, "here", LATER)
    assert version(database) == len(LATER)
    assert place.run("SELECT name, mood FROM servers") == [("git", "fine")]


def test_a_store_without_names_gives_each_to_the_tool_that_has_been_there_for_longest(
    place: Place, database: Database
) -> None:
    with database.transaction(writes=True) as connection:
        migrate(connection, "here", STEPS[:2])
        for server_name, tool, at in (
            ("evil", "transfer", 2.0),
            ("bank", "transfer", 1.0),
            ("evil", "own", 3.0),
        ):
            connection.change(
                "INSERT INTO tools"
                " (server, name, position, raw, schema_hash, epoch, updated_at, version, writer)"
                " VALUES (:server, :name, 0, :raw, 'h', 1, :at, 1, 'w')",
                {"server": server_name, "name": tool, "raw": b"{}", "at": at},
            )
        migrate(connection, "here")
    found = place.run("SELECT name, server, tool FROM tool_names ORDER BY name")
    assert found == [("own", "evil", "own"), ("transfer", "bank", "transfer")]


def test_a_step_that_fails_leaves_the_earlier_schema(database: Database) -> None:
    with database.transaction(writes=True) as connection:
        migrate(connection, "here")
    broken = (*STEPS, ("CREATE TABLE extra (x TEXT)", "UPDATE nothing SET x = 1"))
    with (
        pytest.raises(StoreFault, match="nothing"),
        translated("here", Redactor(())),
        database.transaction(writes=True) as connection,
    ):
        migrate(connection, "here", broken)
    assert version(database) == len(STEPS)
    with database.transaction(writes=False) as connection:
        assert "extra" not in connection.tables()


def test_a_later_schema_is_refused_and_not_touched(place: Place, sqlite_place: Sqlite) -> None:
    place.open().close()
    place.run("UPDATE schema_version SET version = 99", "DROP TABLE switches")
    before = sqlite_place.path.read_bytes() if sqlite_place.path.exists() else b""
    with pytest.raises(StoreFault, match=f"schema 99, this mcpd knows up to {len(STEPS)}") as fault:
        place.open()
    assert fault.value.kind is Kind.NEWER_SCHEMA
    with pytest.raises(Exception, match="switches"):
        place.run("SELECT * FROM switches")
    assert before == (sqlite_place.path.read_bytes() if sqlite_place.path.exists() else b"")


@pytest.mark.parametrize(
    "theirs",
    [
        ("CREATE TABLE sessions (x TEXT)",),
        ("CREATE TABLE schema_version (installed_rank BIGINT, version TEXT)",),
        ("CREATE TABLE schema_version (version TEXT)", "INSERT INTO schema_version VALUES ('1.2')"),
        ("CREATE TABLE schema_version (version BIGINT)",),
        ("CREATE TABLE schema_version (version BIGINT)", "INSERT INTO schema_version VALUES (1), (2)"),
        ("CREATE TABLE schema_version (version BIGINT)", "INSERT INTO schema_version VALUES (-1)"),
    ],
)
def test_tables_of_others_are_not_touched(place: Place, theirs: tuple[str, ...]) -> None:
    place.run(*theirs)
    with pytest.raises(StoreFault, match="of its own") as fault:
        place.open()
    assert fault.value.kind is Kind.MISCONFIGURED


def test_the_tables_are_what_the_queries_take_them_for(place: Place, database: Database) -> None:
    with database.transaction(writes=True) as connection:
        migrate(connection, "here")
    made = described(place)
    with database.transaction(writes=True) as connection:
        for name in TABLES:
            connection.change(f"DROP TABLE {name}")
        mend(connection)
        assert complete(connection)
    assert described(place) == made


def described(place: Place) -> dict[str, object]:
    """All columns with their types, keys and indexes, by table, as SQLAlchemy sees them."""
    engine = sa.create_engine(place.url.replace("postgresql:", "postgresql+psycopg:"))
    inspector = sa.inspect(engine)
    found: dict[str, object] = {
        name: (
            [(each["name"], str(each["type"]), each["nullable"]) for each in inspector.get_columns(name)],
            inspector.get_pk_constraint(name)["constrained_columns"],
            [(each["name"], each["column_names"]) for each in inspector.get_indexes(name)],
        )
        for name in sorted(inspector.get_table_names())
    }
    engine.dispose()
    return found


def test_a_dropped_counter_goes_on_after_the_latest_stamp(place: Place, opening: Opener) -> None:
    store = opening(place)
    for at in range(5):
        store.keep(Batch(at=float(at), servers=(server("read", epoch=at),)))
    place.run("DELETE FROM version")
    store.close()
    assert opening(place).keep(Batch(at=9.0)).version == 6


def test_the_lock_of_migrations_spells_our_name() -> None:
    assert postgres._TURN.to_bytes(4, "big") == b"mcpd"


def test_opening_again_writes_nothing(postgres_place: Postgres) -> None:
    postgres_place.open().close()
    postgres_place.run(f"ALTER DATABASE {postgres_place.name} SET default_transaction_read_only = on")
    postgres_place.open().close()
