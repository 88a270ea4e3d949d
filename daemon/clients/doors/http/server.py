"""The HTTP listener: its connections, and the routing of requests by path.

A request's head decides on Host, Origin and token before its body is read. Unauthenticated connections are few
and make room for new ones, so that ten thousand of them keep nobody out.
"""

from __future__ import annotations

import re
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import unquote

import msgspec
import trio
from loguru import logger

from daemon import protocol
from daemon.clients.doors.http.asgi import AsgiRequest, is_console
from daemon.clients.doors.http.binding import peer_of
from daemon.clients.doors.http.exchange import PLAIN, Refusal
from daemon.clients.doors.http.http_connection import HttpConnection
from daemon.clients.doors.http.http_sessions import Place, RequestNames
from daemon.clients.doors.http.local import PATH as METRICS
from daemon.clients.doors.http.local import answer, health, is_probe, require_all_profiles, require_get
from daemon.clients.doors.http.mcp import McpEndpoint, named_in
from daemon.clients.doors.http.reading import options
from daemon.clients.doors.listening import PAUSE_SHARE, Listener, Strangers
from daemon.config.validate import SERVERS_FOLLOW
from daemon.errors import leaf
from daemon.kit.later import later

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Awaitable, Callable

    from daemon.clients.client import Principal
    from daemon.clients.doors.http.admission import HttpAdmission
    from daemon.clients.doors.http.asgi import WebApplication
    from daemon.clients.doors.http.exchange import HttpExchange, ResponseWriter
    from daemon.clients.doors.http.reading import Head
    from daemon.clients.doors.tls import Turns, terminate
    from daemon.clients.doors.websocket import serve_websocket
    from daemon.config.tuning import Limits
    from daemon.host.notify import Readiness
    from daemon.wire.outbox import Link, Outbox
else:
    # Needed only with a certificate, and by clients of WebSockets.
    terminate = later("daemon.clients.doors.tls", "terminate")
    Turns = later("daemon.clients.doors.tls", "Turns")
    serve_websocket = later("daemon.clients.doors.websocket", "serve_websocket")

MAX_STRANGERS = 256  # unauthenticated connections; one more closes the oldest

OWNER_SHARE = 2  # one token gets at most a half of the places, so that it cannot keep all others out

CONSOLE = "console: "  # the owner of the places of all browsers

TICK_SECONDS = 0.5  # seconds between checks for due work: every deadline is 2 s or more

_KEY = re.compile(r"[A-Za-z0-9+/]{22}==")  # sixteen bytes in base64

METHODS = ("GET", "HEAD", "POST", "DELETE", "OPTIONS")

DEPTH = 3  # parts of the longest path: `/mcp/PROFILE/SURFACE`


class HttpOffer(msgspec.Struct, frozen=True, kw_only=True):
    """The listener's services besides sessions."""

    profiles: Callable[[], tuple[str, ...]]
    surfaces: tuple[str, ...]
    definition: Callable[[Place, str], bytes]  # a place's tool by name, raw; empty if missing
    fault_of_choice: Callable[[str, tuple[str, ...]], str]
    """The reason why a profile's clients cannot see these servers as themselves, or an empty text."""
    metrics: Callable[[], Callable[[], Awaitable[str]] | None]
    """Makes the maker of `/metrics`; None without metrics."""
    readiness: Callable[[], Readiness]
    console: Callable[[], WebApplication | None] = lambda: None  # serves `/ui`; None without a console


