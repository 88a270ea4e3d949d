"""Runs a login in its own process, which exchanges messages over stdin and stdout, one per line.

Logins without a user use the SDK's providers: client credentials (RFC 6749, 4.4), or a grant (RFC 7523). Only
the configured issuer gets secrets.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import attrs
import httpx2
import msgspec
import trio
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthTokenError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
from mcp.client.auth.utils import issuers_match
from mcp.shared.auth import JWT_BEARER_GRANT_TYPE

from daemon.authorization import guarded_http, login, logins
from daemon.authorization.guarded_http import guarded_client
from daemon.authorization.login import LoginFlow
from daemon.authorization.logins import Login, NoLogin, NotNow, Wish
from daemon.authorization.redirect import Redirect, listen
from daemon.config.expand import read_file
from daemon.config.login_keys import Auth, AuthType
from daemon.host.sockets import reason
from daemon.processes import proc
from daemon.protocol import decoded

EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - a type

OF_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}  # RFC 7518, section 3.1


ADVICE = {
    AuthType.CLIENT_CREDENTIALS: "correct clientId and its secret or key, or allow this client there",
    AuthType.ENTERPRISE_MANAGED: "correct clientId and clientSecret, or allow such grants there",
    AuthType.WORKLOAD_IDENTITY: "see that tokenFile holds a current token for this audience",
}  # after a refusal


class _OneIssuer(OAuthClientProvider):
    """Accepts only the configured authorization server, spelt as in its metadata: the SDK compares letters."""

    _issuer: str | None

    def _select_authorization_server(self, advertised: list[str]) -> str:
        chosen, ours = super()._select_authorization_server(advertised), self._issuer
        if ours is not None and issuers_match(ours, chosen):
            return ours
        raise NoLogin(
            f"the server names {chosen} as its authorization server, and `auth` names {ours}: no secret"
            " was sent; correct `issuer` if the server is right"
        )


class _BySecret(_OneIssuer, ClientCredentialsOAuthProvider):
    """Logs in by client credentials with a secret."""


class _ByKey(_OneIssuer, PrivateKeyJWTOAuthProvider):
    """Logs in by client credentials with a key."""


UNSENT = "-"  # replaces an id or a secret that the SDK wants but `_ByPlatform` never sends


class _ByPlatform(IdentityAssertionOAuthProvider):
    """Logs in by the platform's token alone, without a secret."""

    def _build_token_request(self, scope: str | None, assertion: str) -> httpx2.Request:
        form = {"grant_type": JWT_BEARER_GRANT_TYPE, "assertion": assertion, "resource": self._resource}
        client_id = self._client.client_id or UNSENT
        form |= {} if client_id == UNSENT else {"client_id": client_id}
        form |= {"scope": scope} if scope else {}
        assert self._token_endpoint is not None
        return httpx2.Request("POST", self._token_endpoint, data=form)


