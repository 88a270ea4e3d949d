"""The exposition: `GET /metrics` over HTTP on a loopback address, if `metrics.listen` names one.

It follows the configuration from one reload to the next. No peer is trusted: heads, connections and time are
bounded, and a web page whose own name resolves to this machine (DNS rebinding) is refused by the Host that its
browser sends. A fault ends its own connection only; an address that cannot be bound is tried again, and the
daemon serves clients meanwhile.
"""

from __future__ import annotations

import socket
from contextlib import closing
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, NoReturn

import attrs
import trio
from loguru import logger

from daemon.clients.doors.listening import Listener
from daemon.config.addresses import is_loopback, split_authority
from daemon.errors import CallError, leaf
from daemon.kit.later import later
from daemon.kit.mailbox import Watch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import h11

    from daemon.catalog.snapshot import Catalog
    from daemon.config.model import Metrics
else:
    # 7 ms, needed only when metrics are read.
    h11 = later("h11")

CONNECTIONS = 8
"""Connections at once, further ones wait in the kernel's backlog: a few scrapers, each with one request."""

BACKLOG = 16
"""Connections that may wait in the kernel (listen(2))."""

REQUEST_SECONDS = 5.0
"""Seconds for a whole connection: a scrape takes milliseconds, and Prometheus itself gives up after 10 s."""

HEAD_BYTES = 8 * 1024
"""Longest head of a request in bytes; Prometheus sends 300."""

LINGER_BYTES = 256 * 1024
"""Bytes still read after the answer: closing with unread bytes could lose the answer (RFC 9112, 9.6)."""

RETRY_SECONDS = 30.0
"""Seconds between attempts to bind an address that is taken."""

PATH = b"/metrics"

TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of Prometheus' text format; also right for a one-line refusal."""


@attrs.frozen
class HttpAnswer:
    """The response to a request."""

    status: HTTPStatus
    """The status of the response."""
    text: str
    """The body of the response."""


class Exposition:
    """Serves one text over HTTP while the configuration asks for it."""

    def __init__(self, catalog: Watch[Catalog], export: Callable[[], Awaitable[str]]) -> None:
        """Start with nothing opened.

        Args:
            catalog: the newest catalog, for its configuration.
            export: makes the text.
        """
        self.address: Watch[tuple[str, int] | None] = Watch(None)
        """The address it listens on; None while it does not."""
        self._catalog = catalog
        self._export = export

    async def run(self) -> None:
        """Serve as the current configuration says, until cancelled."""
        while True:
            metrics = self._catalog.value.config.metrics
            async with trio.open_nursery() as nursery:
                if metrics.enabled and metrics.listen is not None:
                    nursery.start_soon(self._keep_open, metrics.listen)
                await self._catalog.wait_until(partial(_differs, metrics))
                nursery.cancel_scope.cancel()

    async def _keep_open(self, listen: str) -> None:
        told = ""
        while True:
            problem = await self._open(listen)
            # Once for each reason: a line twice a minute for days would hide other lines.
            if problem != told:
                logger.warning(
                    "metrics are not served on {}: {}. Tried again every {:g} s; metrics.listen in the"
                    " configuration names another address",
                    listen,
                    problem,
                    RETRY_SECONDS,
                )
            told = problem
            await trio.sleep(RETRY_SECONDS)

    async def _open(self, listen: str) -> str:
        """Serve until that fails; return why."""
        try:
            with closing(_bound(listen)) as listener:
                await self._accept(listener)
        except OSError as error:
            return error.strerror or str(error)
        except Exception as error:  # noqa: BLE001 - the boundary: clients are served without metrics
            plain = leaf(error) if isinstance(error, BaseExceptionGroup) else error
            logger.opt(exception=plain).error("a fault of mcpd's own while serving metrics")
            return f"mcpd's own fault: {type(plain).__name__}"
        finally:
            self.address.set(None)

    async def _accept(self, listener: socket.socket) -> NoReturn:
        host, port = listener.getsockname()[:2]
        self.address.set((host, port))
        logger.info("metrics: http://{}:{}/metrics", f"[{host}]" if ":" in host else host, port)
        # Every connection is admitted: only the request shows who asks.
        door = Listener("metrics", listener, places=CONNECTIONS, admit=lambda _: True, serve=self._serve)
        await door.run()

    async def _serve(self, connection: socket.socket, _visitor: object) -> None:
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(connection))
        try:
            with trio.move_on_after(REQUEST_SECONDS):
                await self._converse(stream)
        except trio.BrokenResourceError as error:
            logger.debug("a reader of metrics went away: {}", error)
        except Exception:  # noqa: BLE001 - the boundary of a connection
            logger.exception("a fault of mcpd's own while answering a request for metrics")
        finally:
            stream.socket.close()

    async def _converse(self, stream: trio.SocketStream) -> None:
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        try:
            request = await _request(http, stream)
        except h11.RemoteProtocolError as error:
            await _say(
                http, stream, HttpAnswer(HTTPStatus(error.error_status_hint), "not a request of HTTP/1.1\n")
            )
            return
        if request is not None:
            answer = await self._answer(request)
            await _say(http, stream, answer, bodiless=request.method == b"HEAD")

    async def _answer(self, request: h11.Request) -> HttpAnswer:
        refusal = _refusal(request)
        if refusal is not None:
            return refusal
        try:
            return HttpAnswer(HTTPStatus.OK, await self._export())
        except CallError as error:
            return HttpAnswer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error.message}\n")
        except Exception:  # noqa: BLE001 - as in `_serve`, but the client still gets an answer
            logger.exception("a fault of mcpd's own while collecting metrics")
            return HttpAnswer(HTTPStatus.INTERNAL_SERVER_ERROR, "a fault of mcpd's own: see its log\n")


