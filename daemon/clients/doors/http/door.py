"""Assembles the HTTP door of a daemon: admission, offer and listener."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from pathlib import Path
from typing import NoReturn

import msgspec
import trio
from loguru import logger

from daemon.catalog.offer import Offers
from daemon.catalog.snapshot import Catalog
from daemon.clients.client import Principal, fault_of_choice
from daemon.clients.doors.http.admission import HttpAdmission
from daemon.clients.doors.http.asgi import WebApplication
from daemon.clients.doors.http.binding import LOOPBACK, address_of
from daemon.clients.doors.http.http_sessions import Place
from daemon.clients.doors.http.server import HttpOffer, HttpServer
from daemon.clients.doors.http.valid_tokens import Tokens
from daemon.clients.doors.tls import renew
from daemon.config.listen import HttpListen, is_loopback
from daemon.config.redaction import Redactors
from daemon.host.notify import Readiness
from daemon.host.tokens import TokenFile
from daemon.kit.waiting import Watch
from daemon.wire.outbox import Link, Outbox


class HttpNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon's contributions to HTTP."""

    listener: socket.socket  # bound, listening and non-blocking
    tls: ssl.SSLContext | None  # none: without TLS
    state: Path  # the state directory, with the token file
    handed_over: bytes = b""  # the previous daemon's tokens
    hand_over: Callable[[bytes], None] = lambda _content: None  # hands tokens to the next daemon
    redact: Redactors
    catalog: Watch[Catalog]
    offers: Offers  # the tools of each profile
    surfaces: tuple[str, ...]
    export: Callable[[], Awaitable[str]]  # makes the text of `/metrics`
    readiness: Callable[[], Readiness]
    count: Callable[[str], None]  # counts a refused request, by its reason
    vet: Callable[[socket.socket], Awaitable[bool]] | None = None
    """vets the process at the other end; None: any may come in"""
    serve: Callable[[Link, Principal], Awaitable[None]]  # serves a link until it ends, and contains its faults
    outbox: Outbox
    console: Callable[[], WebApplication | None]  # makes the console on demand, if there is one


class HttpDoor:
    """Serves HTTP while the daemon runs."""

    def __init__(self, needs: HttpNeeds) -> None:
        config = needs.catalog.value.config
        http = config.listen.http or HttpListen()
        self.tokens = Tokens(
            http,
            TokenFile(needs.state),
            redact=needs.redact,
            handed_over=needs.handed_over,
            hand_over=needs.hand_over,
        )
        self._needs = needs
        self._files = http.tls
        self._patience = trio.CancelScope()
        offer = HttpOffer(
            profiles=lambda: tuple(needs.catalog.value.config.profiles),
            definition=self._definition,
            fault_of_choice=self._fault_of_choice,
            surfaces=needs.surfaces,
            metrics=lambda: needs.export if needs.catalog.value.config.metrics.enabled else None,
            readiness=needs.readiness,
            console=lambda: needs.console() if http.console else None,
        )
        self._server = HttpServer(
            needs.listener,
            HttpAdmission(http, self.tokens, count=needs.count),
            offer,
            needs.serve,
            outbox=needs.outbox,
            limits=config.limits,
            tls=needs.tls,
            vet=needs.vet,
        )

    async def run(self) -> NoReturn:
        """Serve until cancelled; raises OSError for a broken listening socket."""
        scheme = "http" if self._needs.tls is None else "https"
        logger.info("http: clients connect to {}://{}/mcp", scheme, address_of(self._needs.listener))
        await self._server.run()

    @property
    def address(self) -> str:
        """The url for a browser on this machine, as in `http://127.0.0.1:7337`."""
        http = self._needs.catalog.value.config.listen.http or HttpListen()
        scheme = "http" if self._needs.tls is None else "https"
        host, port = self._needs.listener.getsockname()[:2]
        if not is_loopback(host) and http.hosts:
            host = http.hosts[0]
        elif ip_address(host).is_unspecified:
            host = LOOPBACK
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    @property
    def drain_seconds(self) -> float:
        """Seconds of full service before a stop, in which balancers notice it."""
        http = self._needs.catalog.value.config.listen.http
        return 0 if http is None else http.drain

    async def drain(self) -> None:
        """Serve on for `drain_seconds`, then accept nobody."""
        with self._patience:
            await trio.sleep(self.drain_seconds)
        self._server.drain()

    def hurry(self) -> None:
        """End the wait for balancers."""
        self._patience.cancel()

    async def renew(self) -> None:
        """Read the certificate again; a faulty one is logged, and the old one stays."""
        if self._needs.tls is not None and self._files is not None:
            try:
                await trio.to_thread.run_sync(renew, self._needs.tls, self._files)
            except OSError as error:
                logger.warning("cannot renew the certificate, the old one stays: {}", error.strerror or error)

    def _fault_of_choice(self, profile: str, servers: tuple[str, ...]) -> str:
        config = self._needs.catalog.value.config
        return fault_of_choice(config, config.profiles[profile], servers)

    def _definition(self, place: Place, name: str) -> bytes:
        offers = self._needs.offers
        catalog = offers.choices.of(self._needs.catalog.value, place.servers)
        found = offers.of(catalog, catalog.config.profiles[place.profile]).find(name)
        return b"" if found is None else found.tool.raw
