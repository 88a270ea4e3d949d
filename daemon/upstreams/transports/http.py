"""Connects to a server over streamable HTTP, in both eras: the answer to a POST is JSON or a stream of events.

First, mcpd makes a connection and drops it, to report "refused" and "not trusted" before a handshake.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress

import httpx2
import msgspec
import trio
from msgspec import Raw

from daemon.causes import Cause
from daemon.errors import CallError
from daemon.upstreams.transports import failures, http_client
from daemon.upstreams.transports.network import connect, host_and_port, in_time, place_of
from daemon.upstreams.transports.posting import ERROR_BYTES, Post, PostConnection, PostLink
from daemon.upstreams.transports.server_connection import OpenContext
from daemon.wire.envelope import INTERNAL_ERROR, INVALID_REQUEST, RemoteError, error_line, made_error

GOODBYE_SECONDS = 1.0
"""Seconds for ending the session: a courtesy, for which a stop waits."""

REOPEN_DELAYS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Seconds between attempts to reopen the stream of notifications; they outlast the time to the next ping."""

RESUME_ATTEMPTS = 2
"""Most attempts to resume a request's broken stream: more would keep the caller waiting for a lost server."""

NO_PARAMS = Raw(b"{}")
QUESTIONS = ("ping", "tools/list")
"""Harmless requests that show whether a server still knows the session, the cheaper one first."""

RETRY_LEAST, RETRY_MOST = 0.1, 60.0
"""Least and most seconds that a server may ask mcpd to wait (`retry:`) before it reopens a stream."""


@asynccontextmanager
async def open_connection(context: OpenContext) -> AsyncIterator[PostConnection]:
    """Connect to the server; end the session on exit.

    Raises CannotStart (wrong url, untrusted certificate), NeedsAuth (unreadable login) or ConnectionLost.
    """
    server = context.server
    host, port = host_and_port(server.url or "", "http", "https")
    place = place_of(host, port)
    tls = await http_client.trusted_certificates()
    is_plain = httpx2.URL(server.url or "").scheme == "http"
    with in_time(f"cannot connect to {place}: no answer", place, server.timeouts.connect):
        await trio.aclose_forcefully(await connect(host, port, None if is_plain else tls))
    async with http_client.client_for(server, tls) as client:
        login = http_client.ServerLogin(context, place)
        await login.begin()
        link = HttpLink(client, context, login)
        try:
            yield PostConnection(link, context)
        finally:
            await end_session(link)


class _Position(msgspec.Struct, eq=False):
    last_id: str = ""
    """The id of the last event; empty if the stream cannot be resumed."""
    retry: float = 1.0
    """Seconds to wait before resuming."""


