"""The door: who may come in, how many, and what one guest's misfortune means to the others: nothing."""

from __future__ import annotations

import errno
import os
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
import trio
import trio.testing
from loguru import logger

from daemon.actors.front import BREATHER, REFUSALS, REFUSALS_PAUSE, SHORTAGES, Front
from daemon.errors import ConnectionLost
from daemon.processes.peers import PeerCredentials, Peers, Shares, shares
from daemon.wire.link import FdLink
from daemon.wire.outbox import Outbox
from tests.fakes_upstream import Client, keep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trio.testing import MockClock

    from daemon.wire.frames import Line
    from daemon.wire.link import FdLink

US = frozenset({os.getuid()})

S = TypeVar("S", bound=socket.socket)


class Echo:
    """A guest that sends each line back; `bug` and `lost` end it."""

    def __init__(self, link: FdLink, number: int) -> None:
        self.link = link
        self.number = number

    async def run(self) -> None:
        await self.link.run(self._on_lines, lambda _head: None)

    def _on_lines(self, lines: list[Line]) -> None:
        for line in lines:
            if line == b"bug":
                raise KeyError("a bug of ours")
            if line == b"lost":
                raise ConnectionLost("as if")
            self.link.send((b"%d " % self.number, bytes(line)))


class Door:
    """A front on a socket in a fresh directory."""

    def __init__(self, path: Path, listener: socket.socket, **settings: Any) -> None:
        self.path = path
        self.listener = listener
        self.welcomed = 0
        self.unlucky = -1
        given = {"uids": US, "places": shares(100), **settings}
        self.peers = Peers("clients", given["places"], uids=given["uids"])
        self.front = Front(
            listener, self._welcome, outbox=Outbox(), peers=self.peers, max_line=1000, max_queue=100_000
        )

    def _welcome(self, link: FdLink, number: int, uid: int) -> Echo:
        assert uid == os.getuid(), "the kernel says whose connection it is"
        self.welcomed += 1
        if number == self.unlucky:
            raise ValueError("an unlucky number")
        return Echo(link, number)

    def connect(self, nursery: trio.Nursery) -> Client:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self.path))
        client = Client(connection)
        nursery.start_soon(keep, client)
        return client

    async def greeted(self, nursery: trio.Nursery, text: bytes = b"hello") -> Client:
        client = self.connect(nursery)
        await client.send(text)
        assert (await client.line()).endswith(text)
        return client


class Starving(socket.socket):
    """A listener that runs into errors before it accepts."""

    errors: list[int]
    tries = 0

    def accept(self) -> tuple[socket.socket, Any]:
        self.tries += 1
        if self.errors:
            number = self.errors.pop(0)
            raise OSError(number, os.strerror(number))
        return super().accept()


