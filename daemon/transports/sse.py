"""A server behind HTTP with SSE, the transport that streamable HTTP replaced: one stream down, POSTs up.

Why not the SDK's client: it cuts events at 1 MiB and cannot be told otherwise, and its writer ends with the
first POST that fails, after which the connection is silent for good. Here an event has the connection's own
limit, and a failed POST costs its request. An event over the limit ends the connection: the reader cannot skip
one. Redirects are followed within the origin, as in `http`; the stream names where to POST, which must be the
url's own origin too, because our headers go there.
"""

from __future__ import annotations

import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self
from urllib.parse import urljoin

import httpx2
import trio

# Private, but it is what the SDK's own transports stand on, and the SDK is pinned to its minor version.
from mcp.shared._httpx_utils import stream_within_origin
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCRequest, jsonrpc_message_adapter
from pydantic import ValidationError

from daemon.errors import ConnectionLost, ProtocolFault, RunError, leaf
from daemon.transports.failures import Kind, of_error, of_status
from daemon.transports.http import NO_LIMITS, client_for
from daemon.transports.network import host_and_port, place_of, refused
from daemon.transports.sdk import SdkConnection
from daemon.wire.envelope import INTERNAL_ERROR
from daemon.wire.malformed import id_answered, with_whole_characters

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from daemon.ports import ConnectionEvents
    from daemon.transports.context import OpenContext

NOTE_SECONDS = 10.0
"""For the POST of a notification or an answer: they keep their order, so what follows waits."""

ABANDONED_SECONDS = 5.0
"""For the rest of a POST whose answer nobody waits for any more."""

BUFFERED = 16
"""Messages read ahead of their reader."""

_STREAM_HEADERS = {"accept": "text/event-stream", "cache-control": "no-store"}
_POST_HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@asynccontextmanager
async def open_connection(context: OpenContext) -> AsyncIterator[SdkConnection]:
    """Open the stream and learn where to POST; close it on the way out.

    Raises:
        CannotStart: the url is wrong, or the server's certificate is not trusted.
        NeedsAuth: the server answered 401 or 403.
        ConnectionLost: it could not be reached just now, or its stream is none.
    """
    server = context.server
    url = server.url or ""
    place = place_of(*host_and_port(url, "http", "https"))
    connection = SdkConnection(context, place=place)
    tls = await trio.to_thread.run_sync(ssl.create_default_context)
    wire = httpx2.AsyncHTTPTransport(verify=tls, trust_env=False, limits=NO_LIMITS)
    try:
        async with client_for(server, wire) as client, trio.open_nursery() as nursery:
            streams = _Streams(client, connection, context.events, nursery, place)
            connection.on_abandon = streams.abandon
            try:
                with trio.fail_after(server.timeouts.connect):
                    await nursery.start(streams.read, url, server.limits.message_bytes)
            except trio.TooSlowError:
                text = f"{place} did not open its stream within {server.timeouts.connect:g} s"
                raise ConnectionLost(text) from None
            async with connection.over((streams.received, streams)):
                yield connection
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise leaf(group) from None


