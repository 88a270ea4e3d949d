"""Plain SQL for SQLite and PostgreSQL, with named values (`:name`); its values and faults.

A fault has a cause for policies and a text for people, both made from drivers' errors.
"""

from __future__ import annotations

import contextlib
import errno
import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain, count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from daemon.errors import McpdError
from daemon.kit.later import pattern

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from daemon.catalog.loaded import LoadedStatus, SessionRecord, Verdict
    from daemon.facts import ServerRecord
    from daemon.history.event import Event
    from daemon.model import Approval, GivenName

    Judge = Callable[[str, str, str], Verdict]
    """Returns the verdict on a loaded tool, given its server, its name and its schema hash when loaded."""
    Values = Mapping[str, Any]
    """The values for the names in a statement."""
    Row = Any
    """Cells by column name: `sqlite3.Row`, or psycopg's dict."""
    from daemon.safety.redact import Redactor


class StoreCause(StrEnum):
    """The cause of a failed operation, one for each different reaction; the text has the details."""

    UNAVAILABLE = "unavailable"
    """The store gave no useful answer; it may recover soon."""
    FULL = "full"
    """No space is left; stored rows can still be read."""
    LOCKED = "locked"
    """Another program holds a lock on the store."""
    READ_ONLY = "read_only"
    CORRUPT = "corrupt"
    """The file or database is not a store, or is damaged."""
    NEWER_SCHEMA = "newer_schema"
    """A later version of mcpd has written the store, so this one does not touch it."""
    LOST = "lost"
    """The opened store is gone: removed, replaced, emptied, or its tables were dropped."""
    MISCONFIGURED = "misconfigured"
    """The url cannot work until an operator changes something."""


class _Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    state: str
    """The state of the store, in words."""
    helps: str
    sqlite: tuple[str, ...] = ()
    sqlstates: tuple[str, ...] = ()
    errnos: tuple[str, ...] = ()


_KINDS = msgspec.toml.decode(Path(__file__).with_name("faults.toml").read_bytes(), type=dict[StoreCause, _Kind])


class StoreFault(McpdError):
    """A failed operation of the store. The text contains no password."""

    def __init__(self, cause: StoreCause, where: str, why: str, advice: str = "") -> None:
        self.cause = cause
        self.where = where
        kind = _KINDS[cause]
        super().__init__(f"the store {where} is {kind.state}: {why}. {advice or kind.helps}")


_SQLITE = {getattr(sqlite3, name): cause for cause, kind in _KINDS.items() for name in kind.sqlite}
"""Causes by extended result code, else by primary result code; unlisted codes are UNAVAILABLE."""

_SQLITE_WORDS = (
    (re.compile(r"no such table"), StoreCause.LOST),
    (re.compile(r"no such column|has no column"), StoreCause.CORRUPT),
)
"""Causes by message: SQLite has a single code for all errors in a statement."""

_SQLSTATES = {state: cause for cause, kind in _KINDS.items() for state in kind.sqlstates}
"""Causes by prefix of PostgreSQL's SQLSTATE; the longest prefix counts."""

_ERRNOS = {getattr(errno, name): cause for cause, kind in _KINDS.items() for name in kind.errnos}

# libpq has no SQLSTATE for a failed connect, only the server's message, which may be in another language: then
# the fault is UNAVAILABLE, and its text still has the reason.
_REFUSED = pattern(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|(database|role|user) .* does not exist"
    r"|not permitted to log in|permission denied|invalid (connection option|sslmode|integer|port)"
)

LONGEST_WHY = 300
"""Most characters of a driver's message in a fault."""


@contextlib.contextmanager
def translated(where: str, redact: Redactor, errors: tuple[type[Exception], ...]) -> Iterator[None]:
    """Turn a driver's errors within the block into a `StoreFault` whose message has no secrets."""
    failures: tuple[type[Exception], ...] = (OSError, *errors)
    try:
        yield
    except failures as error:
        # One bounded line, with the driver's name for the error.
        name = getattr(error, "sqlite_errorname", None) or getattr(error, "sqlstate", None)
        words = redact(" ".join(str(error).split()))[:LONGEST_WHY].rstrip(". ")
        raise StoreFault(_cause(error), where, f"{words} ({name})" if name else words) from None


