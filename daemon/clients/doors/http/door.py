"""The HTTP door of a daemon: admits requests by their heads alone, and routes them by path."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import unquote

import attrs
import trio
from loguru import logger

from daemon import protocol
from daemon.catalog.offer import Offers
from daemon.catalog.snapshot import Catalog
from daemon.clients.client import Principal, fault_of_choice
from daemon.clients.doors.http.admission import HttpAdmission
from daemon.clients.doors.http.asgi import AsgiRequest, WebApplication, is_console
from daemon.clients.doors.http.binding import LOOPBACK, address_of
from daemon.clients.doors.http.http_connection import Bounds, HttpExchange
from daemon.clients.doors.http.http_listener import HttpListener, Visit
from daemon.clients.doors.http.http_sessions import Place
from daemon.clients.doors.http.local import OWNER, answers, is_probe, require_all_profiles
from daemon.clients.doors.http.mcp import McpEndpoint, with_names
from daemon.clients.doors.http.reading import Head, Refusal, options
from daemon.clients.doors.http.valid_tokens import Tokens
from daemon.clients.doors.listening import PAUSE_SHARE
from daemon.clients.doors.tls import renew
from daemon.config.listen import HttpListen, is_loopback
from daemon.config.redaction import Redactors
from daemon.config.tuning import Limits
from daemon.config.validate import SERVERS_FOLLOW
from daemon.host.notify import Readiness
from daemon.host.tokens import TokenFile
from daemon.kit.later import later
from daemon.kit.waiting import Watch
from daemon.wire.outbox import Link, Outbox

if TYPE_CHECKING:
    from daemon.clients.doors.websocket import serve_websocket
else:
    # Needed by clients of WebSockets.
    serve_websocket = later("daemon.clients.doors.websocket", "serve_websocket")

MAX_STRANGERS = 256  # unauthenticated connections; one more closes the oldest

OWNER_SHARE = 2  # one token gets at most a half of the places, so that it cannot keep all others out

_KEY = re.compile(r"[A-Za-z0-9+/]{22}==")  # sixteen bytes in base64

METHODS = ("GET", "HEAD", "POST", "DELETE", "OPTIONS")

DEPTH = 3  # parts of the longest path: `/mcp/PROFILE/SURFACE`


@attrs.define(eq=False, kw_only=True, repr=False)
class HttpDoor:
    """Serves HTTP while the daemon runs."""

    _listener: socket.socket  # bound, listening and non-blocking
    _tls: ssl.SSLContext | None  # none: without TLS
    _state: Path  # the state directory, with the token file
    _handed_over: bytes = b""  # the previous daemon's tokens
    _hand_over: Callable[[bytes], None] = lambda _content: None  # hands tokens to the next daemon
    _redact: Redactors
    _catalog: Watch[Catalog]
    _offers: Offers  # the tools of each profile
    _surfaces: tuple[str, ...]
    _export: Callable[[], Awaitable[str]]  # makes the text of `/metrics`
    _readiness: Callable[[], Readiness]
    _count: Callable[[str], None]  # counts a refused request, by its reason
    _vet: Callable[[socket.socket], Awaitable[bool]] | None = None
    """Vets the process at the other end; None admits any."""
    _serve: Callable[[Link, Principal], Awaitable[None]]  # serves a link until it ends, and contains its faults
    _revoked: Callable[[str], None]  # ends what the owner of a revoked token was allowed
    _outbox: Outbox
    _console: Callable[[], WebApplication | None]  # makes the console on demand, if there is one
    tokens: Tokens = attrs.field(init=False)
    _http: HttpListen = attrs.field(init=False)  # changes with a restart only
    _limits: Limits = attrs.field(init=False)
    _patience: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _admission: HttpAdmission = attrs.field(init=False)
    _mcp: McpEndpoint = attrs.field(init=False)
    _accepting: HttpListener = attrs.field(init=False)
    _nursery: trio.Nursery = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        config, outbox = self._catalog.value.config, self._outbox
        self._http, self._limits = config.listen.http or HttpListen(), config.limits
        self.tokens = Tokens(
            self._http,
            TokenFile(self._state),
            redact=self._redact,
            handed_over=self._handed_over,
            hand_over=self._hand_over,
        )
        self.tokens.on_revoked = self.expel
        self._admission = HttpAdmission(self._http, self.tokens, count=self._count)
        places, queue = self._limits.connections, self._limits.client_queue_bytes
        self._mcp = McpEndpoint(self._start, outbox=outbox, places=places, definition=self._definition)
        self._accepting = HttpListener(
            Bounds(
                door="http",
                strangers=MAX_STRANGERS,
                places=places,
                queue=queue,
                pause=queue // PAUSE_SHARE,
                body=self._limits.client_message_bytes,
            ),
            self._listener,
            self._judge,
            outbox=outbox,
            tls=self._tls,
            vet=self._vet,
            on_tick=self._mcp.sessions.tick,
            on_ended=self._mcp.forget,
        )

    async def run(self) -> NoReturn:
        """Serve until cancelled; raises OSError for a broken listening socket."""
        logger.info("http: clients connect to {}://{}/mcp", self._scheme, address_of(self._listener))
        async with trio.open_nursery() as self._nursery:
            await self._accepting.run()

    @property
    def address(self) -> str:
        """The URL for a browser on this machine, as in `http://127.0.0.1:7337`."""
        http = self._catalog.value.config.listen.http or HttpListen()
        host, port = self._listener.getsockname()[:2]
        if not is_loopback(host) and http.hosts:
            host = http.hosts[0]
        elif ip_address(host).is_unspecified:
            host = LOOPBACK
        return f"{self._scheme}://[{host}]:{port}" if ":" in host else f"{self._scheme}://{host}:{port}"

    @property
    def _scheme(self) -> str:
        return "http" if self._tls is None else "https"

    @property
    def drain_seconds(self) -> float:
        """Seconds of full service before a stop, during which load balancers notice the stop."""
        http = self._catalog.value.config.listen.http
        return 0 if http is None else http.drain

    async def drain(self) -> None:
        """Serve for `drain_seconds`, then accept no connections; close open ones after the current request."""
        with self._patience:
            await trio.sleep(self.drain_seconds)
        self._accepting.drain()
        self._mcp.sessions.end_streams()
        self._outbox.flush()

    def hurry(self) -> None:
        """End the wait for load balancers."""
        self._patience.cancel()

    async def renew(self) -> None:
        """Read the certificate again; a faulty one is logged, and the old one stays."""
        if self._tls is not None and self._http.tls is not None:
            try:
                await trio.to_thread.run_sync(renew, self._tls, self._http.tls)
            except OSError as error:
                logger.warning("cannot renew the certificate, the old one stays: {}", error.strerror or error)

    def expel(self, visitor: Principal) -> None:
        """End all sessions and connections of a revoked token."""
        if visitor.token:
            self._revoked(visitor.owner)  # a later token may have the same name
            if (console := self._pages()) is not None:
                console.revoked(visitor.token)
        self._mcp.sessions.end_all(lambda each: each == visitor)
        for visit in self._accepting.visits.values():
            if visitor in visit.visitors:
                visit.scope.cancel()
        self._outbox.flush()

    def _pages(self) -> WebApplication | None:
        return self._console() if self._http.console else None

    def _definition(self, place: Place, name: str) -> bytes:
        offers = self._offers
        catalog = offers.choices.of(self._catalog.value, place.servers)
        found = offers.of(catalog, catalog.config.profiles[place.profile]).find(name)
        return b"" if found is None else found.tool.raw

    def _start(self, link: Link, visitor: Principal, done: Callable[[], None]) -> None:
        self._nursery.start_soon(self._serve_link, link, visitor, done)

    async def _serve_link(self, link: Link, visitor: Principal, done: Callable[[], None]) -> None:
        try:
            await self._serve(link, visitor)
        finally:
            done()
            self._outbox.flush()

    def _judge(self, exchange: HttpExchange, visit: Visit) -> None:
        if not is_probe(exchange.head):
            self._admission.greet(exchange.head)
        exchange.headers = self._admission.cors(exchange.head)
        allow = {"allow": ", ".join(METHODS)}
        if exchange.head.method not in METHODS:
            raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "no such method here\n", headers=allow)
        if exchange.head.method == "OPTIONS":
            exchange.respond(HTTPStatus.NO_CONTENT, headers=allow)
        else:
            self._route(exchange, visit)

    def _route(self, exchange: HttpExchange, visit: Visit) -> None:
        head = exchange.head
        # Exact: a proxy that refuses `/metrics` from outside must not be bypassed by `//metrics`.
        first, *rest = head.path.removeprefix("/").removesuffix("/").split("/")
        export = self._export if self._catalog.value.config.metrics.enabled else None
        if answers(
            exchange,
            visit,
            self._readiness(),
            export,
            self._outbox,
            admit=lambda: require_all_profiles(self._visitor(exchange, visit)),
        ):
            return
        if first == "mcp" and len(rest) < DEPTH:
            self._mcp.serve(exchange, self._place(exchange, visit, rest))
        elif first == "ws" and len(rest) < DEPTH:
            self._upgrade(exchange, visit, self._place(exchange, visit, rest))
        elif is_console(head) and (console := self._pages()) is not None:
            if console.knows(head.headers):
                self._settle(exchange, visit, OWNER)
            exchange.headers = {}  # No other page reads this one, whatever CORS allows for MCP.
            is_private = self._tls is not None or self._admission.is_private(head)
            scheme = "https" if is_private else "http"
            address = self._admission.address(head)
            request = AsgiRequest(exchange, console, address, outbox=self._outbox, scheme=scheme)
            request.start(visit.tasks.start_soon)
        else:
            raise Refusal(HTTPStatus.NOT_FOUND, "nothing here: MCP is at /mcp\n")

    def _upgrade(self, exchange: HttpExchange, visit: Visit, place: Place) -> None:
        key, hello = key_of_opening(exchange.head), with_names(place, exchange.head.headers).hello
        exchange.responses.upgrade()
        visit.upgrade = partial(
            serve_websocket,
            key=key,
            visitor=place.visitor,
            hello=hello,
            serve=self._serve,
            outbox=self._outbox,
            limits=self._limits,
        )

    def _place(self, exchange: HttpExchange, visit: Visit, rest: list[str]) -> Place:
        visitor, config = self._visitor(exchange, visit), self._catalog.value.config
        chooses = rest[:1] == [SERVERS_FOLLOW]
        profile = self._admission.profile(visitor, rest[0] if rest and not chooses else None)
        surface = rest[1] if len(rest) > 1 and not chooses else None
        for what, name, known in (
            ("profile", profile, config.profiles),
            ("surface", surface, (None, *self._surfaces)),
        ):
            if name not in known:
                raise Refusal(HTTPStatus.NOT_FOUND, f"there is no {what} {str(name)[:100]!r}\n")
        servers: tuple[str, ...] = ()
        if chooses:
            servers = _chosen(rest[1:])
            if fault := fault_of_choice(config, config.profiles[profile], servers):
                raise Refusal(HTTPStatus.NOT_FOUND, f"{fault}\n")
        return Place(visitor=visitor, profile=profile, surface=surface, servers=servers)

    def _visitor(self, exchange: HttpExchange, visit: Visit) -> Principal:
        visitor = self._admission.visitor(exchange.head)
        self._settle(exchange, visit, visitor.owner)
        visit.visitors.add(visitor)
        return visitor

    def _settle(self, exchange: HttpExchange, visit: Visit, owner: str) -> None:
        if visit.owner is None and (crowd := self._crowd(owner)):
            exchange.responses.is_last = True  # It stays unauthenticated, and makes room for others.
            raise self._admission.crowded(exchange.head, crowd)
        self._accepting.settle(visit, owner)

    def _crowd(self, owner: str) -> str:
        most, owners = self._limits.connections, self._accepting.owners()
        taken, share = owners.count(owner), max(1, most // OWNER_SHARE)
        if len(owners) >= most:
            return f"{most} clients are connected (limits.connections)"
        if taken >= share:
            return f"{owner}{taken} clients are connected by one token, half of limits.connections ({most})"
        return ""


def key_of_opening(head: Head) -> str:
    """The key in a WebSocket's opening handshake (RFC 6455, 4.2.1). Raises Refusal."""
    headers = head.headers
    if head.method != "GET" or headers.get("upgrade", "").lower() != "websocket":
        text = "this address opens WebSockets only: send GET with Upgrade: websocket\n"
        raise Refusal(HTTPStatus.UPGRADE_REQUIRED, text, headers={"upgrade": "websocket"})
    if headers.get("sec-websocket-version") != "13":
        text = "mcpd serves another version of WebSockets: Sec-WebSocket-Version must be 13\n"
        raise Refusal(HTTPStatus.UPGRADE_REQUIRED, text, headers={"sec-websocket-version": "13"})
    key = headers.get("sec-websocket-key", "")
    if "upgrade" not in options(headers.get("connection", "")) or not _KEY.fullmatch(key):
        text = (
            "not the opening handshake of a WebSocket: Connection: Upgrade and a Sec-WebSocket-Key are needed\n"
        )
        raise Refusal(HTTPStatus.BAD_REQUEST, text)
    if protocol.SUBPROTOCOL not in options(headers.get("sec-websocket-protocol", "")):
        text = "offer the subprotocol mcp (Sec-WebSocket-Protocol): mcpd speaks no other\n"
        raise Refusal(HTTPStatus.BAD_REQUEST, text)
    return key


def _chosen(rest: list[str]) -> tuple[str, ...]:
    """The servers at the end of a path, which the client wants to see as themselves."""
    servers = tuple(dict.fromkeys(filter(None, unquote(rest[0]).split(",")))) if rest else ()
    if not servers:
        raise Refusal(HTTPStatus.NOT_FOUND, "name servers: /mcp/-/NAME, or /mcp/-/NAME,NAME2 for several\n")
    return servers
