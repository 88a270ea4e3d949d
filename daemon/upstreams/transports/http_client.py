"""The HTTP client for one server, and the login (RFC 6750) that its requests carry.

The client follows a redirect that keeps the method within the origin, or from http to https on the same host:
credentials go nowhere else. It uses no proxy of the environment, no .netrc and no time limit.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import cast

import httpx2
import msgspec
import trio

from daemon.authorization import logins
from daemon.authorization.guarded_http import LoginOver, fresh
from daemon.causes import Cause, Datum
from daemon.config.config_model import Server
from daemon.host.checked_http import watch
from daemon.host.sockets import reason
from daemon.kit.wording import log_in
from daemon.protocol import IDENTITY
from daemon.upstreams.transports.failures import Failure, LoginFailed
from daemon.upstreams.transports.server_connection import OpenContext

WRITE_SECONDS = 60.0
"""Seconds for a server to accept the next piece of a request: enough for slow servers, not stopped ones."""

MAX_REDIRECTS = 20
"""Most redirects of one request: as many as browsers follow."""

POOL = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
"""No limit on connections: a server would look dead while a call waits; `limits.inFlight` bounds calls."""

NETWORK_ERRORS = (httpx2.TransportError, httpx2.DecodingError)
"""Errors that break a request or its response."""

EVENT_STREAM = "text/event-stream"
STREAM_HEADERS = {"accept": EVENT_STREAM, "cache-control": "no-store"}


@asynccontextmanager
async def exchange(
    client: httpx2.AsyncClient,
    method: str,
    url: str,
    headers: dict[str, str],
    content: bytes | None = None,
    *,
    heard: Callable[[], None] = lambda: None,
    login: ServerLogin | None = None,
) -> AsyncIterator[httpx2.Response]:
    """Send a request and follow its redirects; `heard` is called for the response's head and each chunk.

    Raises httpx2.TransportError: no response, or a broken body; httpx2.DecodingError: a wrongly encoded body.
    """
    send = partial(_followed, client, method, url, content)
    response = await (login.send(send, headers) if login is not None and login.held else send(headers))
    heard()
    # Even a comment in an event stream shows life.
    watch(response, lambda _chunk: heard())
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


async def trusted_certificates() -> ssl.SSLContext:
    """The system's trusted certificates, read in a thread: reading takes tens of milliseconds."""
    return await trio.to_thread.run_sync(ssl.create_default_context)


def client_for(server: Server, tls: ssl.SSLContext) -> httpx2.AsyncClient:
    """The client for one server, with its configured headers; `tls` has the trusted certificates."""
    return httpx2.AsyncClient(
        transport=httpx2.AsyncHTTPTransport(verify=tls, trust_env=False, limits=POOL),
        headers={"user-agent": "{name}/{version}".format(**IDENTITY), **server.headers},
        timeout=httpx2.Timeout(server.timeouts.connect, read=None, write=WRITE_SECONDS),
        trust_env=False,
    )


async def read_body(response: httpx2.Response, limit: int) -> bytes | None:
    """A decoded body; None if it exceeds the limit, which also bounds how much is decompressed."""
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
    """The events of a stream, which the caller closes; `httpx2.SSEError` if one exceeds `limit` bytes."""
    source = httpx2.EventSource(response, max_event_size=limit)
    return cast("AsyncGenerator[httpx2.ServerSentEvent]", aiter(source))


def same_origin(url: httpx2.URL, other: httpx2.URL) -> bool:
    """Whether mcpd's headers, which may contain credentials, may also go to the other url."""
    return (url.scheme, url.host, url.port) == (other.scheme, other.host, other.port)


def not_followed(response: httpx2.Response) -> str:
    """The end of an error about a redirect that was not followed: the target without secrets; else empty."""
    if response.next_request is None:
        return ""
    target = response.next_request.url.copy_with(userinfo=b"", query=None, fragment=None)
    return f", a redirect to {target} that is not followed"


