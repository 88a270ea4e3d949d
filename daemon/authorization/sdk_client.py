"""The SDK's OAuth client, and what it is handed: its storage, and a client that was registered by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.utils import issuers_match
from mcp.shared.auth import OAuthClientInformationFull

from daemon.authorization.messages import NoLogin
from daemon.authorization.token_endpoint import is_usable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import httpx2
    from mcp.shared.auth import OAuthToken

    from daemon.authorization.messages import Wish
    from daemon.authorization.redirect import Redirect

SECRET_METHODS: tuple[Literal["client_secret_basic", "client_secret_post"], ...] = (
    "client_secret_basic",
    "client_secret_post",
)
"""The ways to show a client's secret, the usual one first (RFC 7591, section 2)."""


class TransientStorage:
    """What the SDK would keep: here only until the login is done, and a stored login is not shown to it."""

    def __init__(self, client: OAuthClientInformationFull | None) -> None:
        self.client = client
        self.tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        """What was granted."""
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Note what was granted.

        Raises:
            NoLogin: it cannot be used.
        """
        if not is_usable(tokens.access_token, tokens.refresh_token):
            raise NoLogin("the authorization server gave a token that cannot be sent: tell whoever runs it")
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """The client."""
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Note which client was registered."""
        if client_info.client_secret is not None and client_info.token_endpoint_auth_method is None:
            # RFC 7591, section 2: what an answer means that does not say.
            client_info.token_endpoint_auth_method = SECRET_METHODS[0]
        self.client = client_info


class DeviceAwareProvider(OAuthClientProvider):
    """The SDK's client, which gets its token by a device where that was asked for."""

    by_device: Callable[[], Awaitable[httpx2.Request]] | None = None
    """Sends the user to another device, and returns the request for a token that was answered in the end."""
    issuer: str = ""
    """The authorization server as it spells itself, where that is known."""

    def _select_authorization_server(self, advertised: list[str]) -> str:
        chosen = super()._select_authorization_server(advertised)
        return self.issuer if issuers_match(self.issuer, chosen) else chosen

    async def _perform_authorization(self) -> httpx2.Request:
        if self.by_device is None:
            return await super()._perform_authorization()
        return await self.by_device()


def registered_by_hand(wish: Wish, redirect: Redirect) -> OAuthClientInformationFull | None:
    """A client that was registered by hand, if there is one."""
    if wish.client_id is None:
        return None
    return OAuthClientInformationFull.model_validate(
        {
            "client_id": wish.client_id,
            "client_secret": wish.client_secret,
            "redirect_uris": [redirect.url],
            "token_endpoint_auth_method": "none" if wish.client_secret is None else SECRET_METHODS[0],
        }
    )
