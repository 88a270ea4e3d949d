"""The listener: where paths lead, who makes room for whom, what draining and expelling end."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import attrs
import pytest
import trio
import trio.testing

from daemon.clients.doors.http.admission import HttpAdmission
from daemon.clients.doors.http.binding import bind_http
from daemon.clients.doors.http.server import MAX_STRANGERS, HttpOffer, HttpServer
from daemon.clients.doors.http.valid_tokens import Tokens
from daemon.clients.doors.listening import Front
from daemon.config.listen import AccessToken, HttpListen
from daemon.config.redaction import Redactors
from daemon.config.tuning import Limits
from daemon.errors import RunError
from daemon.host.notify import Readiness
from daemon.host.tokens import TokenFile
from daemon.wire.outbox import Outbox
from tests.unit.clients.doors.http.answering import INITIALIZE, POST, Served, message
from tests.unit.clients.doors.http.visiting import HttpClient
from tests.unit.clients.doors.test_websocket import OPENING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from daemon.clients.client import Principal
    from daemon.wire.outbox import Link

BOUND = 30.0
"""Seconds that a test may take."""

ALICE, BOB = "a" * 20, "b" * 20


def bearer(token: str) -> dict[str, str]:
    return {**POST, "authorization": f"Bearer {token}"}


def opening() -> bytes:
    """The opening handshake of a WebSocket, with a token."""
    return OPENING.replace(b"\r\n\r\n", f"\r\nAuthorization: Bearer {ALICE}\r\n\r\n".encode())


@attrs.define(eq=False)
class Opened:
    """A listener under test, whose sessions answer `initialize` and leave everything else open."""

    server: HttpServer
    port: int
    served: list[Answering] = attrs.field(factory=list)
    refused: list[str] = attrs.field(factory=list)
    readiness: Readiness = Readiness.SERVING
    clients: list[HttpClient] = attrs.field(factory=list)

    async def connect(self) -> HttpClient:
        self.clients.append(HttpClient(await trio.open_tcp_stream("127.0.0.1", self.port)))
        return self.clients[-1]

    async def ask(
        self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b""
    ) -> tuple[int, bytes]:
        client = await self.connect()
        response = await client.ask(method, path, headers, body)
        return response.status, response.body


@asynccontextmanager
async def opened(tmp_path: Path, limits: Limits | None = None) -> AsyncIterator[Opened]:
    known = (AccessToken(name="alice", value=ALICE), AccessToken(name="bob", value=BOB, profiles=("reader",)))
    http = HttpListen(tokens=known)
    outbox = Outbox()
    listener = bind_http("127.0.0.1:0")

    def make(link: Link, _number: int, visitor: Principal) -> Answering:
        here.served.append(Answering(link, visitor, outbox))
        return here.served[-1]

    async def metrics() -> str:
        return "a 1\n"

    offer = HttpOffer(
        profiles=lambda: ("default", "reader"),
        surfaces=("category", "full"),
        definition=lambda _place, _name: b"",
        fault_of_choice=lambda _profile, servers: "" if servers == ("git",) else "there is no such server",
        metrics=lambda: metrics,
        readiness=lambda: here.readiness,
    )
    refused: list[str] = []
    admission = HttpAdmission(http, Tokens(http, TokenFile(tmp_path), redact=Redactors()), count=refused.append)
    server = HttpServer(listener, admission, offer, Front(make).serve, outbox=outbox, limits=limits or Limits())
    here = Opened(server, listener.getsockname()[1], refused=refused)
    with trio.fail_after(BOUND), listener:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.run)
            yield here
            for client in here.clients:
                await client.stream.aclose()
            nursery.cancel_scope.cancel()


class Answering(Served):
    """Answers `initialize`."""

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            try:
                await self.peer.run()
            except RunError:
                nursery.cancel_scope.cancel()

    def on_request(self, request_id: bytes, method: str, params: object) -> None:
        if method == "initialize":
            self.peer.answer(request_id, b"{}")


@pytest.mark.parametrize(
    ("method", "path", "token", "status"),
    [
        ("GET", "/healthz", "", 200),
        ("GET", "/readyz", "", 200),
        ("GET", "/", "", 404),
        ("GET", "/mcp", "", 401),
        ("GET", "/mcp", ALICE, 400),
        ("GET", "/mcp/", ALICE, 400),
        ("GET", "//mcp", ALICE, 404),
        ("GET", "/mcp/nosuch", ALICE, 404),
        ("GET", "/mcp/default/nosuch", ALICE, 404),
        ("GET", "/mcp/default/full", ALICE, 400),
        ("GET", "/mcp/default/full/more", ALICE, 404),
        ("GET", "/mcp/default", BOB, 403),
        ("GET", "/mcp", BOB, 400),
        ("GET", "/metrics", ALICE, 200),
        ("GET", "/metrics", BOB, 403),
        ("GET", "/metrics", "", 401),
        ("GET", "/%6detrics", ALICE, 404),
        ("GET", "/%6dcp", ALICE, 404),
        ("GET", "/mcp/%72eader", BOB, 400),
        ("GET", "/ws", ALICE, 426),
        ("GET", "/ws", "", 401),
        ("OPTIONS", "/mcp", "", 204),
        ("TRACE", "/mcp", ALICE, 405),
    ],
)
async def test_a_path_leads_to_what_it_names(
    method: str, path: str, token: str, status: int, tmp_path: Path
) -> None:
    async with opened(tmp_path) as here:
        assert (await here.ask(method, path, bearer(token) if token else None))[0] == status


async def test_strangers_make_room_for_each_other_and_keep_nobody_out(tmp_path: Path) -> None:
    async with opened(tmp_path) as here:
        first = await here.connect()
        for _ in range(MAX_STRANGERS):
            await here.connect()
        assert await first.is_closed()
        headers = bearer(ALICE)
        assert (await here.ask("POST", "/mcp", headers, message("initialize", 1, **INITIALIZE)))[0] == 200


async def test_more_clients_than_there_are_places_are_told_so(tmp_path: Path) -> None:
    async with opened(tmp_path, attrs.evolve(Limits(), connections=1)) as here:
        client = await here.connect()
        await client.ask("POST", "/mcp", bearer(ALICE), message("initialize", 1, **INITIALIZE))
        status, text = await here.ask("POST", "/mcp", bearer(ALICE), message("initialize", 1, **INITIALIZE))
        assert (status, b"limits.connections" in text) == (503, True)
        assert (await client.ask("GET", "/metrics", bearer(ALICE))).status == 200


async def test_one_token_leaves_half_of_the_places_to_others(tmp_path: Path) -> None:
    async with opened(tmp_path, attrs.evolve(Limits(), connections=4)) as here:
        for _ in range(2):
            assert (await here.ask("GET", "/metrics", bearer(ALICE)))[0] == 200
        status, text = await here.ask("GET", "/metrics", bearer(ALICE))
        assert (status, here.refused) == (503, ["places"])
        assert text.startswith(
            b"token alice: 2 clients are connected by one token, half of limits.connections (4)"
        )
        assert (await here.ask("GET", "/mcp", bearer(BOB)))[0] == 400


async def test_a_drained_listener_accepts_nobody_and_ends_what_is_idle(tmp_path: Path) -> None:
    async with opened(tmp_path) as here:
        client = await here.connect()
        await client.ask("GET", "/healthz")
        here.server.drain()
        assert await client.is_closed()


async def test_an_expelled_visitor_is_cut_off_and_others_are_not(tmp_path: Path) -> None:
    async with opened(tmp_path) as here:
        alice, bob = await here.connect(), await here.connect()
        for client, token in ((alice, ALICE), (bob, BOB)):
            await client.ask("POST", "/mcp", bearer(token), message("initialize", 1, **INITIALIZE))
        here.server.expel(here.served[0].visitor)
        assert await alice.is_closed()
        assert (await bob.ask("GET", "/healthz")).status == 200


async def test_a_client_that_does_not_wait_for_its_websocket_is_told_so_and_is_done(tmp_path: Path) -> None:
    async with opened(tmp_path) as here:
        client = await here.connect()
        await client.stream.send_all(opening() + b"\x81\x80\0\0\0\0")
        said = b"".join([data async for data in client.stream])
        assert said.startswith(b"HTTP/1.1 400 ")
        assert b"wait for the answer" in said
        assert not here.served
