"""The store of everything that outlives the daemon: synchronous; one worker thread makes all calls."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
from loguru import logger

from daemon.catalog.loaded import ANONYMOUS, OTHERS, SessionRecord
from daemon.kit.later import later
from daemon.safety.redact import Redactor
from daemon.state import sql, sqlite
from daemon.state.event_rows import add_hours, put_events
from daemon.state.reader import Reader
from daemon.state.sql import StoreCause, StoreFault, translated
from daemon.state.writer import Writer

# ruff: noqa: S608 - only our own names are formatted into statements; every value is bound

if TYPE_CHECKING:
    from daemon.config.state_url import StateUrl
    from daemon.state import postgres
    from daemon.state.postgres import PostgresNotifications
    from daemon.state.server_notes import Switches

    Step = Sequence[str]

    """Statements in SQLite's dialect; BLOB stands for the database's type of bytes."""


def _read_steps() -> tuple[Step, ...]:
    """The steps in schema.sql, each a list of statements."""
    steps: list[str] = []
    for line in Path(__file__).with_name("schema.sql").read_text(encoding="utf-8").splitlines():
        if line.startswith("-- Step"):
            steps.append("")
        elif line and not line.startswith("--"):
            steps[-1] += f"{line}\n"
    return tuple(tuple(filter(None, map(str.strip, step.split(";")))) for step in steps)


STEPS = _read_steps()
"""The migration steps in order; the first creates schema version 1, that of mcpd 0.1.0."""

_VERSION, _COUNTER = "mcpd_schema", "version"
"""Tables of one row: the number of the last applied step, and the number of writing transactions."""

_VERSION_BEFORE = "schema_version"
"""The version table of development versions before mcpd 0.1.0."""


class _Table(msgspec.Struct, frozen=True):
    columns: tuple[str, ...]
    made: tuple[str, ...]
    """SQLite's statements that create the table and its indexes."""


def may_be_of_before(transaction: sql.Transaction) -> bool:
    """Whether the table names are those of a store made before mcpd 0.1.0; reads no rows: tables may move."""
    names = transaction.tables()
    return _VERSION not in names and {_VERSION_BEFORE, "servers"} <= names


def tables_of_before(transaction: sql.Transaction) -> frozenset[str]:
    """The tables of a store made before mcpd 0.1.0; empty for any other store."""
    if not may_be_of_before(transaction) or "fingerprint" not in transaction.columns("servers"):
        return frozenset()
    return transaction.tables() & {_VERSION_BEFORE, "tool_names", *_tables()}


def version_of(transaction: sql.Transaction, where: str, steps: Sequence[Step] = STEPS) -> int:
    """The schema version, 0 without tables of mcpd; raises `StoreFault` (NEWER_SCHEMA, MISCONFIGURED)."""
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
        raise _foreign(where, f"its table '{_VERSION}' holds {found[:3]} instead of one version number")
    if found[0] > len(steps):
        why = f"it has schema {found[0]}, this mcpd knows up to {len(steps)}"
        raise StoreFault(StoreCause.NEWER_SCHEMA, where, why)
    return found[0]


def migrate(transaction: sql.Transaction, where: str, steps: Sequence[Step] = STEPS) -> None:
    """Apply the missing steps within the caller's transaction, all or none; raises as `version_of` does."""
    transaction.rows(transaction.dialect.migrate_alone)
    version = version_of(transaction, where, steps)
    if version == 0:
        transaction.change(f"CREATE TABLE {_VERSION} (version BIGINT NOT NULL)")
        transaction.change(f"INSERT INTO {_VERSION} (version) VALUES (0)")
    for step in steps[version:]:
        for statement in step:
            transaction.change(statement.replace("BLOB", transaction.dialect.bytes_type))
    if version < len(steps):
        transaction.change(f"UPDATE {_VERSION} SET version = :now", {"now": len(steps)})


