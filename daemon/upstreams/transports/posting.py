"""An MCP connection that POSTs its frames, for streamable HTTP and SSE."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import httpx2
import msgspec
import trio
from msgspec import UNSET, Raw, UnsetType

from daemon.causes import Cause
from daemon.errors import ConnectionLost, RequestTooLarge, UpstreamLost, UpstreamUnavailable, leaf
from daemon.model import Era
from daemon.ports import CallToSend
from daemon.protocol import CANCEL, cancelled_id
from daemon.upstreams.transports import http_client
from daemon.upstreams.transports.failures import Failure, LinkState, McpHeaders, error_in, of_error, of_status
from daemon.upstreams.transports.server_connection import UPSTREAM_QUEUE_BYTES, OpenContext, RawConnection
from daemon.wire import envelope
from daemon.wire.envelope import Buffer, HttpRefusal, as_line, error_line, made_error
from daemon.wire.outbox import Receiver
from daemon.wire.requests import Exchange, Peer

NOTE_SECONDS = 10.0
"""Seconds for the POST of a notification or an answer; later ones wait for it, to keep their order."""

STUCK_SECONDS = 3 * NOTE_SECONDS
"""Seconds that a full queue may wait for a server that accepts nothing: three timeouts in a row."""

ABANDONED_SECONDS = 5.0
"""Seconds that a cancelled request may keep its POST open if closing the POST does not cancel it."""

ERROR_BYTES = 64 * 1024
"""Most bytes read of an HTTP error's body: a JSON-RPC error is far smaller, and a web page is of no use."""

_POST_HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


class Post(msgspec.Struct, eq=False):
    """One frame to POST."""

    body: bytes
    uid: int | None
    """The request's id; None for a notification, or an answer to the server's request."""
    method: str
    """The request's method; empty for an answer."""
    params: Raw | UnsetType
    scope: trio.CancelScope = msgspec.field(default_factory=trio.CancelScope)


