"""HTTP to servers that strangers name: answers are bounded, and connections go to checked addresses.

Names are resolved here alone, as a second lookup could give another address.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import cast

import attrs
import httpx2
import trio

from daemon.protocol import IDENTITY

CONNECT_SECONDS = 10.0
"""Seconds for a connection to one address of a host."""

MAX_ADDRESSES = 4
"""Most addresses tried of a host: the first of each family, and some in reserve."""


@attrs.frozen(eq=False, kw_only=True)
class CheckedTransport(httpx2.AsyncBaseTransport):
    """Sends only requests that pass its checks, which raise, and accepts only answers within limits."""

    inner: httpx2.AsyncBaseTransport
    check_url: Callable[[httpx2.URL], None]
    check_addresses: Callable[[str, list[str]], None]
    """Gets a host and all of its addresses."""
    most: int
    """Most bytes of an answer."""
    seconds: float
    """Seconds for a whole answer: a server that drips bytes never meets a timeout of the client's."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request to one of its host's addresses."""
        self.check_url(request.url)
        request.headers["accept-encoding"] = "identity"
        request.headers.setdefault("user-agent", "{name}/{version}".format(**IDENTITY))
        until = trio.current_time() + self.seconds
        with trio.move_on_at(until) as waiting:
            response = await self._first_reachable(request)
        if waiting.cancelled_caught:
            raise _too_slow(self.seconds, request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.DecodingError("the answer is compressed, which mcpd did not allow", request=request)
        size = 0

        def check(chunk: bytes) -> None:
            nonlocal size
            size += len(chunk)
            if size > self.most:
                raise httpx2.ReadError(f"the answer has more than {self.most:,} bytes", request=request)
            if trio.current_time() > until:
                raise _too_slow(self.seconds, request)

        watch(response, check)
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self.inner.aclose()

    async def _first_reachable(self, request: httpx2.Request) -> httpx2.Response:
        host = request.url.raw_host.decode("ascii")
        try:
            found = await trio.socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpx2.ConnectError(f"{host} cannot be found: {error}", request=request) from error
        addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
        self.check_addresses(host, addresses)
        failure: httpx2.TransportError = httpx2.ConnectError(f"{host} has no address", request=request)
        for address in addresses[:MAX_ADDRESSES]:
            sent = httpx2.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
            try:
                return await self.inner.handle_async_request(sent)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error
        raise failure


def _too_slow(seconds: float, request: httpx2.Request) -> httpx2.ReadTimeout:
    return httpx2.ReadTimeout(f"no whole answer within {seconds:g} s", request=request)


def watch(response: httpx2.Response, on_chunk: Callable[[bytes], None]) -> None:
    """Call `on_chunk` with each chunk of a response's body as it arrives."""
    response.stream = _WatchedStream(cast("httpx2.AsyncByteStream", response.stream), on_chunk)


@attrs.frozen(eq=False)
class _WatchedStream(httpx2.AsyncByteStream):
    inner: httpx2.AsyncByteStream
    on_chunk: Callable[[bytes], None]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        # The library's are generators, which must be closed where they are left.
        async with aclosing(cast("AsyncGenerator[bytes]", aiter(self.inner))) as chunks:
            async for chunk in chunks:
                self.on_chunk(chunk)
                yield chunk

    async def aclose(self) -> None:
        await self.inner.aclose()
