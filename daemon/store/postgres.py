"""PostgreSQL: nobody waits long for it, not even for one that has frozen with its sockets open.

libpq has no answer to a server that takes a connection and says nothing: its connect timeout is 2 s at least,
and statement_timeout is kept by the very server that has stopped. So silence is counted here.
"""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future
from functools import partial
from math import ceil
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
import sqlalchemy as sa
from psycopg.rows import TupleRow

from daemon.store.translating import Trouble

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from daemon.store.connection import Row, Values

    Args = list[Any]

CONNECT_SECONDS = 1.2
"""How long a connection may take to be be made, its name resolved and its password checked."""

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

_TURN = 0x6D637064
"""The advisory lock under which one daemon at a time migrates: "mcpd"."""

_places = threading.BoundedSemaphore(MOST_ABANDONED)

T = TypeVar("T")


class Impatient(psycopg.Connection[TupleRow]):
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


class Connection:
    """Runs statements (`connection.Connection`)."""

    bytes_type = "BYTEA"

    def __init__(self, through: sa.Connection) -> None:
        """Take a connection of SQLAlchemy, in a transaction."""
        self._through = through

    def rows(self, statement: str, values: Values = MappingProxyType({})) -> Iterable[Row]:
        """The answer to a question."""
        return self._through.execute(sa.text(statement), dict(values)).mappings()

    def change(self, statement: str, values: Values = MappingProxyType({})) -> int:
        """Change something."""
        return self._through.execute(sa.text(statement), dict(values)).rowcount

    def change_each(self, statement: str, values: Sequence[Values]) -> None:
        """Change something once for each of these values."""
        self._through.execute(sa.text(statement), [dict(each) for each in values])

    def tables(self) -> frozenset[str]:
        """The names of the tables in the schema that is looked into first."""
        return frozenset(sa.inspect(self._through).get_table_names())

    def columns(self, table: str) -> list[str]:
        """The columns of a table."""
        return [each["name"] for each in sa.inspect(self._through).get_columns(table)]

    def migrate_alone(self) -> None:
        """Wait until no other daemon migrates."""
        self.rows("SELECT pg_advisory_xact_lock(:turn)", {"turn": _TURN})


class Database:
    """The one connection to a database, made anew when it has broken."""

    def __init__(self, dsn: str, slack: float = 1) -> None:
        """Connect to nothing yet.

        Args:
            dsn: its url.
            slack: how many times longer than usual everything may take.
        """
        self._engine = engine = sa.create_engine(
            dsn,
            pool_size=1,
            max_overflow=0,
            pool_timeout=SILENCE_SECONDS * slack,
            use_native_hstore=False,
            # Its plans would outlive what another daemon's migration does to the tables.
            connect_args={"prepare_threshold": None, "connect_timeout": ceil(ABANDONED_SECONDS * slack)},
        )
        sa.event.listen(engine, "do_connect", partial(_connect, slack))
        # Readers see one moment, although they ask several questions.
        self._readers = engine.execution_options(isolation_level="REPEATABLE READ")

    @contextlib.contextmanager
    def transaction(self, *, writes: bool) -> Iterator[Connection]:
        """A transaction, which ends with the block.

        Args:
            writes: whether it may change anything.

        Raises:
            Trouble: it could not begin, or not be kept, or a statement failed.
        """
        with _troubled(), (self._engine if writes else self._readers).begin() as connection:
            yield Connection(connection)

    def close(self) -> None:
        """Let go of it."""
        with contextlib.suppress(sa.exc.SQLAlchemyError, OSError):
            self._engine.dispose()


@contextlib.contextmanager
def _troubled() -> Iterator[None]:
    try:
        yield
    except sa.exc.DBAPIError as error:
        raise Trouble(error.orig) from None
    except sa.exc.TimeoutError:
        raise Trouble(OSError("an earlier operation has not ended yet")) from None
    except sa.exc.SQLAlchemyError as error:
        raise Trouble(error) from None


def _connect(slack: float, _dialect: object, _record: object, args: Args, given: dict[str, Any]) -> Impatient:
    """Connect in a thread that can be left behind."""
    if not _places.acquire(blocking=False):
        raise psycopg.OperationalError(f"{MOST_ABANDONED} earlier attempts to connect have not ended yet")
    attempt: Future[Impatient] = Future()
    thread = threading.Thread(target=_attempt, args=(attempt, slack, args, given), name=CONNECTS, daemon=True)
    thread.start()
    try:
        return attempt.result(CONNECT_SECONDS * slack)
    except TimeoutError:
        attempt.add_done_callback(_discard)
        raise psycopg.OperationalError(f"no connection within {CONNECT_SECONDS * slack:g} s") from None


def _attempt(attempt: Future[Impatient], slack: float, args: Args, given: dict[str, Any]) -> None:
    try:
        attempt.set_result(_limited(Impatient.connect(*args, **given), slack))
    except Exception as error:  # noqa: BLE001 - whoever waits gets it
        attempt.set_exception(error)
    finally:
        _places.release()


def _limited(connection: Impatient, slack: float) -> Impatient:
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


def _discard(attempt: Future[Impatient]) -> None:
    if attempt.exception() is None:
        attempt.result().close()
