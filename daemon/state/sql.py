"""Plain SQL that SQLite and PostgreSQL both understand, with values by name (`:name`)."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    Values = Mapping[str, Any]
    """What the names in a statement stand for."""

    Row = Any
    """Cells by the names of their columns: `sqlite3.Row`, or psycopg's dict."""

T = TypeVar("T")

AT_ONCE = 500
"""Keys in one question: SQLite takes 32,766 parameters, PostgreSQL 65,535, and both plan long lists slowly."""

_NONE: Values = {}


@attrs.frozen(kw_only=True)
class SqlDialect:
    """Where the two databases differ."""

    bytes_type: str
    """What the database calls a column of bytes."""
    tables: str
    """A question for the `name` of every table."""
    migrate_alone: str
    """Waits until no other daemon migrates, none of which begins before the transaction ends."""
    spelled: Callable[[str], str]
    """A statement as the driver wants it."""


class Transaction:
    """Runs statements within one transaction; raises the driver's errors."""

    def __init__(self, cursor: Any, dialect: SqlDialect) -> None:
        """Take a cursor of `sqlite3` or `psycopg` whose rows have names, in a transaction."""
        self._cursor = cursor
        self.dialect = dialect

    def rows(self, statement: str, values: Values = _NONE) -> list[Row]:
        """The answer to a question."""
        self._cursor.execute(self.dialect.spelled(statement), values)
        found: list[Row] = self._cursor.fetchall()
        return found

    def change(self, statement: str, values: Values = _NONE) -> int:
        """Change something. Returns how many rows."""
        self._cursor.execute(self.dialect.spelled(statement), values)
        changed: int = self._cursor.rowcount
        return changed

    def change_each(self, statement: str, values: Sequence[Values]) -> None:
        """Change something once for each of these values."""
        self._cursor.executemany(self.dialect.spelled(statement), values)

    def scalar(self, statement: str, values: Values = _NONE) -> Any:
        """The first cell of an answer's first row; None if there is no row."""
        for row in self.rows(statement, values):
            return row[next(iter(row.keys()))]
        return None

    def tables(self) -> frozenset[str]:
        """The names of all tables, of PostgreSQL those in the schema that is looked into first."""
        return frozenset(row["name"] for row in self.rows(self.dialect.tables))

    def columns(self, table: str) -> list[str]:
        """The columns of a table, in order."""
        self._cursor.execute(self.dialect.spelled(f"SELECT * FROM {table} LIMIT 0"))  # noqa: S608 - a name of ours
        return [each[0] for each in self._cursor.description]


class Database(Protocol):
    """The one connection to a database (`sqlite.SqliteDatabase`, `postgres.PostgresDatabase`)."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What its driver raises."""

    def transaction(self, *, writes: bool) -> AbstractContextManager[Transaction]:
        """A transaction, which ends with the block: kept, or undone if the block raises.

        Args:
            writes: whether it may change anything.
        """

    def prepare(self, where: str) -> None:
        """See whether it is sound, outside of any transaction; `where` is for people.

        Raises:
            StoreFault: it is not (CORRUPT).
        """

    def close(self) -> None:
        """Let go of it, whatever state it is in."""


def among(wanted: Iterable[object]) -> tuple[str, dict[str, object]]:
    """What follows `IN`, and what its names stand for. Not for more than `AT_ONCE`."""
    values = {f"among_{number}": each for number, each in enumerate(wanted)}
    return f"({', '.join(f':{name}' for name in values)})", values


def chunks(items: Iterable[T]) -> Iterator[list[T]]:
    """In lists of `AT_ONCE` at most."""
    rest = iter(items)
    while chunk := list(islice(rest, AT_ONCE)):
        yield chunk


def clean(text: str) -> str:
    """The text as both databases can keep it: no NUL, which PostgreSQL refuses, no half of a surrogate pair."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
