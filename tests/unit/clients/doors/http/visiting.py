"""A client of the HTTP door over a socket pair, and applications that answer it."""

import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import h11
import trio
import trio.testing

from daemon.clients.doors.http.http_connection import Bounds, HttpConnection, HttpExchange
from daemon.wire.outbox import Outbox

MAX_BODY = 1000


@attrs.frozen
class Response:
    """A response as the client read it."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class HttpClient:
    """The far end of a connection, which frames with h11, too."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.http = h11.Connection(h11.CLIENT)

    async def send(
        self, method: str, target: str = "/", headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> None:
        """Send a whole request."""
        fields = {"host": "localhost", **(headers or {})}
        if body:
            fields["content-length"] = str(len(body))
        request = h11.Request(method=method, target=target, headers=list(fields.items()))
        parts = [self.http.send(request)]
        if body:
            parts.append(self.http.send(h11.Data(data=body)))
        parts.append(self.http.send(h11.EndOfMessage()))
        await self.stream.send_all(b"".join(part or b"" for part in parts))

    async def post(self, headers: Mapping[str, str], body: bytes) -> None:
        """Send a message under `/mcp`, which has come to its session."""
        await self.send("POST", "/mcp", headers, body)
        await trio.testing.wait_all_tasks_blocked()

    async def event(self) -> h11.Event:
        """The next thing that h11 makes of what was received."""
        while (event := self.http.next_event()) is h11.NEED_DATA:
            self.http.receive_data(await self.stream.receive_some(65536))
        assert isinstance(event, h11.Event), event
        return event

    async def head(self) -> h11.Response:
        """The head of the next final response."""
        while not isinstance(event := await self.event(), h11.Response):
            assert isinstance(event, h11.InformationalResponse), event
        return event

    async def chunk(self) -> bytes:
        """The next part of a body; empty at its end."""
        event = await self.event()
        return bytes(event.data) if isinstance(event, h11.Data) else b""

    async def response(self) -> Response:
        """The next whole response."""
        head = await self.head()
        body = b""
        while chunk := await self.chunk():
            body += chunk
        if self.http.our_state is h11.DONE and self.http.their_state is h11.DONE:
            self.http.start_next_cycle()
        headers = {name.decode(): value.decode() for name, value in head.headers}
        return Response(head.status_code, headers, body)

    async def ask(
        self, method: str, target: str = "/", headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Response:
        """Send a request and read its response."""
        await self.send(method, target, headers, body)
        return await self.response()

    async def is_closed(self) -> bool:
        """Whether nothing more comes."""
        try:
            return await self.stream.receive_some(1) == b""
        except trio.BrokenResourceError:
            return True


@attrs.define(eq=False)
class Visit:
    """A connection under test, and its client."""

    connection: HttpConnection
    outbox: Outbox
    client: HttpClient
    ended: trio.Event = attrs.field(factory=trio.Event)

    async def run(self) -> None:
        try:
            await self.connection.run()
        finally:
            self.connection.close()
            self.ended.set()


@asynccontextmanager
async def visiting(
    serve: Callable[[HttpExchange], None],
    *,
    max_queue: int = 1_000_000,
    pause_at: int = 100_000,
    outbox: Outbox | None = None,
) -> AsyncIterator[Visit]:
    """Serve one client with an application while the block lasts: a minute at most, or some virtual hours."""
    outbox = Outbox() if outbox is None else outbox
    near, far = socket.socketpair()
    near.setblocking(False)
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    bounds = Bounds(door="test", strangers=1, queue=max_queue, pause=pause_at, body=MAX_BODY)
    connection = HttpConnection(near, serve, peer="192.0.2.1", outbox=outbox, bounds=bounds)
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(far))
    visit = Visit(connection, outbox, HttpClient(stream))
    virtual = isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock)
    with trio.fail_after(10_000 if virtual else 60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(visit.run)
            await trio.testing.wait_all_tasks_blocked()
            try:
                yield visit
            finally:
                await stream.aclose()
                nursery.cancel_scope.cancel()


def taking(act: Callable[[HttpExchange, bytes], None]) -> Callable[[HttpExchange], None]:
    """An application that waits for each body, and then acts."""

    def serve(exchange: HttpExchange) -> None:
        exchange.on_body = partial(act, exchange)

    return serve