class MachineLogin(login.SdkLogin):
    """A login without a user."""

    _advice = "allow this client there"
    _issuer = ""

    def __init__(self, wish: Wish, auth: Auth, client: httpx2.AsyncClient) -> None:
        scope = " ".join(auth.scopes) or None
        super().__init__(wish, client, scope, login.TransientStorage(None))
        self._auth, self._issuer, self._method = auth, auth.issuer, login.SECRET_METHODS[0]
        self._metadata: login.ServerMetadata | None = None
        self._provider = self._new_provider()

    def _new_provider(self) -> httpx2.Auth:
        auth, issuer, client_id = self._auth, self._issuer, self._auth.client_id or UNSENT
        place, secret = (self._url, self._memory, client_id), auth.client_secret or ""
        match auth.type:
            case AuthType.WORKLOAD_IDENTITY:
                return _ByPlatform(*place, UNSENT, issuer, self._assertion, self._scope)
            case AuthType.ENTERPRISE_MANAGED:
                return IdentityAssertionOAuthProvider(
                    *place, secret, issuer, self._id_jag, self._scope, self._method
                )
            case _ if (key := auth.private_key) is not None:
                signing = SignedJWTParameters(
                    issuer=client_id, subject=client_id, signing_key=key, signing_algorithm=_algorithm(key)
                )
                return _ByKey(*place, signing.create_assertion_provider(), issuer=issuer)
            case _:
                return _BySecret(*place, secret, self._method, issuer=issuer)

    def _fit(self, metadata: login.ServerMetadata) -> None:
        if self._metadata is not None or not issuers_match(metadata.issuer, self._issuer):
            return
        self._metadata = metadata
        known = metadata.token_endpoint_auth_methods_supported or login.SECRET_METHODS
        method = next((each for each in login.SECRET_METHODS if each in known), self._method)
        if (metadata.issuer, method) != (self._issuer, self._method):
            self._issuer, self._method = metadata.issuer, method
            self._provider = self._new_provider()
            raise login.Respelt

    async def _assertion(self, _audience: str, _resource: str) -> str:
        """The token in the configured file, which another program renews."""
        file = Path(self._auth.token_file or "")
        try:
            token = read_file(file).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise NoLogin(f"tokenFile, {file}, cannot be read: {reason(error)}") from None
        if not guarded_http.is_usable(token):
            raise NoLogin(f"tokenFile, {file}, holds no token")
        return token

    async def _id_jag(self, audience: str, resource: str) -> str:
        idp = self._auth.idp
        assert idp is not None
        headers, shown = guarded_http.credentials(idp.client_id, idp.client_secret, login.SECRET_METHODS[0])
        form = {
            **shown,
            "grant_type": EXCHANGE,
            "requested_token_type": ID_JAG,
            "audience": audience,
            "resource": resource,
            "subject_token": await self._assertion(audience, resource),
            "subject_token_type": ID_TOKEN,
        }
        form |= {"scope": self._scope} if self._scope else {}
        self._last = await self._client.post(idp.token_endpoint, data=form, headers=headers)
        advice = "see that tokenFile holds a current token, and that idp.clientId may use it"
        if self._last.status_code != guarded_http.OK:
            raise self._refused(idp.token_endpoint, advice)
        if (grant := decoded(guarded_http.decode_grant, self._last.content)) is None:
            raise NoLogin(f"the answer of {idp.token_endpoint} cannot be understood: {advice}")
        return grant.access_token

    def _refused(self, issuer: str, advice: str) -> NoLogin:
        kind = NotNow if self._last is not None and login.is_unwell(self._last) else NoLogin
        return kind(f"{issuer} gave no token{login.answered(self._last)}: {advice}")

    def _failed(self, error: OAuthFlowError) -> NoLogin:
        if isinstance(error, OAuthTokenError):
            return self._refused(self._issuer, ADVICE[self._auth.type])
        if self._unwell is not None:
            return NotNow(
                f"the metadata for a login cannot be fetched{login.answered(self._unwell)}: try again later"
            )
        return NoLogin(
            f"{self._server} and {self._issuer} publish no metadata that match: correct issuer and"
            " url, or ask their operators"
        )

    def _login(self) -> Login:
        tokens = self._memory.tokens
        if tokens is None or self._metadata is None:
            raise NoLogin(f"{self._issuer} gave no token: ask its operator")
        return self._made(tokens, self._metadata.token_endpoint, self._auth.client_id or "")


def _algorithm(pem: str) -> str:
    with suppress(ValueError, TypeError, UnsupportedAlgorithm):
        match key := load_pem_private_key(pem.encode(), None):
            case rsa.RSAPrivateKey():
                return "RS256"
            case ed25519.Ed25519PrivateKey():
                return "EdDSA"
            case ec.EllipticCurvePrivateKey() if key.curve.name in OF_CURVES:
                return OF_CURVES[key.curve.name]
    raise NoLogin("privateKey cannot sign tokens: write an unencrypted RSA, EC or Ed25519 key in PEM")


LOGIN_SECONDS = 600.0  # longest login: a user may look for a password and a telephone, and no link lasts longer

MAX_LINE = 1 << 20  # bytes of a received line: the longest is an address of some thousand characters

