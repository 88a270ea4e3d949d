"""HTTP for authorization servers: addresses come from strangers, and requests to token endpoints carry secrets.

Decisions (reliability.md S10).
- Only https, or http to loopback; and loopback only for a server that is on loopback itself: no stranger has us
  send requests to what runs on this machine.
- Never to link-local addresses and those where clouds hand out credentials, whatever name resolves to them. A
  name is resolved here, and the connection made to what was found: a moment later it may resolve otherwise.
- Redirects are not followed here; the SDK follows them within an origin.
- Answers are not compressed, of `MAX_ANSWER` bytes at most, and take `ANSWER_SECONDS` at most.
"""

from __future__ import annotations

import base64
import re
import socket
import ssl
from contextlib import aclosing, asynccontextmanager
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, cast
from urllib.parse import quote

import attrs
import httpx2
import msgspec
import trio

from daemon.config.listen import is_loopback, numeric
from daemon.protocol import IDENTITY

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator


MARGIN_SECONDS = 60.0
"""Before an access token ends it is renewed: time for a request to arrive, and for clocks that differ."""

MARGIN_SHARE = 0.2
"""Of a token's life, at most, is that margin: one of a minute would else be renewed for each call."""

CODE = re.compile(r"[a-z_]{1,40}")
"""What error codes look like (RFC 6749, 4.1.2.1 and 5.2); anything else is not repeated."""

MAX_TOKEN = 64 * 1024
"""Characters of a token; those with all of a company's groups in them have some ten thousand."""

_TOKEN = re.compile(r"[\x20-\x7e]+")
"""RFC 6749, appendices A.12 and A.17."""

OK = 200


class TokenGrant(msgspec.Struct):
    """What a token endpoint grants (RFC 6749, section 5.1)."""

    access_token: str
    expires_in: float | str | None = None
    refresh_token: str | None = None
    scope: str | None = None

    def __repr__(self) -> str:
        return "TokenGrant()"


def is_usable(*tokens: str | None) -> bool:
    """Whether tokens can be kept and sent; one that cannot would be quoted by whatever refuses to send it."""
    return all(token is None or (len(token) <= MAX_TOKEN and _TOKEN.fullmatch(token)) for token in tokens)


class _Refusal(msgspec.Struct):
    error: str


def error_code(content: bytes) -> str:
    """The error code in an answer (RFC 6749, section 5.2); empty if there is none that can be repeated."""
    try:
        code = msgspec.json.decode(content, type=_Refusal).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
    return code if CODE.fullmatch(code) else ""


def credentials(client_id: str, secret: str | None, method: str) -> tuple[dict[str, str], dict[str, str]]:
    """How a client shows who it is (RFC 6749, section 2.3.1): headers, and fields of the form.

    Args:
        client_id: the client's id.
        secret: its secret, if it has one.
        method: none, client_secret_post or client_secret_basic.
    """
    if secret is None or method == "none":
        return {}, {"client_id": client_id}
    if method == "client_secret_post":
        return {}, {"client_id": client_id, "client_secret": secret}
    pair = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"
    return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}, {}


def times(expires_in: float | str | None, now: float) -> tuple[float | None, float | None]:
    """When a token is renewed and when it ends, in seconds since the epoch; None if nobody knows.

    Args:
        expires_in: seconds, as the authorization server wrote them, which may be a string.
        now: seconds since the epoch.
    """
    try:
        seconds = float(expires_in) if expires_in is not None else None
    except ValueError:
        seconds = None
    if seconds is None or not 0 < seconds < float("inf"):
        return None, None
    return now + seconds - min(MARGIN_SECONDS, seconds * MARGIN_SHARE), now + seconds


MAX_ANSWER = 1 << 20
"""Most bytes of an answer: metadata and tokens have some thousand."""

ANSWER_SECONDS = 30.0
"""For a whole answer: authorization servers are asked seldom, and some have to wake up."""

CONNECT_SECONDS = 10.0
"""For a connection to one address of a host."""

MAX_ADDRESSES = 4
"""Of a host that are tried one after the other: the first of each family, and one in reserve."""

SINGLE_USE = httpx2.Limits(max_connections=None, max_keepalive_connections=0)

FORBIDDEN = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",  # this host
            "169.254.0.0/16",  # link-local; AWS, Azure, Google and others at 169.254.169.254
            "100.100.100.200/32",  # Alibaba
            "192.0.0.192/32",  # Oracle
            "168.63.129.16/32",  # Azure's own agent
            "224.0.0.0/3",  # multicast, reserved, broadcast
            "::/128",
            "fe80::/10",  # link-local
            "64:ff9b::a9fe:0/112",  # the link-local of IPv4, behind NAT64
            "2002:a9fe::/32",  # the same, by 6to4
            "fd00:ec2::/32",  # AWS
            "fd20:ce::/32",  # Google
            "ff00::/8",
        ),
    )
)
"""Where no request goes: nothing there is an authorization server, and some of it hands out credentials."""