class _Streams:
    """Both directions of the transport; itself the SDK's stream to write to."""

    def __init__(
        self,
        client: httpx2.AsyncClient,
        connection: SdkConnection,
        events: ConnectionEvents,
        nursery: trio.Nursery,
        place: str,
    ) -> None:
        self._client = client
        self._connection = connection
        self._events = events
        self._nursery = nursery
        self._place = place
        self._endpoint: str | None = None
        self._posts: dict[int | str, trio.CancelScope] = {}
        self._inbox, self.received = trio.open_memory_channel[SessionMessage | Exception](BUFFERED)

    async def read(self, url: str, limit: int, *, task_status: trio.TaskStatus[None]) -> None:
        """Read the stream to its end; started once the endpoint is known."""
        try:
            async with stream_within_origin(self._client, "GET", url, headers=_STREAM_HEADERS) as response:
                if not response.is_success:
                    raise _refusal(response, self._place)
                async for event in httpx2.EventSource(response, max_event_size=limit):
                    self._connection.heard()
                    if event.event == "endpoint" and self._endpoint is None:
                        self._endpoint = _same_origin(url, event.data)
                        task_status.started()
                    elif event.event == "message" and event.data:
                        await self._deliver(event.data)
            end = ConnectionLost(f"{self._place} ended its stream")
        except httpx2.TransportError as error:
            if self._endpoint is None:
                raise of_error(error, self._place).for_run() from None
            end = ConnectionLost(of_error(error, self._place).text)
        if self._endpoint is None:
            raise end
        self._connection.end(end)
        self._inbox.close()

    async def _deliver(self, data: str) -> None:
        try:
            message = jsonrpc_message_adapter.validate_json(data, by_name=False)
        except ValidationError as error:
            await self._take_bad(data.encode(), f"not JSON-RPC: {error.error_count()} faults")
        else:
            await self._inbox.send(SessionMessage(message))

    async def _take_bad(self, data: bytes, problem: str) -> None:
        """What is no message: mended if that can be, else an end for whoever waits for it."""
        mended, key = with_whole_characters(data), id_answered(data)
        if mended is not None:
            await self._deliver(mended.decode())
        elif key.isdigit():
            await self._refuse(int(key), f"{self._place} has answered, but {problem}. The call may have run.")
        else:
            self._events.on_noise(data, problem)

    async def send(self, item: SessionMessage) -> None:
        """POST a message. Requests go side by side: some servers answer the POST only when all is done."""
        message = item.message
        body = message.model_dump_json(by_alias=True, exclude_unset=True)
        if isinstance(message, JSONRPCRequest):
            self._nursery.start_soon(self._post_request, message.id, body)
        else:
            with trio.move_on_after(NOTE_SECONDS):
                await self._post(None, body)

    def abandon(self, key: int) -> None:
        """Nobody waits for this request's answer."""
        if (scope := self._posts.get(key)) is not None:
            scope.deadline = trio.current_time() + ABANDONED_SECONDS

    async def _post_request(self, request_id: int | str, body: str) -> None:
        with trio.CancelScope() as scope:
            self._posts[request_id] = scope
            try:
                await self._post(request_id, body)
            finally:
                del self._posts[request_id]

    async def _post(self, request_id: int | str | None, body: str) -> None:
        key = request_id if isinstance(request_id, int) else None
        assert self._endpoint is not None
        try:
            async with stream_within_origin(
                self._client, "POST", self._endpoint, headers=_POST_HEADERS, content=body
            ) as response:
                self._connection.heard()
        except httpx2.TransportError as error:
            self._connection.failed(key, of_error(error, self._place))
            return
        if response.is_success:
            return
        failure = of_status(response, b"", self._place, in_session=True)
        if failure is not None:
            self._connection.failed(key, failure)
        if key is not None and (failure is None or failure.kind is Kind.FORBIDDEN):
            await self._refuse(key, f"{self._place} answered HTTP {response.status_code}")

    async def _refuse(self, key: int, message: str) -> None:
        """The stream will bring no answer to this request: bring it one."""
        error = ErrorData(code=INTERNAL_ERROR, message=message)
        await self._inbox.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=key, error=error)))

    async def aclose(self) -> None:
        """The client and the nursery are closed by whoever opened them."""
        await trio.lowlevel.checkpoint()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()


def _refusal(response: httpx2.Response, place: str) -> RunError:
    """Why there is no stream; a server that has no time says when it will."""
    failure = of_status(response, b"", place, in_session=False)
    busy = failure is not None and failure.kind is Kind.BUSY
    return failure.for_run() if failure is not None and busy else refused(response.status_code, place)


def _same_origin(url: str, endpoint: str) -> str:
    """The endpoint, absolute. Our headers may hold credentials, and they are this origin's.

    Raises:
        ProtocolFault: it is on another origin.
    """
    here, there = httpx2.URL(url), httpx2.URL(urljoin(url, endpoint))
    if (here.scheme, here.host, here.port) != (there.scheme, there.host, there.port):
        raise ProtocolFault(f"the stream wants messages sent to another origin: {there.scheme}://{there.host}")
    return str(there)
