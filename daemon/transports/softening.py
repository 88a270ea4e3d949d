"""A transport for the SDK's streamable HTTP client that lets a failure cost one request only.

The SDK's transport dies, and cancels its owner, of a single network error. So errors stop here: each becomes a
`Failure`, told to the connection by the id of the request that met it, and the SDK sees an answer that it does
nothing with. Bodies are read here too where an error in the middle would escape: JSON as a whole, within the
limit; event streams end early instead of raising.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Protocol

import httpx2
import msgspec
import trio
from msgspec import UNSET

from daemon.transports.failures import Failure, Kind, error_code, head_of, of_error, of_status
from daemon.wire.envelope import INTERNAL_ERROR, METHOD_NOT_FOUND
from daemon.wire.malformed import with_whole_characters

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

NOTE_SECONDS = 10.0
"""A notification that takes longer is dropped: the SDK sends nothing else to the server meanwhile."""

GOODBYE_SECONDS = 1.0
"""For ending the session: a courtesy, and a stop waits for it."""

ABANDONED_SECONDS = 5.0
"""How long a cancelled request may keep its stream open to say so (handshake era: closing is no cancelling)."""

REOPEN_DELAYS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Between attempts to reopen the stream of notifications. The SDK gives up after two in all; these outlast the
idle time after which a ping finds out whether the server is there at all."""

ERROR_BYTES = 64 * 1024
"""Of the body of an HTTP error; a JSON-RPC error is far smaller, a web page is not wanted."""

SESSION_HEADER = "mcp-session-id"


class Ward(Protocol):
    """The connection that a transport serves."""

    def heard(self) -> None:
        """The server showed life."""

    def failed(self, key: int | None, failure: Failure) -> None:
        """The request `key` gets no answer; None: it was a notification, or the stream of them."""

    def reopened(self) -> None:
        """The stream of notifications was interrupted: some may have been missed."""


async def _key(request: httpx2.Request) -> int | None:
    """The id of the request of ours that a POST carries; None for notifications and answers."""
    # Read, not taken: of a request that follows a redirect the body is a stream again.
    head = head_of(await request.aread())
    return head.id if head.method is not None and isinstance(head.id, int) else None