def complete(transaction: sql.Transaction) -> bool:
    """Whether every table and the counter's row exist; raises the driver's error for a missing column."""
    names = transaction.tables()
    for name, table in _tables().items():
        if name in names:
            transaction.rows(f"SELECT {', '.join(table.columns)} FROM {name} LIMIT 0")
    return _tables().keys() <= names and transaction.scalar(f"SELECT value FROM {_COUNTER}") is not None


def mend(transaction: sql.Transaction) -> None:
    """Create dropped tables, and a lost counter that continues after the latest stamp."""
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
    with closing(sqlite3.connect(":memory:")) as memory:
        memory.row_factory = sqlite3.Row
        transaction = sql.Transaction(memory.cursor(), sqlite.DIALECT)
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


if not TYPE_CHECKING:
    postgres = later("daemon.state.postgres")


T = TypeVar("T")

_ALONE = "UPDATE version SET value = value"
"""A statement after which every other writer waits until the transaction ends."""

_COUNTED = "SELECT count(*) FROM sessions"
_OTHERS = f" WHERE key LIKE '{OTHERS}%'"
"""A condition for sessions that belong to other users than the daemon's."""

_UNNAMED = f"SELECT key FROM sessions WHERE seen_at < :before AND key LIKE '%{ANONYMOUS}%' LIMIT :limit"
"""A query for idle sessions without a name."""


