"""TLS in front of a door: the door sees a plain connection, whatever it speaks."""

from __future__ import annotations

import math
import ssl
from typing import TYPE_CHECKING, Any

import trio
from loguru import logger

from daemon.wire.copying import plain_end

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    from daemon.config.listen import Tls

HANDSHAKE_SECONDS = 10.0
"""How long a client has for its handshake: it holds a place meanwhile, and a slow network takes two seconds."""

STEP_SECONDS = 0.004
"""Seconds between two steps of handshakes, whoever's they are. A step costs one or two milliseconds (for RSA):
strangers who shake hands without end take half of the loop's time at most, and a hundred clients who come at
once are in after a second."""


class Turns:
    """Gives one turn after the other, in the order in which they were asked for, and none too soon."""

    def __init__(self) -> None:
        """Start with nobody waiting."""
        self._lock = trio.Lock()
        self._next = -math.inf

    async def wait(self) -> None:
        """Return when it is the caller's turn."""
        async with self._lock:
            await trio.sleep_until(self._next)
            self._next = trio.current_time() + STEP_SECONDS


class _Paced(trio.abc.Stream):
    """A stream whose reader waits for its turn with each piece that has come."""

    def __init__(self, inner: trio.SocketStream, turns: Turns) -> None:
        self._inner = inner
        self._turns = turns

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._inner.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        data = bytes(await self._inner.receive_some(max_bytes))
        await self._turns.wait()
        return data


def tls_context(tls: Tls) -> ssl.SSLContext:
    """What a listener needs to speak TLS 1.2 or later with these files.

    Raises:
        OSError: a file cannot be read, or is not what it should be (`ssl.SSLError`); the text says which file.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    renew(context, tls)
    return context


def renew(context: ssl.SSLContext, tls: Tls) -> None:
    """Read these files again; connections that are open keep the certificate that they have.

    Raises:
        OSError: as `tls_context`; nothing has changed.
    """
    for key, path in (("cert", tls.cert), ("key", tls.key)):
        try:
            with open(path, "rb"):  # noqa: PTH123 - only whether it can be: the library's error names neither
                pass
        except OSError as error:
            raise OSError(error.errno, f"listen.http.tls.{key}: {path}: {error.strerror}") from None
    try:
        # Asked for a passphrase on a terminal, a daemon would wait for ever.
        context.load_cert_chain(tls.cert, tls.key, password=_no_passphrase)
    except ssl.SSLError as error:
        raise ssl.SSLError(error.errno, f"listen.http.tls: {_why(error, tls)}") from None


async def terminate(
    connection: socket.socket,
    context: ssl.SSLContext,
    serve: Callable[[socket.socket], Awaitable[None]],
    turns: Turns,
) -> None:
    """Shake hands, and serve what comes over TLS as a plain connection, which `serve` closes.

    Args:
        connection: accepted; it is closed here.
        context: of `tls_context`.
        serve: given a connected, non-blocking socket; not called for a client that does not shake hands.
        turns: of all handshakes at this door.
    """
    transport = trio.SocketStream(trio.socket.from_stdlib_socket(connection))
    stream: trio.SSLStream[Any] = trio.SSLStream(_Paced(transport, turns), context, server_side=True)
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
    stream.transport_stream = transport  # What follows waits for no turn.
    try:
        async with plain_end(stream) as plain:
            await serve(plain)
    except OSError as error:
        logger.warning("http: no connection for a client over TLS: {}", error.strerror)


def _no_passphrase() -> str:
    return ""


def _why(error: ssl.SSLError, tls: Tls) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"the key in {tls.key} does not belong to the certificate in {tls.cert}"
    why = error.reason or error
    return f"{tls.cert} holds no certificate, or {tls.key} no key without a passphrase ({why})"


def _reason(error: BaseException) -> str:
    cause = error.__cause__
    return cause.reason or str(cause) if isinstance(cause, ssl.SSLError) else str(cause or error)
