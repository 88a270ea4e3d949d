"""`mcpd call`: a tool's result, undecoded, or the error that a model would be given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio
from msgspec import Raw

from daemon.catalog.kinds import switch_of
from daemon.clients.call import read_refusal
from daemon.errors import (
    CallError,
    InvalidArguments,
    ToolDisabled,
    UnknownServer,
    UnknownTool,
    UpstreamUnavailable,
)
from daemon.model import Kind
from daemon.operators.base import Command
from daemon.ports import OwnCall
from daemon.protocol import CALL_TOOL, tool_params
from daemon.surfaces.answers import choices, error_result
from daemon.wire.envelope import INVALID_REQUEST
from daemon.wire.requests import NO_CLIENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.operators.base import OperatorContext
    from daemon.ports import CallToSend, Upstream
    from daemon.wire.envelope import Buffer
    from daemon.wire.peer_requests import PeerRequest


class OperatorCallParams(msgspec.Struct):
    """A tool, by its server's own name for it, and its arguments: a JSON object."""

    server: str
    tool: str
    arguments: Raw = Raw(b"{}")


async def call(context: OperatorContext, params: OperatorCallParams) -> Raw:
    """Call a tool and wait for its result; the call is cancelled if the operator disconnects."""
    try:
        upstream = _callable(context, params)
        outcome = _Outcome(context.redact.of(params.server))
        started = trio.current_time()
        own = OwnCall(method=CALL_TOOL, params=tool_params(params.tool, params.arguments))
        key = await _send(upstream, own, outcome)
    except CallError as error:
        return Raw(error_result(error))
    context.outbox.flush()
    try:
        return Raw(await outcome.wait())
    finally:
        upstream.cancel(key, "the operator went away")
        upstream.record(trio.current_time() - started, ok=outcome.ok)


CALL = Command("call", OperatorCallParams, call)


def _callable(context: OperatorContext, params: OperatorCallParams) -> Upstream:
    """The server of a tool that a model could call, too: listed and not switched off."""
    server, tool, catalog = params.server, params.tool, context.catalog
    upstream = context.upstreams.get(server)
    if upstream is None:
        raise context.unknown(server)
    if not bytes(params.arguments).startswith(b"{"):
        raise InvalidArguments("the arguments of a tool are a JSON object")
    entry = catalog.servers.get(server)
    if entry is None:
        # A new configuration leaves the server out, and its child is being stopped.
        raise UnknownServer(f"server {server} is no longer in mcpd's configuration", server=server)
    known = entry.tools
    if known is not None and tool not in known:
        raise UnknownTool(f"server {server} has no tool {tool!r}. {choices(known, tool)}", tool=tool)
    if (server, tool) in catalog.switched_tools:
        name = f"{server}/{switch_of(Kind.TOOL, tool)}"
        text = f"{tool} is switched off by an operator; `mcpd enable {name}` switches it on again"
        raise ToolDisabled(text, tool=tool)
    if (server, tool) in catalog.off:
        raise ToolDisabled(f"{tool} is switched off in mcpd's configuration", tool=tool)
    return upstream


async def _send(upstream: Upstream, wanted: CallToSend, outcome: _Outcome) -> int:
    try:
        return upstream.send(wanted, outcome)
    except UpstreamUnavailable:
        if not upstream.can_wake:
            raise
    await upstream.wake()
    return upstream.send(wanted, outcome)


class _Outcome:
    """The exchange of an operator's call, whose task waits for the outcome."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._done = trio.Event()
        self._result = b""
        self.ok = False

    async def wait(self) -> bytes:
        await self._done.wait()
        return self._result

    def answered(self, result: Buffer) -> None:
        self._result = bytes(result)
        self.ok = True
        self._done.set()

    def refused(self, error: Buffer) -> None:
        self.lost(read_refusal(error, self._redact))

    def lost(self, error: CallError) -> None:
        self._result = error_result(error)
        self._done.set()

    def progressed(self, params: dict[str, Raw]) -> None:
        """Do nothing: an operator's call asks for no progress."""

    def asked(self, request: PeerRequest) -> None:
        """Refuse: nobody is at this end who could be asked."""
        request.refuse(INVALID_REQUEST, NO_CLIENT)

    @property
    def asker(self) -> object:
        """The call itself: operators are no clients."""
        return self