class Store:
    """An open store."""

    def __init__(self, url: StateUrl, database: sql.Database, writer: str) -> None:
        self.where = url.where
        """The store's location for people, without a password."""
        self._file = url.path
        self._database = database
        self._writer = writer
        self._redact = Redactor(url.secrets)
        self._closed = False
        self._seen = 0
        self._opened: sqlite.FileIdentity | None = None

    @classmethod
    def open(cls, url: StateUrl, *, writer: str) -> Store:
        """Open, create or migrate a store; raises `StoreFault`."""
        store = cls(url, _database(url), writer)
        try:
            store._prepare()
        except BaseException:
            store.close()
            raise
        return store

    def recall(self) -> sql.Recollection:
        """The whole content of the store except sessions; raises `StoreFault`."""
        with self._transaction(writes=False) as transaction:
            reader = Reader(transaction)
            counted, since = reader.counted()
            return sql.Recollection(
                version=_version(transaction, self.where),
                servers=reader.servers(),
                switched=reader.switched(),
                approvals=reader.approvals(),
                names=reader.names(),
                counted=counted,
                counted_since=since,
                unreadable=tuple(reader.unreadable),
            )

    def session(self, key: str) -> SessionRecord | None:
        """The stored session with this key, or None; raises `StoreFault`."""
        with self._transaction(writes=False) as transaction:
            return Reader(transaction).sessions([sql.clean(key)]).get(sql.clean(key))

    def sessions(self, limit: int) -> tuple[SessionRecord, ...]:
        """The most recently used sessions, newest first; raises `StoreFault`."""
        with self._transaction(writes=False) as transaction:
            return Reader(transaction).newest(limit)

    def changes_since(
        self,
        version: int,
        keys: Collection[str] = (),
        *,
        heartbeat: bool = False,
        on_switched: Callable[[Switches], None] = lambda _off: None,
    ) -> sql.Changes:
        """The changes that other daemons wrote since a version (0: all); raises `StoreFault`.

        `heartbeat` notifies all listeners; `on_switched` gets changed switches before the rest is read.
        """
        with self._transaction(writes=False) as transaction:
            now, reader, me = _version(transaction, self.where), Reader(transaction), self._writer
            if heartbeat:
                transaction.notify(f"{me} {now}")
            if now == version:
                return sql.Changes(version=now)
            # A database that was restored from a backup has a lower version: then everything may be new.
            since = version if version < now else 0
            if reader.changed("switches", "server", since, me):
                on_switched(reader.switched())
            names = reader.changed("servers", "name", since, me)
            changed = reader.sessions_changed(since, me, map(sql.clean, keys))
            changes = sql.Changes(
                version=now,
                servers=reader.servers(names) if names else (),
                sessions=tuple(reader.sessions(changed).values()),
                names=reader.names() if reader.changed("given_names", "name", since, me) else None,
                approvals=reader.approvals(since, me),
                unreadable=tuple(reader.unreadable),
            )
        self._seen = now
        return changes

    def keep(self, batch: sql.Batch) -> sql.Written:
        """Write a batch as a whole; raises `StoreFault` if nothing was written, as far as known: try again."""
        with self._transaction(writes=True) as transaction:
            version = self._next_version(transaction)
            writer = Writer(transaction, version=version, writer=self._writer, seen=self._seen, at=batch.at)
            epochs = {record.server: (record.epoch, writer.server(record)) for record in batch.servers}
            writer.approvals(batch.approvals)
            writer.names(batch.names, batch.names_gone)
            writer.switch(batch.switched_off, off=True)
            writer.switch(batch.switched_on - batch.switched_off, off=False)
            begun = writer.sessions(batch.sessions)
            writer.touched(batch.touched)
            writer.counted(batch.counted)
            put_events(transaction, batch.events)
            add_hours(transaction, batch.hours, batch.at)
            marked = {} if batch.judge is None else writer.mark(batch.judge, batch.judged)
        differing = {name: got for name, (asked, got) in epochs.items() if got != asked}
        return sql.Written(version=version, epochs=differing, marked=marked, begun=begun)

    def forget_sessions(
        self, before: float, sparing: Collection[str] = (), *, most: int, anonymous: float = 0.0
    ) -> int:
        """Delete sessions last used before a time, and the oldest of more than `most`.

        Users other than the daemon's may have half of all sessions: if they have more, theirs go first.
        `sparing` are keys that stay; `anonymous` is the time for sessions without a name. Returns the number of
        deleted sessions; at `FORGOTTEN_AT_ONCE`, there may be more. Raises `StoreFault`.
        """
        spared = {sql.clean(key) for key in sparing}
        with self._transaction(writes=True) as transaction:
            self._next_version(transaction)
            excess, others = transaction.scalar(_COUNTED) - most, transaction.scalar(_COUNTED + _OTHERS)
            among_others = _OTHERS if others > most // 2 else ""
            excess = max(excess, others - most // 2)
            oldest = f"SELECT key, seen_at < :before AS idle FROM sessions{among_others}"
            oldest += " ORDER BY seen_at LIMIT :limit"
            found = transaction.rows(oldest, {"before": before, "limit": sql.FORGOTTEN_AT_ONCE})
            keys = [row["key"] for place, row in enumerate(found) if place < excess or row["idle"]]
            unnamed = transaction.rows(_UNNAMED, {"before": anonymous, "limit": sql.FORGOTTEN_AT_ONCE})
            unique = dict.fromkeys([*keys, *(row["key"] for row in unnamed)])
            keys = [key for key in unique if key not in spared][: sql.FORGOTTEN_AT_ONCE]
            for chunk in sql.chunks(keys):
                marks, values = sql.among(chunk)
                transaction.change(f"DELETE FROM loaded_tools WHERE session IN {marks}", values)
                transaction.change(f"DELETE FROM sessions WHERE key IN {marks}", values)
        return len(keys)

    def within(self, work: Callable[[sql.Transaction], T], *, writes: bool = False) -> T:
        """Run another module's work on that module's tables, without a notification; raises `StoreFault`."""
        with self._transaction(writes=writes) as transaction:
            if writes:
                transaction.change(_ALONE)
            return work(transaction)

    def check(self) -> None:
        """Check with a query or two that the opened store still exists; raises `StoreFault`."""
        with translated(self.where, self._redact, ()):
            why = "" if self._opened is None else self._opened.lost()
        if why:
            raise StoreFault(StoreCause.LOST, self.where, why)
        with self._transaction(writes=False) as transaction:
            _version(transaction, self.where)

    def close(self) -> None:
        """Close the store, even if its file is gone; idempotent."""
        self._closed = True
        self._database.close()

    def _prepare(self) -> None:
        self._move_old_store_aside()
        # Before anything is changed, even the file's mode: a later mcpd may have written it.
        with self._transaction(writes=False) as transaction:
            current = version_of(transaction, self.where) == len(STEPS)
        with self._errors():
            self._database.prepare(self.where)
        with self._transaction(writes=False) as transaction:
            current = current and complete(transaction)
        if not current:
            with self._transaction(writes=True) as transaction:
                migrate(transaction, self.where)
                mend(transaction)
        with self._transaction(writes=False) as transaction:
            self._seen = _version(transaction, self.where)
        if self._file is not None:
            self._opened = sqlite.FileIdentity.now(self._file)

    def _move_old_store_aside(self) -> None:
        with self._transaction(writes=False) as transaction:
            if not may_be_of_before(transaction):
                return
        try:
            with self._errors():
                aside = self._database.move_aside(tables_of_before)
        except StoreFault as fault:
            why = f"it was made before mcpd 0.1.0, and cannot be moved aside: {fault}"
            raise StoreFault(fault.cause, self.where, why, "Or move the store away by hand") from fault
        if aside:
            text = (
                "the store {} is older than mcpd 0.1.0: mcpd moved it to {}, and began a new store without the"
                " old sessions, history and switches"
            )
            logger.warning(text, self.where, aside)

    def _next_version(self, transaction: sql.Transaction) -> int:
        """Start writing; every other writer waits until the transaction ends, and is then notified."""
        transaction.change("UPDATE version SET value = value + 1")
        version = _version(transaction, self.where)
        transaction.notify(f"{self._writer} {version}")
        return version

    @contextlib.contextmanager
    def _transaction(self, *, writes: bool) -> Iterator[sql.Transaction]:
        with self._errors(), self._database.transaction(writes=writes) as transaction:
            yield transaction

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        if self._closed:
            raise StoreFault(StoreCause.UNAVAILABLE, self.where, "it was closed")
        with translated(self.where, self._redact, self._database.errors):
            yield


def _version(transaction: sql.Transaction, where: str) -> int:
    now: int | None = transaction.scalar("SELECT value FROM version")
    if now is None:
        raise StoreFault(StoreCause.UNAVAILABLE, where, "its table 'version' is empty")
    return now


def set_aside(url: StateUrl, now: float) -> str:
    """Rename a corrupt, closed SQLite file after the time; returns its new name. Raises `StoreFault`."""
    if url.path is None:
        why = "mcpd cannot rename a PostgreSQL database"
        raise StoreFault(StoreCause.MISCONFIGURED, url.where, why)
    with translated(url.where, Redactor(()), ()):
        return sqlite.set_aside(url.path, f"corrupt-{datetime.fromtimestamp(now, UTC):%Y%m%d-%H%M%S}")


def listen(url: StateUrl, *, writer: str) -> PostgresNotifications:
    """Open a connection that a shared store notifies (arguments: `Store.open`); raises `StoreFault`."""
    errors, redact = postgres.PostgresDatabase.errors, Redactor(url.secrets)
    return postgres.listen(url.parameters, writer, partial(translated, url.where, redact, errors))


def _database(url: StateUrl) -> sql.Database:
    if url.path is not None:
        with translated(url.where, Redactor(()), sqlite.SqliteDatabase.errors):
            return sqlite.SqliteDatabase(url.path)
    try:
        return postgres.PostgresDatabase(url.parameters)
    except ImportError as error:
        why = f"PostgreSQL needs a driver that is not installed ({error})"
        advice = "Install it: pip install 'mcpd-supervisor[postgres]'"
        raise StoreFault(StoreCause.MISCONFIGURED, url.where, why, advice) from None
