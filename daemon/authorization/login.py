"""Performs one OAuth login, with the SDK's client or the device flow (RFC 8628), in its own process.

It adds to the SDK (`mcp.client.auth`): a choice of client authentication, the device flow, a test of the token,
and error messages, since the SDK's messages quote answers, which may hold secrets.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qs, urlsplit

import httpx2
import msgspec
import trio
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.client.auth.utils import issuers_match
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url

from daemon.authorization import guarded_http
from daemon.authorization.logins import (
    MAX_HEADER,
    DeviceCode,
    Login,
    LoginPage,
    NoLogin,
    NotNow,
    Wish,
)
from daemon.config.config_model import OAuth
from daemon.config.listen import is_loopback
from daemon.host.sockets import reason
from daemon.protocol import HANDSHAKE_VERSIONS, IDENTITY, decoded

if TYPE_CHECKING:
    from daemon.authorization.redirect import Redirect


GRANT = "urn:ietf:params:oauth:grant-type:device_code"  # the grant type (RFC 8628, 3.4)

INTERVAL = 5.0  # seconds between two polls by default, and added by `slow_down` (section 3.5)

MIN_INTERVAL, MAX_INTERVAL = 1.0, 60.0  # bounds of the interval, whatever the authorization server says

MAX_CODE = 64  # characters of a code that a user has to type


class DeviceAnswer(msgspec.Struct):
    """The device authorization endpoint's answer (RFC 8628, section 3.2)."""

    device_code: str
    user_code: str
    verification_uri: str
    expires_in: float
    verification_uri_complete: str | None = None
    interval: float = INTERVAL


async def authorize(
    client: httpx2.AsyncClient,
    endpoint: str,
    fields: Mapping[str, str],
    headers: Mapping[str, str],
    *,
    local: bool,
) -> DeviceAnswer:
    """Ask the device authorization endpoint for a code. Raises NoLogin if it gives none.

    `fields` and `headers` authenticate the client; `local` says whether the MCP server is on loopback.
    """
    response = await client.post(endpoint, data=dict(fields), headers=dict(headers))
    try:
        if response.status_code != guarded_http.OK:
            raise NoLogin(f"the authorization server issued no device code (HTTP {response.status_code})")
        answer = msgspec.json.decode(response.content, type=DeviceAnswer)
        for url in filter(None, (answer.verification_uri, answer.verification_uri_complete)):
            guarded_http.refuse_unsafe(httpx2.URL(url), local=local)
    except guarded_http.UnsafeAddress as unsafe:
        raise NoLogin(f"the authorization server names a page that is not safe to open: {unsafe}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, httpx2.InvalidURL):
        raise NoLogin("the authorization server issued no usable device code") from None
    # The code becomes part of our sentence, so it must not be one itself.
    if not re.fullmatch(rf"[!-~]{{1,{MAX_CODE}}}", answer.user_code):
        raise NoLogin("the authorization server issued a user code that cannot be typed")
    return answer


async def granted(
    client: httpx2.AsyncClient, answer: DeviceAnswer, request: Callable[[], httpx2.Request]
) -> httpx2.Response:
    """Poll until the user has agreed (RFC 8628, section 3.5). Raises `NoLogin` if refused or too late."""
    interval = min(max(answer.interval, MIN_INTERVAL), MAX_INTERVAL)
    with trio.move_on_after(max(answer.expires_in, 0.0)):
        while True:
            await trio.sleep(interval)
            try:
                response = await client.send(request())
            except httpx2.TransportError:
                # A connection that fails is a sign to poll less often (section 3.5).
                interval = min(interval + INTERVAL, MAX_INTERVAL)
                continue
            match guarded_http.error_code(response.content):
                case "authorization_pending":
                    continue
                case "slow_down":
                    interval = min(interval + INTERVAL, MAX_INTERVAL)
                case "access_denied":
                    raise NoLogin(
                        "the login was refused at the authorization server: begin again, and agree to it"
                    )
                case "expired_token":
                    break
                case _:
                    return response
    raise NoLogin("nobody typed the code in time: begin again, and type the new code")


def answered(last: httpx2.Response | None) -> str:
    """An answer's status and error code, to end a clause with; empty for a success without a code."""
    code = "" if last is None else guarded_http.error_code(last.content)
    if last is None or (last.status_code == guarded_http.OK and not code):
        return ""
    return f" (HTTP {last.status_code}{f', {code}' if code else ''})"


SECRET_METHODS: tuple[Literal["client_secret_basic", "client_secret_post"], ...] = (
    "client_secret_basic",
    "client_secret_post",
)  # ways to show a client's secret, the usual one first (RFC 7591, section 2)


class TransientStorage:
    """Holds the SDK's data until the login is done; the SDK never sees a stored login."""

    def __init__(self, client: OAuthClientInformationFull | None) -> None:
        self.client = client
        self.tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        """The granted tokens."""
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Take the granted tokens; raises NoLogin if they are unusable."""
        if not guarded_http.is_usable(tokens.access_token, tokens.refresh_token):
            raise NoLogin(
                "the authorization server gave a token that cannot be sent: report this to its operator"
            )
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """The registered client."""
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Take the registered client."""
        if client_info.client_secret is not None and client_info.token_endpoint_auth_method is None:
            # The default of RFC 7591, section 2.
            client_info.token_endpoint_auth_method = SECRET_METHODS[0]
        self.client = client_info


class DeviceAwareProvider(OAuthClientProvider):
    """The SDK's OAuth client, with the device flow if `by_device` is set."""

    by_device: Callable[[], Awaitable[httpx2.Request]] | None = None
    """Sends the user to another device; returns the token request with its final answer."""
    issuer: str = ""  # the authorization server in its own spelling, where known

    def _select_authorization_server(self, advertised: list[str]) -> str:
        chosen = super()._select_authorization_server(advertised)
        return self.issuer if issuers_match(self.issuer, chosen) else chosen

    async def _perform_authorization(self) -> httpx2.Request:
        if self.by_device is None:
            return await super()._perform_authorization()
        return await self.by_device()


def registered_by_hand(oauth: OAuth, redirect: Redirect) -> OAuthClientInformationFull | None:
    """The client that a person has registered, if there is one."""
    if oauth.client_id is None:
        return None
    return OAuthClientInformationFull.model_validate(
        {
            "client_id": oauth.client_id,
            "client_secret": oauth.client_secret,
            "redirect_uris": [redirect.url],
            "token_endpoint_auth_method": "none" if oauth.client_secret is None else SECRET_METHODS[0],
        }
    )


PROBE = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
"""The request that is sent without a token to learn the server's demands, and with the token to test it."""

PROBE_HEADERS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    # This revision has resource indicators, so the SDK always names the resource.
    "mcp-protocol-version": HANDSHAKE_VERSIONS[-1],
}

