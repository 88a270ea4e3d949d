"""WebSockets over TCP, a client that nobody here wrote, and clients that are mad."""

import random
import re
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio
import trustme
from trio_websocket import open_websocket_url

from daemon.clients.client import LOCAL_USER
from daemon.clients.doors.listening import Front
from daemon.clients.doors.tls import Turns, terminate, tls_context
from daemon.clients.doors.websocket import serve_websocket
from daemon.config.listen import Tls
from daemon.config.tuning import Limits
from daemon.wire.outbox import Outbox
from tests.unit.clients.doors.test_websocket import OPENING, Echo
from tests.waiting import background

SECONDS = 60
MIB = 1024 * 1024


@attrs.define(eq=False)
class Served:
    """A listener on loopback whose every connection is a WebSocket's."""

    tls: ssl.SSLContext | None
    front: Front[Echo] = attrs.field(factory=lambda: Front(Echo))
    outbox: Outbox = attrs.field(factory=Outbox)
    port: int = 0

    @property
    def url(self) -> str:
        return f"{'wss' if self.tls else 'ws'}://localhost:{self.port}/ws"

    async def accept(self, stream: trio.SocketStream) -> None:
        connection = socket.socket(fileno=stream.socket.detach())
        connection.setblocking(False)
        if self.tls is None:
            await self._serve(connection)
        else:
            await terminate(connection, self.tls, self._serve, Turns())

    async def _serve(self, connection: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            await trio.lowlevel.wait_readable(connection)
            head += connection.recv(1)
        key = re.search(rb"(?i)sec-websocket-key: (.+)\r", head)
        assert key is not None
        await serve_websocket(
            connection, key[1].decode(), LOCAL_USER, {}, self.front.serve, outbox=self.outbox, limits=Limits()
        )


@asynccontextmanager
async def served(tls: ssl.SSLContext | None = None) -> AsyncIterator[Served]:
    with trio.fail_after(SECONDS):
        async with background() as nursery:
            door = Served(tls)
            [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
            door.port = listener.socket.getsockname()[1]
            nursery.start_soon(trio.serve_listeners, door.accept, [listener])
            yield door


async def test_a_client_that_nobody_here_wrote_is_served_over_tls(tmp_path: Path) -> None:
    authority, asking = trustme.CA(), ssl.create_default_context()
    issued = authority.issue_cert("localhost")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    authority.configure_trust(asking)
    async with (
        served(tls_context(Tls(cert=str(cert), key=str(key)))) as door,
        open_websocket_url(door.url, asking, subprotocols=["mcp"], max_message_size=4 * MIB) as client,
    ):
        assert client.subprotocol == "mcp"
        for text in ('{"a":"ü"}', "1", '"' + "x" * (3 * MIB) + '"'):
            await client.send_message(text)
            assert await client.get_message() in {text, "1"}
        await client.ping()


def madness(seed: int) -> bytes:
    """What a mad client sends: frames of all kinds, some of them damaged, some cut short."""
    dice = random.Random(seed)
    stream = bytearray()
    kinds = [0x81, 0x01, 0x80, 0x00, 0x89, 0x82, 0x88]
    for _ in range(dice.randrange(1, 40)):
        first = dice.choice([*kinds, dice.randrange(256)])
        noise = dice.randbytes(dice.randrange(125))
        payload = dice.choice([b"", b"[]", b'"\xff"', noise, b"[" * 120, b'{"id":1}'])
        # A key of zeros masks nothing.
        frame = bytes((first, len(payload) | dice.choice([0x80] * 9 + [0]))) + bytes(4) + payload
        stream += dice.choice([frame, frame, frame, frame[: dice.randrange(len(frame))]])
    if dice.random() < 0.3:
        stream += b"\x81\xff" + dice.choice([5 * MIB, 1 << 40, (1 << 64) - 1]).to_bytes(8, "big")
    return bytes(stream)


async def go_mad(door: Served, seed: int) -> None:
    stream = await trio.open_tcp_stream("127.0.0.1", door.port)
    async with stream:
        await stream.send_all(OPENING)
        try:
            await stream.send_all(madness(seed))
            if seed % 2:
                await stream.send_eof()
                while await stream.receive_some():
                    pass
        except trio.BrokenResourceError:
            return


async def test_mad_clients_disturb_nobody_and_are_gone_in_the_end() -> None:
    async with served() as door, open_websocket_url(door.url, subprotocols=["mcp"]) as sane:
        for start in range(0, 200, 20):
            async with trio.open_nursery() as nursery:
                for seed in range(start, start + 20):
                    nursery.start_soon(go_mad, door, seed)
                await sane.send_message(f'"{start}"')
                assert await sane.get_message() == f'"{start}"'
        while len(door.front.sessions) > 1:
            await trio.lowlevel.checkpoint()