def _differs(metrics: Metrics, catalog: Catalog) -> bool:
    return catalog.config.metrics != metrics


def _refusal(request: h11.Request) -> HttpAnswer | None:
    """The refusal of a request; None if it gets metrics. The Host is checked before anything is revealed."""
    host, _port = split_authority(dict(request.headers).get(b"host", b"").decode("latin-1"))
    if host is None or not is_loopback(host):
        text = "only for this machine: ask for it as localhost, 127.0.0.1 or [::1]\n"
        return HttpAnswer(HTTPStatus.FORBIDDEN, text)
    if request.target.partition(b"?")[0] != PATH:
        return HttpAnswer(HTTPStatus.NOT_FOUND, "nothing here: metrics are at /metrics\n")
    if request.method != b"GET":
        return HttpAnswer(HTTPStatus.METHOD_NOT_ALLOWED, "metrics can only be read: GET /metrics\n")
    return None


def _bound(listen: str) -> socket.socket:
    """A non-blocking socket that listens on an address.

    Raises:
        OSError: the address cannot be bound.
        ValueError: it is not HOST:PORT on loopback, which the configuration's reader refuses already.
    """
    host, port = split_authority(listen)
    if host is None or port is None or not is_loopback(host):
        raise ValueError(f"{listen!r} is not HOST:PORT on a loopback address")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        # A restart would otherwise have to wait until the last scrape's connection has left TIME_WAIT.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # localhost is not resolved: a resolver may not know it, or say something else.
        listener.bind(("127.0.0.1" if host.lower() == "localhost" else host, port))
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


async def _request(http: h11.Connection, stream: trio.SocketStream) -> h11.Request | None:
    """Read the request's head; None if the client left without one.

    Raises:
        RemoteProtocolError: it is malformed or too long.
    """
    while (event := http.next_event()) is h11.NEED_DATA:
        http.receive_data(await stream.receive_some(HEAD_BYTES))
    return event if isinstance(event, h11.Request) else None


async def _say(
    http: h11.Connection, stream: trio.SocketStream, answer: HttpAnswer, *, bodiless: bool = False
) -> None:
    """Send the last response on this connection, and let the client read it."""
    body = answer.text.encode()
    headers = {"content-type": TEXT_FORMAT, "content-length": str(len(body)), "connection": "close"}
    if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
        headers["allow"] = "GET"
    response = h11.Response(
        status_code=answer.status, headers=list(headers.items()), reason=answer.status.phrase.encode()
    )
    events = (response, h11.Data(data=b"" if bodiless else body), h11.EndOfMessage())
    await stream.send_all(b"".join(http.send(event) or b"" for event in events))
    await stream.send_eof()
    left = LINGER_BYTES
    while left > 0 and (chunk := await stream.receive_some(left)):
        left -= len(chunk)