UNAUTHORIZED, FORBIDDEN, TOO_MANY = 401, 403, 429


class ServerMetadata(msgspec.Struct):
    """Metadata of the authorization server that mcpd reads in addition to the SDK (RFC 8414, RFC 8628)."""

    issuer: str
    token_endpoint: str
    device_authorization_endpoint: str | None = None
    token_endpoint_auth_methods_supported: list[str] | None = None
    code_challenge_methods_supported: list[str] | None = None


_decode_metadata = msgspec.json.Decoder(ServerMetadata).decode


def metadata_in(response: httpx2.Response) -> ServerMetadata | None:
    """The authorization server's metadata in a response; None for any other response."""
    is_metadata = response.status_code == guarded_http.OK and response.request.method == "GET"
    return decoded(_decode_metadata, response.content) if is_metadata else None


def is_unwell(response: httpx2.Response) -> bool:
    """Whether a refusal is a temporary fault."""
    return response.status_code == TOO_MANY or response.is_server_error


class Respelt(Exception):
    """The authorization server spells its issuer differently, or wants another client authentication."""


class SdkLogin(ABC):
    """A login at one server with the SDK's client: the common part of logins with and without a user."""

    _provider: httpx2.Auth
    _advice: str
    """The remedy for a server that does not take its new token."""

    def __init__(
        self, wish: Wish, client: httpx2.AsyncClient, scope: str | None, memory: TransientStorage
    ) -> None:
        self._server, self._url, self._client, self._scope = wish.server, wish.url, client, scope
        self._memory = memory
        self._probe = client.build_request("POST", wish.url, headers=PROBE_HEADERS, content=PROBE)
        self._last: httpx2.Response | None = None
        self._unwell: httpx2.Response | None = None

    async def run(self) -> Login:
        """Log in. Raises NoLogin with the reason for a failure, or NotNow if a later attempt may succeed."""
        try:
            try:
                status = await self._flow()
            except Respelt:
                status = await self._flow()
        except OAuthFlowError as error:
            raise self._failed(error) from None
        except (ValueError, httpx2.InvalidURL):
            raise NoLogin(f"the answer of {self._issuer} cannot be understood: ask its operator") from None
        if status in {UNAUTHORIZED, FORBIDDEN}:
            raise NoLogin(
                f"{self._server} does not take the token that {self._issuer} has given for it (HTTP"
                f" {status}): {self._advice}"
            )
        return self._login()

    @property
    @abstractmethod
    def _issuer(self) -> str:
        """The authorization server."""

    @abstractmethod
    def _fit(self, metadata: ServerMetadata) -> None:
        """Adapt the SDK's client to the authorization server; raises `Respelt` to begin again."""

    @abstractmethod
    def _failed(self, error: OAuthFlowError) -> NoLogin:
        """Explain a failure that the SDK reports."""

    @abstractmethod
    def _login(self) -> Login:
        """The login, once its token is tested."""

    async def _flow(self) -> int:
        """Send the SDK's requests; returns the HTTP status of the server for a request with the token."""
        try:
            async with aclosing(self._provider.async_auth_flow(self._probe)) as flow:
                await anext(flow)
                response = await self._challenge()
                with suppress(StopAsyncIteration):
                    while True:
                        request = await flow.asend(response)
                        response = await (self._probed() if request is self._probe else self._send(request))
                return response.status_code
        except guarded_http.UnsafeAddress as unsafe:
            raise NoLogin(f"mcpd ended the login: {unsafe}") from None
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise NotNow(f"{_place(error)} cannot be reached: {reason(error)}") from None

    async def _probed(self) -> httpx2.Response:
        """The server's answer to the probe, without its body, which may be endless."""
        response = await self._client.send(self._probe, stream=True)
        await response.aclose()
        return httpx2.Response(response.status_code, headers=response.headers, request=self._probe)

    async def _challenge(self) -> httpx2.Response:
        """The refusal with which the SDK's login begins: the server's challenge, after the wanted scope."""
        response = await self._probed()
        challenge = response.headers.get("www-authenticate", "")[:MAX_HEADER]
        if self._scope is not None:
            challenge = f'Bearer scope="{self._scope}", {challenge.removeprefix("Bearer ")}'
        return httpx2.Response(UNAUTHORIZED, headers={"www-authenticate": challenge}, request=self._probe)

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        self._last = response = await self._client.send(request)
        self._unwell = response if is_unwell(response) else self._unwell
        if (metadata := metadata_in(response)) is not None:
            self._fit(metadata)
        return response

    def _made(self, tokens: OAuthToken, token_endpoint: str, client_id: str, **more: Any) -> Login:
        renew_at, expires_at = guarded_http.times(tokens.expires_in, time.time())
        return Login(
            url=self._url,
            issuer=self._issuer,
            token_endpoint=token_endpoint,
            client_id=client_id,
            access_token=tokens.access_token,
            renew_at=renew_at,
            expires_at=expires_at,
            scope=tokens.scope,
            **more,
        )


