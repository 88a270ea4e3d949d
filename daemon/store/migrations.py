"""From any earlier schema to the present one, step by step. What a step says is never changed afterwards."""

# ruff: noqa: S608 - what is put into statements are names of ours; every value is bound

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.store import schema
from daemon.store.connection import scalar
from daemon.store.faults import Kind, StoreFault
from daemon.store.rehashing import rehash

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from daemon.store.connection import Connection

    Step = Sequence[str | Callable[[Connection], None]]
    """Statements, `{bytes}` in them is what the database calls them; or what takes more than statements."""

_STAMP = "version BIGINT NOT NULL, writer TEXT NOT NULL"

_FIRST = (
    "CREATE TABLE version (value BIGINT NOT NULL)",
    f"""CREATE TABLE servers (
        name TEXT NOT NULL PRIMARY KEY, fingerprint TEXT NOT NULL, epoch BIGINT NOT NULL,
        listed BIGINT NOT NULL, refreshed_at DOUBLE PRECISION NOT NULL, summary TEXT, keywords TEXT,
        summary_of TEXT, summary_generated_at DOUBLE PRECISION, {_STAMP})""",
    f"""CREATE TABLE tools (
        server TEXT NOT NULL, name TEXT NOT NULL, position BIGINT NOT NULL, raw {{bytes}} NOT NULL,
        schema_hash TEXT NOT NULL, epoch BIGINT NOT NULL, summary TEXT, keywords TEXT,
        summary_generated_at DOUBLE PRECISION, updated_at DOUBLE PRECISION NOT NULL, {_STAMP},
        PRIMARY KEY (server, name))""",
    "CREATE INDEX tools_by_hash ON tools (schema_hash)",
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
    "CREATE INDEX loaded_tools_by_hash ON loaded_tools (server, loaded_schema_hash, tool)",
    f"""CREATE TABLE switches (
        server TEXT NOT NULL, tool TEXT NOT NULL, switched_off BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL,
        {_STAMP}, PRIMARY KEY (server, tool))""",
)

_NAMES = (
    f"""CREATE TABLE tool_names (
        name TEXT NOT NULL PRIMARY KEY, server TEXT NOT NULL, tool TEXT NOT NULL, beside BIGINT NOT NULL,
        since DOUBLE PRECISION NOT NULL, {_STAMP})""",
    "ALTER TABLE tools ADD COLUMN since DOUBLE PRECISION NOT NULL DEFAULT 0",
    # No definition has changed after its row has.
    "UPDATE tools SET since = updated_at",
    # Whose row has been as it is for longer has had the name for longer, most likely.
    """INSERT INTO tool_names (name, server, tool, beside, since, version, writer)
        SELECT name, server, name, 0, updated_at, version, writer FROM tools WHERE NOT EXISTS (
            SELECT 1 FROM tools AS older WHERE older.name = tools.name AND (older.updated_at < tools.updated_at
            OR (older.updated_at = tools.updated_at AND older.server < tools.server)))""",
)

_VERDICTS = (
    "DROP INDEX loaded_tools_by_hash",
    """CREATE INDEX loaded_tools_by_verdict ON loaded_tools
        (server, loaded_schema_hash, tool, status, invalid_reason, renamed_to)""",
)

_COUNTS = (
    """CREATE TABLE counts
        (name TEXT NOT NULL PRIMARY KEY, value BIGINT NOT NULL, since DOUBLE PRECISION NOT NULL)""",
)

_ABOUT = ("ALTER TABLE servers ADD COLUMN about TEXT",)

STEPS: tuple[Step, ...] = (_FIRST, (rehash,), _NAMES, _VERDICTS, _COUNTS, _ABOUT)
"""By schema version, the first one makes version 1."""


def version_of(connection: Connection, where: str) -> int:
    """The schema version of what is there; 0 if nothing of ours is.

    Raises:
        StoreFault: somebody else's tables have our names (MISCONFIGURED).
    """
    names = connection.tables()
    if schema.schema_version.name in names:
        return _said_version(connection, where)
    if foreign := sorted(names & schema.TABLES.keys()):
        raise _foreign(where, f"it has a table '{foreign[0]}' that is not mcpd's")
    return 0


def refuse_newer(connection: Connection, where: str, steps: Sequence[Step] = STEPS) -> int:
    """`version_of`, for reading only.

    Raises:
        StoreFault: it is later than ours (NEWER_SCHEMA), or not ours at all (MISCONFIGURED).
    """
    version = version_of(connection, where)
    if version > len(steps):
        why = f"it has schema {version}, this mcpd knows up to {len(steps)}"
        raise StoreFault(Kind.NEWER_SCHEMA, where, why)
    return version


def migrate(connection: Connection, where: str, steps: Sequence[Step] = STEPS) -> None:
    """Apply the steps that are missing, within the caller's transaction: all or none.

    Raises:
        StoreFault: as `refuse_newer`.
    """
    connection.migrate_alone()
    version = refuse_newer(connection, where, steps)
    if version == 0:
        connection.change("CREATE TABLE schema_version (version BIGINT NOT NULL)")
        connection.change("INSERT INTO schema_version (version) VALUES (0)")
    for step in steps[version:]:
        for each in step:
            if isinstance(each, str):
                connection.change(each.replace(schema.BYTES, connection.bytes_type))
            else:
                each(connection)
    if version < len(steps):
        connection.change("UPDATE schema_version SET version = :now", {"now": len(steps)})


def complete(connection: Connection) -> bool:
    """Whether every table is there, and the counter's row.

    Raises:
        sqlite3.Error: a table has not the columns that it should have.
        Trouble: the same of PostgreSQL.
    """
    names = connection.tables()
    for table in schema.TABLES.values():
        if table.name in names:
            connection.rows(f"SELECT {table.listed} FROM {table.name} LIMIT 0")
    return schema.TABLES.keys() <= names and scalar(connection, _COUNTED) is not None


def mend(connection: Connection) -> None:
    """Make tables that somebody has dropped, and the counter, which goes on after the latest stamp there is."""
    for table in schema.TABLES.values():
        for statement in table.made(connection.bytes_type):
            connection.change(statement)
    if scalar(connection, _COUNTED) is None:
        stamps = [scalar(connection, f"SELECT max(version) FROM {table.name}") for table in schema.STAMPED]
        latest = max(stamp or 0 for stamp in stamps)
        connection.change("INSERT INTO version (value) VALUES (:latest)", {"latest": latest})


_COUNTED = "SELECT value FROM version"


def _said_version(connection: Connection, where: str) -> int:
    name = schema.schema_version.name
    if connection.columns(name) != ["version"]:
        raise _foreign(where, f"its table '{name}' is not mcpd's")
    found = [row["version"] for row in connection.rows("SELECT version FROM schema_version")]
    if len(found) == 1 and isinstance(found[0], int) and found[0] >= 0:
        return found[0]
    raise _foreign(where, f"its table '{name}' says {found[:3]} instead of one number")


def _foreign(where: str, why: str) -> StoreFault:
    advice = "Give mcpd a file or a database of its own (or a schema of one, by search_path)"
    return StoreFault(Kind.MISCONFIGURED, where, why, advice)
