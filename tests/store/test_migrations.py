"""From every earlier schema to the present one; a later one is left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from daemon.store import migrations
from daemon.store.faults import Kind, StoreFault
from daemon.store.migrations import STEPS, complete, mend, migrate, refuse_newer
from daemon.store.schema import metadata
from daemon.store.values import Batch
from tests.store.samples import server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.store.places import Opener, Place, Postgres, Sqlite

LATER = (*STEPS, ("ALTER TABLE servers ADD COLUMN mood TEXT",), ("UPDATE servers SET mood = 'fine'",))


@pytest.fixture
def engine(place: Place) -> Iterator[sa.Engine]:
    """Of an empty place, for several migrations."""
    place.run("SELECT 1")
    made = sa.create_engine(place.url.replace("postgresql:", "postgresql+psycopg:"))
    yield made
    made.dispose()


def version(engine: sa.Engine) -> int:
    with engine.begin() as connection:
        return refuse_newer(connection, "here", LATER)


@pytest.mark.parametrize("earlier", range(len(STEPS)))
def test_every_earlier_schema_becomes_the_present_one(engine: sa.Engine, earlier: int) -> None:
    with engine.begin() as connection:
        if earlier:
            migrate(connection, "here", STEPS[:earlier])
    with engine.begin() as connection:
        migrate(connection, "here")
        mend(connection)
        assert complete(connection)
    assert version(engine) == len(STEPS)


def test_what_was_kept_is_there_after_later_steps(place: Place, opening: Opener, engine: sa.Engine) -> None:
    store = opening(place)
    store.keep(Batch(at=1.0, servers=(server("read"),)))
    store.close()
    with engine.begin() as connection:
        migrate(connection, "here", LATER)
    assert version(engine) == len(LATER)
    assert place.run("SELECT name, mood FROM servers") == [("git", "fine")]


def test_a_step_that_fails_leaves_the_earlier_schema(engine: sa.Engine) -> None:
    if engine.dialect.name == "sqlite":
        # As the store does: otherwise Python's module begins no transaction for what changes tables.
        sa.event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    with engine.begin() as connection:
        migrate(connection, "here")
    broken = (*STEPS, ("CREATE TABLE extra (x TEXT)", "UPDATE nothing SET x = 1"))
    with pytest.raises(sa.exc.DBAPIError), engine.begin() as connection:
        migrate(connection, "here", broken)
    assert version(engine) == len(STEPS)
    with engine.begin() as connection:
        assert "extra" not in sa.inspect(connection).get_table_names()


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


def test_the_tables_are_what_the_queries_take_them_for(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        migrate(connection, "here")
    made = described(engine)
    with engine.begin() as connection:
        metadata.drop_all(connection)
        metadata.create_all(connection)
    assert described(engine) == made


def described(engine: sa.Engine) -> dict[str, object]:
    """All columns with their types, keys and indexes, by table."""
    inspector = sa.inspect(engine)
    return {
        name: (
            [
                (each["name"], each["type"]._type_affinity, each["nullable"])
                for each in inspector.get_columns(name)
            ],
            inspector.get_pk_constraint(name)["constrained_columns"],
            [(each["name"], each["column_names"]) for each in inspector.get_indexes(name)],
        )
        for name in sorted(inspector.get_table_names())
    }


def test_a_dropped_counter_goes_on_after_the_latest_stamp(place: Place, opening: Opener) -> None:
    store = opening(place)
    for at in range(5):
        store.keep(Batch(at=float(at), servers=(server("read", epoch=at),)))
    place.run("DELETE FROM version")
    store.close()
    assert opening(place).keep(Batch(at=9.0)).version == 6


def test_the_lock_of_migrations_spells_our_name() -> None:
    assert migrations._TURN.to_bytes(4, "big") == b"mcpd"


def test_opening_again_writes_nothing(postgres_place: Postgres) -> None:
    postgres_place.open().close()
    postgres_place.run(f"ALTER DATABASE {postgres_place.name} SET default_transaction_read_only = on")
    postgres_place.open().close()
