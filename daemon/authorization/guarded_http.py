"""HTTP to authorization servers, and the renewal of tokens, by one caller at a time.

Requests go over https, or over http to loopback. Strangers choose the addresses, so only a login at a server on
loopback may reach loopback, and none may reach link-local addresses or clouds' metadata services.
"""

from __future__ import annotations

import base64
import re
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from importlib.resources import files
from ipaddress import ip_address, ip_network
from urllib.parse import quote

import httpx2
import msgspec
import trio

from daemon.authorization.logins import Login, Logins, LoginsTrouble, ServerLogins
from daemon.config.listen import is_loopback, numeric
from daemon.errors import McpdError
from daemon.host.checked_http import CONNECT_SECONDS, CheckedTransport
from daemon.protocol import decoded

MARGIN_SECONDS = 60.0  # renew this long before a token ends: time for a request to arrive, and for clock skew

MARGIN_SHARE = 0.2
"""Caps `MARGIN_SECONDS` at this share of a token's life: else each call renews a one-minute token."""

CODE = re.compile(r"[a-z_]{1,40}")  # form of error codes (RFC 6749, 4.1.2.1 and 5.2); nothing else is repeated

MAX_TOKEN = 64 * 1024  # characters of a token; one with all of a company's groups has some ten thousand

_TOKEN = re.compile(r"[\x20-\x7e]+")  # RFC 6749, appendices A.12 and A.17

OK = 200


class TokenGrant(msgspec.Struct):
    """A token endpoint's successful answer (RFC 6749, section 5.1)."""

    access_token: str
    expires_in: float | str | None = None
    refresh_token: str | None = None
    scope: str | None = None

    def __repr__(self) -> str:
        return "TokenGrant()"


def is_usable(*tokens: str | None) -> bool:
    """Whether tokens can be stored and sent; a header with an unusable token would be quoted in an error."""
    return all(token is None or (len(token) <= MAX_TOKEN and _TOKEN.fullmatch(token)) for token in tokens)


class _Refusal(msgspec.Struct):
    error: str


_decode_refusal = msgspec.json.Decoder(_Refusal).decode
decode_grant = msgspec.json.Decoder(TokenGrant).decode


def error_code(content: bytes) -> str:
    """The error code in an answer (RFC 6749, section 5.2); empty without one that is safe to repeat."""
    refusal = decoded(_decode_refusal, content)
    return refusal.error if refusal is not None and CODE.fullmatch(refusal.error) else ""


def credentials(client_id: str, secret: str | None, method: str) -> tuple[dict[str, str], dict[str, str]]:
    """Headers and fields for client_secret_post, client_secret_basic (RFC 6749, 2.3.1) or no authentication."""
    if secret is None or method == "none":
        return {}, {"client_id": client_id}
    if method == "client_secret_post":
        return {}, {"client_id": client_id, "client_secret": secret}
    pair = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"
    return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}, {}


def times(expires_in: float | str | None, now: float) -> tuple[float | None, float | None]:
    """When a token is renewed and when it expires, in epoch seconds; None if `expires_in` does not say."""
    try:
        seconds = float(expires_in) if expires_in is not None else None
    except ValueError:
        seconds = None
    if seconds is None or not 0 < seconds < float("inf"):
        return None, None
    return now + seconds - min(MARGIN_SECONDS, seconds * MARGIN_SHARE), now + seconds


MAX_ANSWER = 1 << 20  # bytes of an answer: metadata and tokens have some thousand

ANSWER_SECONDS = 30.0  # time for a whole answer: such servers are asked seldom, and some have to wake up

SINGLE_USE = httpx2.Limits(max_connections=None, max_keepalive_connections=0)

FORBIDDEN = tuple(
    ip_network(line.split()[0])
    for line in (files("daemon.authorization") / "forbidden_networks.txt").read_text().splitlines()
)  # destinations of no request: no authorization server is there, and some hand out credentials


class UnsafeAddress(httpx2.TransportError):
    """mcpd sends no request to this URL; the text says why."""


def refuse_unsafe(url: httpx2.URL, *, local: bool) -> None:
    """Raise `UnsafeAddress` for a URL that must not be visited; `local` says that the server is on loopback."""
    place = f"{url.scheme}://{url.netloc.decode('ascii', 'replace').rpartition('@')[2]}"
    loopback = is_loopback(url.host)
    if url.scheme not in {"http", "https"} or not url.host:
        raise UnsafeAddress(f"'{url.scheme}:' is not an address of an authorization server")
    if url.userinfo:
        raise UnsafeAddress(f"the URL at {place} has a password in it")
    if url.scheme == "http" and not loopback:
        raise UnsafeAddress(f"{place} is not encrypted: logins go over https only")
    if loopback and not local:
        raise UnsafeAddress(f"{place} is this machine: a remote server must not name it")


