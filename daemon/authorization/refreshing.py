"""Tokens renewed before they end, by one caller at a time, and revoked at the end of a login.

An authorization server may replace the refresh token with each renewal, and take whoever comes with the old one
for a thief. So a login is renewed under its lock, which other daemons and commands take as well, and read again
once that is held. What was renewed is on the disk before anybody has it.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import httpx2
import msgspec
import trio

from daemon.authorization.guarded_http import (
    OK,
    TokenGrant,
    credentials,
    error_code,
    guarded_client,
    is_usable,
    times,
)
from daemon.authorization.logins import LoginsTrouble
from daemon.errors import McpdError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from daemon.authorization.logins import Login, Logins


RENEWAL_SECONDS = 30.0
"""For a renewal, which is not given up in the middle: the token that answers a lost request is lost, too."""

OVER = frozenset({"invalid_grant", "invalid_client", "unauthorized_client", "unsupported_grant_type"})
"""The errors by which an authorization server says that it renews no more (RFC 6749, section 5.2)."""

CLIENT_ERROR = range(400, 500)


class LoginOver(McpdError):
    """A login has ended and cannot be renewed; the text says why, as part of a sentence."""


class AuthorizationUnavailable(httpx2.TransportError):
    """An authorization server does not answer as it should just now; the login stays as it is."""


class _Turn(msgspec.Struct, eq=False, weakref=True):
    """Those of this process who wait for the same renewal."""

    lock: trio.Lock = msgspec.field(default_factory=trio.Lock)
    failed: int = 0
    """How many attempts have failed."""
    failure: Exception | None = None
    """What the last of them met."""


_TURNS: WeakValueDictionary[tuple[str, str], _Turn] = WeakValueDictionary()
"""By server and url, for as long as somebody waits: a lock of files alone would hold a thread for each."""


async def fresh(
    logins: Logins, server: str, url: str, *, rejected: str | None, scope: str | None = None
) -> Login | None:
    """The login for a request, renewed if need be; None if there is none.

    Args:
        logins: where it is kept.
        server: the server's name.
        url: where the request goes.
        rejected: the access token that the server has just refused.
        scope: what the server wants the token to cover; a renewal covers no more than the login did.

    Raises:
        LoginOver: somebody has to log in again.
        LoginsTrouble: it cannot be read or kept.
        httpx2.TransportError: the authorization server cannot be reached, or does not renew, just now.
    """
    login = await _read(logins, server, url)
    if login is None or _serves(login, rejected, scope):
        return login
    key = (server, url)
    turn = _TURNS.setdefault(key, _Turn())
    failed = turn.failed
    async with turn.lock:
        if turn.failed > failed and turn.failure is not None:
            # Whoever was first has just tried: fifty calls are not fifty attempts.
            raise turn.failure
        try:
            return await _renewed(logins, server, url, rejected)
        except (McpdError, httpx2.TransportError) as error:
            turn.failed, turn.failure = turn.failed + 1, error
            raise


async def _renewed(logins: Logins, server: str, url: str, rejected: str | None) -> Login | None:
    async with _held(logins, server):
        login = await _read(logins, server, url)
        if login is None or _serves(login, rejected, None):
            return login
        # It shows that the next one can be kept; after the renewal it would be too late.
        await trio.to_thread.run_sync(logins.write, server, login)
        try:
            async with guarded_client(url) as client:
                return await _renewed_and_kept(logins, server, login, client)
        except LoginOver:
            over = msgspec.structs.replace(login, refresh_token=None)
            await trio.to_thread.run_sync(logins.write, server, over)
            raise
        except httpx2.TransportError:
            if login.access_token != rejected and (login.expires_at or 0.0) > time.time():
                return login
            raise


async def _renewed_and_kept(logins: Logins, server: str, login: Login, client: httpx2.AsyncClient) -> Login:
    """A login's successor; once it is asked for, nothing but time keeps it from the disk."""
    renewed = login
    with trio.CancelScope(shield=True):
        renewed = await renew(login, client)
        await trio.to_thread.run_sync(logins.write, server, renewed)
    return renewed


@asynccontextmanager
async def _held(logins: Logins, server: str) -> AsyncIterator[None]:
    """A login's lock, waited for in a thread."""
    held = ExitStack()
    try:
        await trio.to_thread.run_sync(held.enter_context, logins.locked(server))
        yield
    finally:
        # It closes a file, which takes microseconds, and must happen even if we are cancelled.
        held.close()


