"""Sessions for the HTTP door that note what they are told, and say what a test wants."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPStatus

import attrs
import trio
import trio.testing

from daemon.clients.client import Principal
from daemon.clients.doors.http.http_connection import HttpExchange
from daemon.clients.doors.http.http_sessions import Place
from daemon.clients.doors.http.mcp import McpEndpoint
from daemon.errors import RunError
from daemon.protocol import CAPABILITIES_KEY, MODERN_VERSION, VERSION_KEY
from daemon.wire.outbox import Link, Outbox
from daemon.wire.requests import Peer
from tests.unit.clients.doors.http.visiting import HttpClient, Visit, visiting
from tests.unit.wire.fakes import RecordingHandler
from tests.waiting import background

POST = {"content-type": "application/json", "accept": "application/json, text/event-stream"}

ALICE = Place(visitor=Principal(token="alice", owner="token alice: "), profile="default")
BOB = attrs.evolve(ALICE, visitor=Principal(token="bob", owner="token bob: "))


class Served(RecordingHandler):
    """What serves one link: the test answers through `peer`."""

    def __init__(self, link: Link, visitor: Principal, outbox: Outbox) -> None:
        super().__init__()
        self.visitor = visitor
        self.peer = Peer(link, outbox, self, strict=True)

    @property
    def asked(self) -> list[tuple[bytes, str]]:
        """The requests so far, by id and method."""
        return [(request_id, method) for request_id, method, _ in self.requests]


class Endpoint:
    """An `McpEndpoint` whose sessions are a test's."""

    def __init__(self, nursery: trio.Nursery, *, places: int = 10, place: Place = ALICE) -> None:
        self.outbox = Outbox()
        self.place = place
        """Whom requests come from, and for what."""
        self.served: list[Served] = []
        self.mcp = McpEndpoint(self._start, outbox=self.outbox, places=places, definition=lambda *_: b"")
        self._nursery = nursery

    def serve(self, exchange: HttpExchange) -> None:
        """An application, as the listener's."""
        self.mcp.serve(exchange, self.place)

    def visiting(self) -> AbstractAsyncContextManager[Visit]:
        """Connect a client to it."""
        return visiting(self.serve, outbox=self.outbox)

    def answer(self, request_id: bytes, result: bytes = b"{}", session: int = -1) -> None:
        """Have a session, the newest unless told otherwise, answer a request."""
        self.served[session].peer.answer(request_id, result)
        self.outbox.flush()

    def _start(self, link: Link, visitor: Principal, done: Callable[[], None]) -> None:
        self.served.append(Served(link, visitor, self.outbox))
        self._nursery.start_soon(self._run, self.served[-1], done)

    async def _run(self, served: Served, done: Callable[[], None]) -> None:
        try:
            await served.peer.run()
        except RunError:
            return
        finally:
            done()


BOUND = 10_000.0
"""Seconds of the virtual clock that a test may take."""


@asynccontextmanager
async def an_endpoint(places: int = 10) -> AsyncIterator[Endpoint]:
    """An endpoint, for as long as the block lasts."""
    with trio.fail_after(BOUND):
        async with background() as nursery:
            yield Endpoint(nursery, places=places)


@asynccontextmanager
async def at_the_door() -> AsyncIterator[tuple[Endpoint, Visit]]:
    """An endpoint, and a client that is connected to it."""
    async with an_endpoint() as endpoint, endpoint.visiting() as visit:
        yield endpoint, visit


INITIALIZE: dict[str, object] = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}


def message(method: str, request_id: object = None, **params: object) -> bytes:
    """A request, or a notification if it has no id."""
    given = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
    return json.dumps({key: value for key, value in given.items() if value is not None}).encode()


def modern(method: str, request_id: object = None, **params: object) -> tuple[dict[str, str], bytes]:
    """Headers and body of a request of MCP 2026-07-28."""
    meta = {VERSION_KEY: MODERN_VERSION, CAPABILITIES_KEY: {}}
    headers = {**POST, "mcp-protocol-version": MODERN_VERSION, "mcp-method": method}
    if "name" in params:
        headers["mcp-name"] = str(params["name"])
    return headers, message(method, request_id, _meta=meta, **params)


async def begun(endpoint: Endpoint, client: HttpClient) -> dict[str, str]:
    """Begin a session; returns the headers of further requests."""
    await client.post(POST, message("initialize", 0, **INITIALIZE))
    endpoint.answer(b"0")
    response = await client.response()
    assert response.status == HTTPStatus.OK
    return {**POST, "mcp-protocol-version": "2025-11-25", "mcp-session-id": response.headers["mcp-session-id"]}
