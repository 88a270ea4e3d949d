"""A server's key `auth`, by which mcpd logs in without a user, and the rules for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated

import attrs

from daemon.config.listen import is_loopback, web_address
from daemon.config.tuning import Problems, like
from daemon.kit.later import pattern
from daemon.kit.wording import camel

_SCOPE = pattern(r"[\x21\x23-\x5b\x5d-\x7e]+")
"""Matches a scope (RFC 6749, section 3.3)."""

Scope = Annotated[str, like(_SCOPE, 'a scope has no blanks and no quotes: write ["one", "two"] for several')]


class AuthType(StrEnum):
    """The way in which mcpd logs in without a user."""

    CLIENT_CREDENTIALS = "client-credentials"
    ENTERPRISE_MANAGED = "enterprise-managed"
    WORKLOAD_IDENTITY = "workload-identity"


@attrs.frozen(kw_only=True)
class IdentityProvider:
    """The company's identity provider, where mcpd gets its grant for the authorization server."""

    token_endpoint: str
    """https:// URL at which the ID token is exchanged for a grant (RFC 8693)."""
    client_id: str
    """Id of the client that the ID token was given to."""
    client_secret: str | None = attrs.field(default=None, repr=False)
    """That client's secret, as ${VAR}."""


@attrs.frozen(kw_only=True)
class Auth:
    """Login of mcpd itself, without a user. The token is in memory only."""

    type: AuthType
    """client-credentials: with a secret or key. enterprise-managed: with an ID token of the company's.
    workload-identity: with a token of the platform's."""
    issuer: str
    """https:// URL of the authorization server. No other gets a secret."""
    client_id: str | None = None
    """Id of the client that is registered there."""
    client_secret: str | None = attrs.field(default=None, repr=False)
    """The client's secret, as ${VAR}."""
    private_key: str | None = attrs.field(default=None, repr=False)
    """The client's private key in PEM instead (private_key_jwt), as ${file:PATH}."""
    scopes: tuple[Scope, ...] = ()
    """Scopes to request instead of those that the server names."""
    token_file: str | None = None
    """File with the type's token, relative to the configuration's directory."""
    idp: IdentityProvider | None = None
    """The identity provider (enterprise-managed)."""

    @property
    def secrets(self) -> Iterator[str]:
        """The values to redact."""
        of_idp = None if self.idp is None else self.idp.client_secret
        return filter(None, (self.client_secret, self.private_key, of_idp))


# The keys that each type of login needs, and those that it may have.
_KEYS: Mapping[AuthType, tuple[tuple[str, ...], tuple[str, ...]]] = {
    AuthType.CLIENT_CREDENTIALS: (("client_id",), ("client_secret", "private_key")),
    AuthType.ENTERPRISE_MANAGED: (("client_id", "client_secret", "token_file", "idp"), ()),
    AuthType.WORKLOAD_IDENTITY: (("token_file",), ("client_id",)),
}


def auth_lacks(auth: Auth) -> Problems:
    """Keys that this type of login requires but the entry lacks."""
    for key in _KEYS[auth.type][0]:
        if not getattr(auth, key):
            yield camel(key), f"a login of type {auth.type} needs this key"
    if auth.type is AuthType.CLIENT_CREDENTIALS and not auth.client_secret and not auth.private_key:
        yield "clientSecret", "write the client's secret here, or its private key as privateKey"


def auth_problems(auth: Auth, *, resolved: bool) -> Problems:
    """Contradictions within `auth`; unless `resolved`, its values are still references."""
    needed, optional = _KEYS[auth.type]
    for key in ("client_id", "client_secret", "private_key", "token_file", "idp"):
        if getattr(auth, key) and key not in {*needed, *optional}:
            yield camel(key), f"a login of type {auth.type} has no '{camel(key)}': remove it, or change 'type'"
    if auth.type is AuthType.CLIENT_CREDENTIALS and auth.client_secret and auth.private_key:
        yield "privateKey", "a client authenticates with its secret or with its key: remove one of the two"
    if not resolved:
        return
    urls = {"issuer": auth.issuer} | ({"idp.tokenEndpoint": auth.idp.token_endpoint} if auth.idp else {})
    for where, url in urls.items():
        if not _is_safe(url):
            yield where, "write an https:// URL (http:// only for this machine): secrets are sent there"
    if auth.private_key and not _PEM.search(auth.private_key):
        yield "privateKey", "this is not an unencrypted private key in PEM: write ${file:PATH} of one"


def _is_safe(url: str) -> bool:
    parts = web_address(url)
    if parts is None or parts.username is not None:
        return False
    return parts.scheme == "https" or is_loopback(parts.hostname or "")


_PEM = pattern(r"-----BEGIN ((?:RSA |EC )?PRIVATE KEY)-----[A-Za-z0-9+/=\s]+-----END \1-----")
"""Matches an unencrypted private key. The process that logs in decodes it: here a decoder would cost 12 MiB."""
