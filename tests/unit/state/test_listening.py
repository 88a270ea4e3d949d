"""A connection that tells when others have written: believed while it is heard, made anew when it is not."""

from __future__ import annotations

import socket
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio
import trio.testing

from daemon.state.faults import StoreCause
from daemon.state.poll import BACKOFF_CAP, BACKOFF_SECONDS, DEAF_SECONDS, PROOF_SECONDS, Listening
from daemon.state.sql import Notification
from daemon.state.store_access import Opener, StoreAccess
from tests.unit.state.scripted_store import WHERE, Disk, calm, fault
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

OWN, THEIRS = Notification(own=True, version=7), Notification(own=False, version=8)


class Line:
    """One connection, whose far end the test holds."""

    def __init__(self) -> None:
        self._near, self._far = socket.socketpair()
        self._told: list[Notification] = []
        self.closed = False

    def tell(self, *told: Notification) -> None:
        """The database says this."""
        self._told += told
        self._far.send(b".")

    def breaks(self) -> None:
        """The database ends it."""
        self._far.close()

    def fileno(self) -> int:
        return self._near.fileno()

    def heard(self) -> list[Notification]:
        if not self._near.recv(100):
            raise fault(StoreCause.UNAVAILABLE)
        heard, self._told = self._told, []
        return heard

    def close(self) -> None:
        self.closed = True
        self._near.close()
        self._far.close()


class Exchange:
    """Makes connections, or refuses to."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.refused = 0
        self.refuses = False
        self.holds: threading.Event | None = None
        self.disk = Disk()
        opener = Opener(self.disk.open, where=WHERE, shared=True, listen=self.listen)
        self.access = StoreAccess(opener, patience=1.5, on_overdue=lambda _fault: None)
        self.listening = Listening(self.access, opener.listen, lambda: 0.0)

    def listen(self) -> Any:
        """Called in a worker thread."""
        if self.holds is not None:
            self.holds.wait(30)
        if self.refuses:
            self.refused += 1
            raise fault(StoreCause.UNAVAILABLE)
        self.lines.append(Line())
        return self.lines[-1]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Listening]:
        """Listen while the store is open."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.listening.run)
            await self.access.open()
            await calm()
            yield self.listening
            nursery.cancel_scope.cancel()


def take_news(listening: Listening) -> bool:
    """As whoever looks does."""
    news, listening.news = listening.news, False
    return news


async def test_nobody_listens_before_the_store_is_open(mock_clock: MockClock) -> None:
    exchange = Exchange()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(exchange.listening.run)
        await calm()
        assert not exchange.lines
        await exchange.access.open()
        await until(lambda: exchange.lines)
        nursery.cancel_scope.cancel()


async def test_where_nobody_else_writes_nothing_listens() -> None:
    listening = Listening(Exchange().access, None, lambda: 0.0)
    await listening.run()
    assert not listening.works
    assert not listening.wants_heartbeat()


async def test_a_connection_is_believed_once_the_daemon_has_heard_itself(mock_clock: MockClock) -> None:
    exchange = Exchange()
    async with exchange.running() as listening:
        # What was written before it listened was told to nobody.
        assert take_news(listening)
        assert not listening.works
        assert listening.wants_heartbeat()
        exchange.lines[0].tell(OWN)
        await until(lambda: listening.works)
        assert not listening.wants_heartbeat()
        assert not listening.news
    assert exchange.lines[0].closed


async def test_what_others_write_is_news_and_what_is_known_is_not(mock_clock: MockClock) -> None:
    exchange = Exchange()
    async with exchange.running() as listening:
        take_news(listening)
        listening.seen = THEIRS.version
        exchange.lines[0].tell(THEIRS, OWN)
        await until(lambda: listening.works)
        assert not take_news(listening)
        moved = exchange.access.moved
        async with trio.open_nursery() as nursery:
            nursery.start_soon(moved.wait)
            await calm()
            exchange.lines[0].tell(Notification(own=False, version=9))
        assert take_news(listening)


async def test_a_connection_that_is_quiet_for_long_has_to_prove_itself(mock_clock: MockClock) -> None:
    exchange = Exchange()
    async with exchange.running() as listening:
        exchange.lines[0].tell(OWN)
        await until(lambda: listening.works)
        mock_clock.jump(PROOF_SECONDS)
        assert listening.wants_heartbeat()
        assert not listening.works
        exchange.lines[0].tell(OWN)
        await until(lambda: listening.works)


async def test_a_connection_that_does_not_pass_on_what_is_said_is_made_anew(mock_clock: MockClock) -> None:
    exchange = Exchange()
    async with exchange.running() as listening:
        assert listening.wants_heartbeat()
        mock_clock.jump(DEAF_SECONDS)
        assert not listening.wants_heartbeat()
        await until(lambda: exchange.lines[0].closed)
        await calm()
        mock_clock.jump(BACKOFF_SECONDS)
        await until(lambda: len(exchange.lines) == 2)
        await calm()
        assert listening.wants_heartbeat()


async def test_a_lost_connection_is_news_and_is_made_anew_later_and_later(mock_clock: MockClock) -> None:
    exchange = Exchange()
    async with exchange.running() as listening:
        exchange.lines[0].tell(OWN)
        await until(lambda: listening.works)
        take_news(listening)
        exchange.refuses = True
        exchange.lines[0].breaks()
        await until(lambda: exchange.lines[0].closed)
        assert take_news(listening)
        assert not listening.works
        await calm()
        waits = []
        for number in range(9):
            begun = trio.current_time()
            while exchange.refused == number:
                mock_clock.jump(0.25)
                await calm()
            waits.append(trio.current_time() - begun)
        assert waits == sorted(waits)
        assert BACKOFF_CAP / 2 <= waits[-1] <= BACKOFF_CAP
        exchange.refuses = False
        mock_clock.jump(BACKOFF_CAP)
        await until(lambda: len(exchange.lines) == 2)
        await calm()
        assert take_news(listening)


async def test_a_connection_that_is_made_after_the_end_is_closed() -> None:
    exchange = Exchange()
    exchange.holds = threading.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(exchange.listening.run)
        await exchange.access.open()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert not exchange.lines
    exchange.holds.set()
    await until(lambda: exchange.lines and exchange.lines[0].closed)
