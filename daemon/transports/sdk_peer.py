"""JSON-RPC over a pair of the SDK's streams: raw dictionaries, notifications in order.

The dispatcher spawns a task for each notification unless its intercept takes it; ours takes every one. What we
send as a notification is put in a queue, because nobody who notifies can wait, and goes out before any request
that is made later: a server must not see `tools/list` before `notifications/initialized`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import trio
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST, METHOD_NOT_FOUND

from daemon.transports.failures import Failure, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mcp.client._transport import TransportStreams
    from mcp.shared.dispatcher import CallOptions, DispatchContext
    from mcp.shared.transport_context import TransportContext

    from daemon.transports.sdk_era import Dialect

    OnNotification = Callable[[str, Mapping[str, Any] | None], None]

MAX_NOTES = 1000
"""Notifications waiting to be sent; they are handshakes and cancellations, so the oldest can go."""

BROKEN_TEXTS = ("Connection closed", "SSE stream ended", "SSE stream failed")
"""How the SDK says, as an error response of its own making (-32000), that there will be no answer."""


class SdkPeer:
    """The server, as far as the protocol goes. Sends nothing by itself."""

    def __init__(self, streams: TransportStreams, dialect: Dialect, on_notification: OnNotification) -> None:
        """Attach.

        Args:
            streams: of a transport that somebody else opens and closes.
            dialect: what the era wants on each message.
            on_notification: called synchronously with each one, in order.
        """
        self._dispatcher: JSONRPCDispatcher[TransportContext] = JSONRPCDispatcher(*streams)
        self._dialect = dialect
        self._on_notification = on_notification
        self._notes: deque[tuple[str, dict[str, Any]]] = deque(maxlen=MAX_NOTES)
        self._noted = trio.Event()
        self._in_order = trio.Lock()

    async def receive(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Receive until the server's stream ends. Started once requests can be made."""
        await self._dispatcher.run(self._on_request, _on_notify, self._intercept, task_status=task_status)

    async def send_notes(self) -> None:
        """Send what is queued, for ever."""
        while True:
            await self._noted.wait()
            self._noted = trio.Event()
            await self._flush_notes()

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Queue a notification."""
        self._notes.append((method, self._dialect.stamp(params)))
        self._noted.set()

    async def ask(self, key: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Ask under an id of ours, which doubles as progress token.

        Whoever gives up tells the server itself, by `notify`: the SDK's own way of doing so may take 5 s.

        Raises:
            MCPError: the server's error, or the SDK's word that there will be no answer.
        """
        await self._flush_notes()
        params = self._dialect.stamp(params)
        headers = self._dialect.headers(method, params)
        options: CallOptions = {"request_id": key, "headers": headers, "cancel_on_abandon": False}
        return await self._dispatcher.send_raw_request(method, params, options)

    async def _flush_notes(self) -> None:
        async with self._in_order:
            while self._notes:
                method, params = self._notes.popleft()
                headers = self._dialect.headers(method, params)
                await self._dispatcher.notify(method, params or None, {"headers": headers})

    def _intercept(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """True: no task is spawned for it."""
        self._on_notification(method, params)
        return True

    async def _on_request(
        self, context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Answer what a server may ask of us: `ping`; the rest was not declared, and is refused politely."""
        if method == "ping":
            return {}
        text = f"Method not found: mcpd declares no client capabilities and does not serve {method}"
        raise MCPError(METHOD_NOT_FOUND, text)


async def _on_notify(*_: object) -> None:
    """Never called: the intercept takes them all."""


def failure_in(error: MCPError, place: str, *, in_session: bool) -> Failure | None:
    """What the SDK or a sloppy server says by an error response without meaning one; None: it is one."""
    if error.code == CONNECTION_CLOSED and error.message.startswith(BROKEN_TEXTS):
        kind = Kind.TOO_LARGE if "byte limit" in error.message else Kind.BROKEN
        return Failure(kind, f"{place}: {error.message}")
    if in_session and error.code == INVALID_REQUEST and "session" in error.message.lower():
        return Failure(Kind.SESSION_OVER, f"the server ended the session ({error.message})")
    return None
