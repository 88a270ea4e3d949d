"""The store: what outlives the daemon. Synchronous, for one caller at a time, in worker threads.

store = Store.open("sqlite:////var/lib/mcpd/state.db", writer="mcpd-1")
store.keep(Batch(at=now, servers=(record,)))
"""

# ruff: noqa: S608 - what is put into statements are names of ours; every value is bound

from __future__ import annotations

import contextlib
import importlib
import threading
from typing import TYPE_CHECKING, Any

from daemon.catalog.remembered import ANONYMOUS, OTHERS
from daemon.store import migrations, sqlite, urls
from daemon.store.connection import among, scalar
from daemon.store.faults import Kind, StoreFault
from daemon.store.reading import Reader
from daemon.store.rows import chunks, clean
from daemon.store.translating import translated
from daemon.store.values import FORGOTTEN_AT_ONCE, Changes, Kept, Recollection
from daemon.store.writing import Writer, next_version

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from daemon.catalog.remembered import SessionRecord
    from daemon.store.connection import Connection, Database
    from daemon.store.urls import Url
    from daemon.store.values import Batch

TURN_SECONDS = 0.2
"""How long an operation waits for an earlier one of this daemon. There should be none: callers take turns,
and one that hangs is left behind. Short, for its own wait comes on top."""

POSTGRES = "daemon.store.postgres"
"""What speaks PostgreSQL; its driver is an extra, and half a second's import that others do not pay."""


_COUNTED = "SELECT count(*) FROM sessions"
_OTHERS = f" WHERE key LIKE '{OTHERS}%'"
"""Sessions of other users than the daemon's."""

_UNNAMED = f"SELECT key FROM sessions WHERE seen_at < :before AND key LIKE '%{ANONYMOUS}%' LIMIT :limit"
"""Sessions that nobody has named and nobody uses."""