RECEIVED = 1 << 16  # bytes of one read

_order = msgspec.json.Decoder(logins.Order)


@attrs.define(eq=False)
class Lines:
    """Reads messages from stdin, line by line."""

    source: trio.abc.ReceiveStream
    _rest: bytearray = attrs.field(factory=bytearray)

    async def next(self) -> logins.Order | None:
        """The next message; None at the end, or after an invalid line."""
        while b"\n" not in self._rest:
            chunk = await self.source.receive_some(RECEIVED)
            if not chunk or len(self._rest) > MAX_LINE:
                return None
            self._rest += chunk
        line, _, rest = self._rest.partition(b"\n")
        self._rest = rest
        message: logins.Order | None = decoded(_order.decode, line)
        return message


async def serve(lines: Lines, say: Callable[[logins.Report], Awaitable[None]]) -> None:
    """Perform one login and report its result, unless the caller has gone."""
    wish = await lines.next()
    if not isinstance(wish, Wish):
        return
    async with trio.open_nursery() as nursery:
        try:
            if wish.auth is not None:
                nursery.start_soon(_hear, lines, None, nursery.cancel_scope)
                async with guarded_client(wish.url) as client:
                    own = await MachineLogin(wish, wish.auth, client).run()
                result: logins.Done | logins.Failed = logins.Done(login=own)
            else:
                result = await _login(wish, lines, say, nursery)
        except (logins.NoLogin, logins.LoginsTrouble) as error:
            result = logins.Failed(str(error), temporary=isinstance(error, logins.NotNow))
        except Exception as error:  # noqa: BLE001 - its text, and a traceback, may hold secrets
            result = logins.Failed(f"internal error in mcpd ({type(error).__name__}): please report it")
        await say(result)
        nursery.cancel_scope.cancel()


async def _login(
    wish: logins.Wish, lines: Lines, say: Callable[[logins.Report], Awaitable[None]], nursery: trio.Nursery
) -> logins.Done:
    """Log in and store the login. Raises `NoLogin` if that fails, `LoginsTrouble` if it cannot be stored."""
    try:
        store = logins.logins_in(Path(wish.directory), secret_service=wish.secret_service)
    except ImportError:
        raise logins.NoLogin(
            "logins in the Secret Service need the extra: pip install 'mcpd-supervisor[secret-service]'"
        ) from None
    with trio.move_on_after(LOGIN_SECONDS):
        redirect = await listen(nursery, wish.oauth.redirect_port)
        nursery.start_soon(_hear, lines, redirect, nursery.cancel_scope)
        async with guarded_client(wish.url) as client:
            login = await LoginFlow(wish, redirect, client, say).run()
        await trio.to_thread.run_sync(_keep, store, wish.server, login)
        return logins.Done(login.scope, login.expires_at)
    raise logins.NoLogin(f"nobody has finished the login within {LOGIN_SECONDS / 60:g} minutes: begin again")


async def _hear(lines: Lines, redirect: Redirect | None, login: trio.CancelScope) -> None:
    while (message := await lines.next()) is not None:
        if isinstance(message, logins.Answer) and redirect is not None:
            redirect.take_pasted(message.url)
    login.cancel()


def _keep(store: logins.Logins, server: str, login: logins.Login) -> None:
    with store.locked(server):
        store.write(server, login)


async def main() -> None:
    """Perform the login that stdin asks for."""
    out = trio.lowlevel.FdStream(os.dup(sys.stdout.fileno()))

    async def say(message: logins.Report) -> None:
        await out.send_all(msgspec.json.encode(message) + b"\n")

    await serve(Lines(trio.lowlevel.FdStream(os.dup(sys.stdin.fileno()))), say)


if __name__ == "__main__":
    proc.hide()
    # The SDK logs failures with the answers of the authorization server.
    logging.disable()
    try:
        trio.run(main)
    except Exception as error:  # noqa: BLE001 - a traceback may hold secrets, and nobody is left to read it
        sys.exit(f"the login ended: {type(error).__name__}")
