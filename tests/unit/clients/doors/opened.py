"""A unix socket's door on a socket in a fresh directory, whose every session sends each line back."""

import os
import socket
from pathlib import Path
from typing import Any, TypeVar

import attrs
import trio

from daemon.clients.client import LOCAL_USER, Principal
from daemon.clients.doors.listening import Front, unix_door
from daemon.config.tuning import Limits
from daemon.processes.peers import Peers, shares
from daemon.wire.envelope import Envelope, Line
from daemon.wire.outbox import Link, Outbox
from tests.fakes_upstream import Client, keep

US = frozenset({os.getuid()})

LIMITS = attrs.evolve(Limits(), client_message_bytes=1000, client_queue_bytes=100_000)

S = TypeVar("S", bound=socket.socket)


class Echo:
    """Sends each line back, after the number of its connection."""

    def __init__(self, link: Link, number: int) -> None:
        self.link = link
        self.number = number

    async def run(self) -> None:
        await self.link.run(self)

    def on_oversized(self, head: bytes) -> None:
        raise AssertionError(head)

    def on_message(self, message: Envelope, line: Line) -> None:
        raise AssertionError("a link over descriptors decodes nothing")

    def on_lines(self, lines: list[Line]) -> None:
        for line in lines:
            self.link.send((b"%d " % self.number, bytes(line)))


class Door:
    """What is under test, and those who knock."""

    def __init__(self, path: Path, listener: socket.socket, peers: Peers | None = None) -> None:
        self.path = path
        self.welcomed = 0
        self.peers = peers_of() if peers is None else peers
        self.front = Front(self._welcome)
        self.listener = unix_door(listener, self.peers, self.front.serve, outbox=Outbox(), limits=LIMITS)

    def _welcome(self, link: Link, number: int, visitor: Principal) -> Echo:
        assert visitor == LOCAL_USER, "the kernel says whose connection it is"
        self.welcomed += 1
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


def peers_of(**settings: Any) -> Peers:
    """Who may come in: anybody of ours, unless told otherwise."""
    given = {"places": shares(100), "uids": US, **settings}
    return Peers("clients", given["places"], uids=given["uids"])


def listen(path: Path, kind: type[S]) -> S:
    """A listening socket of a kind."""
    listener = kind(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(50)
    listener.setblocking(False)
    return listener