class Store:
    """An open store."""

    def __init__(self, url: Url, database: Database, writer: str) -> None:
        """Use `open`."""
        self.where = url.where
        """Which store, for people, without password."""
        self._file = url.path
        self._database = database
        self._writer = writer
        self._redact = url.redactor
        self._turn = threading.Lock()
        self._closed = False
        self._seen = 0
        self._opened: sqlite.Identity | None = None

    @classmethod
    def open(cls, url: str, *, writer: str, slack: float = 1) -> Store:
        """Open a store, and create or migrate it first if need be.

        Args:
            url: sqlite:////absolute/path or postgresql://...
            writer: who writes: no other daemon on the same database may go by it.
            slack: how many times longer than usual all waits may take: tests run on slow machines, too.

        Raises:
            StoreFault: it cannot be used now; nothing is left open.
        """
        parsed = urls.parse(url)
        with translated(parsed.where, parsed.redactor):
            store = cls(parsed, _database(parsed, slack), writer)
        try:
            store._prepare()
        except BaseException:
            store.close()
            raise
        return store

    def servers(self) -> Recollection:
        """All that is known of servers, and the names of their tools.

        Raises:
            StoreFault: it cannot be read now.
        """
        with self._reading() as reader:
            known, names = reader.servers(), reader.names()
            counted, since = reader.counted()
            return Recollection(
                servers=known,
                names=names,
                unreadable=tuple(reader.unreadable),
                counted=counted,
                counted_since=since,
            )

    def switched(self) -> frozenset[tuple[str, str]]:
        """Servers and tools that operators have switched off; an empty tool is the whole server.

        Raises:
            StoreFault: it cannot be read now.
        """
        with self._reading() as reader:
            return reader.switched()

    def session(self, key: str) -> SessionRecord | None:
        """What is known of a session, if anything is.

        Raises:
            StoreFault: it cannot be read now.
        """
        with self._reading() as reader:
            return reader.sessions([clean(key)]).get(clean(key))

    def sessions(self, limit: int) -> tuple[SessionRecord, ...]:
        """The sessions that were used last, the latest first.

        Raises:
            StoreFault: they cannot be read now.
        """
        with self._reading() as reader:
            return reader.newest(limit)

    def changes_since(self, version: int, keys: Collection[str] = ()) -> Changes:
        """What other daemons wrote since a version.

        Args:
            version: of the last `Kept` or `Changes`; 0 for everything.
            keys: the sessions to look at.

        Raises:
            StoreFault: it cannot be read now.
        """
        with self._reading() as reader:
            changes = self._changes(reader, version, keys)
        self._seen = changes.version
        return changes

    def keep(self, batch: Batch) -> Kept:
        """Write a batch: all of it, or nothing.

        Raises:
            StoreFault: nothing of it was written, as far as we know: a connection that breaks in the very last
                moment leaves that open, and the same batch can be written again.
        """
        with self._writing(batch.at) as (writer, version):
            epochs = {record.name: (record.epoch, writer.server(record)) for record in batch.servers}
            writer.names(batch.names, batch.names_gone)
            writer.switch(batch.switched_off, off=True)
            writer.switch(batch.switched_on - batch.switched_off, off=False)
            begun = writer.sessions(batch.sessions)
            writer.touched(batch.touched)
            writer.counted(batch.counted)
            marked = {} if batch.judge is None else writer.mark(batch.judge, batch.judged)
        differing = {name: got for name, (asked, got) in epochs.items() if got != asked}
        return Kept(version=version, epochs=differing, marked=marked, begun=begun)

    def forget_sessions(
        self, before: float, sparing: Collection[str] = (), *, most: int, anonymous: float = 0.0
    ) -> int:
        """Delete sessions that nobody has used since a time, and the oldest where there are too many.

        Other users than the daemon's may have half of them: theirs go first where they have more.

        Args:
            before: seconds since the epoch.
            sparing: keys of sessions that stay in any case.
            most: how many may stay.
            anonymous: the time for those that nobody has named, seconds since the epoch.

        Returns:
            How many were deleted, `FORGOTTEN_AT_ONCE` at most: then there may be more.

        Raises:
            StoreFault: none was deleted.
        """
        spared = {clean(key) for key in sparing}
        with self._transaction(writes=True) as connection:
            next_version(connection)
            excess, others = scalar(connection, _COUNTED) - most, scalar(connection, _COUNTED + _OTHERS)
            among_others = _OTHERS if others > most // 2 else ""
            excess = max(excess, others - most // 2)
            oldest = f"SELECT key, seen_at < :before AS idle FROM sessions{among_others}"
            oldest += " ORDER BY seen_at LIMIT :limit"
            found = connection.rows(oldest, {"before": before, "limit": FORGOTTEN_AT_ONCE})
            keys = [row["key"] for place, row in enumerate(found) if place < excess or row["idle"]]
            unnamed = connection.rows(_UNNAMED, {"before": anonymous, "limit": FORGOTTEN_AT_ONCE})
            unique = dict.fromkeys([*keys, *(row["key"] for row in unnamed)])
            keys = [key for key in unique if key not in spared][:FORGOTTEN_AT_ONCE]
            for chunk in chunks(keys):
                marks, values = among(chunk)
                connection.change(f"DELETE FROM loaded_tools WHERE session IN {marks}", values)
                connection.change(f"DELETE FROM sessions WHERE key IN {marks}", values)
        return len(keys)

    def check(self) -> None:
        """See whether what was opened is still there; a question or two.

        Raises:
            StoreFault: it is not (LOST), or it cannot be used for another reason.
        """
        self._see_file()
        with self._reading() as reader:
            reader.version()

    def close(self) -> None:
        """Let go of it, even if its file is gone; more than once does no harm."""
        if self._closed:
            return
        self._closed = True
        self._database.close()

    def _prepare(self) -> None:
        if isinstance(self._database, sqlite.Database):
            # Before anything is changed, and be it the file's mode: it may be a later mcpd's.
            with self._transaction(writes=False) as connection:
                migrations.refuse_newer(connection, self.where)
            with self._errors():
                self._database.prepare(self.where)
        with self._transaction(writes=False) as connection:
            current = migrations.refuse_newer(connection, self.where) == len(migrations.STEPS)
            current = current and migrations.complete(connection)
        if not current:
            with self._transaction(writes=True) as connection:
                migrations.migrate(connection, self.where)
                migrations.mend(connection)
        with self._reading() as reader:
            self._seen = reader.version()
        if self._file is not None:
            self._opened = sqlite.Identity.now(self._file)

    def _changes(self, reader: Reader, version: int, keys: Collection[str]) -> Changes:
        now = reader.version()
        if now == version:
            return Changes(version=now)
        # A database that was restored from a backup has counted less far: then everything may be news.
        since = version if version < now else 0
        me = self._writer
        names = reader.servers_changed(since, me)
        changed = reader.sessions_changed(since, me, map(clean, keys))
        return Changes(
            version=now,
            servers=reader.servers(names) if names else (),
            sessions=tuple(reader.sessions(changed).values()),
            names=reader.names() if reader.names_changed(since, me) else None,
            switched=reader.switched() if reader.switches_changed(since, me) else None,
            unreadable=tuple(reader.unreadable),
        )

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Reader]:
        with self._transaction(writes=False) as connection:
            yield Reader(connection)

    @contextlib.contextmanager
    def _writing(self, at: float) -> Iterator[tuple[Writer, int]]:
        with self._transaction(writes=True) as connection:
            version = next_version(connection)
            yield Writer(connection, version=version, writer=self._writer, seen=self._seen, at=at), version

    @contextlib.contextmanager
    def _transaction(self, *, writes: bool) -> Iterator[Connection]:
        with self._errors(), self._database.transaction(writes=writes) as connection:
            yield connection

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        if not self._turn.acquire(timeout=TURN_SECONDS):
            raise StoreFault(Kind.UNAVAILABLE, self.where, "an earlier operation has not ended yet")
        try:
            if self._closed:
                raise StoreFault(Kind.UNAVAILABLE, self.where, "it was closed")
            with translated(self.where, self._redact):
                yield
        finally:
            self._turn.release()

    def _see_file(self) -> None:
        with translated(self.where, self._redact):
            why = "" if self._opened is None else self._opened.lost()
        if why:
            raise StoreFault(Kind.LOST, self.where, why)


def set_aside(url: str, now: float) -> str:
    """Rename a corrupt file of SQLite, which must be closed, so that a new one can begin. Returns the new name.

    Args:
        url: sqlite:////absolute/path
        now: seconds since the epoch, for the name.

    Raises:
        StoreFault: it cannot be renamed, or is no file.
    """
    parsed = urls.parse(url)
    if parsed.path is None:
        raise StoreFault(
            Kind.MISCONFIGURED, parsed.where, "a database of PostgreSQL cannot be set aside by mcpd"
        )
    with translated(parsed.where, parsed.redactor):
        return sqlite.set_aside(parsed.path, now)


def _database(url: Url, slack: float) -> Database:
    if url.path is not None:
        return sqlite.Database(url.path, slack)
    try:
        module: Any = importlib.import_module(POSTGRES)
    except ImportError as error:
        urls.no_driver(url.where, error)
    made: Database = module.Database(url.dsn, slack)
    return made