def _cause(error: Exception) -> StoreCause:
    if isinstance(error, OSError):
        return _ERRNOS.get(error.errno, StoreCause.UNAVAILABLE)
    if isinstance(error, sqlite3.Error):
        return _of_sqlite(error)
    if state := getattr(error, "sqlstate", None):
        known = (_SQLSTATES.get(state[:length]) for length in range(len(state), 0, -1))
        return next(filter(None, known), StoreCause.UNAVAILABLE)
    return StoreCause.MISCONFIGURED if _REFUSED.search(str(error)) else StoreCause.UNAVAILABLE


def _of_sqlite(error: sqlite3.Error) -> StoreCause:
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    if code == sqlite3.SQLITE_ERROR:
        words = str(error)
        return next((cause for regex, cause in _SQLITE_WORDS if regex.search(words)), StoreCause.UNAVAILABLE)
    return _SQLITE.get(code) or _SQLITE.get(code & 0xFF, StoreCause.UNAVAILABLE)


FORGOTTEN_AT_ONCE = 2000
"""Most sessions that one transaction deletes: a fifth of a second with twenty loaded tools each."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Changes that are written together, all or none."""

    at: float
    """The time of writing, in seconds since the epoch."""
    servers: tuple[ServerRecord, ...] = ()
    """Servers; each replaces its stored record."""
    sessions: tuple[SessionRecord, ...] = ()
    """Sessions; each replaces its stored record."""
    names: tuple[GivenName, ...] = ()
    """Given names; a name that another tool already has belongs to neither tool after a restart."""
    names_gone: tuple[GivenName, ...] = ()
    """Names that lost their meaning."""
    approvals: tuple[Approval, ...] = ()
    """New approvals; approvals are never taken back."""
    touched: Mapping[str, float] = msgspec.field(default_factory=dict)
    """The last uses of sessions by key, in seconds since the epoch; unknown keys are skipped."""
    switched_off: frozenset[tuple[str, str]] = frozenset()
    """New switches by operators (`facts.Switched`)."""
    switched_on: frozenset[tuple[str, str]] = frozenset()
    counted: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Increments of counts, by name."""
    events: tuple[Event, ...] = ()
    """New events; those already stored are skipped."""
    hours: Mapping[tuple[int, str], int] = msgspec.field(default_factory=dict)
    """Increments of hourly counts (`state.event_rows`)."""
    judge: Judge | None = None
    """Judges the loaded tools of all sessions again; pure: it is called inside the transaction."""
    judged: tuple[str, ...] = ()
    """Servers whose loaded tools to judge again."""


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of writing a batch."""

    version: int
    """The store's version after the batch."""
    epochs: Mapping[str, int]
    """The epochs of servers that got another epoch than they asked for."""
    marked: Mapping[LoadedStatus, int]
    """The number of loaded tools whose verdict changed, by their new status."""
    begun: int = 0
    """The number of new sessions."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that other daemons wrote since a version."""

    version: int
    """The store's version, for the next question."""
    servers: tuple[ServerRecord, ...] = ()
    """The current records of changed servers, by name."""
    sessions: tuple[SessionRecord, ...] = ()
    """The current records of changed sessions, of those asked for."""
    names: tuple[GivenName, ...] | None = None
    """All given names; None if unchanged."""
    approvals: tuple[Approval, ...] = ()
    """New approvals, oldest first."""
    unreadable: tuple[str, ...] = ()
    """Rows that could not be read, each with the reason."""


class Recollection(Changes, frozen=True, kw_only=True):
    """The whole content of a store except sessions."""

    names: tuple[GivenName, ...] = ()
    """The names that tools and prompts were given, and the owners of URIs."""
    switched: frozenset[tuple[str, str]] = frozenset()
    """Everything that operators have switched off (`facts.Switched`)."""
    counted: Mapping[str, int] = msgspec.field(default_factory=dict)
    """All counts by name."""
    counted_since: float = 0.0
    """When counting began, in seconds since the epoch; 0 if nothing was counted."""


class Notification(msgspec.Struct, frozen=True):
    """The database's notification of a write."""

    own: bool
    """Whether this daemon wrote."""
    version: int
    """The store's version after the write."""


T = TypeVar("T")

AT_ONCE = 500
"""Most keys in one query: SQLite takes 32,766 parameters, PostgreSQL 65,535; both plan long lists slowly."""

_NONE: Values = {}


