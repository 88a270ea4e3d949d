"""PostgreSQL, with notifications, and a bound on every wait, even for a server frozen with open sockets.

libpq cannot handle a server that accepts a connection and stays silent: its connect timeout is at least 2 s,
and statement_timeout is enforced by the very server that has stopped. So this module measures silence itself.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import lru_cache
from time import monotonic
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import DictRow, dict_row
from psycopg.sql import SQL, Identifier

from daemon.state.sql import Notification, SqlDialect, Transaction, unused

CONNECT_SECONDS = 1.2
"""Seconds for connecting, including name resolution and the password check."""

SILENCE_SECONDS = 1.0
"""Seconds of silence after a query before the connection is dropped."""

STATEMENT_SECONDS = 0.9
"""Most seconds for a statement at the server: shorter than silence, so that the server can still report it."""

LOCK_SECONDS = 0.8
"""Most seconds that a statement waits for another daemon's transaction: shorter again, for the same reason."""

ABANDONED_SECONDS = 2
"""Seconds after which libpq ends an abandoned attempt to connect: its minimum."""

MOST_ABANDONED = 4
"""Most concurrent attempts to connect, abandoned ones included: name resolution cannot be stopped."""

CONNECTS = "mcpd connects to postgresql"
"""The name of the threads that connect."""

MIGRATION_LOCK = 0x6D637064
"""The advisory lock that lets one daemon at a time migrate: "mcpd" in ASCII."""

SCHEMA_OF_BEFORE = "mcpd_before_0_1_0"
"""The schema that receives the tables of a store made before mcpd 0.1.0."""

CHANNEL = "CAST('mcpd ' || CAST(current_schema() AS text) AS name)"
"""The channel of the daemons on one database and schema; schemas with equal cut names cause useless polls."""

_NAME = re.compile(r":(\w+)")

_places = threading.BoundedSemaphore(MOST_ABANDONED)

T = TypeVar("T")


@lru_cache(maxsize=256)
def _spelled(statement: str) -> str:
    return _NAME.sub(r"%(\1)s", statement.replace("%", "%%"))


DIALECT = SqlDialect(
    bytes_type="BYTEA",
    tables="SELECT tablename AS name FROM pg_tables WHERE schemaname = current_schema()",
    migrate_alone=f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})",
    spelled=_spelled,
    notify=f"SELECT pg_notify({CHANNEL}, :word)",
)


class ImpatientConnection(psycopg.Connection[DictRow]):
    """A connection that closes when the server has been silent for too long."""

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:
        """Wait as psycopg does, but check the clock every 0.1 s."""
        return super().wait(self._counting(gen), *args, **kwargs)

    def _counting(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        heard = monotonic()
        ready: Any = None
        while True:
            try:
                wanted = gen.send(ready)
            except StopIteration as end:
                answer: T = end.value
                return answer
            ready = yield wanted
            if ready:
                heard = monotonic()
            elif monotonic() - heard > SILENCE_SECONDS:
                self.pgconn.finish()
                raise psycopg.OperationalError(f"it has not answered for {SILENCE_SECONDS:g} s")


class PostgresDatabase:
    """The single connection to a database, reopened after it broke."""

    errors: tuple[type[Exception], ...] = (psycopg.Error,)

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._parameters = parameters
        self._connection: ImpatientConnection | None = None

    @contextlib.contextmanager
    def transaction(self, *, writes: bool) -> Iterator[Transaction]:
        """A transaction that ends with the block; raises `psycopg.Error`."""
        if self._connection is None or self._connection.closed:
            self._connection = _connect(self._parameters)
        connection = self._connection
        # Readers see one snapshot over all their queries.
        connection.isolation_level = None if writes else psycopg.IsolationLevel.REPEATABLE_READ
        try:
            yield Transaction(connection.cursor(), DIALECT)
            connection.commit()
        except BaseException:
            with contextlib.suppress(psycopg.Error):
                connection.rollback()
            raise

    def prepare(self, where: str) -> None:
        """Do nothing: the server itself checks its files."""

    def move_aside(self, tables: Callable[[Transaction], Collection[str]]) -> str:
        """Move the tables of a store made before mcpd 0.1.0 into a new schema, and return the schema's name.

        Daemons take turns: the result is empty if another was faster. Raises `psycopg.Error`: nothing was
        moved.
        """
        with self.transaction(writes=True) as transaction:
            transaction.rows(DIALECT.migrate_alone)
            moved = sorted(tables(transaction))
            if not moved:
                return ""
            schemas = {row["name"] for row in transaction.rows("SELECT nspname AS name FROM pg_namespace")}
            aside = unused(SCHEMA_OF_BEFORE, "_", schemas.__contains__)
            transaction.change(f"CREATE SCHEMA {aside}")
            for table in moved:
                transaction.change(f"ALTER TABLE {table} SET SCHEMA {aside}")
        return f"schema {aside}"

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error, OSError):
                self._connection.close()