class PostLink(ABC):
    """`wire.outbox.Link` over POSTs: a task for each request, and one for messages that keep their order."""

    peer: Peer
    """Set by `PostConnection`."""
    url: str
    """The URL that receives the POSTs."""
    closing_cancels = False
    """Whether closing a POST cancels its request in the modern era, without a notification."""

    def __init__(
        self, client: httpx2.AsyncClient, context: OpenContext, login: http_client.ServerLogin
    ) -> None:
        self.queued = 0
        """Queued bytes that keep their order; requests go concurrently, bounded by `limits.inFlight`."""
        self.turns = 0
        self.is_held = False
        self.carrying: int | None = None
        """The request to whose answer the current message belongs."""
        self.place = login.place
        self.headers = McpHeaders()
        self.login = login
        self.state = LinkState()
        self.worked: set[str] = set()
        """Methods of mcpd's own requests that the server has answered with a result."""
        self.client = client
        self._context = context
        self._out: deque[Post] = deque()
        self._posts: dict[int, Post] = {}
        self._last_taken = trio.current_time()
        self._kick = trio.Event()
        self._resumed = trio.Event()
        self._nursery: trio.Nursery
        self._receiver: Receiver

    # --- wire.outbox.Link ----------------------------------------------------------------------------------

    def send(self, frame: Sequence[Buffer], request_id: bytes | None = None, *, ends: bool = False) -> None:
        """Queue one frame for the writer's task; a full queue accepts requests only."""
        if self.state.end is not None:
            return
        body = b"".join(frame)
        message = envelope.decode(body)
        method = "" if message.method is UNSET else message.method
        if method == CANCEL and message.params is not UNSET and not self._abandon(message.params):
            return
        post = Post(body, None, method, message.params)
        if method and message.id is not UNSET:
            post.uid = int(bytes(message.id))
            self._posts[post.uid] = post
        elif self.queued > UPSTREAM_QUEUE_BYTES:
            if trio.current_time() - self._last_taken > STUCK_SECONDS:
                text = f"{self.place} does not read: {self.queued} bytes are waiting for it"
                self.state.end_with(ConnectionLost(text, Cause.NOT_READING, place=self.place))
            return
        else:
            if not self.queued:
                self._last_taken = trio.current_time()
            self.queued += len(body)
        self._out.append(post)
        self._kick.set()

    def waiting(self, _request_id: bytes | None = None, /) -> float:
        """The number of queued bytes that keep their order (`wire.outbox.Link.waiting`)."""
        return self.queued

    async def run(self, receiver: Receiver) -> None:
        """Send and receive until the connection ends."""
        self._receiver = receiver
        self.state.heard()
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._write)
                self._nursery.start_soon(self.listen)
                await self.state.ended.wait()
                assert self.state.end is not None
                raise self.state.end
        except BaseExceptionGroup as group:
            raise leaf(group) from None
        finally:
            self.state.end_with(ConnectionLost("the connection was closed"))
            self._context.outbox.forget(self.resume)
            self._out.clear()
            self.queued = 0

    def resume(self) -> None:
        """Read again: slow receivers have caught up (`wire.outbox.Outbox.hold`)."""
        self.is_held = False
        self._resumed.set()

    # --- what the ways of answering differ in ----------------------------------------------------------------

    @abstractmethod
    async def receive(self, response: httpx2.Response, post: Post) -> None:
        """Take the successful response to a POST."""

    @abstractmethod
    async def listen(self) -> None:
        """Receive messages outside of answers to POSTs."""

    @abstractmethod
    async def session_over(self, response: httpx2.Response, body: bytes, post: Post) -> bool:
        """Whether the HTTP error after a POST means that the server does not know the session."""

    # --- what they share -----------------------------------------------------------------------------------

    def exchange(
        self, method: str, url: str, headers: dict[str, str], content: bytes | None = None
    ) -> AbstractAsyncContextManager[httpx2.Response]:
        """Exchange a request with the login for a response, whose chunks are signs of life."""
        heard, login = self.state.heard, self.login
        return http_client.exchange(self.client, method, url, headers, content, heard=heard, login=login)

    async def deliver(self, message: bytes, uid: int | None = None) -> None:
        """Hand over a message that belongs to the answer to `uid`, if known; then wait for slow receivers."""
        outbox = self._context.outbox
        outbox.slow.clear()
        self.carrying = uid
        self._receiver.on_lines([as_line(message)])
        self.carrying = None
        if outbox.slow and outbox.hold(self.resume) and not self.is_held:
            self.is_held, self._resumed = True, trio.Event()
        outbox.flush()
        if self.is_held:
            await self._resumed.wait()

    def fail(self, uid: int | None, failure: Failure) -> None:
        """Report that a request (if any) gets no answer, and decide whether the connection ends."""
        # A request of our own raises the end that it met (`PostConnection.request`).
        own = self.peer.requests.is_forwarded(uid) is False
        end = self.state.judge(failure, own=own)
        if failure.cause is Cause.SESSION_OVER:
            self.headers.session = ""
        if uid is not None:
            error = failure.for_call()
            error.__cause__ = end
            self.peer.requests.lose(uid, error)
        self._context.outbox.flush()

    def _abandon(self, params: Raw) -> bool:
        """Cancel a request; return whether to notify the server, which is pointless if it was never sent."""
        uid = int(cancelled_id(params))
        closing = self.closing_cancels and self.headers.is_modern
        if (post := self._posts.get(uid)) is not None:
            if post in self._out:
                self._out.remove(post)
                del self._posts[uid]
                return False
            post.scope.deadline = trio.current_time() + (0 if closing else ABANDONED_SECONDS)
        return not closing

    async def _write(self) -> None:
        """Send requests concurrently; other messages keep their order, so each waits for the one before."""
        while True:
            await self._kick.wait()
            self._kick = trio.Event()
            while self._out:
                post = self._out.popleft()
                if post.uid is not None:
                    self._nursery.start_soon(self._ask, post, post.uid)
                    continue
                self.queued -= len(post.body)
                with trio.move_on_after(NOTE_SECONDS):
                    await self._post(post)
                    self._last_taken = trio.current_time()

    async def _ask(self, post: Post, uid: int) -> None:
        try:
            with post.scope:
                await self._post(post)
        finally:
            del self._posts[uid]

    async def _post(self, post: Post) -> None:
        headers = {**_POST_HEADERS, **self.headers.of(post.method, post.params)}
        try:
            async with self.exchange("POST", self.url, headers, post.body) as response:
                if response.is_success:
                    await self.receive(response, post)
                else:
                    await _take_refusal(self, response, post)
        except http_client.NETWORK_ERRORS as error:
            self.fail(post.uid, of_error(error, self.place))


