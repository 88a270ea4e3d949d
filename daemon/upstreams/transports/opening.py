"""From a server's `type` to the transport module that opens it, loaded when first needed.

A daemon with only stdio servers never loads the libraries behind HTTP and WebSocket; one with others imports
them in a worker thread, so that the event loop is not blocked.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import attrs
import trio

from daemon.causes import Cause
from daemon.config.config_model import TransportType
from daemon.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from daemon.authorization.logins import ServerLogins
    from daemon.config.config_model import Server
    from daemon.ports import ConnectionEvents, UpstreamConnection
    from daemon.processes.children import Children
    from daemon.wire.outbox import Outbox

MODULES = {kind: f"daemon.upstreams.transports.{kind}" for kind in TransportType}
"""Each has `open_connection(context)`, an async context manager that yields a `ports.UpstreamConnection`."""


@attrs.frozen(kw_only=True)
class OpenContext:
    """A server, and the parts of the daemon that a connection to it needs."""

    server: Server
    """The configuration of the server."""
    events: ConnectionEvents
    """The actor that owns the connection, told what happens on it."""
    outbox: Outbox
    """The daemon's outbox."""
    children: Children
    """The daemon's child processes."""
    logins: ServerLogins | None = None
    """The logins at servers; None without any."""
    introduced: Callable[[str], bytes] = lambda _server: b""
    """Returns what a server has said of itself so far, in this life of the daemon or before
    (`catalog.introduction`)."""


async def connector(context: OpenContext) -> AbstractAsyncContextManager[UpstreamConnection]:
    """The context manager that connects to a server; nothing is opened yet.

    Raises:
        RunError: the server's entry in the configuration is faulty.
    """
    if faults := context.server.faults:
        error, variable = str(faults[0]), faults[0].variable
        named = {} if variable is None else {"variable": variable}
        raise RunError("; ".join(map(str, faults)), Cause.CONFIGURATION, error=error, **named)
    module: Any = await trio.to_thread.run_sync(importlib.import_module, MODULES[context.server.type])
    opened: AbstractAsyncContextManager[UpstreamConnection] = module.open_connection(context)
    return opened
