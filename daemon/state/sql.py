"""Plain SQL that SQLite and PostgreSQL both understand, with values by name (`:name`)."""

from __future__ import annotations

from itertools import chain, count, islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from daemon.state.values import Told

    Values = Mapping[str, Any]
    """The values of the names in a statement."""

    Row = Any
    """Cells by the names of their columns: `sqlite3.Row`, or psycopg's dict."""

T = TypeVar("T")

AT_ONCE = 500
"""The most keys in one query: SQLite takes 32,766 parameters, PostgreSQL 65,535, and both plan long lists
slowly."""

_NONE: Values = {}


class SqlDialect(msgspec.Struct, frozen=True, kw_only=True):
    """The differences between the two databases."""

    bytes_type: str
    """The database's column type for bytes."""
    tables: str
    """A query for the `name` of every table."""
    migrate_alone: str
    """A statement that waits for other daemons' migrations and holds them off until the transaction ends."""
    spelled: Callable[[str], str]
    """Translates a statement into the driver's syntax."""
    tell: str = ""
    """A statement that has `:word` told to all connections that listen, at the commit; empty where nobody else
    writes."""


class Transaction:
    """Runs statements within one transaction; raises the driver's errors."""

    def __init__(self, cursor: Any, dialect: SqlDialect) -> None:
        """Use a cursor of `sqlite3` or `psycopg` in a transaction, whose rows are indexed by name."""
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

    def scalar(self, statement: str, values: Values = _NONE) -> Any:
        """The first cell of a query's first row; None if there is no row."""
        for row in self.rows(statement, values):
            return row[next(iter(row.keys()))]
        return None

    def tell(self, word: str) -> None:
        """Have all who listen told, once the transaction is committed."""
        if self.dialect.tell:
            self.rows(self.dialect.tell, {"word": word})

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
        """A transaction that ends with the block: committed, or rolled back if the block raises.

        Args:
            writes: whether the transaction may write.
        """

    def prepare(self, where: str) -> None:
        """Check the database, outside of any transaction; `where` is its location for people.

        Raises:
            StoreFault: the database is damaged (CORRUPT).
        """

    def move_aside(self, tables: Callable[[Transaction], Collection[str]]) -> str:
        """Move a store that was made before mcpd 0.1.0 aside as a whole, to make room for a new one.

        Args:
            tables: names the tables of such a store; asked again where daemons share the database.

        Returns:
            The store's new location; empty if another daemon has moved it meanwhile.
        """

    def close(self) -> None:
        """Close the connection, whatever state it is in."""


class Notifications(Protocol):
    """A connection that listens (`postgres.PostgresNotifications`)."""

    def fileno(self) -> int:
        """The descriptor that becomes readable when there is something to hear."""

    def heard(self) -> list[Told]:
        """What has been told since the last call, and can be read without waiting.

        Raises:
            StoreFault: the connection is lost.
        """

    def close(self) -> None:
        """Close the connection; does not wait."""


def among(wanted: Iterable[object]) -> tuple[str, dict[str, object]]:
    """The list after `IN`, and the values of its names; for `AT_ONCE` values at most."""
    values = {f"among_{number}": each for number, each in enumerate(wanted)}
    return f"({', '.join(f':{name}' for name in values)})", values


def chunks(items: Iterable[T]) -> Iterator[list[T]]:
    """The items in lists of `AT_ONCE` at most."""
    rest = iter(items)
    while chunk := list(islice(rest, AT_ONCE)):
        yield chunk


def unused(name: str, joint: str, is_used: Callable[[str], bool]) -> str:
    """The name, or else the name with a joint and the first number from 2 on that makes it one of its own."""
    numbered = (f"{name}{joint}{number}" for number in count(2))
    return next(each for each in chain([name], numbered) if not is_used(each))


def clean(text: str) -> str:
    """The text without NUL, which PostgreSQL refuses, and without lone surrogates."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
