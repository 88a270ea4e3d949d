"""An MCP connection over a transport of the SDK's kind: streamable HTTP and SSE share this edge.

From the SDK come transports and a dispatcher of raw dictionaries (`sdk_peer`), not its typed sessions: a proxy
must pass on what it does not know. A call is a task here: over HTTP it is a stream of its own anyway.

What ends the connection (`failed`); everything else costs only the request that met it:
- 401, a certificate that does not verify, the end of the session: whatever was asked. The supervisor starts
  anew, in the last case with a new session.
- No connection could be made, 403, 429, 502, 503, 504: when we asked on our own account (handshake, listing,
  ping, subscription). Of a call, only `UNREACHABLE_CALLS` in a row without a sign of life between them.

A server that says when to come back (Retry-After) gets no call and no ping before.

A request on our own account raises what ended the connection if it met that itself, and `UpstreamLost` if only
its own stream broke or the connection ended around it.
"""

from __future__ import annotations

import math
import warnings
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import msgspec
import trio
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

from daemon.errors import (
    CallError,
    ConnectionLost,
    Overloaded,
    RunError,
    UpstreamLost,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from daemon.transports.failures import Kind
from daemon.transports.sdk_calls import Calls
from daemon.transports.sdk_era import Dialect, call_params
from daemon.transports.sdk_peer import SdkPeer, failure_in
from daemon.wire.requests import RemoteError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from mcp.client._transport import TransportStreams

    from daemon.model import Era
    from daemon.ports import CallToSend
    from daemon.transports.context import OpenContext
    from daemon.transports.failures import Failure
    from daemon.wire.requests import Exchange

# The SDK marks what 2026-07-28 removed; servers of the handshake era still need it from us.
warnings.filterwarnings("ignore", category=MCPDeprecationWarning)

MAX_CALLS = 128
"""Calls in flight: each is a task and an HTTP stream. As many as a server's default limits let through."""

UNREACHABLE_CALLS = 3
"""Calls in a row that could not connect: one may be a restart that is over in a moment, three are an outage."""

NOT_CANCELLED = frozenset({"initialize", "server/discover"})
"""Requests that the specification forbids to cancel."""

_encode = msgspec.json.encode


@attrs.define(eq=False)
class _Asked:
    """A request on our own account that waits for its answer."""

    scope: trio.CancelScope
    failure: Failure | None = None


class SdkConnection:
    """`ports.Connection` over a pair of the SDK's streams, and the `Ward` of a soft transport."""

    def __init__(self, context: OpenContext, *, place: str) -> None:
        """Prepare; `over` brings it to life. `place` is the server's host and port, for texts."""
        self.last_heard = trio.current_time()
        self.on_abandon: Callable[[int], None] = lambda _key: None
        """Told the id of each request that nobody waits for any more."""
        self._place = place
        self._events = context.events
        self._outbox = context.outbox
        self._dialect = Dialect()
        self._calls = Calls()
        self._asked: dict[int, _Asked] = {}
        self._last_key = 0
        self._unreachable = 0
        self._busy_until = -math.inf
        self._end: RunError | None = None
        self._ended = trio.Event()
        self._nursery: trio.Nursery
        self._peer: SdkPeer

    @asynccontextmanager
    async def over(self, streams: TransportStreams) -> AsyncIterator[None]:
        """Live on these streams while the context is open. May raise groups (`errors.leaf`)."""
        self._peer = SdkPeer(streams, self._dialect, self._on_notification)
        async with trio.open_nursery() as self._nursery:
            await self._nursery.start(self._receive)
            self._nursery.start_soon(self._peer.send_notes)
            try:
                yield
            finally:
                self.end(ConnectionLost("the connection was closed"))
                self._nursery.cancel_scope.cancel()

    # --- ports.Connection ----------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Calls without an answer yet. A subscription waits for ever and is no work: it does not count."""
        return len(self._calls)

    def adopt(self, era: Era, version: str) -> None:
        """Speak this era from now on."""
        self._dialect.adopt(era, version)

    async def request(self, method: str, params: dict[str, object], *, timeout: float) -> bytes:  # noqa: ASYNC109 - see ports.Connection
        """Ask, and wait (`ports.Connection.request`).

        Raises:
            RunError: the connection ended of what this request met.
        """
        if self._end is not None:
            raise self._lost_around(self._end)
        key = self._next_key()
        asked = self._asked[key] = _Asked(trio.CancelScope(deadline=trio.current_time() + timeout))
        answered = False
        try:
            with asked.scope:
                result = await self._peer.ask(key, method, dict(params))
                answered = True
                return self._take(method, result)
        except MCPError as error:
            answered = True
            raise self._explain(error) from None
        finally:
            del self._asked[key]
            if not answered and asked.failure is None and method not in NOT_CANCELLED:
                self._give_up(key, "no longer wanted")
        raise self._why_silent(asked, method, timeout)

    def notify(self, method: str, params: dict[str, object] | None = None) -> None:
        """Send a notification, before any request that is made later."""
        if self._end is None:
            self._peer.notify(method, dict(params or {}))

    def call(self, call: CallToSend, exchange: Exchange) -> int:
        """Forward a tool call (`ports.Connection.call`).

        Raises:
            Overloaded: too many are in flight.
            UpstreamUnavailable: the connection has just ended, or the server has no time for us until later.
        """
        if self._end is not None:
            raise UpstreamUnavailable(f"{self._end}. The call was not sent: it is safe to try again.")
        if len(self._calls) >= MAX_CALLS:
            raise Overloaded(f"the server has {MAX_CALLS} calls in flight. Try again when some have ended.")
        if (wait := self._busy_until - trio.current_time()) > 0:
            text = f"{self._place} has asked to be left alone for {math.ceil(wait)} s more (Retry-After)."
            raise UpstreamUnavailable(f"{text} The call was not sent.", retryAfterMs=math.ceil(wait * 1000))
        key = self._next_key()
        self._nursery.start_soon(self._run_call, key, call, self._calls.open(key, exchange))
        return key

    def cancel(self, key: int, reason: str) -> None:
        """Give a call up: its task ends, the server is told."""
        if self._calls.take(key) is not None:
            self._give_up(key, reason)

    def expire(self, *, idle: float, total: float) -> Iterator[tuple[int, Exchange]]:
        """Cancel and yield the calls that took too long."""
        for key in self._calls.overdue(idle=idle, total=total):
            if (exchange := self._calls.take(key)) is not None:
                self._give_up(key, "timed out")
                yield key, exchange

    async def run(self) -> None:
        """Wait for the end."""
        try:
            await self._ended.wait()
            assert self._end is not None
            raise self._end
        finally:
            self.end(ConnectionLost("the connection was closed"))

    # --- softening.Ward ------------------------------------------------------------------------------------

    def heard(self) -> None:
        """The server showed life."""
        # While it wants to be left alone, its silence is not held against it: no ping.
        self.last_heard = max(trio.current_time(), self._busy_until)
        self._unreachable = 0

    def reopened(self) -> None:
        """Notifications may have been missed; only a change of the list is worth asking about."""
        self._events.on_list_changed()

    def failed(self, key: int | None, failure: Failure) -> None:
        """The request `key` gets no answer: tell who waits for it, and see whether this is the end."""
        if failure.wait:
            self._busy_until = max(self._busy_until, trio.current_time() + failure.wait)
            self.last_heard = max(self.last_heard, self._busy_until)
        asked = None if key is None else self._asked.get(key)
        if asked is not None:
            asked.failure = failure
            asked.scope.cancel()
        elif key is not None and failure.kind is not Kind.FORBIDDEN:
            self._calls.lost(key, failure.for_call())
        if self._is_the_end(failure, on_our_account=asked is not None):
            self.end(failure.for_run())
        self._outbox.flush()

    def _is_the_end(self, failure: Failure, *, on_our_account: bool) -> bool:
        if failure.kind in {Kind.UNAUTHORIZED, Kind.UNTRUSTED, Kind.SESSION_OVER}:
            return True
        if failure.kind is Kind.UNREACHABLE:
            self._unreachable += 1
            return on_our_account or self._unreachable >= UNREACHABLE_CALLS
        return on_our_account and failure.kind in {Kind.FORBIDDEN, Kind.BUSY, Kind.GATEWAY}

    # --- tasks, and what they share ------------------------------------------------------------------------

    async def _receive(self, task_status: trio.TaskStatus[None]) -> None:
        await self._peer.receive(task_status=task_status)
        self.end(ConnectionLost(f"{self._place} closed the connection"))

    async def _run_call(self, key: int, call: CallToSend, scope: trio.CancelScope) -> None:
        with scope:
            try:
                result = await self._peer.ask(key, call.method, call_params(call, key))
            except MCPError as error:
                failure = failure_in(error, self._place, in_session=not self._dialect.modern)
                if failure is None:
                    self._calls.refused(key, error.error.model_dump(exclude_unset=True))
                else:
                    self.failed(key, failure)
            except CallError as error:
                self._calls.lost(key, error)
            else:
                self._calls.answered(key, result)
        self._outbox.flush()

    def _take(self, method: str, result: dict[str, Any]) -> bytes:
        raw = _encode(result)
        if method == "tools/list":
            self._dialect.learn(result, raw)
        return raw

    def _on_notification(self, method: str, params: Mapping[str, Any] | None) -> None:
        self.heard()
        if method == "notifications/progress":
            self._calls.progressed(params or {})
        elif method == "notifications/tools/list_changed":
            self._events.on_list_changed()
        elif method == "notifications/message":
            self._events.on_log(_encode(params))
        self._outbox.flush()

    def _give_up(self, key: int, reason: str) -> None:
        """Tell the server; in the modern era the SDK's HTTP transport turns this into closing the stream."""
        self.notify("notifications/cancelled", {"requestId": key, "reason": reason})
        self.on_abandon(key)

    def _explain(self, error: MCPError) -> Exception:
        failure = failure_in(error, self._place, in_session=not self._dialect.modern)
        if failure is None:
            return RemoteError(error.code, error.message)
        if self._is_the_end(failure, on_our_account=True):
            self.end(failure.for_run())
            return failure.for_run()
        return UpstreamLost(failure.text)

    def _why_silent(self, asked: _Asked, method: str, timeout: float) -> Exception:
        if asked.failure is not None:
            return UpstreamLost(asked.failure.text) if self._end is None else self._end
        if self._end is not None:
            return self._lost_around(self._end)
        return UpstreamTimeout(f"no answer to {method} within {timeout:g} s")

    def _lost_around(self, end: RunError) -> Exception:
        return UpstreamLost(str(end)) if isinstance(end, ConnectionLost) else end

    def end(self, end: RunError) -> None:
        """The connection is over; the first reason counts."""
        if self._end is not None:
            return
        self._end = end
        self._events.on_lost(str(end))
        self._ended.set()
        for key in self._calls.keys:
            self._calls.lost(key, UpstreamLost(f"{end}; whether the call ran is unknown"))
        for asked in self._asked.values():
            asked.scope.cancel()
        self._outbox.flush()

    def _next_key(self) -> int:
        self._last_key += 1
        return self._last_key
