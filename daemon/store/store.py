"""The store: what outlives the daemon. Synchronous, for one caller at a time, in worker threads.

store = Store.open("sqlite:////var/lib/mcpd/state.db", writer="mcpd-1")
store.keep(Batch(at=now, servers=(record,)))
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from typing import TYPE_CHECKING, Any, NoReturn

import sqlalchemy as sa

from daemon.store import migrations, sqlite, urls
from daemon.store.faults import Kind, StoreFault
from daemon.store.reading import Reader
from daemon.store.rows import chunks, clean
from daemon.store.schema import loaded, sessions
from daemon.store.translating import translated
from daemon.store.values import Changes, Kept, Recollection
from daemon.store.writing import Writer, next_version

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from daemon.catalog.remembered import SessionRecord
    from daemon.store.values import Batch

TURN_SECONDS = 0.2
"""How long an operation waits for an earlier one of this daemon. There should be none: callers take turns,
and one that hangs is left behind. Short, for its own wait comes on top."""

POSTGRES = "daemon.store.postgres"
"""What speaks PostgreSQL; its driver is an extra, and half a second's import that others do not pay."""

WITHOUT_DRIVER = "PostgreSQL needs a driver that is not installed"


class Store:
    """An open store."""

    def __init__(self, url: sa.URL, engine: sa.Engine, writer: str) -> None:
        """Use `open`."""
        self.where = urls.where(url)
        """Which store, for people, without password."""
        self._url = url
        self._engine = engine
        # Readers of PostgreSQL see one moment, although they ask several questions.
        level = {} if _is_sqlite(url) else {"isolation_level": "REPEATABLE READ"}
        self._readers = engine.execution_options(**level)
        self._writers = engine.execution_options(writes=True)
        self._writer = writer
        self._redact = urls.redactor(url)
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
        with translated(urls.where(parsed), urls.redactor(parsed)):
            store = cls(parsed, _engine(parsed, slack), writer)
        try:
            store._prepare()
        except BaseException:
            store.close()
            raise
        return store

    def servers(self) -> Recollection:
        """All that is known of servers.

        Raises:
            StoreFault: it cannot be read now.
        """
        with self._reading() as reader:
            return Recollection(servers=reader.servers(), unreadable=tuple(reader.unreadable))

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
            writer.switch(batch.switched_off, off=True)
            writer.switch(batch.switched_on - batch.switched_off, off=False)
            writer.sessions(batch.sessions)
            writer.touched(batch.touched)
            marked = {} if batch.judge is None else writer.mark(batch.judge, batch.judged)
        differing = {name: got for name, (asked, got) in epochs.items() if got != asked}
        return Kept(version=version, epochs=differing, marked=marked)

    def forget_sessions(self, before: float, sparing: Collection[str] = ()) -> int:
        """Delete the sessions that nobody has used since a time. Returns how many there were.

        Args:
            before: seconds since the epoch.
            sparing: keys of sessions that stay in any case.

        Raises:
            StoreFault: none was deleted.
        """
        spared = {clean(key) for key in sparing}
        with self._transaction(self._writers) as connection:
            next_version(connection)
            idle = connection.execute(sa.select(sessions.c.key).where(sessions.c.seen_at < before)).scalars()
            keys = [key for key in idle if key not in spared]
            for chunk in chunks(keys):
                connection.execute(sa.delete(loaded).where(loaded.c.session.in_(chunk)))
                connection.execute(sa.delete(sessions).where(sessions.c.key.in_(chunk)))
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
        with contextlib.suppress(sa.exc.SQLAlchemyError, OSError):
            self._engine.dispose()

    def _prepare(self) -> None:
        if _is_sqlite(self._url):
            with self._errors(), self._engine.connect() as connection:
                migrations.refuse_newer(connection, self.where)
                connection.rollback()
                sqlite.prepare(connection, self.where)
        with self._transaction(self._readers) as connection:
            current = migrations.refuse_newer(connection, self.where) == len(migrations.STEPS)
            current = current and migrations.complete(connection)
        if not current:
            with self._transaction(self._writers) as connection:
                migrations.migrate(connection, self.where)
                migrations.mend(connection)
        with self._reading() as reader:
            self._seen = reader.version()
        if _is_sqlite(self._url):
            self._opened = sqlite.Identity.now(urls.path_of(self._url))

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
            switched=reader.switched() if reader.switches_changed(since, me) else None,
            unreadable=tuple(reader.unreadable),
        )

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Reader]:
        with self._transaction(self._readers) as connection:
            yield Reader(connection)

    @contextlib.contextmanager
    def _writing(self, at: float) -> Iterator[tuple[Writer, int]]:
        with self._transaction(self._writers) as connection:
            version = next_version(connection)
            yield Writer(connection, version=version, writer=self._writer, seen=self._seen, at=at), version

    @contextlib.contextmanager
    def _transaction(self, engine: sa.Engine) -> Iterator[sa.Connection]:
        with self._errors(), engine.begin() as connection:
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
    where = urls.where(parsed)
    if not _is_sqlite(parsed):
        raise StoreFault(Kind.MISCONFIGURED, where, "a database of PostgreSQL cannot be set aside by mcpd")
    with translated(where, urls.redactor(parsed)):
        return sqlite.set_aside(urls.path_of(parsed), now)


def _engine(url: sa.URL, slack: float) -> sa.Engine:
    if _is_sqlite(url):
        return sqlite.engine(url, slack)
    try:
        module: Any = importlib.import_module(POSTGRES)
    except ImportError as error:
        _no_driver(url, error)
    made: sa.Engine = module.engine(url, slack)
    return made


def _no_driver(url: sa.URL, error: ImportError) -> NoReturn:
    advice = "Install it: pip install 'mcpd-supervisor[postgres]'"
    raise StoreFault(Kind.MISCONFIGURED, urls.where(url), f"{WITHOUT_DRIVER} ({error})", advice) from None


def _is_sqlite(url: sa.URL) -> bool:
    return url.get_backend_name() == urls.SQLITE
