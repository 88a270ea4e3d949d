"""Later steps change a store; one of before 0.1.0 is moved aside, and one of a later mcpd is left alone."""

import contextlib
import re
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from daemon.config.state_url import parse
from daemon.safety.redact import Redactor
from daemon.state.sql import Batch, Database, StoreCause, StoreFault, translated
from daemon.state.store import STEPS, Store, complete, mend, migrate, version_of
from tests.unit.cases import cases
from tests.unit.state.places import Opener, Place, Postgres, Sqlite, database_of, failing
from tests.unit.state.samples import approval, server

BEFORE = Path(__file__).parent / "before_0_1_0.sql"
"""What the last development version before mcpd 0.1.0 left behind."""

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


def left_behind(place: Place) -> None:
    """Have a store there that was made before mcpd 0.1.0."""
    blob, bytea = r"\bX'([0-9A-F]*)'", r"'\\x\1'"
    for statement in BEFORE.read_text().split(";\n"):
        if place.url.path is None:
            statement = re.sub(blob, bytea, statement).replace(" BLOB", " BYTEA")  # noqa: PLW2901
        if "TRANSACTION" not in statement and "COMMIT" not in statement and statement.strip():
            place.run(statement)


def test_a_store_of_before_is_moved_aside_as_a_whole_and_a_new_one_begins(
    place: Place, opening: Opener, logged: list[str]
) -> None:
    left_behind(place)
    tables = {row[0] for row in place.run(TABLES[place.url.path is None])}
    before = {name: place.run(f"SELECT * FROM {name}") for name in tables}
    store = opening(place)
    assert store.recall().servers == ()
    store.keep(Batch(at=1.0, servers=(server("read"),)))
    aside = {name: moved(place, f"SELECT * FROM {{}}{name}") for name in tables}
    assert aside == before
    assert len(before) == 12
    (line,) = [each for each in logged if "is older than mcpd 0.1.0" in each]
    assert place.url.where in line
    assert ("before-0.1.0" if place.url.path else "schema mcpd_before_0_1_0") in line
    store.close()
    assert opening(place).recall().servers == (server("read"),)


TABLES = (
    "SELECT name FROM sqlite_master WHERE type = 'table'",
    "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
)
"""Queries for the tables of SQLite and of PostgreSQL."""


def moved(place: Place, query: str) -> list[tuple[object, ...]]:
    """What a query finds in the store that was moved aside; `{}` in it stands before each table."""
    if place.url.path is None:
        return place.run(query.format("mcpd_before_0_1_0."))
    return Sqlite(place.url.path.with_name(place.url.path.name + ".before-0.1.0")).run(query.format(""))


def test_a_file_of_before_takes_its_log_with_it_and_nothing_is_overwritten(
    sqlite_place: Sqlite, opening: Opener
) -> None:
    path = sqlite_place.path
    sqlite_place.path.parent.mkdir()
    first = path.with_name("state.db.before-0.1.0")
    first.write_bytes(b"another one")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.executescript(BEFORE.read_text())
        # While somebody else has the file open, what was written is in the log alone.
        opening(sqlite_place)
        assert path.with_name("state.db.before-0.1.0-2-wal").stat().st_size > 0
    assert first.read_bytes() == b"another one"
    found = Sqlite(path.with_name("state.db.before-0.1.0-2")).run("SELECT server, tool FROM switches")
    assert found == [("git", "push")]


def test_tables_of_others_stay_where_they_are_when_a_store_of_before_is_moved(
    postgres_place: Postgres, opening: Opener
) -> None:
    left_behind(postgres_place)
    postgres_place.run("CREATE TABLE theirs (x TEXT)", "INSERT INTO theirs VALUES ('dear')")
    opening(postgres_place)
    assert postgres_place.run("SELECT x FROM public.theirs") == [("dear",)]


def test_daemons_that_come_at_once_move_a_store_of_before_once(
    postgres_place: Postgres, logged: list[str]
) -> None:
    left_behind(postgres_place)
    with ThreadPoolExecutor(4) as threads:
        for store in list(threads.map(postgres_place.open, ("one", "two", "three", "four"))):
            store.close()
    found = postgres_place.run("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'mcpd%'")
    assert found == [("mcpd_before_0_1_0",)]
    assert len([line for line in logged if "and began a new store" in line]) == 1


def test_a_store_of_before_that_cannot_be_moved_stays_and_the_fault_says_what_to_do(
    postgres_place: Postgres,
) -> None:
    left_behind(postgres_place)
    role = f"guest_{postgres_place.name}"
    postgres_place.run(
        f"CREATE ROLE {role} LOGIN",
        f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}",
        f"GRANT CREATE ON SCHEMA public TO {role}",
    )
    guest = parse(postgres_place.dsn.replace("postgres@", f"{role}@"))
    with failing(StoreCause.MISCONFIGURED, "cannot be moved aside: ", " move the store away by hand"):
        Store.open(guest, writer="guest")
    assert postgres_place.run("SELECT tool FROM public.switches") == [("push",)]
    postgres_place.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


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
    with failing(StoreCause.NEWER_SCHEMA), database.transaction(writes=False) as transaction:
        version_of(transaction, "here", STEPS[:1])


def test_a_later_schema_is_refused_and_not_touched(place: Place, sqlite_place: Sqlite) -> None:
    place.open().close()
    place.run("UPDATE mcpd_schema SET version = 99", "DROP TABLE switches")
    before = sqlite_place.path.read_bytes() if sqlite_place.path.exists() else b""
    with failing(StoreCause.NEWER_SCHEMA, f"schema 99, this mcpd knows up to {len(STEPS)}"):
        place.open()
    with pytest.raises(Exception, match="switches"):
        place.run("SELECT * FROM switches")
    assert before == (sqlite_place.path.read_bytes() if sqlite_place.path.exists() else b"")


@cases("theirs")
def test_tables_of_others_are_not_touched(place: Place, theirs: tuple[str, ...]) -> None:
    place.run(*theirs)
    with failing(StoreCause.MISCONFIGURED, "of its own"):
        place.open()


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