class SoftTransport(httpx2.AsyncBaseTransport):
    """Wraps a transport for the SDK's streamable HTTP client. Raises no network errors for a POST."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, ward: Ward, *, place: str, max_bytes: int) -> None:
        """Wrap.

        Args:
            inner: does the work; owned from now on.
            ward: told about failures.
            place: the server's host and port, for texts.
            max_bytes: of a JSON body. Events are limited by the SDK's own reader.
        """
        self._inner = inner
        self._ward = ward
        self._place = place
        self._max_bytes = max_bytes
        self._bodies: dict[object, _Body] = {}
        self._scopes: dict[object, trio.CancelScope] = {}
        self._closed = False
        self._had_stream = False
        self._session_over = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; a POST is always answered with something."""
        if request.method == "DELETE":
            return await self._end_session(request)
        if self._closed:
            return _nothing(request)
        if request.method == "GET":
            return await self._open_stream(request)
        return await self._post(request)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()

    def close(self) -> None:
        """Send nothing more but the end of the session: nobody waits for answers now."""
        self._closed = True
        for scope in self._scopes.values():
            scope.cancel()
        for body in self._bodies.values():
            body.end_by(-math.inf)

    def abandon(self, key: int) -> None:
        """Nobody waits for this request's answer: its stream ends soon, whatever the server does."""
        deadline = trio.current_time() + ABANDONED_SECONDS
        if (scope := self._scopes.get(key)) is not None:
            scope.deadline = deadline
        if (body := self._bodies.get(key)) is not None:
            body.end_by(deadline)

    async def _post(self, request: httpx2.Request) -> httpx2.Response:
        key = await _key(request)
        owner = request if key is None else key
        with trio.CancelScope() as scope:
            if key is None:
                scope.deadline = trio.current_time() + NOTE_SECONDS
            self._scopes[owner] = scope
            try:
                response = await self._inner.handle_async_request(request)
                self._ward.heard()
                return await self._digest(request, response, key)
            except (httpx2.TransportError, httpx2.DecodingError) as error:
                self._ward.failed(key, of_error(error, self._place))
            finally:
                del self._scopes[owner]
        return _nothing(request)

    async def _digest(
        self, request: httpx2.Request, response: httpx2.Response, key: int | None
    ) -> httpx2.Response:
        content_type = response.headers.get("content-type", "").lower()
        if response.status_code >= httpx2.codes.BAD_REQUEST:
            return await self._refused(request, response, key)
        if response.is_redirect:
            # The SDK reads it before it follows, where an error would escape.
            await self._read(response, ERROR_BYTES)
            return httpx2.Response(response.status_code, headers=_only(response, "location"), request=request)
        if content_type.startswith("text/event-stream"):
            response.stream = self._watched(response, request if key is None else key)
        elif content_type.startswith("application/json"):
            return await self._whole(request, response, key)
        return response

    def _watched(self, response: httpx2.Response, owner: object) -> _Body:
        body = _Body(response.stream, self._ward, lambda: self._bodies.pop(owner, None))
        self._bodies[owner] = body
        return body

    async def _refused(
        self, request: httpx2.Request, response: httpx2.Response, key: int | None
    ) -> httpx2.Response:
        """An HTTP error: a failure, or an answer in JSON-RPC whatever its body says."""
        body = await self._read(response, ERROR_BYTES) or b""
        failure = of_status(response, body, self._place, in_session=SESSION_HEADER in request.headers)
        if failure is not None:
            self._session_over = self._session_over or failure.kind is Kind.SESSION_OVER
            self._ward.failed(key, failure)
        if error_code(body) is None:
            missing = response.status_code == httpx2.codes.NOT_FOUND
            text = f"{self._place} answered HTTP {response.status_code} {response.reason_phrase}".rstrip()
            error = {"code": METHOD_NOT_FOUND if missing else INTERNAL_ERROR, "message": text}
            body = msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": error})
        return _json(request, httpx2.codes.BAD_REQUEST, body)

    async def _whole(
        self, request: httpx2.Request, response: httpx2.Response, key: int | None
    ) -> httpx2.Response:
        """A JSON body, read to its end: the SDK would let an error in the middle escape."""
        body = await self._read(response, self._max_bytes)
        if body is None:
            text = f"the answer of {self._place} is over the limit of {self._max_bytes} bytes (the call ran)"
            self._ward.failed(key, Failure(Kind.TOO_LARGE, text))
            return _nothing(request)
        body = with_whole_characters(body) or body
        head = head_of(body)
        # An error without our id is still the answer to this POST; at this status the SDK puts our id in.
        foreign = head.error is not UNSET and head.id != key
        status = httpx2.codes.BAD_REQUEST if foreign else response.status_code
        return _json(request, status, body, _only(response, SESSION_HEADER))

    async def _read(self, response: httpx2.Response, limit: int) -> bytes | None:
        """A decoded body; None if it is over the limit, which bounds what is unpacked, too."""
        parts: list[bytes] = []
        size = 0
        try:
            async with aclosing(response.aiter_bytes()) as chunks:
                async for chunk in chunks:
                    self._ward.heard()
                    size += len(chunk)
                    if size > limit:
                        return None
                    parts.append(chunk)
        finally:
            await response.aclose()
        return b"".join(parts)

    async def _open_stream(self, request: httpx2.Request) -> httpx2.Response:
        """The stream of notifications: opened again and again while the server is away."""
        response = await self._reach(request)
        self._ward.heard()
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            failure = of_status(response, b"", self._place, in_session=True)
            assert failure is not None
            self._ward.failed(None, failure)
        elif response.is_success:
            if self._had_stream:
                self._ward.reopened()
            self._had_stream = True
            response.stream = self._watched(response, request)
        return response

    async def _reach(self, request: httpx2.Request) -> httpx2.Response:
        for delay in REOPEN_DELAYS:
            try:
                return await self._inner.handle_async_request(request)
            except httpx2.TransportError:
                await trio.sleep(delay)
        return await self._inner.handle_async_request(request)

    async def _end_session(self, request: httpx2.Request) -> httpx2.Response:
        """Told to the server even when we are being cancelled, but not for long."""
        if not self._session_over:
            with trio.move_on_after(GOODBYE_SECONDS, shield=True):
                try:
                    await (await self._inner.handle_async_request(request)).aclose()
                except httpx2.TransportError:
                    # It is gone, and the session with it.
                    self._session_over = True
        return httpx2.Response(httpx2.codes.NO_CONTENT, request=request)


class _Body(httpx2.AsyncByteStream):
    """An event stream that ends where it breaks: its reader handles an end, not an error."""

    def __init__(self, inner: object, ward: Ward, on_close: Callable[[], object]) -> None:
        assert isinstance(inner, httpx2.AsyncByteStream)
        self._inner = inner
        self._ward = ward
        self._on_close = on_close
        self._scope = trio.CancelScope()

    def end_by(self, deadline: float) -> None:
        """End at this time at the latest (trio's clock)."""
        self._scope.deadline = deadline

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = aiter(self._inner)
        try:
            while (chunk := await self._next(chunks)) is not None:
                self._ward.heard()
                yield chunk
        finally:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()

    async def _next(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        """A scope may not span a yield, so each chunk has its own; the deadline is handed on."""
        self._scope = trio.CancelScope(deadline=self._scope.deadline)
        with self._scope:
            try:
                return await anext(chunks, None)
            except httpx2.TransportError:
                return None
        return None

    async def aclose(self) -> None:
        """Close the stream."""
        self._on_close()
        await self._inner.aclose()


def _json(
    request: httpx2.Request, status: int, body: bytes, headers: dict[str, str] | None = None
) -> httpx2.Response:
    headers = {**(headers or {}), "content-type": "application/json"}
    return httpx2.Response(status, headers=headers, content=body, request=request)


def _only(response: httpx2.Response, name: str) -> dict[str, str]:
    """One header. What describes the body as it was sent does not fit what was made of it."""
    return {name: response.headers[name]} if name in response.headers else {}


def _nothing(request: httpx2.Request) -> httpx2.Response:
    """What the SDK sees where there is no answer, or nobody who waits for it."""
    return httpx2.Response(httpx2.codes.ACCEPTED, request=request)
