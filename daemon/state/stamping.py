"""Writes of rows that carry a stamp: the version of the store, and the daemon that has written them."""

# ruff: noqa: S608 - only our own names are formatted into statements; every value is bound

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.state.sql import among

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from daemon.state.sql import Transaction

    Values = dict[str, Any]


class StampedRows:
    """Writes rows within one transaction, each with the transaction's stamp."""

    def __init__(self, transaction: Transaction, *, version: int, writer: str) -> None:
        """Start with the stamp.

        Args:
            transaction: the transaction to write in.
            version: the transaction's number.
            writer: the name of this daemon.
        """
        self._transaction = transaction
        self._stamp: Values = {"version": version, "writer": writer}

    def drop(self, table: str, keys: Sequence[str], gone: Sequence[Values]) -> None:
        """Delete the rows that have these values in these columns."""
        if gone:
            wanted = " AND ".join(f"{name} = :{name}" for name in keys)
            self._transaction.change_each(f"DELETE FROM {table} WHERE {wanted}", gone)

    def put(self, table: str, keys: Sequence[str], new: Sequence[Values]) -> None:
        """Insert rows, replacing those with the same values in the key columns."""
        if stamped := [{**values, **self._stamp} for values in new]:
            columns = list(stamped[0])
            marks = ", ".join(f":{name}" for name in columns)
            changes = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in keys)
            put = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"
            replaced = f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {changes}"
            self._transaction.change_each(f"{put} {replaced}", stamped)

    def change(self, table: str, old: Values, new: Values) -> int:
        """Give rows with the old values the new ones; returns the number of changed rows."""
        stamped = {**new, **self._stamp}
        changes = ", ".join(f"{name} = :{name}" for name in stamped)
        were = (f"{name} IS NULL" if value is None else f"{name} = :old_{name}" for name, value in old.items())
        values = {f"old_{name}": value for name, value in old.items() if value is not None}
        statement = f"UPDATE {table} SET {changes} WHERE {' AND '.join(were)}"
        return self._transaction.change(statement, {**values, **stamped})

    def touch(self, table: str, key: str, changed: Collection[str]) -> None:
        """Stamp rows as if they had been written: what belongs to them has changed."""
        if changed:
            marks, values = among(changed)
            stamped = f"UPDATE {table} SET version = :version, writer = :writer WHERE {key} IN {marks}"
            self._transaction.change(stamped, {**values, **self._stamp})
