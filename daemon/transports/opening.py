"""From a server's `type` to the module that opens it, loaded when first needed.

The SDK behind `http` and `sse` takes 0.6 s and 63 MiB to import: a daemon without such servers never pays,
one with them pays in a worker thread while everything else goes on.
"""

from __future__ import annotations

import importlib
import threading
from typing import TYPE_CHECKING, Any

import trio

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from types import ModuleType

    from daemon.ports import UpstreamConnection
    from daemon.transports.context import OpenContext

MODULES = {kind: f"daemon.transports.{kind}" for kind in ("stdio", "http", "sse", "ws", "unix")}
"""Each has `open_connection(context)`, an async context manager that yields a `ports.UpstreamConnection`."""


_one_at_a_time = threading.Lock()


def load(name: str) -> ModuleType:
    """Import in this thread, alone: two that meet in the SDK's circular imports would deadlock each other."""
    with _one_at_a_time:
        return importlib.import_module(name)


async def connector(context: OpenContext) -> AbstractAsyncContextManager[UpstreamConnection]:
    """The context manager that connects to a server; nothing is opened yet."""
    name = MODULES[context.server.type]
    module: Any = await trio.to_thread.run_sync(load, name)
    opened: AbstractAsyncContextManager[UpstreamConnection] = module.open_connection(context)
    return opened
