"""Lists the scripts as a server inside the daemon; the session of the calling client runs them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import trio

from daemon import protocol
from daemon.errors import ScriptToRun
from daemon.upstreams.transports.server_connection import OpenContext
from daemon.wire.requests import GivenUp


@asynccontextmanager
async def open_connection(context: OpenContext) -> AsyncIterator[ScriptConnection]:
    """Connect to the scripts in the form in which they were last read."""
    yield ScriptConnection(context)


class ScriptConnection:
    """A `ports.UpstreamConnection` to scripts, which is always alive and has no call in flight."""

    last_heard, in_flight, given_up = float("inf"), 0, GivenUp()
    adopt = notify = cancel = expire = staticmethod(lambda *_, **__: ())
    wait_answered, run = staticmethod(trio.lowlevel.checkpoint), staticmethod(trio.sleep_forever)

    def __init__(self, context: OpenContext) -> None:
        tools = [msgspec.Raw(definition) for _, definition in context.server.scripts.values()]
        hello = {"protocolVersion": protocol.HANDSHAKE_VERSIONS[-1], "serverInfo": protocol.IDENTITY}
        self._answers = {"initialize": {**hello, "capabilities": {"tools": {}}}, "tools/list": {"tools": tools}}

    async def request(self, method: str, *_: object, **__: object) -> bytes:
        """Answer a request of the daemon itself."""
        return msgspec.json.encode(self._answers.get(method, {}))

    def call(self, *_: object) -> int:
        """Raise ScriptToRun: the caller's session runs a script, whose calls belong to the session."""
        raise ScriptToRun("only a client's session can run this script. Nothing was run.")
