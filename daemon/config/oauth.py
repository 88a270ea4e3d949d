"""How mcpd logs in to a server that wants OAuth: what cannot be found out by asking the server."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING

import attrs

from daemon.config.jsonc import below
from daemon.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
"""RFC 6749, section 3.3."""


class LoginPlace(StrEnum):
    """Where logins are kept."""

    FILES = "files"
    KEYRING = "secret-service"


@attrs.frozen(kw_only=True)
class OAuth:
    """How mcpd logs in to a server that wants OAuth; each key is for what the server does not say itself."""

    client_id: str | None = None
    """The client that was registered by hand; null: mcpd registers itself (RFC 7591)."""
    client_secret: str | None = attrs.field(default=None, repr=False)
    """Its secret, if it has one; write it as ${VAR}."""
    scopes: tuple[str, ...] = ()
    """What to ask for, instead of what the server and its metadata name."""
    redirect_port: int | None = None
    """The port of 127.0.0.1 that the browser comes back to, where one had to be registered; null: any."""
    metadata_url: str | None = None
    """The https:// URL of a client id metadata document, for authorization servers that take one."""
    device: bool = False
    """true: a code that is typed on any device (RFC 8628), where the authorization server offers it."""


def oauth_faults(oauth: OAuth, trail: str, most_port: int) -> Iterator[Fault]:
    """Everything wrong with the values; `most_port` is the largest TCP port."""
    if oauth.client_secret is not None and oauth.client_id is None:
        yield Fault(
            path=below(trail, "clientSecret"), message="a secret belongs to a clientId: write that, too"
        )
    if oauth.client_id is not None and oauth.metadata_url is not None:
        message = "a client is either registered (clientId) or described by a document: remove one of the two"
        yield Fault(path=below(trail, "metadataUrl"), message=message)
    elif oauth.metadata_url is not None and not oauth.metadata_url.startswith("https://"):
        yield Fault(path=below(trail, "metadataUrl"), message="write an https:// URL: others are not accepted")
    if oauth.redirect_port is not None and not 0 < oauth.redirect_port <= most_port:
        yield Fault(path=below(trail, "redirectPort"), message=f"a port is 1 to {most_port}")
    for index, scope in enumerate(oauth.scopes):
        if not _SCOPE.fullmatch(scope):
            message = 'a scope has no blanks and no quotes: write ["one", "two"] for several'
            yield Fault(path=below(below(trail, "scopes"), index), message=message)