class UnsafeAddress(httpx2.TransportError):
    """No request is sent to this url; the text says why."""


def refuse_unsafe(url: httpx2.URL, *, local: bool) -> None:
    """Refuse a url to which neither we nor the user's browser should go.

    Args:
        url: what an authorization server, or one who claims to be one, has named.
        local: whether the MCP server is on loopback itself.

    Raises:
        UnsafeAddress: it is one; the text names the origin, never more.
    """
    place = f"{url.scheme}://{url.netloc.decode('ascii', 'replace').rpartition('@')[2]}"
    loopback = is_loopback(url.host)
    if url.scheme not in {"http", "https"} or not url.host:
        raise UnsafeAddress(f"'{url.scheme}:' is no address of an authorization server")
    if url.userinfo:
        raise UnsafeAddress(f"the address at {place} has a password in it")
    if url.scheme == "http" and not loopback:
        raise UnsafeAddress(f"{place} is not encrypted: logins go over https only")
    if loopback and not local:
        raise UnsafeAddress(f"{place} is this machine, where a server elsewhere has no business")


@asynccontextmanager
async def guarded_client(url: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A client for all requests of a login at the MCP server with this url."""
    tls = await trio.to_thread.run_sync(ssl.create_default_context)
    # Connections are made to addresses, which several hosts may share: none is used again.
    inner = httpx2.AsyncHTTPTransport(verify=tls, trust_env=False, limits=SINGLE_USE)
    guard = GuardedTransport(inner, local=is_loopback(httpx2.URL(url).host))
    timeout = httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
    async with httpx2.AsyncClient(transport=guard, timeout=timeout, trust_env=False) as client:
        yield client


@attrs.frozen(eq=False)
class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends only what may be sent, and hands over only what can be taken in."""

    inner: httpx2.AsyncBaseTransport
    """What sends."""
    local: bool = attrs.field(kw_only=True)
    """Whether requests may go to loopback."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request to one of the addresses of its host."""
        refuse_unsafe(request.url, local=self.local)
        request.headers["accept-encoding"] = "identity"
        request.headers.setdefault("user-agent", "{name}/{version}".format(**IDENTITY))
        until = trio.current_time() + ANSWER_SECONDS
        with trio.move_on_at(until) as waiting:
            response = await self._first_reachable(request)
        if waiting.cancelled_caught:
            raise _too_slow(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.DecodingError("the answer is compressed, which was not asked for", request=request)
        response.stream = _BoundedStream(cast("httpx2.AsyncByteStream", response.stream), request, until)
        return response

    async def _first_reachable(self, request: httpx2.Request) -> httpx2.Response:
        host = request.url.host
        failure: httpx2.TransportError | None = None
        for address in await self._addresses(host, request):
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
        raise failure or httpx2.ConnectError(f"{host} has no address", request=request)

    async def _addresses(self, host: str, request: httpx2.Request) -> list[str]:
        try:
            found = await trio.socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpx2.ConnectError(f"{host} cannot be found: {error}", request=request) from error
        addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
        for each in addresses:
            address = numeric(each) or ip_address(each.partition("%")[0])
            if any(address in network for network in FORBIDDEN):
                raise UnsafeAddress(f"{host} leads to {each}, where no authorization server is")
            if address.is_loopback and not self.local:
                raise UnsafeAddress(
                    f"{host} leads to this machine, which a server elsewhere has no business with"
                )
        return addresses[:MAX_ADDRESSES]

    async def aclose(self) -> None:
        """Close the connections."""
        await self.inner.aclose()


def _too_slow(request: httpx2.Request) -> httpx2.ReadTimeout:
    return httpx2.ReadTimeout(f"no whole answer within {ANSWER_SECONDS:g} s", request=request)


@attrs.frozen(eq=False)
class _BoundedStream(httpx2.AsyncByteStream):
    inner: httpx2.AsyncByteStream
    request: httpx2.Request
    until: float
    """On trio's clock: one who sends a byte now and then never meets a timeout of the client's."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async with aclosing(cast("AsyncGenerator[bytes]", aiter(self.inner))) as chunks:
            async for chunk in chunks:
                size += len(chunk)
                if size > MAX_ANSWER:
                    raise httpx2.ReadError(f"the answer has more than {MAX_ANSWER >> 20} MiB")
                if trio.current_time() > self.until:
                    raise _too_slow(self.request)
                yield chunk

    async def aclose(self) -> None:
        """Close the response."""
        await self.inner.aclose()
