"""Reads and writes stored events and hourly counts; deletes events that are old or too many."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from daemon.audit.record import ChainHead
from daemon.catalog.tool_results import Shape
from daemon.history.event import Event, EventKind
from daemon.history.journal import COLUMNS, EventQuery, body_of, stored_event
from daemon.state.sql import Transaction, among, clean

Increments = Mapping[tuple[int, str], int]
"""Counts by the number of the hour since the epoch and the name of the count."""

SECONDS = 3600

KEPT = 90 * 24
"""Most hours kept: 90 days, in some 30 MB if each of 50 servers is called every hour."""


def add_hours(transaction: Transaction, more: Increments, at: float) -> None:
    """Add increments to the stored counts, and delete counts that are too old at the time `at`."""
    rows = [{"hour": hour, "name": clean(name), "value": count} for (hour, name), count in more.items()]
    if rows:
        transaction.put("hours", ("hour", "name"), rows, adding="value")
        transaction.change("DELETE FROM hours WHERE hour < :oldest", {"oldest": int(at) // SECONDS - KEPT})


def read_hours(first: int, transaction: Transaction) -> dict[tuple[int, str], int]:
    """The stored counts, from the hour with this number on."""
    query = "SELECT hour, name, value FROM hours WHERE hour >= :first"
    return {
        (row["hour"], str(row["name"])): row["value"]
        for row in transaction.rows(query, {"first": first})
        if isinstance(row["hour"], int) and isinstance(row["value"], int)
    }


# ruff: noqa: S608 - only our own names are formatted into statements; every value is bound


KEPT_SECONDS = 30 * 24 * 3600.0
"""Seconds that an event is kept: 30 days, so that a monthly event shows twice."""

KEPT_OF_EACH = 10_000
"""Most events of one server, of the daemon itself, and of its sessions: 5 MB for each."""

FORGOTTEN_EVENTS = 2000
"""Most events that one transaction deletes: some 20 ms, while writers wait."""

LOOKED_THROUGH = 10_000
"""Most events read to find changes of the tools that a session has loaded."""

_SESSIONS = "kind LIKE 'session-%'"
"""Selects sessions' events: thousands of clients must not displace the daemon's own events."""

OF_RUNS = frozenset({EventKind.READY, EventKind.DEGRADED, EventKind.ENDED, EventKind.STATE})
"""Kinds that change a server's state; the newest of them tells whether the server is away."""

_COLUMNS = (*COLUMNS, "kind", "body")


def put_events(transaction: Transaction, events: Iterable[Event]) -> None:
    """Write events; those already stored stay as they are."""
    rows = [_row(event) for event in events]
    if rows:
        names = ", ".join(_COLUMNS)
        values = ", ".join(f":{name}" for name in _COLUMNS)
        put = f"INSERT INTO events ({names}) VALUES ({values}) ON CONFLICT (life, number) DO NOTHING"
        transaction.change_each(put, rows)


def find_events(query: EventQuery, transaction: Transaction) -> list[Event]:
    """The stored events of a query, oldest first, without unreadable rows."""
    conditions = ["at >= :since"]
    most = LOOKED_THROUGH if query.loaded else query.limit
    values: dict[str, Any] = {"since": query.since, "limit": most}
    if query.until < math.inf:
        conditions.append("at <= :until")
        values["until"] = query.until
    for column in ("server", "instance", "session", "life"):
        if wanted := getattr(query, column):
            conditions.append(f"{column} = :{column}")
            values[column] = clean(wanted)
    if query.loaded:
        # The tools of a change are in its body.
        conditions.remove("session = :session")
        conditions.append("(session = :session OR kind = :changed)")
        values["changed"] = str(EventKind.LISTS_CHANGED)
    if query.kinds:
        marks, kinds = among(map(str, query.kinds))
        conditions.append(f"kind IN {marks}")
        values.update(kinds)
    going_on = []
    for place, (life, number) in enumerate(query.seen.items()):
        conditions.append(f"NOT (life = :life_{place} AND number <= :number_{place})")
        going_on.append(f"(life = :life_{place} AND number > :number_{place})")
        values.update({f"life_{place}": clean(life), f"number_{place}": number})
    if query.fresh > query.since:
        # Each by an index, however long ago the first answer was.
        conditions.append(f"({' OR '.join(['at >= :fresh', *going_on])})")
        values["fresh"] = query.fresh
    order = "ASC" if query.oldest else "DESC"
    found = transaction.rows(
        f"SELECT * FROM events WHERE {' AND '.join(conditions)}"
        f" ORDER BY at {order}, life {order}, number {order} LIMIT :limit",
        values,
    )
    events = [event for row in found if (event := stored_event(row)) is not None]
    if query.loaded:
        events = [event for event in events if query.matches(event)][: query.limit]
    return events if query.oldest else events[::-1]


