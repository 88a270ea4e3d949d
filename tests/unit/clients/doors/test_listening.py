"""The accept loop: who waits, what a shortage and a refusal cost, and how it stops."""

import errno
import os
import socket
from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from daemon.clients.client import Principal
from daemon.clients.doors.listening import BREATHER, REFUSALS, REFUSALS_PAUSE, SHORTAGES, Front, Strangers
from daemon.errors import ConnectionLost
from daemon.processes.peers import PeerCredentials, Peers, Shares, shares
from daemon.wire.outbox import Link
from tests.unit.clients.doors.opened import US, Door, listen, peers_of
from tests.waiting import beside, in_time, until


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


@pytest.fixture
def door(nursery: trio.Nursery, path: Path, listener: socket.socket) -> Door:
    """A door that is open."""
    door = Door(path, listener)
    nursery.start_soon(door.listener.run)
    return door


async def test_further_clients_wait_in_the_backlog_until_there_is_room(
    nursery: trio.Nursery, path: Path, listener: socket.socket, log: list[str]
) -> None:
    door = Door(path, listener, peers_of(places=Shares(2, 2, 0)))
    nursery.start_soon(door.listener.run)
    first = await door.greeted(nursery)
    await door.greeted(nursery)
    third = door.connect(nursery)
    await third.send(b"may I")
    await trio.testing.wait_all_tasks_blocked()
    assert door.welcomed == 2
    assert any("clients: all 2 connections are taken: further ones wait" in line for line in log)
    first.close()
    assert await third.line() == b"3 may I"
    assert len(door.front.sessions) == 2


@pytest.mark.parametrize("number", sorted(SHORTAGES))
async def test_a_shortage_makes_the_door_take_a_breath_and_go_on(
    nursery: trio.Nursery, path: Path, autojump_clock: MockClock, log: list[str], number: int
) -> None:
    with listen(path, Starving) as listener:
        listener.errors = [number, number]
        door = Door(path, listener)
        client = door.connect(nursery)
        await client.send(b"patience")
        began = trio.current_time()
        nursery.start_soon(door.listener.run)
        assert await client.line() == b"1 patience"
        assert trio.current_time() - began == pytest.approx(2 * BREATHER)
        assert listener.tries <= 4, "no spinning"
        assert len([line for line in log if "cannot accept a connection" in line]) == 1


