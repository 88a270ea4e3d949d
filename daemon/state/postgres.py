"""PostgreSQL: nobody waits long for it, not even for one that has frozen with its sockets open.

libpq has no answer to a server that takes a connection and says nothing: its connect timeout is 2 s at least,
and statement_timeout is kept by the very server that has stopped. So silence is counted here.
"""

from __future__ import annotations

import contextlib
import re
import threading
from concurrent.futures import Future
from functools import lru_cache
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import DictRow, dict_row

from daemon.state.sql import SqlDialect, Transaction

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

CONNECT_SECONDS = 1.2
"""How long a connection may take to be made, its name resolved and its password checked."""

SILENCE_SECONDS = 1.0
"""How long a server may say nothing to a question before its connection is given up."""

STATEMENT_SECONDS = 0.9
"""How long the server may work at one statement: shorter than silence, so that it can still say so."""

LOCK_SECONDS = 0.8
"""How long a statement may wait for another daemon's transaction: shorter again, for the same reason."""

ABANDONED_SECONDS = 2
"""When libpq gives up a connection for which nobody waits any longer; it knows no less."""

MOST_ABANDONED = 4
"""Attempts to connect at a time, with those for which nobody waits any longer: resolving a name can take half a
minute and cannot be stopped."""

CONNECTS = "mcpd connects to postgresql"
"""The name of the threads that do so."""

MIGRATION_LOCK = 0x6D637064
"""The advisory lock under which one daemon at a time migrates: "mcpd"."""

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
)


class ImpatientConnection(psycopg.Connection[DictRow]):
    """A connection that closes when the server has been silent for too long."""

    silence = SILENCE_SECONDS
    """What is too long."""

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:
        """Wait as psycopg does, but look at the clock whenever the generator is woken, every 0.1 s."""
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
            elif monotonic() - heard > self.silence:
                self.pgconn.finish()
                raise psycopg.OperationalError(f"it has not answered for {self.silence:g} s")


class PostgresDatabase:
    """The one connection to a database, made again when it has broken."""

    errors: tuple[type[Exception], ...] = (psycopg.Error,)

    def __init__(self, parameters: Mapping[str, str], slack: float = 1) -> None:
        """Connect to nothing yet.

        Args:
            parameters: what reaches it, by libpq's key words.
            slack: how many times longer than usual everything may take.
        """
        self._parameters = parameters
        self._slack = slack
        self._connection: ImpatientConnection | None = None

    @contextlib.contextmanager
    def transaction(self, *, writes: bool) -> Iterator[Transaction]:
        """A transaction, which ends with the block.

        Args:
            writes: whether it may change anything.

        Raises:
            psycopg.Error: it could not begin, or not be kept, or a statement failed.
        """
        if self._connection is None or self._connection.closed:
            self._connection = _connect(self._parameters, self._slack)
        connection = self._connection
        # Readers see one moment, although they ask several questions.
        connection.isolation_level = None if writes else psycopg.IsolationLevel.REPEATABLE_READ
        try:
            yield Transaction(connection.cursor(), DIALECT)
            connection.commit()
        except BaseException:
            with contextlib.suppress(psycopg.Error):
                connection.rollback()
            raise

    def prepare(self, where: str) -> None:
        """Nothing: the server knows itself whether its files are sound."""

    def close(self) -> None:
        """Let go of it."""
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error, OSError):
                self._connection.close()


def _connect(parameters: Mapping[str, str], slack: float) -> ImpatientConnection:
    """Connect in a thread that can be left behind."""
    if not _places.acquire(blocking=False):
        raise psycopg.OperationalError(f"{MOST_ABANDONED} earlier attempts to connect have not ended yet")
    attempt: Future[ImpatientConnection] = Future()
    thread = threading.Thread(target=_attempt, args=(attempt, parameters, slack), name=CONNECTS, daemon=True)
    thread.start()
    try:
        return attempt.result(CONNECT_SECONDS * slack)
    except TimeoutError:
        attempt.add_done_callback(_discard)
        raise psycopg.OperationalError(f"no connection within {CONNECT_SECONDS * slack:g} s") from None


def _attempt(attempt: Future[ImpatientConnection], parameters: Mapping[str, str], slack: float) -> None:
    try:
        reaching = make_conninfo(**{**parameters, "connect_timeout": f"{ceil(ABANDONED_SECONDS * slack)}"})
        # Plans would outlive what another daemon's migration does to the tables.
        connection = ImpatientConnection.connect(reaching, prepare_threshold=None, row_factory=dict_row)
        attempt.set_result(_limited(connection, slack))
    except Exception as error:  # noqa: BLE001 - the one who waits gets it
        attempt.set_exception(error)
    finally:
        _places.release()


def _limited(connection: ImpatientConnection, slack: float) -> ImpatientConnection:
    """Set the server's own bounds: it says more than silence does.

    Not as `options` of the connection, which poolers in between refuse.
    """
    limits = {"lock_timeout": LOCK_SECONDS, "statement_timeout": STATEMENT_SECONDS}
    connection.silence = SILENCE_SECONDS * slack
    try:
        connection.autocommit = True
        for name, seconds in limits.items():
            given = f"{seconds * slack * 1000:.0f}ms"
            connection.execute("SELECT set_config(%s, %s, false)", (name, given))
        connection.autocommit = False
    except BaseException:
        connection.close()
        raise
    return connection


def _discard(attempt: Future[ImpatientConnection]) -> None:
    if attempt.exception() is None:
        attempt.result().close()
