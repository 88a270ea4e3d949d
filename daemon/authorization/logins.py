"""What is kept of a login: a private file for each server in the state directory, or the Secret Service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class Login(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A login at one server, with what renews and ends it."""

    url: str
    """The server's; it counts for no other."""
    issuer: str
    """The authorization server's."""
    token_endpoint: str
    """Where it is renewed (RFC 6749, section 6)."""
    client_id: str
    """As which client."""
    access_token: str
    """What requests are sent with."""
    resource: str | None = None
    """Which resource the token is for (RFC 8707)."""
    client_secret: str | None = None
    """The client's secret, if it has one."""
    auth_method: str = "none"
    """How the client shows it: none, client_secret_post, client_secret_basic."""
    refresh_token: str | None = None
    """What renews it; None: it ends with its access token."""
    expires_at: float | None = None
    """When the access token ends, in seconds since the epoch; None: the server did not say."""
    scope: str | None = None
    """What was granted."""
    revocation_endpoint: str | None = None
    """Where it is ended (RFC 7009); None: nowhere."""
    registration: dict[str, object] | None = None
    """The client's registration as the authorization server answered it (RFC 7591)."""

    def __repr__(self) -> str:
        return f"Login(url={self.url!r}, issuer={self.issuer!r})"


class Logins(Protocol):
    """Where logins are kept. Everything blocks: call it in a thread."""

    def read(self, server: str, url: str) -> Login | None:
        """The login at a server; None if there is none, or it is for another url."""

    def write(self, server: str, login: Login) -> None:
        """Keep a login in place of the one before."""

    def remove(self, server: str) -> None:
        """Forget a login."""

    def locked(self, server: str) -> AbstractContextManager[None]:
        """Hold a server's login against other daemons and commands while it is renewed or replaced."""
