"""An operator's connection: `mcpd status`, `tools`, `call`, `reload`, over JSON-RPC on a socket of its own.

Reads are answered from the catalog; what waits for a server runs in this connection's nursery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Protocol, TypeVar

import attrs
import msgspec
import trio
from loguru import logger
from msgspec import Raw

from daemon.clients.call import read_refusal
from daemon.closest import closest
from daemon.config.model import DEFAULT_PROFILE
from daemon.errors import (
    CallError,
    ConfigError,
    ConnectionLost,
    InvalidArguments,
    McpdError,
    ProtocolFault,
    UnknownServer,
    UpstreamUnavailable,
    leaf,
)
from daemon.measures import STDERR_LINES
from daemon.ports import CallToSend, OwnCall
from daemon.protocol import CALL_TOOL, tool_params
from daemon.report import Wish
from daemon.surfaces.answers import error_result
from daemon.transports.children import memory_by_mark
from daemon.wire import envelope
from daemon.wire.peer import Peer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from daemon.ports import Upstream
    from daemon.report import Reporter
    from daemon.supervision.supervisor import Child
    from daemon.wire.envelope import BadMessage, Buffer
    from daemon.wire.outbox import Link, Outbox

T = TypeVar("T")

MAX_REQUESTS = 64
"""Requests of one operator in progress; a command makes one."""

IDLE_SECONDS = 30.0
"""Seconds without a question, and without one that is being answered, after which a connection is closed, or at
most as long again: commands ask at once, and there are few places for them."""

MAX_FAULTS = 100
"""Malformed messages after which an operator is cut off, as clients are."""

MAX_FOUND = 1000
"""Most tools in the answer to `search`."""

CONFIG_FAULT = -32078
"""JSON-RPC error of `reload`: the configuration is faulty (78 is EX_CONFIG); `data` has all faults."""

RESTART_SECONDS = 5.0
"""How long the answer to `restart` waits for the outcome; the restart goes on without it."""


@attrs.frozen(kw_only=True)
class Operations:
    """What operators may do."""

    reporter: Reporter
    """Makes the reports."""
    upstreams: Mapping[str, Upstream]
    """Running servers by name."""
    children: Mapping[str, Child]
    """The same, as the supervisor knows them."""
    outbox: Outbox
    """The daemon's outbox."""
    reload: Callable[[], Awaitable[object]] | None = None
    """Reads the configuration anew and puts it in force; raises `ConfigError` (`operating.report_reload`)."""
    switch: Switch | None = None
    """Switches a server or a tool off or on (`operating.switch`)."""
    refresh: Callable[[str | None], Awaitable[object]] | None = None
    """Has one server list its tools, or all that are up (`operating.refresh`)."""
    sessions: Callable[[str | None], Awaitable[object]] | None = None
    """Reports all sessions, or the one with this key."""
    move: Callable[[str, str], Awaitable[object]] | None = None
    """Gives the session with this key another profile (`clients.moving`)."""
    metrics: Callable[[], Awaitable[object]] | None = None
    """Reports what was counted."""


class Switch(Protocol):
    """`operating.switch`."""

    async def __call__(self, reference: str, *, off: bool) -> object:
        """Switch what is named."""


class _ToolParams(msgspec.Struct):
    category: str | None = None
    profile: str = DEFAULT_PROFILE
    surface: str | None = None


class _SearchParams(msgspec.Struct):
    queries: list[str]
    category: str | None = None
    limit: int = 20
    profile: str = DEFAULT_PROFILE


class _CallParams(msgspec.Struct):
    server: str
    tool: str
    arguments: Raw = Raw(b"{}")


class _ServerParams(msgspec.Struct):
    server: str


class _SwitchParams(msgspec.Struct):
    name: str
    off: bool


class _RefreshParams(msgspec.Struct):
    server: str | None = None


class _LogsParams(msgspec.Struct):
    server: str | None = None
    after: Annotated[int, msgspec.Meta(ge=0)] = 0
    source: str = ""
    last: Annotated[int, msgspec.Meta(ge=1)] = STDERR_LINES


class _SessionsParams(msgspec.Struct):
    key: str | None = None


class _MoveParams(msgspec.Struct):
    key: str
    profile: str