async def _take_refusal(link: PostLink, response: httpx2.Response, post: Post) -> None:
    body = await http_client.read_body(response, ERROR_BYTES) or b""
    over = await link.session_over(response, body, post)
    failure = await link.login.refusal(response, link.client) or of_status(
        response, link.place, session_over=over
    )
    forwarded = link.peer.requests.is_forwarded(post.uid)
    # 403 to a call may be about its tool alone, and the body says more.
    if failure is not None and not (failure.cause is Cause.FORBIDDEN and forwarded):
        link.fail(post.uid, failure)
    elif post.uid is not None:
        missing = response.status_code == httpx2.codes.NOT_FOUND
        code = envelope.METHOD_NOT_FOUND if missing else envelope.INTERNAL_ERROR
        text = f"{link.place} answered HTTP {response.status_code} {response.reason_phrase}".rstrip()
        text += http_client.not_followed(response)
        said = error_in(body)
        if said is None and forwarded is False:
            lost = UpstreamLost(text)
            lost.__cause__ = HttpRefusal(code, text, status=response.status_code, place=link.place)
            link.peer.requests.lose(post.uid, lost)
        else:
            await link.deliver(error_line(post.uid, said or made_error(code, text)))


class PostConnection(RawConnection):
    """`ports.UpstreamConnection` over POSTs."""

    def __init__(self, link: PostLink, context: OpenContext) -> None:
        super().__init__(link, outbox=context.outbox, events=context.events)
        self._link = link
        link.peer = self._peer

    @property
    def carrying(self) -> int | None:
        """The request of mcpd to whose answer the current message belongs; None without a request."""
        return self._link.carrying

    @property
    def last_heard(self) -> float:
        """When the server last sent anything, even a comment in a stream (trio's clock)."""
        return max(super().last_heard, self._link.state.last_heard)

    def adopt(self, era: Era, version: str) -> None:
        """Speak this era from now on."""
        super().adopt(era, version)
        self._link.headers.adopt(era, version)

    async def request(self, method: str, params: dict[str, object], *, timeout: float) -> bytes:  # noqa: ASYNC109 - see ports.UpstreamConnection
        """Send a request of mcpd itself, and wait (`ports.UpstreamConnection.request`).

        Raises RunError: this request's failure ended the connection; HttpRefusal: an HTTP error without a
        JSON-RPC error; UpstreamLost: only this exchange failed, or the connection ended for another reason.
        """
        if (end := self._link.state.end) is not None:
            raise UpstreamLost(str(end)) if isinstance(end, ConnectionLost) else end
        try:
            result = await super().request(method, params, timeout=timeout)
        except (UpstreamLost, UpstreamUnavailable, RequestTooLarge) as error:
            raise error.__cause__ or UpstreamLost(error.message) from None
        self._link.worked.add(method)
        if method == "tools/list":
            self._link.headers.learn(result)
        return result

    def call(self, call: CallToSend, exchange: Exchange) -> int:
        """Forward a tool call (`ports.UpstreamConnection.call`).

        Raises Overloaded: the server does not accept what is queued; UpstreamUnavailable: the connection has
        just ended, or Retry-After has not passed.
        """
        if (end := self._link.state.end) is not None:
            raise UpstreamUnavailable(f"{end}. The call was not sent: it is safe to try again.")
        if (wait := self._link.state.busy_until - trio.current_time()) > 0:
            text = f"{self._link.place} accepts no requests for {math.ceil(wait)} s more (Retry-After)."
            raise UpstreamUnavailable(f"{text} The call was not sent.", retryAfterMs=math.ceil(wait * 1000))
        return super().call(call, exchange)
