"""The schema as numbered migration steps; a released step is never changed.

The steps are the only description of the tables: their current form is read from a database in memory on which
all steps were run. Rows of most tables have a stamp, the version of the store at their last write and its
writer, from which another daemon on the same database learns what changed.
"""

# ruff: noqa: S608 - only our own names are formatted into statements; every value is bound

from __future__ import annotations

import sqlite3
from collections import defaultdict
from contextlib import closing
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from daemon.state import sqlite
from daemon.state.faults import StoreCause, StoreFault
from daemon.state.sql import Transaction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Step = Sequence[str]
    """Statements, in which `{bytes}` stands for the database's type of bytes."""

_STAMP = "version BIGINT NOT NULL, writer TEXT NOT NULL"

STEPS: tuple[Step, ...] = (
    (
        # The number of transactions that have written; a writer that raises it has all others wait.
        "CREATE TABLE version (value BIGINT NOT NULL)",
        f"""CREATE TABLE servers (
            name TEXT NOT NULL PRIMARY KEY, fingerprint TEXT NOT NULL, epoch BIGINT NOT NULL,
            listed BIGINT NOT NULL, refreshed_at DOUBLE PRECISION NOT NULL, about TEXT, introduction {{bytes}},
            summary TEXT, keywords TEXT, summary_of TEXT, summary_generated_at DOUBLE PRECISION, {_STAMP})""",
        f"""CREATE TABLE tools (
            server TEXT NOT NULL, name TEXT NOT NULL, position BIGINT NOT NULL, raw {{bytes}} NOT NULL,
            schema_hash TEXT NOT NULL, epoch BIGINT NOT NULL, since DOUBLE PRECISION NOT NULL, summary TEXT,
            keywords TEXT, summary_generated_at DOUBLE PRECISION, updated_at DOUBLE PRECISION NOT NULL,
            {_STAMP}, PRIMARY KEY (server, name))""",
        "CREATE INDEX tools_by_hash ON tools (schema_hash)",
        # One row for each list: nobody asks for a part of it, and a URI may be longer than any key may be.
        f"""CREATE TABLE lists (
            server TEXT NOT NULL, kind TEXT NOT NULL, definitions {{bytes}} NOT NULL, digest TEXT NOT NULL,
            {_STAMP}, PRIMARY KEY (server, kind))""",
        # A prompt may have the name of a tool.
        f"""CREATE TABLE given_names (
            kind TEXT NOT NULL, name TEXT NOT NULL, server TEXT NOT NULL, own TEXT NOT NULL,
            beside BIGINT NOT NULL, since DOUBLE PRECISION NOT NULL, {_STAMP}, PRIMARY KEY (kind, name))""",
        f"""CREATE TABLE sessions (
            key TEXT NOT NULL PRIMARY KEY, client TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL,
            seen_at DOUBLE PRECISION NOT NULL, {_STAMP})""",
        "CREATE INDEX sessions_by_use ON sessions (seen_at)",
        f"""CREATE TABLE loaded_tools (
            session TEXT NOT NULL, server TEXT NOT NULL, tool TEXT NOT NULL, position BIGINT NOT NULL,
            loaded_schema_hash TEXT NOT NULL, loaded_epoch BIGINT NOT NULL, status TEXT NOT NULL,
            invalid_reason TEXT NOT NULL, renamed_to TEXT, source TEXT NOT NULL,
            loaded_at DOUBLE PRECISION NOT NULL, updated_at DOUBLE PRECISION NOT NULL, {_STAMP},
            PRIMARY KEY (session, server, tool))""",
        # With (server, tool) in front, PostgreSQL would look for one session's row in here, among those of all.
        """CREATE INDEX loaded_tools_by_verdict ON loaded_tools
            (server, loaded_schema_hash, tool, status, invalid_reason, renamed_to)""",
        f"""CREATE TABLE switches (
            server TEXT NOT NULL, tool TEXT NOT NULL, switched_off BIGINT NOT NULL,
            at DOUBLE PRECISION NOT NULL, {_STAMP}, PRIMARY KEY (server, tool))""",
        """CREATE TABLE counts
            (name TEXT NOT NULL PRIMARY KEY, value BIGINT NOT NULL, since DOUBLE PRECISION NOT NULL)""",
        # `body` is the rest of the event as JSON: nobody searches in it. Written once, so it needs no stamp.
        """CREATE TABLE events (
            life TEXT NOT NULL, number BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL, server TEXT NOT NULL,
            instance TEXT NOT NULL, session TEXT NOT NULL, kind TEXT NOT NULL, body {bytes} NOT NULL,
            PRIMARY KEY (life, number))""",
        "CREATE INDEX events_by_server ON events (server, at)",
        "CREATE INDEX events_by_time ON events (at)",
        # What all daemons on the store counted in each hour, since the epoch; they add to the same rows.
        """CREATE TABLE hours (
            hour BIGINT NOT NULL, name TEXT NOT NULL, value BIGINT NOT NULL, PRIMARY KEY (hour, name))""",
    ),
)
"""The steps by schema version; the first one creates version 1, that of mcpd 0.1.0."""

_VERSION, _COUNTER = "mcpd_schema", "version"
"""Tables of one row: the number of the last applied step, and the number of transactions that have written."""

