"""A server that is frozen, gone, busy or strange: nobody waits long for it, and it is taken up again."""

import contextlib
import select
import socket
import tempfile
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from time import monotonic

import msgspec
import psycopg
import pytest

from daemon.config.state_url import parse
from daemon.state import postgres as room
from daemon.state.postgres import PostgresNotifications
from daemon.state.sql import Batch, Notification, StoreCause, StoreFault
from daemon.state.store import STEPS, Store, listen
from tests.unit.state.places import BOUND, LITTLE, Opener, Postgres, failing
from tests.unit.state.postgres import Server
from tests.unit.state.samples import server, session

BATCH = Batch(at=1.0, servers=(server("read"),), sessions=(session("key", "git/read"),))


@pytest.mark.parametrize("slack", [LITTLE], indirect=True)
def test_a_frozen_server_is_given_up_and_taken_up_again(
    postgres: Server, postgres_place: Postgres, opening: Opener
) -> None:
    store = opening(postgres_place)
    store.keep(BATCH)
    with postgres.frozen():
        with failing(StoreCause.UNAVAILABLE, "has not answered for 2 s"):
            store.keep(BATCH)
        # Its connection is closed, and nobody makes new ones any more.
        with failing(StoreCause.UNAVAILABLE, "no connection within 2.4 s"):
            store.recall()
    eventually(store)
    assert store.recall().servers == BATCH.servers


@pytest.mark.parametrize("slack", [1.0], indirect=True)
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


def test_a_connection_that_comes_too_late_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    comes, closed = threading.Event(), threading.Event()

    class Late:
        def execute(self, *_: object) -> None:
            comes.wait(30)

        def close(self) -> None:
            closed.set()

    monkeypatch.setattr(room, "CONNECT_SECONDS", 0.01)
    monkeypatch.setattr(room.ImpatientConnection, "connect", lambda *_, **__: Late())
    database = room.PostgresDatabase({})
    with pytest.raises(psycopg.OperationalError, match="no connection within"):
        database.transaction(writes=False).__enter__()
    comes.set()
    assert closed.wait(30)


def test_few_wait_for_a_connection_that_cannot_be_given_up(postgres_place: Postgres) -> None:
    with contextlib.ExitStack() as waiting:
        for _ in range(room.MOST_ABANDONED):
            assert room._places.acquire(timeout=BOUND)
            waiting.callback(room._places.release)
        with failing(StoreCause.UNAVAILABLE, "4 earlier attempts to connect have not ended yet"):
            postgres_place.open()
    postgres_place.open().close()


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


@pytest.mark.parametrize("slack", [LITTLE], indirect=True)
def test_another_daemon_that_holds_its_turn_too_long_locks(postgres_place: Postgres, opening: Opener) -> None:
    store = opening(postgres_place)
    store.keep(BATCH)
    with psycopg.connect(postgres_place.dsn) as other:
        other.execute("UPDATE version SET value = value + 1")
        with failing(StoreCause.LOCKED, "55P03"):
            store.keep(BATCH)
        assert store.recall().servers == BATCH.servers
    store.keep(BATCH)


def test_a_user_who_may_only_read_reads(postgres: Server, postgres_place: Postgres, opening: Opener) -> None:
    opening(postgres_place).keep(BATCH)
    url = postgres.url(postgres_place.name, options="-c default_transaction_read_only=on")
    store = Store.open(parse(url), writer="two")
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
    assert postgres_place.run("SELECT version FROM mcpd_schema") == [(len(STEPS),)]


def test_a_schema_of_its_own_keeps_it_apart_from_other_tables(
    postgres: Server, postgres_place: Postgres
) -> None:
    postgres_place.run("CREATE TABLE sessions (theirs text)", "CREATE SCHEMA mine")
    with failing(StoreCause.MISCONFIGURED, "'sessions'", "search_path"):
        postgres_place.open()
    store = Store.open(parse(postgres.url(postgres_place.name, options="-c search_path=mine")), writer="one")
    store.keep(BATCH)
    store.close()
    assert postgres_place.run("SELECT count(*) FROM mine.sessions") == [(1,)]


