"""The door of a unix socket: who may come in, and what is left of who has gone: nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from daemon.processes.peers import Shares
from tests.unit.clients.doors.opened import Door, peers_of

if TYPE_CHECKING:
    import socket


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


async def test_no_descriptor_is_left_behind(nursery: trio.Nursery, path: Path, listener: socket.socket) -> None:
    door = Door(path, listener)
    nursery.start_soon(door.listener.run)
    (await door.greeted(nursery)).close()
    await trio.testing.wait_all_tasks_blocked()
    before = descriptors()
    for text in [b"hello", b"a", b"b"]:
        (await door.greeted(nursery, text)).close()
    await trio.testing.wait_all_tasks_blocked()
    assert descriptors() == before
    assert not door.front.sessions


async def test_cancelling_the_door_closes_every_connection(
    nursery: trio.Nursery, path: Path, listener: socket.socket
) -> None:
    door = Door(path, listener)
    async with trio.open_nursery() as inner:
        inner.start_soon(door.listener.run)
        clients = [await door.greeted(nursery) for _ in range(3)]
        inner.cancel_scope.cancel()
    assert [await client.is_closed() for client in clients] == [True] * 3
    assert not door.front.sessions


async def test_the_last_places_are_kept_and_come_free_again(
    nursery: trio.Nursery, path: Path, listener: socket.socket
) -> None:
    door = Door(path, listener, peers_of(places=Shares(5, 5, 2)))
    nursery.start_soon(door.listener.run)
    guests = [await door.greeted(nursery) for _ in range(3)]
    assert await door.connect(nursery).is_closed()
    assert door.peers.report() == {"open": 3, "places": 5, "refused": {"kept_places": 1}}
    guests[0].close()
    await trio.testing.wait_all_tasks_blocked()
    await door.greeted(nursery)