class SqlDialect(msgspec.Struct, frozen=True, kw_only=True):
    """The differences between the two databases."""

    bytes_type: str
    tables: str
    """A query for the `name` of every table."""
    migrate_alone: str
    """A statement that blocks other daemons' migrations until the transaction ends."""
    spelled: Callable[[str], str]
    """Translates a statement into the driver's syntax."""
    notify: str = ""
    """Sends `:word` to all listening connections at the commit; empty if no other daemon writes."""


class Transaction:
    """Runs statements within one transaction; raises the driver's errors."""

    def __init__(self, cursor: Any, dialect: SqlDialect) -> None:
        """Use a cursor of `sqlite3` or `psycopg` whose rows are indexed by name."""
        self._cursor = cursor
        self.dialect = dialect

    def rows(self, statement: str, values: Values = _NONE) -> list[Row]:
        """The rows that a query finds."""
        self._cursor.execute(self.dialect.spelled(statement), values)
        found: list[Row] = self._cursor.fetchall()
        return found

    def change(self, statement: str, values: Values = _NONE) -> int:
        """Run a statement; returns the number of changed rows."""
        self._cursor.execute(self.dialect.spelled(statement), values)
        changed: int = self._cursor.rowcount
        return changed

    def change_each(self, statement: str, values: Sequence[Values]) -> None:
        """Run a statement once for each of these values."""
        self._cursor.executemany(self.dialect.spelled(statement), values)

    def put(self, table: str, keys: Sequence[str], rows: Sequence[Values], *, adding: str = "") -> None:
        """Insert rows, replacing those with equal keys, or adding the column `adding` to theirs."""
        if rows:
            columns = list(rows[0])
            changed = [name for name in columns if name not in keys]
            changes = ", ".join(f"{name} = excluded.{name}" for name in changed)
            if adding:
                changes = f"{adding} = {table}.{adding} + excluded.{adding}"
            marks = ", ".join(f":{name}" for name in columns)
            put = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608 - our own names
            self.change_each(f"{put} ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {changes}", rows)

    def scalar(self, statement: str, values: Values = _NONE) -> Any:
        """The first cell of a query's first row; None without a row."""
        for row in self.rows(statement, values):
            return row[next(iter(row.keys()))]
        return None

    def notify(self, word: str) -> None:
        """Notify all listeners, once the transaction is committed."""
        if self.dialect.notify:
            self.rows(self.dialect.notify, {"word": word})

    def tables(self) -> frozenset[str]:
        """The names of all tables; in PostgreSQL, those in the current schema."""
        return frozenset(row["name"] for row in self.rows(self.dialect.tables))

    def columns(self, table: str) -> list[str]:
        """The names of a table's columns, in order."""
        self._cursor.execute(self.dialect.spelled(f"SELECT * FROM {table} LIMIT 0"))  # noqa: S608 - our own name
        return [each[0] for each in self._cursor.description]


class Database(Protocol):
    """The single connection to a database (`sqlite.SqliteDatabase`, `postgres.PostgresDatabase`)."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """The exceptions that the driver raises."""

    def transaction(self, *, writes: bool) -> AbstractContextManager[Transaction]:
        """A transaction for the block: committed at its end, or rolled back if the block raises."""

    def prepare(self, where: str) -> None:
        """Check the database, outside of any transaction; raises `StoreFault` (CORRUPT)."""

    def move_aside(self, tables: Callable[[Transaction], Collection[str]]) -> str:
        """Move a store made before mcpd 0.1.0 aside; returns its new place, empty if another was faster."""

    def close(self) -> None:
        """Close the connection, whatever its state; idempotent."""


def among(wanted: Iterable[object]) -> tuple[str, dict[str, object]]:
    """The list after `IN` and the values for its names; for `AT_ONCE` values at most."""
    values = {f"among_{number}": each for number, each in enumerate(wanted)}
    return f"({', '.join(f':{name}' for name in values)})", values


def chunks(items: Iterable[T]) -> Iterator[list[T]]:
    """The items in lists of `AT_ONCE` at most."""
    rest = iter(items)
    while chunk := list(islice(rest, AT_ONCE)):
        yield chunk


def unused(name: str, joint: str, is_used: Callable[[str], bool]) -> str:
    """The name; if it is in use, with `joint` and the first free number from 2 on appended."""
    numbered = (f"{name}{joint}{number}" for number in count(2))
    return next(each for each in chain([name], numbered) if not is_used(each))


def clean(text: str) -> str:
    """The text without NUL, which PostgreSQL refuses, and without lone surrogates."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