class HttpServer:
    """Serves HTTP on one listening socket."""

    def __init__(
        self,
        listener: socket.socket,
        admission: HttpAdmission,
        offer: HttpOffer,
        serve: Callable[[Link, Principal], Awaitable[None]],
        *,
        outbox: Outbox,
        limits: Limits,
        tls: ssl.SSLContext | None = None,
        vet: Callable[[socket.socket], Awaitable[bool]] | None = None,
    ) -> None:
        """Prepare to serve.

        Args:
            listener: bound, listening and non-blocking.
            admission: judges the heads of requests.
            offer: the other services.
            serve: serves a link until it ends, and contains its faults.
            outbox: the daemon's outbox.
            limits: bound messages, the queue for a slow client, and the connections.
            tls: the certificate; None: without TLS.
            vet: vets the process at the other end; None: any may come in.
        """
        self._admission = admission
        self.tokens = admission.tokens
        self.tokens.on_revoked = self.expel
        self._offer = offer
        self._serve = serve
        self._outbox = outbox
        self._limits = limits
        self._mcp = McpEndpoint(
            self._start, outbox=outbox, places=limits.connections, definition=offer.definition
        )
        self._tls = tls
        self._handshakes = None if tls is None else Turns()
        self._connections: dict[ResponseWriter, tuple[HttpConnection, trio.CancelScope]] = {}
        self._strangers = Strangers(MAX_STRANGERS)
        self._bearers: dict[trio.CancelScope, set[Principal]] = {}
        self._owners: dict[trio.CancelScope, str] = {}  # places are charged to the first owner of a connection
        self._upgraded: dict[ResponseWriter, tuple[str, Place, RequestNames]] = {}
        """Accepted opening handshakes: the key, and the path's place and names."""
        self._listener = Listener(
            "http",
            listener,
            # One more: an accepted connection ends a stranger's.
            places=limits.connections + MAX_STRANGERS + 1,
            admit=peer_of,
            vet=vet,
            serve=self._serve_connection,
        )
        self._nursery: trio.Nursery

    async def run(self) -> NoReturn:
        """Serve until cancelled; raises OSError for a broken listening socket."""
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._tick)
            await self._listener.run()

    def drain(self) -> None:
        """Accept nobody, and close each connection after its current request."""
        self._listener.stop_accepting()
        self._mcp.sessions.end_streams()
        for connection, _scope in list(self._connections.values()):
            connection.close_when_done()
        self._outbox.flush()

    def expel(self, visitor: Principal) -> None:
        """End everything that the owner of a revoked token has open."""
        if visitor.token and (console := self._offer.console()) is not None:
            console.revoked(visitor.token)
        self._mcp.sessions.end_all(lambda each: each == visitor)
        for scope, visitors in self._bearers.items():
            if visitor in visitors:
                scope.cancel()
        self._outbox.flush()

    async def _tick(self) -> NoReturn:
        while True:
            await trio.sleep(TICK_SECONDS)
            now = trio.current_time()
            for connection, _scope in list(self._connections.values()):
                connection.tick(now)
            self._mcp.sessions.tick(now)
            self._outbox.flush()

    def _start(self, link: Link, visitor: Principal, done: Callable[[], None]) -> None:
        self._nursery.start_soon(self._serve_link, link, visitor, done)

    async def _serve_link(self, link: Link, visitor: Principal, done: Callable[[], None]) -> None:
        try:
            await self._serve(link, visitor)
        finally:
            done()
            self._outbox.flush()

    async def _serve_connection(self, accepted: socket.socket, address: str) -> None:
        scope = self._strangers.join()
        speak = partial(self._speak, address=address, scope=scope)
        try:
            # Inside: a fault of a connection that is being ended comes with the Cancelled that the scope takes.
            with scope:
                if self._tls is None or self._handshakes is None:
                    await speak(accepted)
                else:
                    await terminate(accepted, self._tls, speak, self._handshakes)
        except Exception as error:  # noqa: BLE001 - the boundary of a connection: the others go on
            plain = leaf(error) if isinstance(error, BaseExceptionGroup) else error
            logger.opt(exception=plain).error("an internal error in mcpd ended a connection over HTTP")
        finally:
            self._strangers.leave(scope)
            self._bearers.pop(scope, None)
            self._owners.pop(scope, None)

    async def _speak(self, plain: socket.socket, address: str, scope: trio.CancelScope) -> None:
        """Serve the requests of one connection, and the WebSocket that it may become."""
        queue = self._limits.client_queue_bytes
        connection = HttpConnection(
            plain,
            self._judge,
            peer=address,
            outbox=self._outbox,
            max_body=self._limits.client_message_bytes,
            max_queue=queue,
            pause_at=queue // PAUSE_SHARE,
        )
        self._connections[connection.responses] = connection, scope
        upgraded = None
        try:
            await connection.run()
            upgraded = self._upgraded.get(connection.responses)
        finally:
            del self._connections[connection.responses]
            self._upgraded.pop(connection.responses, None)
            self._mcp.forget(connection.responses)
            if upgraded is None:
                connection.close()
        if upgraded is not None:
            key, place, named = upgraded
            await serve_websocket(
                connection.release(),
                key,
                place.visitor,
                place.hello(named),
                self._serve,
                outbox=self._outbox,
                limits=self._limits,
            )

    def _judge(self, exchange: HttpExchange) -> None:
        """Admit a request by its head, and have it served."""
        if not is_probe(exchange.head):
            self._admission.greet(exchange.head)
        exchange.headers = self._admission.cors(exchange.head)
        allow = {"allow": ", ".join(METHODS)}
        if exchange.head.method not in METHODS:
            raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "no such method here\n", headers=allow)
        if exchange.head.method == "OPTIONS":
            exchange.respond(HTTPStatus.NO_CONTENT, headers=allow)
        else:
            self._route(exchange)

    def _route(self, exchange: HttpExchange) -> None:
        # Exact: a proxy that refuses `/metrics` from outside must not be bypassed by `//metrics`.
        first, *rest = exchange.head.path.removeprefix("/").removesuffix("/").split("/")
        found = health(exchange.head, self._offer.readiness())
        if found is not None:
            status, text = found
            exchange.respond(status, (text.encode(),), PLAIN)
        elif first == "mcp" and len(rest) < DEPTH:
            self._mcp.serve(exchange, self._place(exchange, rest))
        elif first == "ws" and len(rest) < DEPTH:
            self._upgrade(exchange, self._place(exchange, rest))
        elif exchange.head.path == METRICS and (export := self._offer.metrics()) is not None:
            require_all_profiles(self._visitor(exchange))
            require_get(exchange.head)
            self._nursery.start_soon(answer, exchange, export, self._outbox)
        elif is_console(exchange.head) and (console := self._offer.console()) is not None:
            if console.knows(exchange.head.headers):
                self._settle(exchange, CONSOLE)
            exchange.headers = {}  # No other page reads this one, whatever CORS allows for MCP.
            address = self._admission.address(exchange.head)
            is_private = self._tls is not None or self._admission.is_private(exchange.head)
            scheme = "https" if is_private else "http"
            request = AsgiRequest(exchange, console, address, outbox=self._outbox, scheme=scheme)
            request.start(self._nursery.start_soon)
        else:
            raise Refusal(HTTPStatus.NOT_FOUND, "nothing here: MCP is at /mcp\n")

    def _upgrade(self, exchange: HttpExchange, place: Place) -> None:
        opening = key_of_opening(exchange.head), place, named_in(exchange.head.headers)
        exchange.responses.upgrade()
        self._upgraded[exchange.responses] = opening

    def _place(self, exchange: HttpExchange, rest: list[str]) -> Place:
        """The principal of a request, and its destination by the rest of the path."""
        visitor = self._visitor(exchange)
        chooses = rest[:1] == [SERVERS_FOLLOW]
        profile = self._admission.profile(visitor, rest[0] if rest and not chooses else None)
        surface = rest[1] if len(rest) > 1 and not chooses else None
        for what, name, known in (
            ("profile", profile, self._offer.profiles()),
            ("surface", surface, (None, *self._offer.surfaces)),
        ):
            if name not in known:
                raise Refusal(HTTPStatus.NOT_FOUND, f"there is no {what} {str(name)[:100]!r}\n")
        servers = _chosen(self._offer, profile, rest[1:]) if chooses else ()
        return Place(visitor=visitor, profile=profile, surface=surface, servers=servers)

    def _visitor(self, exchange: HttpExchange) -> Principal:
        """The principal of a request, by its token; there is room for its connection."""
        visitor = self._admission.visitor(exchange.head)
        self._settle(exchange, visitor.owner).add(visitor)
        return visitor

    def _settle(self, exchange: HttpExchange, owner: str) -> set[Principal]:
        """Give an authenticated connection a place of its own; return its principals so far."""
        _connection, scope = self._connections[exchange.responses]
        if scope not in self._bearers:
            if crowd := self._crowd(owner):
                exchange.responses.is_last = True  # It stays unauthenticated, and makes room for others.
                raise self._admission.crowded(exchange.head, crowd)
            self._owners[scope] = owner
        self._strangers.leave(scope)
        return self._bearers.setdefault(scope, set())

    def _crowd(self, owner: str) -> str:
        """The reason why an owner gets no further connection, or an empty text."""
        most = self._limits.connections
        taken, share = sum(each == owner for each in self._owners.values()), max(1, most // OWNER_SHARE)
        if len(self._owners) >= most:
            return f"{most} clients are connected (limits.connections)"
        if taken >= share:
            return f"{owner}{taken} clients are connected by one token, half of limits.connections ({most})"
        return ""


def key_of_opening(head: Head) -> str:
    """The key in the opening handshake of a WebSocket (RFC 6455, 4.2.1), or Refusal."""
    headers = head.headers
    if head.method != "GET" or headers.get("upgrade", "").lower() != "websocket":
        text = "a WebSocket is opened here: GET with Upgrade: websocket\n"
        raise Refusal(HTTPStatus.UPGRADE_REQUIRED, text, headers={"upgrade": "websocket"})
    if headers.get("sec-websocket-version") != "13":
        text = "this is not the version of WebSockets that is served: Sec-WebSocket-Version must be 13\n"
        raise Refusal(HTTPStatus.UPGRADE_REQUIRED, text, headers={"sec-websocket-version": "13"})
    key = headers.get("sec-websocket-key", "")
    if "upgrade" not in options(headers.get("connection", "")) or not _KEY.fullmatch(key):
        text = (
            "not the opening handshake of a WebSocket: Connection: Upgrade and a Sec-WebSocket-Key are needed\n"
        )
        raise Refusal(HTTPStatus.BAD_REQUEST, text)
    if protocol.SUBPROTOCOL not in options(headers.get("sec-websocket-protocol", "")):
        text = "offer the subprotocol mcp (Sec-WebSocket-Protocol): nothing else is spoken here\n"
        raise Refusal(HTTPStatus.BAD_REQUEST, text)
    return key


def _chosen(offer: HttpOffer, profile: str, rest: list[str]) -> tuple[str, ...]:
    """The servers that the end of a path names, to be seen as themselves."""
    servers = tuple(dict.fromkeys(filter(None, unquote(rest[0]).split(",")))) if rest else ()
    if not servers:
        raise Refusal(HTTPStatus.NOT_FOUND, "name servers: /mcp/-/NAME, or /mcp/-/NAME,NAME2 for several\n")
    if fault := offer.fault_of_choice(profile, servers):
        raise Refusal(HTTPStatus.NOT_FOUND, f"{fault}\n")
    return servers
