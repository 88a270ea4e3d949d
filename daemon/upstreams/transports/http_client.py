"""The HTTP client for one server: redirects, certificates, bodies and event streams, all within bounds.

Decisions.
- Redirects are followed within the origin (and from http to https on the same host, default ports) where they
  keep the method; any other is an error that names the target. Credentials travel nowhere else.
- No proxy of the environment, no .netrc: a daemon inherits its environment from whatever started it, and a
  variable that nobody thought of must not send our headers, or calls to loopback, to somebody else.
- No time limit on reading: a call's limits are the connection's (`expire`), a stream may be silent.
"""

from __future__ import annotations

import ssl
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

import attrs
import httpx2
import trio

from daemon.protocol import IDENTITY

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from daemon.config.config_model import Server

WRITE_SECONDS = 60.0
"""For a server to take the next piece of a request; it need not be fast, but a stopped one is noticed."""

MAX_REDIRECTS = 20
"""Of one request: what browsers follow."""

POOL = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
"""Calls are bounded above (`limits.inFlight`); below, waiting for a place would look like a dead server."""

NETWORK_ERRORS = (httpx2.TransportError, httpx2.DecodingError)
"""What a request or its response can break with."""

EVENT_STREAM = "text/event-stream"
STREAM_HEADERS = {"accept": EVENT_STREAM, "cache-control": "no-store"}


class RequestLogin(Protocol):
    """What requests are sent with (`server_login`)."""

    @property
    def held(self) -> bool:
        """Whether there is a login."""

    async def send(
        self, send: Callable[[dict[str, str]], Awaitable[httpx2.Response]], headers: dict[str, str]
    ) -> httpx2.Response:
        """Send a request with the login.

        Raises:
            httpx2.TransportError: there is no good login just now, or no response.
        """


@asynccontextmanager
async def exchange(
    client: httpx2.AsyncClient,
    method: str,
    url: str,
    headers: dict[str, str],
    content: bytes | None = None,
    *,
    heard: Callable[[], None] = lambda: None,
    login: RequestLogin | None = None,
) -> AsyncIterator[httpx2.Response]:
    """Send a request and follow its redirects; the body of the response is still to be read.

    Args:
        client: what sends it.
        method: of HTTP.
        url: where to.
        headers: besides those of the client.
        content: the body.
        heard: called for each sign of life: the head of the response and each chunk of its body.
        login: the login that it is sent with, if there is one.

    Raises:
        httpx2.TransportError: no response, or its body broke off.
        httpx2.DecodingError: its body is not encoded as it says.
    """
    send = partial(_followed, client, method, url, content)
    response = await (login.send(send, headers) if login is not None and login.held else send(headers))
    heard()
    response.stream = _HeardStream(cast("httpx2.AsyncByteStream", response.stream), heard)
    try:
        yield response
    finally:
        await response.aclose()


async def _followed(
    client: httpx2.AsyncClient, method: str, url: str, content: bytes | None, headers: dict[str, str]
) -> httpx2.Response:
    request = client.build_request(method, url, headers=headers, content=content)
    response = await client.send(request, stream=True)
    for _ in range(MAX_REDIRECTS):
        following = _within_origin(response)
        if following is None:
            break
        await response.aclose()
        response = await client.send(following, stream=True)
    return response


@attrs.frozen(eq=False)
class _HeardStream(httpx2.AsyncByteStream):
    """A body that tells of each chunk: to its reader a comment in an event stream is nothing."""

    inner: httpx2.AsyncByteStream
    heard: Callable[[], None]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        # The library's are generators, which must be closed where they are left.
        async with aclosing(cast("AsyncGenerator[bytes]", aiter(self.inner))) as chunks:
            async for chunk in chunks:
                self.heard()
                yield chunk

    async def aclose(self) -> None:
        """Close the response."""
        await self.inner.aclose()


async def trusted_certificates() -> ssl.SSLContext:
    """The system's certificates; to read them takes tens of milliseconds."""
    return await trio.to_thread.run_sync(ssl.create_default_context)


def http_client(server: Server, tls: ssl.SSLContext) -> httpx2.AsyncClient:
    """The client for one server, with its configured headers; `tls` holds the certificates that are trusted."""
    return httpx2.AsyncClient(
        transport=httpx2.AsyncHTTPTransport(verify=tls, trust_env=False, limits=POOL),
        headers={"user-agent": "{name}/{version}".format(**IDENTITY), **server.headers},
        timeout=httpx2.Timeout(server.timeouts.connect, read=None, write=WRITE_SECONDS),
        trust_env=False,
    )


async def read_body(response: httpx2.Response, limit: int) -> bytes | None:
    """A decoded body; None if it is over the limit, which bounds what is unpacked, too."""
    parts: list[bytes] = []
    size = 0
    async with aclosing(response.aiter_bytes()) as chunks:
        async for chunk in chunks:
            size += len(chunk)
            if size > limit:
                return None
            parts.append(chunk)
    return b"".join(parts)


def events_of(response: httpx2.Response, limit: int) -> AsyncGenerator[httpx2.ServerSentEvent]:
    """The events of a stream, to be closed; `httpx2.SSEError` of one of more than `limit` bytes."""
    source = httpx2.EventSource(response, max_event_size=limit)
    return cast("AsyncGenerator[httpx2.ServerSentEvent]", aiter(source))


def same_origin(url: httpx2.URL, other: httpx2.URL) -> bool:
    """Whether our headers, which may hold credentials, may go to the other url, too."""
    return (url.scheme, url.host, url.port) == (other.scheme, other.host, other.port)


def not_followed(response: httpx2.Response) -> str:
    """Where a redirect led that was not followed, without what may be secret in the url; else empty."""
    if response.next_request is None:
        return ""
    target = response.next_request.url.copy_with(userinfo=b"", query=None, fragment=None)
    return f", a redirect to {target} that is not followed"


def _within_origin(response: httpx2.Response) -> httpx2.Request | None:
    """The request that follows a redirect; None if it is none, or one that is not followed."""
    sent, following = response.request, response.next_request
    if following is None or following.method != sent.method:
        return None
    if following.url.userinfo and following.url.userinfo != sent.url.userinfo:
        return None
    # A url without a port has the default one of its scheme.
    upgraded = sent.url.scheme == "http" and sent.url.port is None
    origin = sent.url.copy_with(scheme="https") if upgraded else sent.url
    return following if same_origin(sent.url, following.url) or same_origin(origin, following.url) else None
