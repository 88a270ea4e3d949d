"""Connects to a server on a unix socket: newline-delimited JSON as on stdio, without a child.

The file appears when the server is ready, and may outlive it: mcpd retries "no such file" and "refused".
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import unquote, urlsplit

import trio

from daemon.causes import Cause, of_errno
from daemon.errors import CannotStart, ConnectionLost
from daemon.host.sockets import reason
from daemon.upstreams.transports.network import in_time
from daemon.upstreams.transports.server_connection import UPSTREAM_QUEUE_BYTES, OpenContext, RawConnection
from daemon.wire.link import FdLink

_OF_SOCKETS = {errno.ENOENT: Cause.SOCKET_MISSING, errno.EACCES: Cause.SOCKET_DENIED}


@asynccontextmanager
async def open_connection(context: OpenContext) -> AsyncIterator[RawConnection]:
    """Connect to the socket; CannotStart if the url names none, ConnectionLost if nothing listens there."""
    server = context.server
    path = socket_path(server.url or "")
    fd = await _connect(path, server.timeouts.connect)
    link = FdLink(
        fd, fd, outbox=context.outbox, max_line=server.limits.message_bytes, max_queue=UPSTREAM_QUEUE_BYTES
    )
    try:
        yield RawConnection(link, outbox=context.outbox, events=context.events)
    finally:
        link.close()


def socket_path(url: str) -> str:
    """The path in `unix:///path` (percent-decoded), or an absolute path unchanged; else CannotStart."""
    if url.startswith("/"):
        return url
    parts = urlsplit(url)
    if parts.scheme != "unix" or parts.netloc or not parts.path.startswith("/"):
        raise CannotStart("the url must be unix:///path/of/the/socket or an absolute path", Cause.BAD_URL)
    return unquote(parts.path)


async def _connect(path: str, seconds: float) -> int:
    with trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connecting:
        try:
            with in_time(f"{path} did not accept a connection", path, seconds):
                await connecting.connect(path)
        except (OSError, ValueError) as error:
            # ValueError and a plain OSError without errno: the path cannot be one (too long, a NUL in it).
            why, number = reason(error), getattr(error, "errno", None)
            cause = _OF_SOCKETS.get(number or 0) or of_errno(number)
            text = f"cannot connect to {path}: {why}"
            raise ConnectionLost(text, cause, place=path, error=why) from None
        fd = connecting.detach()
    os.set_blocking(fd, False)
    return fd