async def _read(logins: Logins, server: str, url: str) -> Login | None:
    return await trio.to_thread.run_sync(logins.read, server, url)


def _serves(login: Login, rejected: str | None, scope: str | None) -> bool:
    """Whether a login serves as it is; False: once it is renewed.

    Raises:
        LoginOver: not even then.
    """
    missing = set((scope or "").split()) - set((login.scope or "").split())
    if missing and login.scope is not None:
        raise LoginOver(f"the server wants the scope '{' '.join(sorted(missing))}', which was not granted")
    if login.access_token != rejected and (login.renew_at is None or time.time() < login.renew_at):
        return True
    if login.refresh_token is None:
        if login.access_token != rejected and (login.expires_at is None or time.time() < login.expires_at):
            return True
        why = "the server no longer takes it" if login.access_token == rejected else "it has expired"
        raise LoginOver(f"{why}, and the authorization server has given nothing to renew it with")
    return False


async def renew(login: Login, client: httpx2.AsyncClient) -> Login:
    """A login's successor (RFC 6749, section 6); whoever calls this holds its lock, and keeps what is returned.

    Raises:
        LoginOver: the authorization server refuses.
        httpx2.TransportError: it cannot be reached, or does not answer as it should, just now.
    """
    form = {"grant_type": "refresh_token", "refresh_token": login.refresh_token or ""}
    if login.resource is not None:
        form["resource"] = login.resource
    response = await _posted(client, login.token_endpoint, login, form)
    if response.status_code != OK:
        raise _refused(response)
    try:
        grant = msgspec.json.decode(response.content, type=TokenGrant)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise AuthorizationUnavailable("the authorization server answered without a token") from None
    if not is_usable(grant.access_token, grant.refresh_token):
        raise AuthorizationUnavailable("the authorization server answered with a token that cannot be sent")
    return with_grant(login, grant, time.time())


def with_grant(login: Login, grant: TokenGrant, now: float) -> Login:
    """A login with what was granted; what the grant leaves out stays (RFC 6749, sections 5.1 and 6)."""
    renew_at, expires_at = times(grant.expires_in, now)
    return msgspec.structs.replace(
        login,
        access_token=grant.access_token,
        refresh_token=grant.refresh_token or login.refresh_token,
        scope=grant.scope or login.scope,
        renew_at=renew_at,
        expires_at=expires_at,
    )


async def revoke(login: Login) -> bool:
    """End a login at its authorization server (RFC 7009); whether that could be told.

    The refresh token first: most servers end with it whatever came of it.

    Raises:
        httpx2.TransportError: the authorization server cannot be reached, or refuses.
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
    """What a refusal means; its description may say anything, so only the code is read."""
    status = response.status_code
    code = error_code(response.content)
    if status in CLIENT_ERROR and code in OVER:
        return LoginOver(f"the authorization server renews it no more ({code})")
    return AuthorizationUnavailable(f"the authorization server answered HTTP {status} to a renewal")


class Ended(msgspec.Struct, frozen=True, rename="camel"):
    """What became of a login that was to end."""

    existed: bool
    """Whether there was one; it is forgotten."""
    revoked: bool = False
    """Whether its authorization server has ended it, too."""
    problem: str = ""
    """Why it has not, as part of a sentence; empty if it has, or need not."""


async def end_login(kept: Logins, server: str, url: str | None) -> Ended:
    """End a login.

    Args:
        kept: where logins are kept.
        server: the server's name.
        url: what the login counts for; None: whatever there is.

    Raises:
        LoginsTrouble: it cannot be forgotten; nothing has happened.
    """
    existed, login = await trio.to_thread.run_sync(_taken_out, kept, server, url)
    if login is None:
        return Ended(existed, problem="it could not be read" if existed else "")
    try:
        revoked = await revoke(login)
    except httpx2.TransportError as error:
        return Ended(existed, problem=str(error) or type(error).__name__)
    return Ended(existed, revoked, "" if revoked else "its authorization server offers no way to end one")


def _taken_out(kept: Logins, server: str, url: str | None) -> tuple[bool, Login | None]:
    """Whether there was a login, and what it was; forgotten whatever state it was in."""
    with suppress(LoginsTrouble):
        # A lock makes a file: not for a name that somebody has mistyped.
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
