"""The stored counts by the hour, which all daemons on a store add to the same rows of; kept for 90 days."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.state.sql import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.state.sql import Transaction

    Increments = Mapping[tuple[int, str], int]
    """What was counted, by the number of the hour since the epoch and the name of the count."""

SECONDS = 3600
"""Seconds in an hour."""

KEPT = 90 * 24
"""Hours that are kept: a season, in some 30 MB if each of 50 servers is called in each of them."""


def first_hour(since: float) -> int:
    """The number of the hour that a time falls into, given in seconds since the epoch."""
    return int(since) // SECONDS


def add_hours(transaction: Transaction, more: Increments, at: float) -> None:
    """Add increments to the stored counts, and delete those that are too old at this time."""
    each = [{"hour": hour, "name": clean(name), "more": count} for (hour, name), count in more.items()]
    if each:
        put = "INSERT INTO hours (hour, name, value) VALUES (:hour, :name, :more)"
        added = "ON CONFLICT (hour, name) DO UPDATE SET value = hours.value + excluded.value"
        transaction.change_each(f"{put} {added}", each)
        transaction.change("DELETE FROM hours WHERE hour < :oldest", {"oldest": int(at) // SECONDS - KEPT})


def read_hours(since: float, transaction: Transaction) -> dict[tuple[int, str], int]:
    """The stored counts of the hour that a time falls into, and of later ones."""
    query = "SELECT hour, name, value FROM hours WHERE hour >= :first"
    return {
        (row["hour"], str(row["name"])): row["value"]
        for row in transaction.rows(query, {"first": first_hour(since)})
        if isinstance(row["hour"], int) and isinstance(row["value"], int)
    }