@asynccontextmanager
async def guarded_client(url: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A client for all requests of a login at the MCP server with this URL."""
    tls = await trio.to_thread.run_sync(ssl.create_default_context)
    # Connections go to addresses, which several hosts may share: none is reused.
    inner = httpx2.AsyncHTTPTransport(verify=tls, trust_env=False, limits=SINGLE_USE)
    guard = guarded_transport(inner, local=is_loopback(httpx2.URL(url).host))
    timeout = httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
    async with httpx2.AsyncClient(transport=guard, timeout=timeout, trust_env=False) as client:
        yield client


def guarded_transport(inner: httpx2.AsyncBaseTransport, *, local: bool) -> CheckedTransport:
    """A transport for logins at a server, which is on loopback if `local`."""
    return CheckedTransport(
        inner=inner,
        check_url=partial(refuse_unsafe, local=local),
        check_addresses=partial(_refuse_forbidden, local=local),
        most=MAX_ANSWER,
        seconds=ANSWER_SECONDS,
    )


def _refuse_forbidden(host: str, addresses: list[str], *, local: bool) -> None:
    for each in addresses:
        address = numeric(each) or ip_address(each.partition("%")[0])
        if any(address in network for network in FORBIDDEN):
            raise UnsafeAddress(f"{host} resolves to {each}: no authorization server can be there")
        if address.is_loopback and not local:
            raise UnsafeAddress(f"{host} resolves to this machine: a remote server must not name it")


RENEWAL_SECONDS = 30.0  # for a renewal, which is not interrupted: a lost answer loses its token

OVER = frozenset({"invalid_grant", "invalid_client", "unauthorized_client", "unsupported_grant_type"})
"""Error codes after which a login cannot be renewed (RFC 6749, section 5.2)."""

CLIENT_ERROR = range(400, 500)


class LoginOver(McpdError):
    """A login has ended and cannot be renewed; the text says why, as a part of a sentence."""


class AuthorizationUnavailable(httpx2.TransportError):
    """An authorization server fails for now; the login stays."""


async def fresh(logins: ServerLogins, server: str, url: str, *, rejected: str | None) -> Login | None:
    """The login for a request to `url`, renewed if necessary; None if there is none.

    `rejected` is the access token that the server has just refused. Raises LoginOver if the user must log
    in again, LoginsTrouble if the login cannot be read or stored, and httpx2.TransportError if the
    authorization server is unreachable or does not renew for now.
    """
    login = await _read(logins.kept, server, url)
    if login is None or _serves(login, rejected):
        return login
    renew = partial(_renewed, logins.kept, server, url, rejected)
    return await logins.renewals[server, url].renewed(login, rejected, renew, httpx2.TransportError)


async def _renewed(logins: Logins, server: str, url: str, rejected: str | None) -> Login | None:
    async with _held(logins, server):
        login = await _read(logins, server, url)
        if login is None or _serves(login, rejected):
            return login
        # A test of the store: after the renewal a failure would lose the token.
        await trio.to_thread.run_sync(logins.write, server, login)
        try:
            async with guarded_client(url) as client:
                # Once requested, nothing but time keeps the new token from the disk.
                with trio.CancelScope(shield=True):
                    renewed = await renew(login, client)
                    await trio.to_thread.run_sync(logins.write, server, renewed)
                return renewed
        except LoginOver:
            over = msgspec.structs.replace(login, refresh_token=None)
            await trio.to_thread.run_sync(logins.write, server, over)
            raise


@asynccontextmanager
async def _held(logins: Logins, server: str) -> AsyncIterator[None]:
    held = ExitStack()
    try:
        await trio.to_thread.run_sync(held.enter_context, logins.locked(server))
        yield
    finally:
        # Closing a file takes microseconds, and must happen even on cancellation.
        held.close()


async def _read(logins: Logins, server: str, url: str) -> Login | None:
    return await trio.to_thread.run_sync(logins.read, server, url)


def _serves(login: Login, rejected: str | None) -> bool:
    """Whether a login is usable without a renewal; raises LoginOver if a renewal is impossible."""
    if login.serves(rejected):
        return True
    if login.refresh_token is None:
        if login.access_token != rejected and (login.expires_at is None or time.time() < login.expires_at):
            return True
        why = "the server rejected the login" if login.access_token == rejected else "the login has expired"
        raise LoginOver(f"{why}, and the authorization server gave no refresh token")
    return False


async def renew(login: Login, client: httpx2.AsyncClient) -> Login:
    """Renew a login (RFC 6749, section 6). The caller holds its lock, and stores the result.

    Raises `LoginOver` if refused, `httpx2.TransportError` if the authorization server is unreachable or fails.
    """
    form = {"grant_type": "refresh_token", "refresh_token": login.refresh_token or ""}
    if login.resource is not None:
        form["resource"] = login.resource
    response = await _posted(client, login.token_endpoint, login, form)
    if response.status_code != OK:
        raise _refused(response)
    if (grant := decoded(decode_grant, response.content)) is None:
        raise AuthorizationUnavailable("the authorization server answered without a token")
    if not is_usable(grant.access_token, grant.refresh_token):
        raise AuthorizationUnavailable("the authorization server answered with a token that cannot be sent")
    # Omitted members stay as they were (sections 5.1 and 6).
    renew_at, expires_at = times(grant.expires_in, time.time())
    return msgspec.structs.replace(
        login,
        access_token=grant.access_token,
        refresh_token=grant.refresh_token or login.refresh_token,
        scope=grant.scope or login.scope,
        renew_at=renew_at,
        expires_at=expires_at,
    )


async def revoke(login: Login) -> bool:
    """End a login at its authorization server (RFC 7009), refresh token first; False if the server cannot.

    Raises `httpx2.TransportError` if the authorization server is unreachable or refuses.
    """
    if login.revocation_endpoint is None:
        return False
    tokens = {"refresh_token": login.refresh_token, "access_token": login.access_token}
    async with guarded_client(login.url) as client:
        for hint, token in tokens.items():
            if token is None:
                continue
            form = {"token": token, "token_type_hint": hint}
            response = await _posted(client, login.revocation_endpoint, login, form)
            if response.status_code != OK:
                raise AuthorizationUnavailable(f"the authorization server answered HTTP {response.status_code}")
    return True


async def _posted(
    client: httpx2.AsyncClient, url: str, login: Login, form: Mapping[str, str]
) -> httpx2.Response:
    headers, shown = credentials(login.client_id, login.client_secret, login.auth_method)
    with trio.move_on_after(RENEWAL_SECONDS):
        try:
            return await client.post(
                url, data={**form, **shown}, headers={**headers, "accept": "application/json"}
            )
        except httpx2.DecodingError as error:
            raise AuthorizationUnavailable(str(error)) from None
    raise AuthorizationUnavailable(f"the authorization server has not answered for {RENEWAL_SECONDS:g} s")


def _refused(response: httpx2.Response) -> Exception:
    """Turn a refusal into an exception by its error code alone, because its description may say anything."""
    status = response.status_code
    code = error_code(response.content)
    if status in CLIENT_ERROR and code in OVER:
        return LoginOver(f"the authorization server no longer renews the login ({code})")
    return AuthorizationUnavailable(f"the authorization server answered HTTP {status} to a renewal")


class Ended(msgspec.Struct, frozen=True, rename="camel"):
    """The result of ending a login."""

    existed: bool  # whether there was one; it is forgotten
    revoked: bool = False  # whether its authorization server has ended it, too
    problem: str = ""  # the reason why not, as part of a sentence; empty if that succeeded or was unnecessary


async def end_login(kept: Logins, server: str, url: str | None) -> Ended:
    """End a login for `url`; None: for any. Raises `LoginsTrouble` if the login cannot be removed and stays."""
    existed, login = await trio.to_thread.run_sync(_taken_out, kept, server, url)
    if login is None:
        return Ended(existed, problem="it could not be read" if existed else "")
    try:
        revoked = await revoke(login)
    except httpx2.TransportError as error:
        return Ended(existed, problem=str(error) or type(error).__name__)
    return Ended(existed, revoked, "" if revoked else "its authorization server cannot end logins")


def _taken_out(kept: Logins, server: str, url: str | None) -> tuple[bool, Login | None]:
    """Remove a login in any state. Returns whether there was one, and the login if it could be read."""
    with suppress(LoginsTrouble):
        # A lock creates a file, which a mistyped name should not.
        if url is None and kept.read(server, None) is None:
            return False, None
    with kept.locked(server):
        try:
            login = kept.read(server, url)
            existed = login is not None
        except LoginsTrouble:
            login, existed = None, True
        kept.remove(server)
    return existed, login