def _within_origin(response: httpx2.Response) -> httpx2.Request | None:
    """The request that follows a redirect; None without a redirect, or if it must not be followed."""
    sent, following = response.request, response.next_request
    if following is None or following.method != sent.method:
        return None
    if following.url.userinfo and following.url.userinfo != sent.url.userinfo:
        return None
    # A url without a port has the default one of its scheme.
    upgraded = sent.url.scheme == "http" and sent.url.port is None
    origin = sent.url.copy_with(scheme="https") if upgraded else sent.url
    return following if same_origin(sent.url, following.url) or same_origin(origin, following.url) else None


PROBE_SECONDS = 5.0
"""Seconds for a server to answer whether it has protected-resource metadata, while a failed request waits."""

METADATA_BYTES = 64 * 1024
"""Most bytes of that metadata, which has some hundred."""

METADATA_PATH = "/.well-known/oauth-protected-resource"
"""The path of that metadata, before the server's path and without it (RFC 9728, section 3.1)."""


class ServerLogin:
    """The login at one server, for one connection."""

    def __init__(self, context: OpenContext, place: str, wall: Callable[[], float] = time.time) -> None:
        """Start without a login; `place` is the server's host and port, for texts."""
        self._server, self._auth = context.server, context.server.auth
        self._logins = context.logins if context.server.login is not None or self._auth is not None else None
        self.place = place
        self._wall = wall
        self._login: logins.Login | None = None

    @property
    def held(self) -> bool:
        """Whether there is a login."""
        return self._login is not None

    async def begin(self) -> None:
        """Find a stored login, or log in, as the connection opens; RunError if that fails."""
        if self._logins is None:
            return
        name, read = self._server.name, self._logins.kept.read
        try:
            if self._auth is not None:
                await self._renewed(None)
            elif found := await trio.to_thread.run_sync(read, name, logins.login_url(self._server)):
                self._login = found
                self._logins.sent(name, found)
        except LoginFailed as failed:
            raise failed.failure.for_run() from None
        except logins.LoginsTrouble as trouble:
            raise self._needed(str(trouble)).for_run() from None

    async def header(self) -> str:
        """The value of `Authorization`, renewed if it ends soon; raises LoginFailed without a valid login."""
        login = self._login
        if login is None or _is_past(login.renew_at, self._wall()):
            login = await self._renewed(None)
        return f"Bearer {login.access_token}"

    async def send(
        self, send: Callable[[dict[str, str]], Awaitable[httpx2.Response]], headers: dict[str, str]
    ) -> httpx2.Response:
        """Send a request with the login; after a refusal, once more with a renewed one. Raises LoginFailed."""
        header = await self.header()
        response = await send({**headers, "authorization": header})
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            self._noted(_challenges(response))
            await response.aclose()
            response = await send({**headers, "authorization": await self.after_refusal(header)})
        return response

    async def after_refusal(self, header: str) -> str:
        """A new value of `Authorization` after the server refused one; LoginFailed if there is no other."""
        login = await self._renewed(header.removeprefix("Bearer "))
        return f"Bearer {login.access_token}"

    async def refusal(self, response: httpx2.Response, client: httpx2.AsyncClient) -> Failure | None:
        """The failure if a refusal concerns the login, or None; `client` looks for a way to log in."""
        if self._logins is None:
            return None
        status, challenges = response.status_code, _challenges(response)
        failure = self.judged(status, challenges)
        if failure is None and status == httpx2.codes.UNAUTHORIZED and await self._has_metadata(client):
            return self._wanted(status)
        return failure

    def judged(self, status: int, challenges: str) -> Failure | None:
        """The failure as in `refusal`, judged by the status and `WWW-Authenticate` alone."""
        challenge = None if self._logins is None else self._noted(challenges)
        if status == httpx2.codes.UNAUTHORIZED and (self.held or challenge is not None):
            return self._wanted(status)
        if (
            status != httpx2.codes.FORBIDDEN
            or challenge is None
            or challenge.error != logins.INSUFFICIENT_SCOPE
        ):
            return None
        more = f": {challenge.scope}" if challenge.scope else ""
        text = f"the login at {self.place} does not grant enough{more} (HTTP {status})"
        if self._auth is not None:
            return self._needed(text, status=status)
        return self._failure(Cause.SCOPE_MISSING, text, status=status, scope=challenge.scope)

    def _wanted(self, status: int) -> Failure:
        what = "does not accept the login any more" if self.held else "wants an OAuth login"
        return self._needed(f"{self.place} {what} (HTTP {status})", status=status)

    async def _renewed(self, rejected: str | None) -> logins.Login:
        """A login in place of a rejected or expiring one; one renewal serves all requests that wait."""
        login, server = self._login, self._server
        if self._logins is None or (login is None and self._auth is None):
            raise LoginFailed(self._needed(f"the login at {self.place} has ended"))
        if login and login.access_token != rejected and not _is_past(login.renew_at, self._wall()):
            return login
        try:
            if self._auth is None:
                found = await fresh(self._logins, server.name, logins.login_url(server), rejected=rejected)
            else:
                found = await self._logins.obtain(server, rejected)
        except LoginOver as over:
            raise LoginFailed(self._needed(f"the login at {self.place} is over: {over}")) from None
        except (httpx2.TransportError, logins.NotNow) as error:
            why = reason(error)
            text = f"the login at {self.place} cannot be renewed just now: {why}"
            issuer = {} if self._auth is None else {"issuer": self._auth.issuer}
            data = {"place": self.place, "error": why, **issuer}
            raise LoginFailed(Failure(Cause.LOGIN_NOT_RENEWED, text, data)) from None
        except (logins.LoginsTrouble, logins.NoLogin) as trouble:
            raise LoginFailed(self._needed(str(trouble))) from None
        self._login = found
        if found is None:
            raise LoginFailed(self._needed(f"there is no login at {self.place} any more"))
        self._logins.sent(server.name, found)
        return found

    async def _has_metadata(self, client: httpx2.AsyncClient) -> bool:
        """Whether the server's metadata name an authorization server, although its refusal did not."""
        url = httpx2.URL(logins.login_url(self._server))
        path = url.path.rstrip("/")
        for where in dict.fromkeys((METADATA_PATH + path, METADATA_PATH)):
            place = str(url.copy_with(path=where, query=None, fragment=None))
            with trio.move_on_after(PROBE_SECONDS), suppress(*NETWORK_ERRORS, msgspec.MsgspecError):
                async with exchange(client, "GET", place, {"accept": "application/json"}) as response:
                    body = await read_body(response, METADATA_BYTES) if response.is_success else None
                if body and "authorization_servers" in msgspec.json.decode(body, type=dict[str, object]):
                    return True
        return False

    def _noted(self, challenges: str) -> logins.Challenge | None:
        """The server's challenge, whose scope is remembered for the next login."""
        challenge = logins.bearer_challenge(challenges)
        if challenge is not None and challenge.scope and self._logins is not None:
            self._logins.want(self._server.name, challenge.scope)
        return challenge

    def _needed(self, text: str, **data: Datum) -> Failure:
        if self._auth is not None:
            return self._failure(Cause.LOGIN_REFUSED, f"mcpd cannot log in: {text}", error=text, **data)
        return self._failure(Cause.LOGIN_NEEDED, text, **data)

    def _failure(self, cause: Cause, text: str, **data: Datum) -> Failure:
        said = {key: value for key, value in data.items() if value}
        name = self._server.name
        helps = log_in(name) if self._auth is None else f"Tell the user to correct `auth` of {name}"
        return Failure(cause, text, {"place": self.place, **said}, helps=helps)


def _challenges(response: httpx2.Response) -> str:
    return ", ".join(response.headers.get_list("www-authenticate"))


def _is_past(moment: float | None, now: float) -> bool:
    return moment is not None and now >= moment