def heard(listener: PostgresNotifications, count: int) -> list[Notification]:
    """So many words, in their order."""
    found: list[Notification] = []
    while len(found) < count:
        assert select.select([listener], [], [], BOUND)[0]
        found += listener.heard()
    return found


def listening(place: Postgres, writer: str = "one") -> AbstractContextManager[PostgresNotifications]:
    return contextlib.closing(listen(place.url, writer=writer))


def test_each_commit_is_told_with_its_version_and_who_wrote(postgres_place: Postgres, opening: Opener) -> None:
    one, two = opening(postgres_place, "one"), opening(postgres_place, "two")
    with listening(postgres_place, "one") as ours, listening(postgres_place, "two") as theirs:
        versions = [store.keep(BATCH).version for store in (one, two, one)]
        assert heard(ours, 3) == [
            Notification(own, each) for own, each in zip((True, False, True), versions, strict=True)
        ]
        assert [told.own for told in heard(theirs, 3)] == [False, True, False]
        assert two.changes_since(versions[-1], heartbeat=True).version == versions[-1]
        assert heard(ours, 1) == [Notification(own=False, version=versions[-1])]
        assert ours.heard() == []


def test_switches_are_known_before_the_rest_is_read(postgres_place: Postgres, opening: Opener) -> None:
    one, two = opening(postgres_place, "one"), opening(postgres_place, "two")
    off = frozenset({("git", "read")})
    one.keep(msgspec.structs.replace(BATCH, switched_off=off))
    said: list[frozenset[tuple[str, str]]] = []
    changes = two.changes_since(0, on_switched=said.append)
    assert (said, changes.servers) == ([off], BATCH.servers)


def test_words_of_others_on_the_channel_are_passed_over(postgres_place: Postgres, opening: Opener) -> None:
    store = opening(postgres_place)
    with listening(postgres_place) as ours:
        channel = postgres_place.run("SELECT CAST('mcpd ' || current_schema() AS name)")[0][0]
        assert channel == "mcpd public"
        postgres_place.run(
            *(f"SELECT pg_notify('{channel}', '{word}')" for word in ("", "x", "one -1", "one ²"))
        )
        version = store.keep(BATCH).version
        assert heard(ours, 1) == [Notification(own=True, version=version)]


def test_daemons_in_schemas_of_their_own_do_not_hear_each_other(
    postgres: Server, postgres_place: Postgres, opening: Opener
) -> None:
    long = "s" * 63
    postgres_place.run(f"CREATE SCHEMA {long}")
    elsewhere = parse(postgres.url(postgres_place.name, options=f"-c search_path={long}"))
    store = opening(postgres_place)
    with (
        listening(postgres_place) as ours,
        contextlib.closing(listen(elsewhere, writer="one")) as theirs,
        contextlib.closing(Store.open(elsewhere, writer="one")) as other,
    ):
        first, second = other.keep(BATCH).version, store.keep(BATCH).version
        assert heard(ours, 1) == [Notification(own=True, version=second)]
        # Making its tables was told as well, if that was after it listened.
        assert heard(theirs, 1)[-1].version == first


def test_a_listening_connection_that_is_ended_says_so_and_shows_no_password(
    postgres: Server, postgres_place: Postgres
) -> None:
    with listening(postgres_place) as ours:
        postgres.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
        with failing(StoreCause.UNAVAILABLE):
            heard(ours, 1)
    url = postgres.url("nowhere", password="hunter2 hunter2")
    with pytest.raises(StoreFault) as fault:
        listen(parse(url), writer="one")
    assert "hunter" not in f"{fault.value!s} {fault.value!r}"


def eventually(store: Store) -> None:
    """A server that goes on where it stood may still be busy with those who have left."""
    begun = monotonic()
    while monotonic() - begun < BOUND:
        with contextlib.suppress(StoreFault):
            return store.check()
    return store.check()