class LoginFlow(SdkLogin):
    """A login of a user."""

    _advice = "log in as a user who may use this server"
    _provider: DeviceAwareProvider

    def __init__(
        self,
        wish: Wish,
        redirect: Redirect,
        client: httpx2.AsyncClient,
        say: Callable[[LoginPage | DeviceCode], Awaitable[None]],
    ) -> None:
        super().__init__(wish, client, wish.scope, TransientStorage(registered_by_hand(wish.oauth, redirect)))
        self._oauth, self._redirect, self._say = wish.oauth, redirect, say
        self._local = is_loopback(httpx2.URL(wish.url).host)
        self._ready: httpx2.Response | None = None
        self._asked = False
        try:
            self._provider = DeviceAwareProvider(
                wish.url,
                OAuthClientMetadata.model_validate(
                    {"client_name": IDENTITY["name"], "redirect_uris": [redirect.url]}
                ),
                self._memory,
                redirect_handler=self._show,
                callback_handler=self._answer,
                client_metadata_url=wish.oauth.metadata_url,
                validate_resource_url=self._match_resource,
            )
        except ValueError:
            raise NoLogin("metadataUrl must be an https url with a path to the client's metadata") from None

    def _failed(self, error: OAuthFlowError) -> NoLogin:
        server, issuer, last = self._server, self._issuer, answered(self._last)
        if isinstance(error, OAuthTokenError):
            return NoLogin(f"{issuer} gave no token{last}: begin again")
        if isinstance(error, OAuthRegistrationError) and self._provider.context.oauth_metadata is None:
            why = (
                f"{server} does not say how to log in to it: it publishes no OAuth metadata. If it wants a"
                " token that you have, write that into its headers"
            )
        elif isinstance(error, OAuthRegistrationError):
            why = (
                f"{issuer} does not register mcpd as a client{last}: register it there by hand, with the"
                f" redirect URI {self._redirect.url}, and write its clientId and that redirectPort into 'oauth'"
                f" of {server}"
            )
        elif self._asked:
            why = (
                "the answer is from another authorization server than mcpd asked: mcpd sent no code to"
                " either. Find out who runs them, then begin again"
            )
        elif self._unwell is not None:
            why = f"{server} cannot say at the moment how to log in{answered(self._unwell)}: try again later"
        else:
            why = (
                f"the authorization server of {server} names itself otherwise than {self._expected}: ask its"
                " operator why before you log in"
            )
        return NoLogin(why)

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        if self._ready is not None and request is self._ready.request:
            self._last = self._ready
            return self._ready
        return await super()._send(request)

    def _fit(self, metadata: ServerMetadata) -> None:
        """Adapt the client to the authorization server before registration."""
        context = self._provider.context
        named = context.auth_server_url
        if named is not None and named != metadata.issuer and issuers_match(metadata.issuer, named):
            self._provider.issuer = metadata.issuer
            raise Respelt
        challenges = metadata.code_challenge_methods_supported
        if challenges is not None and "S256" not in challenges:
            raise NoLogin(f"{metadata.issuer} does not offer PKCE with S256: without PKCE, codes can be stolen")
        methods = metadata.token_endpoint_auth_methods_supported
        with_secret = next((each for each in SECRET_METHODS if each in (methods or SECRET_METHODS)), None)
        wanted = context.client_metadata
        if methods is not None:
            wanted.token_endpoint_auth_method = "none" if "none" in methods else with_secret
        if self._memory.client is not None and self._oauth.client_secret is not None:
            self._memory.client.token_endpoint_auth_method = with_secret
        if self._oauth.device and metadata.device_authorization_endpoint is not None:
            wanted.grant_types = [*wanted.grant_types, GRANT]
            self._provider.by_device = partial(self._by_device, metadata.device_authorization_endpoint)

    async def _match_resource(self, url: str, resource: str | None) -> None:
        """Refuse metadata of another resource: its tokens would be for another server (RFC 9728, 7.3)."""
        if resource and not check_resource_allowed(resource_url_from_server_url(url), resource):
            raise NoLogin(f"the metadata of {self._server} names another server: ask the server's operator")

    async def _show(self, url: str) -> None:
        try:
            guarded_http.refuse_unsafe(httpx2.URL(url), local=self._local)
        except guarded_http.UnsafeAddress as unsafe:
            raise NoLogin(f"the authorization server names a page that is not safe to open: {unsafe}") from None
        self._asked = True
        self._redirect.state = parse_qs(urlsplit(url).query)["state"][-1]
        await self._say(LoginPage(url, self._redirect.url))

    async def _answer(self) -> AuthorizationCodeResult:
        answer = await self._redirect.answer()
        return AuthorizationCodeResult(code=answer["code"], state=answer["state"], iss=answer.get("iss"))

    async def _by_device(self, endpoint: str) -> httpx2.Request:
        """Authorize by a code that the user types elsewhere; the token arrives before the SDK requests it."""
        context, client = self._provider.context, self._memory.client
        assert client is not None
        headers, shown = guarded_http.credentials(
            client.client_id, client.client_secret, client.token_endpoint_auth_method or "none"
        )
        if context.should_include_resource_param(context.protocol_version):
            shown["resource"] = context.get_resource_url()
        asked = {**shown, "scope": context.client_metadata.scope} if context.client_metadata.scope else shown
        answer = await authorize(self._client, endpoint, asked, headers, local=self._local)
        await self._say(DeviceCode(answer.verification_uri, answer.user_code, answer.verification_uri_complete))
        form = {**shown, "grant_type": GRANT, "device_code": answer.device_code}
        ask = partial(self._client.build_request, "POST", self._token_endpoint, data=form, headers=headers)
        self._ready = await granted(self._client, answer, ask)
        return self._ready.request

    def _login(self) -> Login:
        context, client, tokens = self._provider.context, self._memory.client, self._memory.tokens
        assert client is not None
        if tokens is None:
            raise NoLogin("the authorization server gave no token: begin again")
        metadata, sends_resource = context.oauth_metadata, context.should_include_resource_param
        revocation = metadata.revocation_endpoint if metadata is not None else None
        return self._made(
            tokens,
            self._token_endpoint,
            client.client_id,
            client_secret=client.client_secret,
            auth_method=client.token_endpoint_auth_method or "none",
            refresh_token=tokens.refresh_token,
            resource=context.get_resource_url() if sends_resource(context.protocol_version) else None,
            revocation_endpoint=None if revocation is None else str(revocation),
        )

    @property
    def _token_endpoint(self) -> str:
        return self._provider._get_token_endpoint()  # noqa: SLF001 - where the SDK sends the code

    @property
    def _issuer(self) -> str:
        metadata = self._provider.context.oauth_metadata
        return str(metadata.issuer) if metadata is not None else self._expected

    @property
    def _expected(self) -> str:
        return self._provider._expected_issuer()  # noqa: SLF001 - what the metadata has to name


def _place(error: httpx2.RequestError) -> str:
    try:
        return error.request.url.host
    except RuntimeError:
        return "the authorization server"