class PostgresNotifications:
    """A connection on which the server notifies of writes. No method waits: the event loop calls them."""

    def __init__(
        self,
        connection: ImpatientConnection,
        writer: str,
        translated: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._connection = connection
        self._writer = writer
        self._translated = translated

    def fileno(self) -> int:
        """The descriptor that becomes readable with a notification."""
        return self._connection.pgconn.socket

    def heard(self) -> list[Notification]:
        """The new notifications of daemons; raises `StoreFault` for a lost connection."""
        server = self._connection.pgconn
        found: list[Notification] = []
        with self._translated():
            server.consume_input()
            while (notification := server.notifies()) is not None:
                writer, _, version = notification.extra.decode(errors="replace").rpartition(" ")
                if version.isascii() and version.isdecimal():
                    found.append(Notification(writer == self._writer, int(version)))
        return found

    def close(self) -> None:
        """Close the connection, on which nothing waits to be sent."""
        with contextlib.suppress(psycopg.Error, OSError):
            self._connection.close()


def listen(
    parameters: Mapping[str, str], writer: str, translated: Callable[[], AbstractContextManager[None]]
) -> PostgresNotifications:
    """Open a listening connection; blocks while it connects. Raises `StoreFault`."""
    with translated():
        connection = _connect(parameters)
        try:
            connection.autocommit = True
            found = connection.execute(f"SELECT {CHANNEL} AS channel").fetchone()
            channel = Identifier(found["channel"] if found else "")
            connection.execute(SQL("LISTEN {}").format(channel))
        except BaseException:
            connection.close()
            raise
    return PostgresNotifications(connection, writer, translated)


def _connect(parameters: Mapping[str, str]) -> ImpatientConnection:
    """Connect in a thread that can be abandoned."""
    if not _places.acquire(blocking=False):
        raise psycopg.OperationalError(f"{MOST_ABANDONED} earlier attempts to connect have not ended yet")
    attempt: Future[ImpatientConnection] = Future()
    thread = threading.Thread(target=_attempt, args=(attempt, parameters), name=CONNECTS, daemon=True)
    thread.start()
    try:
        return attempt.result(CONNECT_SECONDS)
    except TimeoutError:
        attempt.add_done_callback(_discard)
        raise psycopg.OperationalError(f"no connection within {CONNECT_SECONDS:g} s") from None


def _attempt(attempt: Future[ImpatientConnection], parameters: Mapping[str, str]) -> None:
    try:
        reaching = make_conninfo(**{**parameters, "connect_timeout": f"{ABANDONED_SECONDS}"})
        # Prepared plans would outlive another daemon's migration of the tables.
        connection = ImpatientConnection.connect(reaching, prepare_threshold=None, row_factory=dict_row)
        attempt.set_result(_limited(connection))
    except Exception as error:  # noqa: BLE001 - the waiting caller gets it
        attempt.set_exception(error)
    finally:
        _places.release()


def _limited(connection: ImpatientConnection) -> ImpatientConnection:
    """Set the server's limits, whose errors say more than silence; poolers refuse them as `options`."""
    limits = {"lock_timeout": LOCK_SECONDS, "statement_timeout": STATEMENT_SECONDS}
    try:
        connection.autocommit = True
        for name, seconds in limits.items():
            connection.execute("SELECT set_config(%s, %s, false)", (name, f"{seconds * 1000:.0f}ms"))
        connection.autocommit = False
    except BaseException:
        connection.close()
        raise
    return connection


def _discard(attempt: Future[ImpatientConnection]) -> None:
    if attempt.exception() is None:
        attempt.result().close()