class Control:
    """Serves one operator over one link."""

    def __init__(self, link: Link, operations: Operations) -> None:
        """Attach to a link; `run` does the work."""
        self._operations = operations
        self._peer = Peer(link, operations.outbox, self, strict=True)
        self._spawn: Callable[..., None] | None = None
        self._running = 0
        self._asked = 0
        self._faults = 0

    async def run(self) -> None:
        """Serve until the operator hangs up."""
        try:
            async with trio.open_nursery() as nursery:
                self._spawn = nursery.start_soon
                nursery.start_soon(self._end_when_idle)
                await self._peer.run()
        except BaseExceptionGroup as group:
            raise leaf(group) from None

    async def _end_when_idle(self) -> None:
        asked = -1
        while self._running or asked != self._asked:
            asked = self._asked
            await trio.sleep(IDLE_SECONDS)
        raise ConnectionLost(f"no request for {IDLE_SECONDS:.0f} s")

    def on_request(self, request_id: bytes, method: str, params: Raw | None) -> None:
        """Start on a request; the answer may take a while."""
        self._asked += 1
        serve = _METHODS.get(method)
        if serve is None:
            text = f"Method not found: {method}. There are: {', '.join(_METHODS)}"
            self._peer.refuse(request_id, envelope.METHOD_NOT_FOUND, text)
            return
        if self._running >= MAX_REQUESTS:
            text = f"Overloaded: {MAX_REQUESTS} requests are in progress"
            self._peer.refuse(request_id, envelope.INVALID_REQUEST, text)
            return
        assert self._spawn is not None, "requests come while `run` runs"
        self._running += 1
        self._spawn(self._serve, serve, request_id, params or Raw(b"{}"))

    def on_notification(self, method: str, params: Raw | None) -> None:
        """Operators' commands only ask."""

    def on_lost(self, reason: str) -> None:
        """`run` ends next; nothing to do before."""

    def on_bad_message(self, fault: BadMessage, line: bytes) -> None:
        """Refuse what is no JSON-RPC; keep the connection, but not for ever."""
        self._faults += 1
        self._peer.refuse(fault.request_id, fault.code, fault.message)
        if self._faults >= MAX_FAULTS:
            self._operations.outbox.flush()
            raise ProtocolFault(f"{self._faults} malformed messages")

    async def _serve(
        self, serve: Callable[[Control, Raw], Awaitable[Buffer]], request_id: bytes, params: Raw
    ) -> None:
        try:
            self._peer.answer(request_id, await serve(self, params))
        except ConfigError as error:
            faults = [{"path": fault.path, "message": fault.message} for fault in error.faults]
            data = {"source": error.source, "faults": faults}
            self._peer.refuse(request_id, CONFIG_FAULT, str(error), data)
        except (msgspec.MsgspecError, McpdError) as error:
            self._peer.refuse(request_id, envelope.INVALID_PARAMS, str(error))
        except Exception as error:  # noqa: BLE001 - a bug of ours costs this answer, not the connection
            logger.exception("a fault of mcpd's own while serving an operator")
            self._peer.refuse(request_id, envelope.INTERNAL_ERROR, f"{type(error).__name__}: {error}")
        finally:
            self._running -= 1
        self._operations.outbox.flush()

    async def _status(self, params: Raw) -> bytes:
        memory = await trio.to_thread.run_sync(memory_by_mark)
        return msgspec.json.encode(self._operations.reporter.status(memory))

    async def _tools(self, params: Raw) -> bytes:
        asked = msgspec.json.decode(params, type=_ToolParams)
        wish = Wish(profile=asked.profile, surface=asked.surface)
        return msgspec.json.encode(self._operations.reporter.tools(asked.category, wish))

    async def _search(self, params: Raw) -> bytes:
        asked = msgspec.json.decode(params, type=_SearchParams)
        wish = Wish(profile=asked.profile)
        limit = max(1, min(asked.limit, MAX_FOUND))
        return msgspec.json.encode(self._operations.reporter.search(asked.queries, asked.category, limit, wish))

    async def _call(self, params: Raw) -> Buffer:
        asked = msgspec.json.decode(params, type=_CallParams)
        upstream = self._operations.upstreams.get(asked.server)
        if upstream is None:
            return error_result(self._unknown(asked.server))
        if not bytes(asked.arguments).startswith(b"{"):
            return error_result(InvalidArguments("the arguments of a tool are a JSON object"))
        refusal = self._operations.reporter.refusal(asked.server, asked.tool)
        if refusal is not None:
            return error_result(refusal)
        call = OwnCall(method=CALL_TOOL, params=tool_params(asked.tool, asked.arguments))
        outcome = _Outcome(self._operations.reporter.redact.of(asked.server))
        started = trio.current_time()
        try:
            key = await _send(upstream, call, outcome)
        except CallError as error:
            return error_result(error)
        self._operations.outbox.flush()
        try:
            return await outcome.wait()
        finally:
            upstream.cancel(key, "the operator went away")
            upstream.record(trio.current_time() - started, ok=outcome.ok)

    async def _restart(self, params: Raw) -> bytes:
        name = msgspec.json.decode(params, type=_ServerParams).server
        child = self._operations.children.get(name)
        if child is None:
            raise self._unknown(name)
        if child.off:
            raise InvalidArguments(f"server {name} is {child.off}")
        child.restart()
        with trio.move_on_after(RESTART_SECONDS):
            await child.wait_settled()
        status = child.status.value
        return msgspec.json.encode({"server": name, "state": str(status.state), "reason": status.reason})

    async def _reload(self, params: Raw) -> bytes:
        return msgspec.json.encode(await _offered(self._operations.reload)())

    async def _switch(self, params: Raw) -> bytes:
        asked = msgspec.json.decode(params, type=_SwitchParams)
        return msgspec.json.encode(await _offered(self._operations.switch)(asked.name, off=asked.off))

    async def _refresh(self, params: Raw) -> bytes:
        asked = msgspec.json.decode(params, type=_RefreshParams)
        return msgspec.json.encode(await _offered(self._operations.refresh)(asked.server))

    async def _sessions(self, params: Raw) -> bytes:
        asked = msgspec.json.decode(params, type=_SessionsParams)
        return msgspec.json.encode(await _offered(self._operations.sessions)(asked.key))

    async def _move(self, params: Raw) -> bytes:
        asked = msgspec.json.decode(params, type=_MoveParams)
        return msgspec.json.encode(await _offered(self._operations.move)(asked.key, asked.profile))

    async def _logs(self, params: Raw) -> bytes:
        """The stderr of one server from a line on, or how much of it is kept of each."""
        asked = msgspec.json.decode(params, type=_LogsParams)
        reporter = self._operations.reporter
        if asked.server is None:
            kept = {name: {"lines": len(seen.stderr)} for name, seen in reporter.upstreams.items()}
            return msgspec.json.encode({"servers": kept})
        if asked.server not in reporter.upstreams:
            raise self._unknown(asked.server)
        page = reporter.stderr(asked.server, asked.after, asked.source, asked.last)
        # Up to 64 KiB, 20 ms of pattern matching that calls need not wait for.
        redact = reporter.redact.of(asked.server)
        page["lines"] = await trio.to_thread.run_sync(_redacted, page["lines"], redact)
        return msgspec.json.encode(page)

    async def _metrics(self, params: Raw) -> bytes:
        return msgspec.json.encode(await _offered(self._operations.metrics)())

    def _unknown(self, name: str) -> UnknownServer:
        known = list(self._operations.upstreams)
        if name in self._operations.reporter.config().mcp_servers:
            return UnknownServer(f'server {name} is switched off in the configuration ("enabled": false)')
        close = closest(name, known, 1)
        hint = f"Did you mean {close[0]}?" if close else f"There are: {', '.join(known)}."
        return UnknownServer(f"no server is named {name!r}. {hint}")


