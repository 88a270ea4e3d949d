"""What a login in a process of its own is told and says: one JSON object a line, on its stdin and stdout.

`python -m daemon.authorization` is started by the daemon for one login, so that the SDK, which takes 63 MiB, is
no part of the daemon, and a login that goes wrong costs nobody else. It is told a `Wish`, says a `LoginPage` or
a `DeviceCode`, may be told an `Answer`, and ends after `Done`, which was stored before it is said, or `Failed`.
When its stdin ends it gives up, without a word.
"""

from __future__ import annotations

import msgspec

from daemon.errors import McpdError


class Wish(msgspec.Struct, tag="wish", rename="camel", kw_only=True):
    """Which login is wanted."""

    server: str
    """The server's name in the configuration."""
    url: str
    """Where it is."""
    directory: str
    """The state directory, in which logins and their locks are kept."""
    secret_service: bool = False
    """Whether logins are kept in the Secret Service instead."""
    scope: str | None = None
    """All that is to be asked for; None: what the server's challenge or its metadata say."""
    client_id: str | None = None
    """A client that was registered by hand; None: registered by the login."""
    client_secret: str | None = None
    """Its secret, if it has one."""
    metadata_url: str | None = None
    """The URL of a client id metadata document, for authorization servers that take one."""
    redirect_port: int | None = None
    """The port of 127.0.0.1 that the browser comes back to; None: any that is free."""
    device: bool = False
    """Whether to use the device flow (RFC 8628) where it is offered; where it is not, there is a page."""

    def __repr__(self) -> str:
        return f"Wish(server={self.server!r})"


class LoginPage(msgspec.Struct, tag="link", rename="camel"):
    """A page that the user has to open."""

    url: str
    redirect: str
    """Where the browser is sent afterwards: a loopback address that this process listens on."""


class DeviceCode(msgspec.Struct, tag="device", rename="camel"):
    """A page that the user opens on any device, and the code to type there."""

    url: str
    code: str
    complete_url: str | None = None
    """The same with the code in it."""


class Answer(msgspec.Struct, tag="answer", rename="camel"):
    """The address that the browser ended at, pasted by a user whose browser runs on another machine."""

    url: str


class Done(msgspec.Struct, tag="done", rename="camel"):
    """The login is stored."""

    scope: str | None = None
    expires_at: float | None = None
    """When its access token ends, in seconds since the epoch."""


class Failed(msgspec.Struct, tag="failed", rename="camel"):
    """There is no login; what was kept before is as it was."""

    message: str
    """What failed, why, and what to do: for people, without a secret."""


class NoLogin(McpdError):
    """A login does not come about; the text is that of `Failed`."""


Said = LoginPage | DeviceCode | Done | Failed
Told = Wish | Answer
