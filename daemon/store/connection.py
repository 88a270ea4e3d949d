"""What statements are run on: plain SQL that both databases understand, with values by name (`:name`).

Python's own module runs them on SQLite as they are. SQLAlchemy stands before PostgreSQL alone: to load it takes
0.15 s and 13 MB, which a daemon whose state is a file does not pay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    Values = Mapping[str, Any]
    """What the names in a statement stand for."""


class Row(Protocol):
    """One row of an answer."""

    def __getitem__(self, column: str, /) -> Any:
        """The cell in a column."""

    def keys(self) -> Iterable[str]:
        """The columns."""


class Connection(Protocol):
    """Runs statements within one transaction; raises the driver's errors (`translating`)."""

    @property
    def bytes_type(self) -> str:
        """What the database calls a column of bytes."""

    def rows(self, statement: str, values: Values = ...) -> Iterable[Row]:
        """The answer to a question; to be read before the next statement."""

    def change(self, statement: str, values: Values = ...) -> int:
        """Change something. Returns how many rows."""

    def change_each(self, statement: str, values: Sequence[Values]) -> None:
        """Change something once for each of these values."""

    def tables(self) -> frozenset[str]:
        """The names of all tables."""

    def columns(self, table: str) -> list[str]:
        """The columns of a table, in order."""

    def migrate_alone(self) -> None:
        """Wait until no other daemon migrates; none begins to before the transaction ends."""


class Database(Protocol):
    """The one connection to a database."""

    def transaction(self, *, writes: bool) -> AbstractContextManager[Connection]:
        """A transaction, which ends with the block: kept, or undone if the block raises.

        Args:
            writes: whether it may change anything.
        """

    def close(self) -> None:
        """Let go of it, whatever state it is in."""


def scalar(connection: Connection, statement: str, values: Values | None = None) -> Any:
    """The first cell of an answer's first row; None if there is no row."""
    for row in connection.rows(statement, values or {}):
        return row[next(iter(row.keys()))]
    return None


def among(wanted: Iterable[object]) -> tuple[str, dict[str, object]]:
    """What follows `IN`, and what its names stand for. Not for more than `rows.AT_ONCE`."""
    values = {f"among_{number}": each for number, each in enumerate(wanted)}
    return f"({', '.join(f':{name}' for name in values)})", values