def forget_events(before: float, transaction: Transaction, most: int = KEPT_OF_EACH) -> int:
    """Delete old events, and all but the newest `most` of each server, of its sessions, and of the daemon.

    Returns the number of deleted events; at `FORGOTTEN_EVENTS`, there may be more.
    """
    room = FORGOTTEN_EVENTS
    room -= _delete(transaction, "at < :before", {"before": before}, room)
    counts = transaction.rows(
        f"SELECT server, {_SESSIONS} AS comes, count(*) AS many FROM events GROUP BY server, {_SESSIONS}"
    )
    for row in counts:
        excess = min(row["many"] - most, room)
        if excess > 0:
            kind = _SESSIONS if row["comes"] else f"NOT {_SESSIONS}"
            room -= _delete(transaction, f"server = :server AND {kind}", {"server": row["server"]}, excess)
    return FORGOTTEN_EVENTS - room


class LastLife(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the last daemon on a socket."""

    name: str
    """The `life` of that daemon's events."""
    heard_at: float
    """The time of its last event, in seconds since the epoch."""
    in_order: bool
    """Whether the daemon stopped; false if it was killed."""


def last_life(host: str, socket: str, transaction: Transaction) -> LastLife | None:
    """The end of the last daemon on a machine's socket; None without a trace of one."""
    begun = "SELECT * FROM events WHERE server = '' AND kind = :kind ORDER BY at DESC LIMIT 100"
    for row in transaction.rows(begun, {"kind": str(EventKind.DAEMON_STARTED)}):
        event = stored_event(row)
        if event is None or (event.details.get("host"), event.details.get("socket")) != (host, socket):
            continue
        life = {"life": event.life}
        stopped = {**life, "kind": str(EventKind.DAEMON_STOPPED)}
        ended = transaction.scalar("SELECT count(*) FROM events WHERE life = :life AND kind = :kind", stopped)
        heard_at = float(transaction.scalar("SELECT max(at) FROM events WHERE life = :life", life))
        return LastLife(name=event.life, heard_at=heard_at, in_order=bool(ended))
    return None


def away_since(servers: Iterable[str], life: str, transaction: Transaction) -> dict[str, float]:
    """When each server went away that was away at the end of a daemon's life, in seconds since the epoch."""
    marks, kinds = among(map(str, OF_RUNS))
    # Of one life, numbers rise with time.
    rows = transaction.rows(
        "SELECT * FROM events WHERE life = :life AND number IN (SELECT max(number) FROM events"
        f" WHERE life = :life AND kind IN {marks} GROUP BY server)",
        {"life": clean(life), **kinds},
    )
    last = {event.server: event.details.get("awaySince") for row in rows if (event := stored_event(row))}
    return {name: float(at) for name in servers if isinstance(at := last.get(name), (int, float))}


def put_head(head: ChainHead, at: float, transaction: Transaction) -> None:
    """Replace the head of one of the audit's chains."""
    row = {"chain": head.chain, "seq": head.seq, "digest": head.digest, "at": at}
    transaction.put("audit_heads", ("chain",), [row])


def stored_heads(transaction: Transaction) -> list[ChainHead]:
    """The heads of all the audit's chains."""
    rows = transaction.rows("SELECT chain, seq, digest FROM audit_heads")
    return [ChainHead(chain=row["chain"], seq=row["seq"], digest=row["digest"]) for row in rows]


def put_shapes(shapes: Mapping[str, Shape], transaction: Transaction) -> None:
    """Replace the observed shapes of tools, by schema hash."""
    rows = [{"schema_hash": schema_hash, "shape": shape.raw} for schema_hash, shape in shapes.items()]
    transaction.put("observed_shapes", ("schema_hash",), rows)


def stored_shapes(transaction: Transaction) -> dict[str, Any]:
    """The observed shapes by schema hash; deletes those of tools that no server lists any more."""
    transaction.change("DELETE FROM observed_shapes WHERE schema_hash NOT IN (SELECT schema_hash FROM tools)")
    found = transaction.rows("SELECT schema_hash, shape FROM observed_shapes")
    return {row["schema_hash"]: row["shape"] for row in found}


def _row(event: Event) -> dict[str, Any]:
    cells = {name: getattr(event, name) for name in COLUMNS}
    cleaned = {name: clean(cell) if isinstance(cell, str) else cell for name, cell in cells.items()}
    return {**cleaned, "kind": str(event.kind), "body": body_of(event)}


def _delete(transaction: Transaction, which: str, values: dict[str, Any], most: int) -> int:
    oldest = f"SELECT life, number FROM events WHERE {which} ORDER BY at LIMIT :most"
    statement = f"DELETE FROM events WHERE (life, number) IN ({oldest})"
    return transaction.change(statement, {**values, "most": most})