class HttpLink(PostLink):
    """A link to a server over streamable HTTP."""

    closing_cancels = True

    def __init__(
        self, client: httpx2.AsyncClient, context: OpenContext, login: http_client.ServerLogin
    ) -> None:
        super().__init__(client, context, login)
        self.url = context.server.url or ""
        self._limit = context.server.limits.message_bytes
        self._initialized = trio.Event()
        self._ping_seconds = context.server.timeouts.ping

    async def receive(self, response: httpx2.Response, post: Post) -> None:
        """Take the answer to a request, as JSON or as a stream."""
        if post.uid is None:
            if post.method == "notifications/initialized":
                self._initialized.set()
            return
        if post.method == "initialize":
            self.headers.session = response.headers.get(failures.SESSION_HEADER, "")
        form = _form(response)
        is_other = False
        if form == http_client.EVENT_STREAM:
            await self._follow(response, post.uid)
        elif form.startswith("application/json") and response.status_code != httpx2.codes.ACCEPTED:
            body = await http_client.read_body(response, self._limit)
            if body is None:
                text = f"the answer of {self.place} is over the limit of {self._limit} bytes (the call ran)"
                self.fail(post.uid, failures.Failure(Cause.MESSAGE_TOO_LARGE, text, {"place": self.place}))
            else:
                await self._take(body, post.uid)
                is_first = post.method in {"initialize", "server/discover"}
                is_other = is_first and self.peer.requests.is_forwarded(post.uid) is False
        else:
            is_other = True
        if is_other:
            what = f"HTTP {response.status_code} with {form or 'no content type'}"
            text = f"{self.place} answered {what}, which is not an answer"
            if post.method == "initialize":
                self.fail(post.uid, failures.Failure(Cause.NOT_MCP, text, {"place": self.place, "form": form}))
            await self.deliver(error_line(post.uid, made_error(INTERNAL_ERROR, text)))
        text = f"the response of {self.place} held no answer"
        self.fail(post.uid, failures.Failure(Cause.CONNECTION_LOST, text, {"place": self.place}))

    async def listen(self) -> None:
        """Receive notifications from the session's own stream; reopen it while the server is away."""
        await self._initialized.wait()
        position, opened, misses = _Position(), False, 0
        while self.headers.session:
            reached = False
            with suppress(*http_client.NETWORK_ERRORS):
                async with self._stream(position) as response:
                    reached = _form(response) == http_client.EVENT_STREAM
                    if response.status_code == httpx2.codes.UNAUTHORIZED:
                        self.fail(
                            None,
                            await self.login.refusal(response, self.client)
                            or failures.unauthorized(self.place),
                        )
                    if not (reached or response.is_server_error):
                        return
                    if reached and opened:
                        # Notifications may have been missed; only changes of the lists are worth asking about.
                        self._context.events.on_list_changed()
                    if reached:
                        opened, misses = True, 0
                        await self._read_events(response, None, position)
            if misses == len(REOPEN_DELAYS):
                return
            await trio.sleep(position.retry if reached else REOPEN_DELAYS[misses])
            misses += not reached

    async def session_over(self, response: httpx2.Response, body: bytes, post: Post) -> bool:
        """Whether an HTTP error means that the session is over; asks the server if the error does not say."""
        over = failures.ends_session(response, body)
        return await self._is_forgotten(post) if over is None else over

    async def _follow(self, response: httpx2.Response, uid: int) -> None:
        position, misses = _Position(), 0
        await self._read_events(response, uid, position)
        while (
            position.last_id and self.peer.requests.is_forwarded(uid) is not None and misses < RESUME_ATTEMPTS
        ):
            await trio.sleep(position.retry)
            misses += 1
            with suppress(*http_client.NETWORK_ERRORS):
                async with self._stream(position) as resumed:
                    if _form(resumed) == http_client.EVENT_STREAM:
                        misses = 0
                        await self._read_events(resumed, uid, position)

    def _stream(self, position: _Position) -> AbstractAsyncContextManager[httpx2.Response]:
        headers = {**http_client.STREAM_HEADERS, **self.headers.of()}
        if position.last_id:
            headers["last-event-id"] = position.last_id
        return self.exchange("GET", self.url, headers)

    async def _read_events(self, response: httpx2.Response, uid: int | None, position: _Position) -> None:
        """Deliver events until the request is answered; a broken stream counts as an ended one."""
        try:
            async with aclosing(http_client.events_of(response, self._limit)) as events:
                async for event in events:
                    position.last_id = event.id or position.last_id
                    if event.retry is not None:
                        position.retry = min(max(event.retry / 1000, RETRY_LEAST), RETRY_MOST)
                    if event.event == "message" and event.data:
                        await self._take(event.data.encode(), uid)
                    if uid is not None and self.peer.requests.is_forwarded(uid) is None:
                        return
        except httpx2.SSEError:
            if uid is not None:
                text = f"an event of {self.place} is over the limit of {self._limit} bytes (the call ran)"
                self.fail(uid, failures.Failure(Cause.MESSAGE_TOO_LARGE, text, {"place": self.place}))
        except http_client.NETWORK_ERRORS:
            return

    async def _take(self, message: bytes, uid: int | None) -> None:
        """Deliver a message; an error without the id, or -32600 despite HTTP success, counts as the answer."""
        post = self._posts.get(uid or 0)
        if (
            post is not None
            and self.headers.session
            and len(message) <= ERROR_BYTES
            and failures.code_in(message) == INVALID_REQUEST
            and await self._is_forgotten(post)
        ):
            self.fail(uid, failures.session_ended(self.place, httpx2.codes.OK))
            return
        await self.deliver(message, uid)
        if (
            uid is not None
            and self.peer.requests.is_forwarded(uid) is not None
            and (error := failures.error_in(message)) is not None
        ):
            await self.deliver(error_line(uid, error))

    async def _is_forgotten(self, post: Post) -> bool:
        """Whether the session is over, after a refusal that may concern only the request.

        Repeats a harmless request that has worked in this session; without one, the session counts as over.
        """
        if post.uid is None:
            return False
        # A list's next page does not count: the refusal may concern its cursor.
        if post.method in QUESTIONS and post.params == NO_PARAMS:
            return post.method in self.worked
        question = next((each for each in QUESTIONS if each in self.worked), None)
        if question is None:
            return False
        with suppress(CallError, RemoteError):
            await self.peer.request(question, {}, timeout=self._ping_seconds)
        end = self.state.end
        return end is not None and end.reason.cause is Cause.SESSION_OVER


async def end_session(link: HttpLink) -> None:
    """Delete the session at the server, even during cancellation, within a short time."""
    if link.headers.session:
        with trio.move_on_after(GOODBYE_SECONDS, shield=True), suppress(*http_client.NETWORK_ERRORS):
            async with link.exchange("DELETE", link.url, link.headers.of()):
                link.headers.session = ""


def _form(response: httpx2.Response) -> str:
    text: str = response.headers.get("content-type", "") if response.is_success else ""
    return text.partition(";")[0].strip().lower()