_METHODS: dict[str, Callable[[Control, Raw], Awaitable[Buffer]]] = {
    "status": Control._status,  # noqa: SLF001
    "tools": Control._tools,  # noqa: SLF001
    "search": Control._search,  # noqa: SLF001
    "call": Control._call,  # noqa: SLF001
    "restart": Control._restart,  # noqa: SLF001
    "reload": Control._reload,  # noqa: SLF001
    "switch": Control._switch,  # noqa: SLF001
    "refresh": Control._refresh,  # noqa: SLF001
    "sessions": Control._sessions,  # noqa: SLF001
    "move": Control._move,  # noqa: SLF001
    "metrics": Control._metrics,  # noqa: SLF001
    "logs": Control._logs,  # noqa: SLF001
}


def _offered(operation: T | None) -> T:
    if operation is None:
        raise InvalidArguments("this daemon does not offer that")
    return operation


def _redacted(lines: Sequence[tuple[int, str]], redact: Callable[[str], str]) -> list[dict[str, object]]:
    return [{"n": number, "text": redact(text)} for number, text in lines]


async def _send(upstream: Upstream, call: CallToSend, outcome: _Outcome) -> int:
    try:
        return upstream.send(call, outcome)
    except UpstreamUnavailable:
        if not upstream.can_wake:
            raise
    await upstream.wake()
    return upstream.send(call, outcome)


class _Outcome:
    """The exchange of an operator's call: waited for by its task."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._done = trio.Event()
        self._result: Buffer = b""
        self.ok = False

    async def wait(self) -> Buffer:
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
        """An operator's call asks for no progress."""