def listen(path: Path, kind: type[S]) -> S:
    listener = kind(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(50)
    listener.setblocking(False)
    return listener


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Short: the path of a unix socket has 107 bytes at most, pytest's own directories may be longer."""
    with tempfile.TemporaryDirectory(prefix="mcpd-") as directory:
        yield Path(directory)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "front.sock"


@pytest.fixture
def listener(path: Path) -> Iterator[socket.socket]:
    with listen(path, socket.socket) as listener:
        yield listener


@pytest.fixture
def log() -> Iterator[list[str]]:
    lines: list[str] = []
    sink = logger.add(lines.append, format="{level} {message} {exception}")
    yield lines
    logger.remove(sink)


async def test_each_connection_gets_a_guest_with_a_number_of_its_own(
    nursery: trio.Nursery, path: Path, listener: socket.socket
) -> None:
    door = Door(path, listener)
    nursery.start_soon(door.front.run)
    first, second = door.connect(nursery), door.connect(nursery)
    await first.send(b"a")
    await second.send(b"b")
    assert {await first.line(), await second.line()} == {b"1 a", b"2 b"}
    assert sorted(door.front.guests) == [1, 2]
    first.close()
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(door.front.guests) == [2]


async def test_a_stranger_is_turned_away_before_a_byte_is_read(
    nursery: trio.Nursery, path: Path, listener: socket.socket, log: list[str]
) -> None:
    door = Door(path, listener, uids=frozenset({os.getuid() + 1}))
    client = door.connect(nursery)
    await client.send(b"something to read")
    nursery.start_soon(door.front.run)
    # The kernel resets a connection that is closed with bytes unread; an EOF would mean that they were read.
    with pytest.raises(trio.BrokenResourceError) as closed:
        await client.line()
    assert isinstance(closed.value.__cause__, ConnectionResetError)
    assert door.welcomed == 0
    assert not door.front.guests
    assert [line for line in log if f"refused a connection of uid {os.getuid()} (pid {os.getpid()})" in line]


async def test_further_clients_wait_in_the_backlog_until_there_is_room(
    nursery: trio.Nursery, path: Path, listener: socket.socket, log: list[str]
) -> None:
    door = Door(path, listener, places=Shares(2, 2, 0))
    nursery.start_soon(door.front.run)
    first = await door.greeted(nursery)
    await door.greeted(nursery)
    third = door.connect(nursery)
    await third.send(b"may I")
    await trio.testing.wait_all_tasks_blocked()
    assert door.welcomed == 2
    assert any("clients: all 2 connections are taken: further ones wait" in line for line in log)
    first.close()
    assert await third.line() == b"3 may I"
    assert len(door.front.guests) == 2


async def test_strangers_take_no_room(nursery: trio.Nursery, path: Path, listener: socket.socket) -> None:
    door = Door(path, listener, places=Shares(1, 1, 0), uids=frozenset[int]())
    nursery.start_soon(door.front.run)
    for _ in range(5):
        assert await door.connect(nursery).is_closed()


@pytest.mark.parametrize("number", sorted(SHORTAGES))
async def test_a_shortage_makes_the_door_take_a_breath_and_go_on(
    nursery: trio.Nursery, path: Path, autojump_clock: MockClock, number: int
) -> None:
    with listen(path, Starving) as listener:
        listener.errors = [number, number]
        door = Door(path, listener)
        client = door.connect(nursery)
        await client.send(b"patience")
        began = trio.current_time()
        nursery.start_soon(door.front.run)
        assert await client.line() == b"1 patience"
        assert trio.current_time() - began == pytest.approx(2 * BREATHER)
        assert listener.tries <= 4, "no spinning"


async def test_a_client_that_gave_up_in_the_backlog_is_no_reason_to_end(
    nursery: trio.Nursery, path: Path
) -> None:
    with listen(path, Starving) as listener:
        listener.errors = [errno.ECONNABORTED]
        door = Door(path, listener)
        nursery.start_soon(door.front.run)
        await door.greeted(nursery)


async def test_a_broken_listener_is_a_crash_of_the_core(path: Path) -> None:
    with listen(path, Starving) as listener:
        listener.errors = [errno.EINVAL]
        door = Door(path, listener)
        with pytest.RaisesGroup(OSError), trio.fail_after(30):
            await door.front.run()


@pytest.mark.parametrize(("word", "trace"), [(b"bug", True), (b"lost", False), (b"x" * 2000 + b"\nbug", True)])
async def test_what_ends_one_guest_leaves_the_others(
    nursery: trio.Nursery, path: Path, listener: socket.socket, log: list[str], word: bytes, trace: bool
) -> None:
    door = Door(path, listener)
    nursery.start_soon(door.front.run)
    good, bad = await door.greeted(nursery), await door.greeted(nursery)
    await bad.send(word)
    assert await bad.is_closed()
    await good.send(b"still here")
    assert await good.line() == b"1 still here"
    assert list(door.front.guests) == [1]
    assert any("KeyError" in line and line.startswith("ERROR") for line in log) is trace
    await door.greeted(nursery)


async def test_a_guest_that_cannot_be_made_costs_its_connection(
    nursery: trio.Nursery, path: Path, listener: socket.socket, log: list[str]
) -> None:
    door = Door(path, listener, places=Shares(13, 13, 0))
    door.unlucky = 13
    nursery.start_soon(door.front.run)
    clients = [await door.greeted(nursery) for _ in range(12)]
    assert await door.connect(nursery).is_closed()
    await clients[0].send(b"on")
    assert await clients[0].line() == b"1 on"
    await door.greeted(nursery)  # its room was given back
    assert any("an unlucky number" in line for line in log)


async def test_no_descriptor_is_left_behind(nursery: trio.Nursery, path: Path, listener: socket.socket) -> None:
    door = Door(path, listener)
    nursery.start_soon(door.front.run)
    (await door.greeted(nursery)).close()
    await trio.testing.wait_all_tasks_blocked()
    before = descriptors()
    for text in [b"hello", b"a", b"b"] * 10:
        (await door.greeted(nursery, text)).close()
    for word in [b"bug", b"lost"] * 10:
        client = door.connect(nursery)
        await client.send(word)
        assert await client.is_closed()
        client.close()
    await trio.testing.wait_all_tasks_blocked()
    assert descriptors() == before
    assert not door.front.guests


async def test_once_told_to_the_door_takes_nobody_new_and_keeps_who_is_there(
    nursery: trio.Nursery, path: Path, listener: socket.socket
) -> None:
    door = Door(path, listener)
    nursery.start_soon(door.front.run)
    guest = await door.greeted(nursery)
    door.front.stop_accepting()
    late = door.connect(nursery)
    await late.send(b"anybody")
    await trio.testing.wait_all_tasks_blocked()
    assert door.welcomed == 1
    await guest.send(b"still")
    assert await guest.line() == b"1 still"


async def test_cancelling_the_door_closes_every_connection(
    nursery: trio.Nursery, path: Path, listener: socket.socket
) -> None:
    door = Door(path, listener)
    async with trio.open_nursery() as inner:
        inner.start_soon(door.front.run)
        clients = [await door.greeted(nursery) for _ in range(3)]
        inner.cancel_scope.cancel()
    assert [await client.is_closed() for client in clients] == [True] * 3
    assert not door.front.guests


async def test_the_last_places_are_kept_and_come_free_again(
    nursery: trio.Nursery, path: Path, listener: socket.socket
) -> None:
    door = Door(path, listener, places=Shares(5, 5, 2))
    nursery.start_soon(door.front.run)
    guests = [await door.greeted(nursery) for _ in range(3)]
    assert await door.connect(nursery).is_closed()
    assert door.peers.report() == {"open": 3, "places": 5, "refused": {"kept_places": 1}}
    guests[0].close()
    await trio.testing.wait_all_tasks_blocked()
    await door.greeted(nursery)


class Starved(Peers):
    """Cannot say who it is that comes, until it has been asked a few times."""

    shortages = 2

    def admit(self, connection: socket.socket) -> PeerCredentials | None:
        if self.shortages:
            self.shortages -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().admit(connection)


async def test_who_comes_while_nobody_can_say_who_it_is_waits_and_is_not_refused(
    nursery: trio.Nursery, path: Path, listener: socket.socket, autojump_clock: MockClock
) -> None:
    door = Door(path, listener)
    door.front.peers = Starved("clients", shares(100), uids=US)
    nursery.start_soon(door.front.run)
    began = trio.current_time()
    await door.greeted(nursery)
    assert trio.current_time() - began == pytest.approx(2 * BREATHER)


class Picky(Peers):
    """Turns away whoever comes first, as it would a server's processes."""

    strangers = 5 * REFUSALS

    def admit(self, connection: socket.socket) -> PeerCredentials | None:
        if self.strangers:
            self.strangers -= 1
            return None
        return super().admit(connection)


def flooded(path: Path, listener: socket.socket, nursery: trio.Nursery) -> tuple[Door, Picky]:
    """A door at which as many wait as it turns away."""
    door = Door(path, listener)
    door.front.peers = picky = Picky("clients", shares(100), uids=US)
    for _ in range(picky.strangers):
        door.connect(nursery)
    return door, picky


async def test_others_go_on_between_any_two_refusals(
    nursery: trio.Nursery, path: Path, listener: socket.socket
) -> None:
    door, picky = flooded(path, listener, nursery)
    waiting = picky.strangers
    nursery.start_soon(door.front.run)
    while (before := picky.strangers) > waiting - REFUSALS:
        await trio.lowlevel.checkpoint()
        # Twice in a row at the most: within a round, tasks have no order.
        assert before - picky.strangers <= 2


async def test_refusals_have_a_rate_and_who_comes_behind_them_is_served(
    nursery: trio.Nursery, path: Path, listener: socket.socket, autojump_clock: MockClock
) -> None:
    door, picky = flooded(path, listener, nursery)
    pauses = picky.strangers // REFUSALS
    nursery.start_soon(door.front.run)
    began = trio.current_time()
    await door.greeted(nursery)
    assert trio.current_time() - began == pytest.approx(pauses * REFUSALS_PAUSE)