async def test_the_last_descriptors_are_left_to_operators_and_servers(
    nursery: trio.Nursery, path: Path, listener: socket.socket, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    free = os.dup(0)
    os.close(free)
    # Below the half: what an earlier test has left may be closed meanwhile, and frees lower ones.
    limit = [free + 1, free + 1]
    monkeypatch.setattr("daemon.clients.doors.listening.resource.getrlimit", lambda _kind: limit)
    door = Door(path, listener)
    nursery.start_soon(door.listener.run)
    client = door.connect(nursery)
    await client.send(b"may I")
    await until(lambda: any("is kept for operators and servers" in line for line in log))
    assert not door.welcomed
    limit[:] = [100_000, 100_000]
    assert await client.line() == b"1 may I"


async def test_a_client_that_gave_up_in_the_backlog_ends_nothing(nursery: trio.Nursery, path: Path) -> None:
    with listen(path, Starving) as listener:
        listener.errors = [errno.ECONNABORTED]
        door = Door(path, listener)
        nursery.start_soon(door.listener.run)
        await door.greeted(nursery)


async def test_a_broken_listener_is_a_crash_of_the_core(path: Path) -> None:
    with listen(path, Starving) as listener:
        listener.errors = [errno.EINVAL]
        door = Door(path, listener)
        with pytest.RaisesGroup(OSError), trio.fail_after(30):
            await door.listener.run()


async def test_once_told_to_the_door_takes_nobody_new_and_keeps_who_is_there(
    door: Door, nursery: trio.Nursery, listener: socket.socket
) -> None:
    guest = await door.greeted(nursery)
    door.listener.stop_accepting()
    late = door.connect(nursery)
    await late.send(b"anybody")
    await trio.testing.wait_all_tasks_blocked()
    assert door.welcomed == 1
    await guest.send(b"still")
    assert await guest.line() == b"1 still"


class Starved(Peers):
    """Cannot say who it is that comes, until it has been asked a few times."""

    reasons: tuple[int, ...] = (errno.EMFILE, errno.EAGAIN)

    def admit(self, connection: socket.socket) -> PeerCredentials | None:
        if self.reasons:
            reason, self.reasons = self.reasons[0], self.reasons[1:]
            raise OSError(reason, os.strerror(reason))
        return super().admit(connection)


async def test_who_comes_while_nobody_can_say_who_it_is_waits_and_is_not_refused(
    nursery: trio.Nursery, path: Path, listener: socket.socket, autojump_clock: MockClock
) -> None:
    door = Door(path, listener, Starved("clients", shares(100), uids=US))
    nursery.start_soon(door.listener.run)
    began = trio.current_time()
    await door.greeted(nursery)
    assert trio.current_time() - began == pytest.approx(BREATHER, abs=BREATHER / 2)


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
    picky = Picky("clients", shares(100), uids=US)
    door = Door(path, listener, picky)
    for _ in range(picky.strangers):
        door.connect(nursery)
    return door, picky


async def test_others_go_on_between_any_two_refusals(
    nursery: trio.Nursery, path: Path, listener: socket.socket
) -> None:
    door, picky = flooded(path, listener, nursery)
    waiting = picky.strangers
    nursery.start_soon(door.listener.run)
    while (before := picky.strangers) > waiting - REFUSALS:
        await trio.lowlevel.checkpoint()
        # Twice in a row at the most: within a round, tasks have no order.
        assert before - picky.strangers <= 2


async def test_refusals_have_a_rate_and_who_comes_behind_them_is_served(
    nursery: trio.Nursery, path: Path, listener: socket.socket, autojump_clock: MockClock
) -> None:
    door, picky = flooded(path, listener, nursery)
    pauses = picky.strangers // REFUSALS
    nursery.start_soon(door.listener.run)
    began = trio.current_time()
    await door.greeted(nursery)
    assert trio.current_time() - began == pytest.approx(pauses * REFUSALS_PAUSE)


async def test_who_was_let_in_or_has_left_makes_room_for_nobody() -> None:
    strangers = Strangers(2)
    first, second = strangers.join(), strangers.join()
    strangers.leave(first)
    strangers.leave(first)
    third = strangers.join()
    assert not any(each.cancel_called for each in (first, second, third))
    strangers.join()
    assert [each.cancel_called for each in (first, second, third)] == [False, True, False]


class Fated:
    """A session that lasts until it is told how to end."""

    def __init__(self, number: int, visitor: Principal) -> None:
        self.number = number
        self.visitor = visitor
        self.fate: Exception | None = None
        self._told = trio.Event()

    async def run(self) -> None:
        await self._told.wait()
        if self.fate is not None:
            raise self.fate

    def end(self, fate: Exception | None = None) -> None:
        self.fate = fate
        self._told.set()


def welcome(link: Link, number: int, visitor: Principal) -> Fated:
    if visitor == UNLUCKY:
        raise ValueError("an unlucky number")
    return Fated(number, visitor)


ANN, BOB, UNLUCKY = (Principal(token=name) for name in ("ann", "bob", "thirteen"))
LINK = cast("Link", None)
"""Nothing is done with it here."""


async def test_each_connection_gets_a_session_with_a_number_of_its_own(nursery: trio.Nursery) -> None:
    front = Front(welcome)
    for visitor in (ANN, BOB):
        nursery.start_soon(front.serve, LINK, visitor)
        await trio.testing.wait_all_tasks_blocked()
    assert {number: (each.number, each.visitor) for number, each in front.sessions.items()} == {
        1: (1, ANN),
        2: (2, BOB),
    }
    front.sessions[1].end()
    await trio.testing.wait_all_tasks_blocked()
    assert list(front.sessions) == [2]
    nursery.start_soon(front.serve, LINK, ANN)
    await trio.testing.wait_all_tasks_blocked()
    assert list(front.sessions) == [2, 3]


@pytest.mark.parametrize(
    ("fate", "trace"),
    [
        (KeyError("a bug of ours"), True),
        (ExceptionGroup("of a nursery", [KeyError("a bug of ours")]), True),
        (ConnectionLost("as if"), False),
    ],
)
async def test_what_ends_one_session_leaves_the_others(
    nursery: trio.Nursery, log: list[str], fate: Exception, trace: bool
) -> None:
    front = Front(welcome)
    for _ in range(2):
        nursery.start_soon(front.serve, LINK, ANN)
        await trio.testing.wait_all_tasks_blocked()
    front.sessions[2].end(fate)
    await trio.testing.wait_all_tasks_blocked()
    assert list(front.sessions) == [1]
    assert any("KeyError" in line and line.startswith("ERROR") for line in log) is trace


async def test_a_session_that_cannot_be_made_costs_its_connection(log: list[str]) -> None:
    front = Front(welcome)
    await in_time(front.serve(LINK, UNLUCKY))
    assert not front.sessions
    assert any("an unlucky number" in line for line in log)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_a_stranger_is_turned_away_before_a_byte_is_read(
    nursery: trio.Nursery, path: Path, listener: socket.socket, log: list[str]
) -> None:
    door = Door(path, listener, peers_of(uids=frozenset({os.getuid() + 1})))
    client = door.connect(nursery)
    await client.send(b"something to read")
    nursery.start_soon(door.listener.run)
    # The kernel resets a connection that is closed with bytes unread; an EOF would mean that they were read.
    with pytest.raises(trio.BrokenResourceError) as closed:
        await client.line()
    assert isinstance(closed.value.__cause__, ConnectionResetError)
    assert door.welcomed == 0
    assert not door.front.sessions
    assert [line for line in log if f"refused a connection of uid {os.getuid()} (pid {os.getpid()})" in line]


async def test_no_descriptor_is_left_behind(door: Door, nursery: trio.Nursery) -> None:
    (await door.greeted(nursery)).close()
    await trio.testing.wait_all_tasks_blocked()
    before = descriptors()
    for text in [b"hello", b"a", b"b"]:
        (await door.greeted(nursery, text)).close()
    await trio.testing.wait_all_tasks_blocked()
    assert descriptors() == before
    assert not door.front.sessions


async def test_a_cancelled_door_closes_all(nursery: trio.Nursery, path: Path, listener: socket.socket) -> None:
    door = Door(path, listener)
    async with beside(door.listener.run):
        clients = [await door.greeted(nursery) for _ in range(3)]
    assert [await client.is_closed() for client in clients] == [True] * 3
    assert not door.front.sessions