_VERSION_BEFORE = "schema_version"
"""The table in which development versions before mcpd 0.1.0 numbered their schemas."""


class _Table(msgspec.Struct, frozen=True):
    """A table in the form that the steps create."""

    columns: tuple[str, ...]
    made: tuple[str, ...]
    """SQLite's statements that create the table and its indexes."""


def may_be_of_before(transaction: Transaction) -> bool:
    """Whether the names of the tables are those of a store that was made before mcpd 0.1.0.

    Reads no table: another daemon may be moving them aside.
    """
    names = transaction.tables()
    return _VERSION not in names and {_VERSION_BEFORE, "servers"} <= names


def tables_of_before(transaction: Transaction) -> frozenset[str]:
    """The tables of a store that was made before mcpd 0.1.0; empty if there is no such store."""
    if not may_be_of_before(transaction) or "fingerprint" not in transaction.columns("servers"):
        return frozenset()
    return transaction.tables() & {_VERSION_BEFORE, "tool_names", *_tables()}


def version_of(transaction: Transaction, where: str, steps: Sequence[Step] = STEPS) -> int:
    """The schema version of the database, without changing it; 0 if it has no tables of ours.

    Raises:
        StoreFault: the version is later than ours (NEWER_SCHEMA), or foreign tables have our names
            (MISCONFIGURED).
    """
    names = transaction.tables()
    if not names:
        return 0
    if _VERSION not in names:
        if foreign := sorted(names & _tables().keys()):
            raise _foreign(where, f"it has a table '{foreign[0]}' that is not mcpd's")
        return 0
    if transaction.columns(_VERSION) != ["version"]:
        raise _foreign(where, f"its table '{_VERSION}' is not mcpd's")
    found = [row["version"] for row in transaction.rows(f"SELECT version FROM {_VERSION}")]
    if len(found) != 1 or not isinstance(found[0], int) or found[0] < 0:
        raise _foreign(where, f"its table '{_VERSION}' says {found[:3]} instead of one number")
    if found[0] > len(steps):
        why = f"it has schema {found[0]}, this mcpd knows up to {len(steps)}"
        raise StoreFault(StoreCause.NEWER_SCHEMA, where, why)
    return found[0]


def migrate(transaction: Transaction, where: str, steps: Sequence[Step] = STEPS) -> None:
    """Apply the missing steps within the caller's transaction: all or none.

    Raises:
        StoreFault: as in `version_of`.
    """
    transaction.rows(transaction.dialect.migrate_alone)
    version = version_of(transaction, where, steps)
    if version == 0:
        transaction.change(f"CREATE TABLE {_VERSION} (version BIGINT NOT NULL)")
        transaction.change(f"INSERT INTO {_VERSION} (version) VALUES (0)")
    for step in steps[version:]:
        for statement in step:
            transaction.change(statement.replace("{bytes}", transaction.dialect.bytes_type))
    if version < len(steps):
        transaction.change(f"UPDATE {_VERSION} SET version = :now", {"now": len(steps)})


def complete(transaction: Transaction) -> bool:
    """Whether every table and the counter's row exist.

    Raises:
        sqlite3.Error, psycopg.Error: a table lacks columns.
    """
    names = transaction.tables()
    for name, table in _tables().items():
        if name in names:
            transaction.rows(f"SELECT {', '.join(table.columns)} FROM {name} LIMIT 0")
    return _tables().keys() <= names and transaction.scalar(f"SELECT value FROM {_COUNTER}") is not None


def mend(transaction: Transaction) -> None:
    """Create tables that were dropped, and the counter, which continues after the latest stamp."""
    for name in _tables().keys() - transaction.tables():
        for statement in _tables()[name].made:
            transaction.change(statement.replace("BLOB", transaction.dialect.bytes_type))
    if transaction.scalar(f"SELECT value FROM {_COUNTER}") is None:
        stamped = [name for name, table in _tables().items() if "writer" in table.columns]
        stamps = [transaction.scalar(f"SELECT max(version) FROM {name}") for name in stamped]
        latest = max(stamp or 0 for stamp in stamps)
        transaction.change(f"INSERT INTO {_COUNTER} (value) VALUES (:latest)", {"latest": latest})


@cache
def _tables() -> Mapping[str, _Table]:
    """All tables after the last step, by name."""
    with closing(sqlite3.connect(":memory:")) as memory:
        memory.row_factory = sqlite3.Row
        transaction = Transaction(memory.cursor(), sqlite.DIALECT)
        migrate(transaction, ":memory:", STEPS)
        made = defaultdict(list)
        # Tables first: the row of an index names its table, too.
        query = "SELECT tbl_name, sql FROM sqlite_master WHERE sql <> '' ORDER BY type DESC"
        for row in transaction.rows(query):
            made[row["tbl_name"]].append(row["sql"])
        return {
            name: _Table(tuple(transaction.columns(name)), tuple(statements))
            for name, statements in made.items()
        }


def _foreign(where: str, why: str) -> StoreFault:
    advice = "Give mcpd a file or a database of its own (or a schema of one, by search_path)"
    return StoreFault(StoreCause.MISCONFIGURED, where, why, advice)
