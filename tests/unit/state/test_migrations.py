"""From every earlier schema to the present one; a later one is left alone."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import psycopg
import pytest

from daemon.catalog.introduction import introduction_in
from daemon.model import GivenName
from daemon.safety.redact import Redactor
from daemon.state import postgres
from daemon.state.faults import StoreCause, StoreFault, translated
from daemon.state.migrations import STEPS, complete, mend, migrate, version_of
from daemon.state.values import Batch
from tests.unit.state.places import database_of
from tests.unit.state.samples import server, summed, with_lists

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daemon.state.sql import Database
    from tests.unit.state.places import Opener, Place, Postgres, Sqlite

SCHEMA_6 = Path(__file__).parent / "schema6.sql"
"""What mcpd left behind before it kept prompts, resources and templates."""

SCHEMA_7 = SCHEMA_6.with_name("schema7.sql")
"""What it left behind before it kept what servers say of themselves."""

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


@pytest.mark.parametrize("earlier", range(len(STEPS)))
def test_every_earlier_schema_becomes_the_present_one(database: Database, earlier: int) -> None:
    with database.transaction(writes=True) as transaction:
        if earlier:
            migrate(transaction, "here", STEPS[:earlier])
    with database.transaction(writes=True) as transaction:
        migrate(transaction, "here")
        mend(transaction)
        assert complete(transaction)
    assert version(database) == len(STEPS)


def test_what_was_kept_is_there_after_later_steps(place: Place, opening: Opener, database: Database) -> None:
    store = opening(place)
    store.keep(Batch(at=1.0, servers=(server("read"),)))
    store.close()
    with database.transaction(writes=True) as transaction:
        migrate(transaction, "here", LATER)
    assert version(database) == len(LATER)
    assert place.run("SELECT name, mood FROM servers") == [("git", "fine")]


def test_a_store_without_names_gives_each_to_the_tool_that_has_been_there_for_longest(
    place: Place, database: Database
) -> None:
    with database.transaction(writes=True) as transaction:
        migrate(transaction, "here", STEPS[:2])
        for server_name, tool, at in (
            ("evil", "transfer", 2.0),
            ("bank", "transfer", 1.0),
            ("evil", "own", 3.0),
        ):
            transaction.change(
                "INSERT INTO tools"
                " (server, name, position, raw, schema_hash, epoch, updated_at, version, writer)"
                " VALUES (:server, :name, 0, :raw, 'h', 1, :at, 1, 'w')",
                {"server": server_name, "name": tool, "raw": b"{}", "at": at},
            )
        migrate(transaction, "here")
    found = place.run("SELECT kind, name, server, own FROM given_names ORDER BY name")
    assert found == [("tool", "own", "evil", "own"), ("tool", "transfer", "bank", "transfer")]


def left_behind(place: Place, dump: Path) -> None:
    """Bring back what an older mcpd has left."""
    blob, bytea = r"\bX'([0-9A-F]*)'", r"'\\x\1'"
    for statement in dump.read_text().split(";\n"):
        if place.url.path is None:
            statement = re.sub(blob, bytea, statement).replace(" BLOB ", " BYTEA ")  # noqa: PLW2901
        if "TRANSACTION" not in statement and "COMMIT" not in statement and statement.strip():
            place.run(statement)


def test_a_store_of_the_version_before_introductions_is_as_it_was_and_takes_them(
    place: Place, opening: Opener
) -> None:
    left_behind(place, SCHEMA_7)
    store = opening(place, "newer")
    git = with_lists(
        summed(server("log", "push", epoch=4)),
        prompt=["review"],
        resource=["git://log"],
        template=["git://{hash}"],
    )
    mute = server(name="mute", tools=None, since={}, epoch=1)
    before = store.recall()
    assert before.servers == (git, mute)
    assert before.switched == {("git", "prompt:review")}
    assert before.unreadable == ()
    said = introduction_in('{"serverInfo":{"name":"Git","title":"é"},"instructions":"x"}'.encode(), {})
    introduced = attrs.evolve(git, introduction=said)
    store.keep(Batch(at=200.0, servers=(introduced,)))
    assert store.recall().servers == (introduced, mute)


def test_a_store_of_the_version_before_lists_is_as_it_was_and_takes_lists(
    place: Place, opening: Opener
) -> None:
    left_behind(place, SCHEMA_6)
    store = opening(place, "newer")
    before, git = store.recall(), summed(server("log", "push", epoch=4))
    others = (server("log", name="hg", epoch=2), server(name="mute", tools=None, since={}, epoch=1))
    assert before.servers == (git, *others)
    assert before.switched == {("git", "push"), ("hg", "")}
    assert before.counted == {"loads": 3}
    assert before.unreadable == ()
    assert set(before.names) == {
        GivenName(name="log", key=("git", "log"), since=50.0),
        GivenName(name="push", key=("git", "push"), since=50.0),
        GivenName(name="hg__log", key=("hg", "log"), since=60.0),
        GivenName(name="git__push", key=("git", "push"), beside=True, since=70.0),
    }
    (loaded,) = store.sessions(10)
    assert list(loaded.loaded.tools) == [("git", "log")]
    listed = with_lists(attrs.evolve(git, epoch=5), prompt=["review"], resource=["file:///a"])
    assert store.keep(Batch(at=200.0, servers=(listed,))).epochs == {}
    assert store.recall().servers == (listed, *others)


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


def test_a_later_schema_is_refused_and_not_touched(place: Place, sqlite_place: Sqlite) -> None:
    place.open().close()
    place.run("UPDATE schema_version SET version = 99", "DROP TABLE switches")
    before = sqlite_place.path.read_bytes() if sqlite_place.path.exists() else b""
    with pytest.raises(StoreFault, match=f"schema 99, this mcpd knows up to {len(STEPS)}") as fault:
        place.open()
    assert fault.value.cause is StoreCause.NEWER_SCHEMA
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
    assert fault.value.cause is StoreCause.MISCONFIGURED


def test_dropped_tables_are_made_as_the_steps_have_left_them(place: Place, database: Database) -> None:
    with database.transaction(writes=True) as transaction:
        migrate(transaction, "here")
        tables = transaction.tables()
    made = described(place)
    with database.transaction(writes=True) as transaction:
        for name in tables - {"schema_version"}:
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


def test_every_table_that_others_read_has_stamps(database: Database) -> None:
    with database.transaction(writes=True) as transaction:
        migrate(transaction, "here")
        columns = {name: set(transaction.columns(name)) for name in transaction.tables()}
    stamped = {name for name, names in columns.items() if {"version", "writer"} <= names}
    assert columns.keys() - stamped == {"schema_version", "version", "counts", "events", "hours"}


def test_a_dropped_counter_goes_on_after_the_latest_stamp(place: Place, opening: Opener) -> None:
    store = opening(place)
    for at in range(5):
        store.keep(Batch(at=float(at), servers=(server("read", epoch=at),)))
    place.run("DELETE FROM version")
    store.close()
    assert opening(place).keep(Batch(at=9.0)).version == 6


def test_the_lock_of_migrations_spells_our_name() -> None:
    assert postgres.MIGRATION_LOCK.to_bytes(4, "big") == b"mcpd"


def test_opening_again_writes_nothing(postgres_place: Postgres) -> None:
    postgres_place.open().close()
    postgres_place.run(f"ALTER DATABASE {postgres_place.name} SET default_transaction_read_only = on")
    postgres_place.open().close()
