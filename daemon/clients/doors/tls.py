"""Terminates TLS, so that the door behind sees a plain connection."""

from __future__ import annotations

import math
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import trio
from loguru import logger

from daemon.config.listen import Tls
from daemon.wire.copying import plain_end

HANDSHAKE_SECONDS = 10.0  # for a client's handshake, which holds a place; a slow network takes two seconds

STEP_SECONDS = 0.004
"""Seconds between two handshake steps of all clients. A step costs 1 to 2 ms (RSA): a flood of handshakes takes
at most half of the loop's time, and a hundred simultaneous clients are connected after a second."""


class Turns:
    """Grants turns one by one, `STEP_SECONDS` apart, in the order of requests."""

    def __init__(self) -> None:
        self._lock = trio.Lock()
        self._next = -math.inf

    async def wait(self) -> None:
        """Return when it is the caller's turn."""
        async with self._lock:
            await trio.sleep_until(self._next)
            self._next = trio.current_time() + STEP_SECONDS


class _Paced(trio.abc.ReceiveStream):
    """A stream whose reader waits for a turn after each chunk."""

    def __init__(self, inner: trio.SocketStream, turns: Turns) -> None:
        self._inner = inner
        self._turns = turns

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        data = bytes(await self._inner.receive_some(max_bytes))
        await self._turns.wait()
        return data


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Make a context for TLS 1.2 or later; raises an OSError that names the faulty file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    renew(context, tls)
    return context


def renew(context: ssl.SSLContext, tls: Tls) -> None:
    """Load the files again for new connections. If this raises OSError, the context is unchanged."""
    for key, path in (("cert", tls.cert), ("key", tls.key)):
        try:
            with open(path, "rb"):  # noqa: PTH123 - a test of access: the library's error names neither file
                pass
        except OSError as error:
            raise OSError(error.errno, f"listen.http.tls.{key}: {path}: {error.strerror}") from None
    try:
        # With a terminal, the library would ask the daemon's for a passphrase.
        context.load_cert_chain(tls.cert, tls.key, password=lambda: "")
    except ssl.SSLError as error:
        raise ssl.SSLError(error.errno, f"listen.http.tls: {_why(error, tls)}") from None


async def terminate(
    connection: socket.socket,
    context: ssl.SSLContext,
    serve: Callable[[socket.socket], Awaitable[None]],
    turns: Turns,
) -> None:
    """Make the TLS handshake, and serve the plain text as a connection; `connection` is closed here."""
    transport = trio.SocketStream(trio.socket.from_stdlib_socket(connection))
    paced = trio.StapledStream(transport, _Paced(transport, turns))
    stream: trio.SSLStream[Any] = trio.SSLStream(paced, context, server_side=True)
    try:
        with trio.move_on_after(HANDSHAKE_SECONDS) as patience:
            await stream.do_handshake()
    except (trio.BrokenResourceError, OSError) as error:
        logger.debug("http: a TLS handshake failed: {}", _reason(error))
        await trio.aclose_forcefully(stream)
        return
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    if patience.cancelled_caught:
        logger.debug("http: a TLS handshake took more than {:g} s", HANDSHAKE_SECONDS)
        await trio.aclose_forcefully(stream)
        return
    stream.transport_stream = transport  # Only the handshake is paced.
    try:
        async with plain_end(stream) as plain:
            await serve(plain)
    except OSError as error:
        logger.warning("http: no connection for a client over TLS: {}", error.strerror)


def _why(error: ssl.SSLError, tls: Tls) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"the key in {tls.key} does not belong to the certificate in {tls.cert}"
    why = error.reason or error
    return f"{tls.cert} holds no certificate, or {tls.key} holds no unencrypted key ({why})"


def _reason(error: BaseException) -> str:
    cause = error.__cause__
    return cause.reason or str(cause) if isinstance(cause, ssl.SSLError) else str(cause or error)
