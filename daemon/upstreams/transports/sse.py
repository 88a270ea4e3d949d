"""Connects to a server over HTTP with SSE, the transport before streamable HTTP: one stream down, POSTs up.

The connection ends with the stream, also at an event over the limit, since the reader cannot skip it. The
stream names the target of POSTs, which must have the url's own origin, because mcpd's headers go there.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

import httpx2

from daemon.causes import Cause
from daemon.errors import ConnectionLost, ProtocolFault, RunError
from daemon.upstreams.transports import http_client
from daemon.upstreams.transports.failures import of_error, of_status
from daemon.upstreams.transports.network import host_and_port, in_time, place_of, refused
from daemon.upstreams.transports.posting import Post, PostConnection, PostLink
from daemon.upstreams.transports.server_connection import OpenContext


@asynccontextmanager
async def open_connection(context: OpenContext) -> AsyncIterator[PostConnection]:
    """Open the stream and learn the target of POSTs; close it on exit.

    Raises CannotStart: the url is wrong, or the server's certificate is not trusted; NeedsAuth: 401 or 403;
    ProtocolFault: the endpoint is on another origin, or no url; ConnectionLost: no connection, or no stream.
    """
    server = context.server
    place = place_of(*host_and_port(server.url or "", "http", "https"))
    tls = await http_client.trusted_certificates()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(http_client.client_for(server, tls))
        login = http_client.ServerLogin(context, place)
        await login.begin()
        link = SseLink(client, context, login)
        try:
            with in_time(f"{place} did not open its stream", place, server.timeouts.connect):
                await link.open(stack)
        except http_client.NETWORK_ERRORS as error:
            raise of_error(error, place).for_run() from None
        yield PostConnection(link, context)


class SseLink(PostLink):
    """A link that receives all answers in one stream of events."""

    async def open(self, stack: AsyncExitStack) -> None:
        """Open the stream, to be closed with `stack`, and read until it names the endpoint."""
        url = httpx2.URL(self._context.server.url or "")
        opening = self.exchange("GET", str(url), http_client.STREAM_HEADERS)
        response = await stack.enter_async_context(opening)
        if not response.is_success:
            failure = await self.login.refusal(response, self.client) or of_status(response, self.place)
            raise refused(response.status_code, self.place) if failure is None else failure.for_run()
        limit = self._context.server.limits.message_bytes
        self._events: AsyncGenerator[httpx2.ServerSentEvent] = await stack.enter_async_context(
            aclosing(http_client.events_of(response, limit))
        )
        async for event in self._events:
            if event.event == "endpoint":
                self.url = _endpoint(url, event.data)
                return
        raise self._ended()

    async def receive(self, response: httpx2.Response, post: Post) -> None:
        """Do nothing: a POST is only acknowledged, and the stream brings its answer."""

    async def listen(self) -> None:
        """Read the stream until it ends, which ends the connection."""
        end: RunError = self._ended()
        try:
            async for event in self._events:
                if event.event == "message" and event.data:
                    await self.deliver(event.data.encode())
        except httpx2.SSEError as error:
            text = of_error(error, self.place).text
            end = ConnectionLost(text, Cause.MESSAGE_TOO_LARGE, place=self.place)
        except http_client.NETWORK_ERRORS as error:
            end = of_error(error, self.place).for_run()
        self.state.end_with(end)

    async def session_over(self, response: httpx2.Response, body: bytes, post: Post) -> bool:
        """Whether the session's endpoint no longer exists."""
        return response.status_code in {httpx2.codes.NOT_FOUND, httpx2.codes.GONE}

    def _ended(self) -> ConnectionLost:
        return ConnectionLost(f"{self.place} ended its stream", Cause.CONNECTION_LOST, place=self.place)


def _endpoint(url: httpx2.URL, named: str) -> str:
    try:
        endpoint = url.join(named)
    except httpx2.InvalidURL:
        raise ProtocolFault("the stream names an endpoint that is not a url", Cause.NOT_MCP) from None
    if not http_client.same_origin(url, endpoint):
        origin = f"{endpoint.scheme}://{endpoint.host}"
        text = f"the stream wants messages sent to another origin: {origin}"
        raise ProtocolFault(text, Cause.OTHER_ORIGIN, origin=origin)
    return str(endpoint)
