"""A server that is frozen, gone, busy or strange: nobody waits long for it, and it is taken up again."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import psycopg
import pytest

from daemon.config.state_url import parse
from daemon.state import postgres as room
from daemon.state.faults import StoreCause, StoreFault
from daemon.state.migrations import STEPS
from daemon.state.store import Store
from daemon.state.values import Batch
from tests.unit.state.places import LITTLE, SLACK
from tests.unit.state.samples import server, session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.state.places import Opener, Postgres
    from tests.unit.state.postgres import Server

BATCH = Batch(at=1.0, servers=(server("read"),), sessions=(session("key", "git/read"),))

BOUND = 60.0
"""Seconds after which a test has failed, however slow the machine: far more than what is promised."""


@contextlib.contextmanager
def failing(kind: StoreCause, *words: str) -> Iterator[None]:
    """The block fails so, within the bound, and its text has these words."""
    begun = monotonic()
    with pytest.raises(StoreFault) as fault:
        yield
    assert monotonic() - begun < BOUND
    assert fault.value.cause is kind, str(fault.value)
    for word in words:
        assert word in str(fault.value)


def test_nobody_waits_longer_than_promised() -> None:
    # The one who gives up first is the one who knows most.
    assert room.LOCK_SECONDS < room.STATEMENT_SECONDS < room.SILENCE_SECONDS < room.CONNECT_SECONDS < 1.5
    assert room.CONNECT_SECONDS < room.ABANDONED_SECONDS


def test_a_frozen_server_is_given_up_and_taken_up_again(
    postgres: Server, postgres_place: Postgres, opening: Opener
) -> None:
    store = opening(postgres_place, slack=LITTLE)
    store.keep(BATCH)
    with postgres.frozen():
        with failing(StoreCause.UNAVAILABLE, "has not answered for 2 s"):
            store.keep(BATCH)
        # Its connection is closed, and nobody makes new ones any more.
        with failing(StoreCause.UNAVAILABLE, "no connection within 2.4 s"):
            store.recall()
    eventually(store)
    assert store.recall().servers == BATCH.servers


def test_the_operation_after_a_lost_connection_makes_a_new_one(
    postgres: Server, postgres_place: Postgres, opening: Opener
) -> None:
    store = opening(postgres_place)
    store.keep(BATCH)
    postgres.run(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{postgres_place.name}'"
    )
    with failing(StoreCause.UNAVAILABLE):
        store.keep(BATCH)
    store.keep(BATCH)


def test_a_server_that_was_never_there_is_unavailable(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with failing(StoreCause.UNAVAILABLE, "refused", f"127.0.0.1:{port}"):
        Store.open(parse(f"postgresql://me:s3cret-word@127.0.0.1:{port}/db"), writer="one")
    # So it is while a server that has a socket is started anew.
    with failing(StoreCause.UNAVAILABLE, "No such file"):
        Store.open(parse(f"postgresql:///db?host={tmp_path}"), writer="one")


def test_whoever_takes_connections_and_says_nothing_is_given_up() -> None:
    with tempfile.TemporaryDirectory(prefix="mcpd-") as directory, socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(Path(directory) / ".s.PGSQL.5432"))
        silent.listen()
        for _ in range(2):
            with failing(StoreCause.UNAVAILABLE, "no connection within 1.2 s"):
                Store.open(parse(f"postgresql:///db?host={directory}"), writer="one")
        for thread in threading.enumerate():
            if thread.name == room.CONNECTS:
                thread.join(BOUND)
                assert not thread.is_alive()


def test_few_wait_for_a_connection_that_cannot_be_given_up(postgres_place: Postgres) -> None:
    with contextlib.ExitStack() as waiting:
        for _ in range(room.MOST_ABANDONED):
            assert room._places.acquire(timeout=BOUND)
            waiting.callback(room._places.release)
        with failing(StoreCause.UNAVAILABLE, "4 earlier attempts to connect have not ended yet"):
            postgres_place.open()
    postgres_place.open().close()


def test_what_is_no_postgresql_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as web:

        def serve() -> None:
            connection, _ = web.accept()
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.close()

        threading.Thread(target=serve).start()
        with failing(StoreCause.UNAVAILABLE):
            Store.open(parse(f"postgresql://127.0.0.1:{web.getsockname()[1]}/db?sslmode=disable"), writer="one")


def test_a_database_or_user_that_does_not_exist_is_misconfigured(postgres: Server) -> None:
    with failing(StoreCause.MISCONFIGURED, "does not exist", "correct state.url"):
        Store.open(parse(postgres.url("nowhere")), writer="one")
    with failing(StoreCause.MISCONFIGURED, "nobody_there"):
        Store.open(parse(postgres.url("postgres", user="nobody_there")), writer="one")


def test_a_password_is_never_shown(postgres: Server, capfd: pytest.CaptureFixture[str]) -> None:
    url = postgres.url("nowhere", password="hunter2 hunter2").replace("postgres@", "postgres:hunter3%20x@")
    with pytest.raises(StoreFault) as fault:
        Store.open(parse(url), writer="one")
    shown = f"{fault.value!s} {fault.value!r} {fault.value.where} {capfd.readouterr()}"
    assert "hunter" not in shown


def test_another_daemon_that_holds_its_turn_too_long_locks(postgres_place: Postgres, opening: Opener) -> None:
    store = opening(postgres_place, slack=LITTLE)
    store.keep(BATCH)
    with psycopg.connect(postgres_place.dsn) as other:
        other.execute("UPDATE version SET value = value + 1")
        with failing(StoreCause.LOCKED, "55P03"):
            store.keep(BATCH)
        assert store.recall().servers == BATCH.servers
    store.keep(BATCH)


def test_a_user_who_may_only_read_reads(postgres: Server, postgres_place: Postgres, opening: Opener) -> None:
    opening(postgres_place).keep(BATCH)
    store = Store.open(
        parse(postgres.url(postgres_place.name, options="-c default_transaction_read_only=on")),
        writer="two",
        slack=SLACK,
    )
    assert store.recall().servers == BATCH.servers
    with failing(StoreCause.READ_ONLY, "25006"):
        store.keep(BATCH)
    store.close()


def test_dropped_tables_are_a_loss_and_are_made_anew(postgres_place: Postgres, opening: Opener) -> None:
    store = opening(postgres_place)
    version = store.keep(BATCH).version
    postgres_place.run("DROP TABLE tools", "DROP TABLE version")
    with failing(StoreCause.LOST):
        store.keep(BATCH)
    with failing(StoreCause.LOST):
        store.check()
    again = opening(postgres_place)
    assert again.keep(BATCH).version > version
    assert again.recall().servers == BATCH.servers


def test_a_table_with_other_columns_is_corrupt(postgres_place: Postgres) -> None:
    postgres_place.open().close()
    postgres_place.run("ALTER TABLE sessions DROP COLUMN client")
    with failing(StoreCause.CORRUPT, "client"):
        postgres_place.open()


def test_two_daemons_that_come_up_together_make_one_schema(postgres_place: Postgres) -> None:
    opened: list[Store] = []
    threads = [threading.Thread(target=lambda: opened.append(postgres_place.open("x"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)
    assert len(opened) == 3
    for store in opened:
        store.close()
    assert postgres_place.run("SELECT version FROM schema_version") == [(len(STEPS),)]


def test_a_schema_of_its_own_keeps_it_apart_from_other_tables(
    postgres: Server, postgres_place: Postgres
) -> None:
    postgres_place.run("CREATE TABLE sessions (theirs text)", "CREATE SCHEMA mine")
    with failing(StoreCause.MISCONFIGURED, "'sessions'", "search_path"):
        postgres_place.open()
    store = Store.open(
        parse(postgres.url(postgres_place.name, options="-c search_path=mine")), writer="one", slack=SLACK
    )
    store.keep(BATCH)
    store.close()
    assert postgres_place.run("SELECT count(*) FROM mine.sessions") == [(1,)]


def eventually(store: Store) -> None:
    """A server that goes on where it stood may still be busy with those who have left."""
    begun = monotonic()
    while monotonic() - begun < BOUND:
        with contextlib.suppress(StoreFault):
            return store.check()
    return store.check()
