"""The logins at all servers: challenges and messages that lead to one, and the files that keep them.

Reading and writing logins blocks: do it in a thread.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from daemon.errors import McpdError
from daemon.host import private_files
from daemon.host.sockets import private_directory
from daemon.kit.later import later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    import secretstorage
    from secretstorage import Collection

    from daemon.config.config_model import Server
else:
    # Most daemons keep logins in files, and do without this library.
    secretstorage = later("secretstorage")

INSUFFICIENT_SCOPE = "insufficient_scope"
"""The error of a token that does not allow what was asked (RFC 6750, section 3.1)."""

MAX_HEADER = 8 * 1024
"""Characters that are read: as long as most servers let a whole header be."""

MAX_SCOPE = 1024
"""Characters of a scope that is asked for: it becomes part of a URL that browsers open."""

_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PART = re.compile(
    rf'[\s,]*(?:(?P<name>{_WORD})\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s,"]+))'
    rf"|(?P<scheme>{_WORD})(?=[\s,]|$))"
)
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+(?: [\x21\x23-\x5b\x5d-\x7e]+)*")
"""RFC 6749, section 3.3."""


class Challenge(msgspec.Struct, frozen=True, kw_only=True):
    """A challenge of the scheme Bearer (RFC 6750, section 3)."""

    error: str = ""
    """Why the token was refused; empty without one."""
    scope: str = ""
    """What a token would have to grant; empty if it does not say so, or not in a usable form."""


def bearer_challenge(header: str) -> Challenge | None:
    """The challenge of the scheme Bearer among those of a `WWW-Authenticate`; None if there is none.

    Args:
        header: the value; of several headers, all values with commas between them.
    """
    text, place = header[:MAX_HEADER], 0
    found: dict[str, str] | None = None
    within = False
    while match := _PART.match(text, place):
        place = match.end()
        if match["scheme"]:
            within = match["scheme"].lower() == "bearer" and found is None
            found = {} if within else found
        elif within and found is not None:
            quoted = match["quoted"]
            value = match["bare"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            found.setdefault(match["name"].lower(), value)
    if found is None:
        return None
    return Challenge(error=found.get("error", ""), scope=usable_scope(found.get("scope", "")))


def usable_scope(text: str) -> str:
    """A scope as it may be asked for; empty if it has another form, or is too long."""
    return text if len(text) <= MAX_SCOPE and _SCOPE.fullmatch(text) else ""


def union(*scopes: str | None) -> str | None:
    """All scopes of several lists, in order and once each; None if there are none."""
    words = [word for scope in scopes if scope for word in scope.split()]
    return " ".join(dict.fromkeys(words)) or None


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


DIRECTORY = "logins"
"""Where logins and their locks lie, below the state directory."""

LOCK_SECONDS = 60.0
"""Seconds to wait for somebody else who renews a login: twice what that may take (`RENEWAL_SECONDS`)."""

MAX_BYTES = 1 << 18
"""Most bytes of a login: tokens with all of a company's groups in them have some ten thousand."""


class LoginsTrouble(McpdError):
    """Logins cannot be read or kept; the text says why and what to do."""


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
    renew_at: float | None = None
    """When the access token is renewed, in seconds since the epoch, some time before it ends."""
    expires_at: float | None = None
    """When the access token ends, in seconds since the epoch; None: the server did not say."""
    scope: str | None = None
    """What was granted."""
    revocation_endpoint: str | None = None
    """Where it is ended (RFC 7009); None: nowhere."""

    def __repr__(self) -> str:
        return f"Login(url={self.url!r}, issuer={self.issuer!r})"


class Logins(Protocol):
    """Where logins are kept. Everything blocks: call it in a thread."""

    def read(self, server: str, url: str | None) -> Login | None:
        """The login at a server; None if there is none, or it is for another url than the one given.

        Raises:
            LoginsTrouble: it cannot be read.
        """

    def write(self, server: str, login: Login) -> None:
        """Keep a login in place of the one before, by whoever holds its lock.

        Raises:
            LoginsTrouble: it cannot be kept; the one before is as it was.
        """

    def remove(self, server: str) -> None:
        """Forget a login, whatever state it is in; nothing happens if there is none.

        Raises:
            LoginsTrouble: it cannot be removed.
        """

    def locked(self, server: str) -> AbstractContextManager[None]:
        """Hold a server's login against other daemons and commands while it is renewed or replaced.

        Raises:
            LoginsTrouble: somebody else has held it for `LOCK_SECONDS`, or it cannot be locked.
        """


class FileLogins(msgspec.Struct, frozen=True):
    """Logins in files that only this user can read, `logins/SERVER.json` in the state directory."""

    state: Path
    """The state directory."""
    patience: float = LOCK_SECONDS
    """Seconds to wait for a lock."""

    def read(self, server: str, url: str | None) -> Login | None:
        """See `Logins.read`."""
        path = self._path(server)
        try:
            with open(path, "rb", opener=private_files.safely) as file:
                _refuse_open(os.fstat(file.fileno()), path)
                content = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LoginsTrouble(f"the login in {path} cannot be read: {error.strerror}") from None
        login = decoded(content, server, str(path))
        return login if url in {None, login.url} else None

    def write(self, server: str, login: Login) -> None:
        """See `Logins.write`."""
        path = self._path(server)
        try:
            private_directory(path.parent)
            private_files.replace(path, msgspec.json.format(msgspec.json.encode(login)) + b"\n")
        except OSError as error:
            raise LoginsTrouble(f"the login cannot be kept in {path}: {error.strerror}") from None

    def remove(self, server: str) -> None:
        """See `Logins.remove`."""
        path = self._path(server)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise LoginsTrouble(f"{path} cannot be removed: {error.strerror}") from None

    @contextmanager
    def locked(self, server: str) -> Iterator[None]:
        """See `Logins.locked`."""
        with taken(self._path(server), self.patience):
            yield

    def _path(self, server: str) -> Path:
        return self.state / DIRECTORY / f"{server}.json"


@contextmanager
def taken(path: Path, seconds: float) -> Iterator[None]:
    """Hold the lock of a login.

    Args:
        path: the file beside which the lock lies.
        seconds: how long to wait for somebody else.

    Raises:
        LoginsTrouble: it cannot be had.
    """
    with ExitStack() as held:
        try:
            private_directory(path.parent)
            held.enter_context(private_files.locked(path, seconds))
        except TimeoutError:
            raise LoginsTrouble(
                f"another mcpd has been changing {path} for {seconds:g} s: see what it waits for"
            ) from None
        except OSError as error:
            raise LoginsTrouble(f"{path} cannot be locked: {error.strerror}") from None
        yield


def decoded(content: bytes, server: str, place: str) -> Login:
    """A login as it was kept.

    Args:
        content: what stands there.
        server: the server's name.
        place: where it stands, for the error.

    Raises:
        LoginsTrouble: it is none.
    """
    try:
        return msgspec.json.decode(content, type=Login)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # The decoder's text may quote what stands there.
        raise LoginsTrouble(
            f"the login in {place} is damaged: `mcpd login {server}` makes a new one in its place"
        ) from None


def _refuse_open(found: os.stat_result, path: Path) -> None:
    """Refuse a file that somebody else may have read or written.

    Raises:
        LoginsTrouble: it is not ours alone.
    """
    if not stat.S_ISREG(found.st_mode):
        raise LoginsTrouble(f"{path} is no file: remove it")
    if found.st_uid != os.geteuid():
        raise LoginsTrouble(
            f"{path} belongs to uid {found.st_uid}, not to us: remove it, or run this as that user"
        )
    if found.st_mode & 0o077:
        raise LoginsTrouble(
            f"others can read or write {path}: chmod 600 {path}, or, if somebody may have done so,"
            " log out and in again"
        )


def logins_in(state: Path, *, secret_service: bool) -> Logins:
    """The logins of a daemon; nothing is opened yet.

    Args:
        state: its state directory, in which their locks lie, too.
        secret_service: whether they are kept in the Secret Service.

    Raises:
        ImportError: the Secret Service is wanted, and the extra `secret-service` is not installed.
    """
    if not secret_service:
        return FileLogins(state)
    _ = secretstorage.dbus_init  # raises if there is no such library
    return SecretServiceLogins(state)


def login_url(server: Server) -> str:
    """The url that a login at a server counts for: logins are made over HTTP, also for a WebSocket."""
    url = server.url or ""
    return f"http{url.removeprefix('ws')}" if url.startswith(("ws://", "wss://")) else url


class ServerLogins:
    """Where logins are kept, and which scopes servers have asked for since."""

    def __init__(
        self, kept: Logins, hide: Callable[[str, Iterable[str]], None] = lambda _server, _values: None
    ) -> None:
        """Begin without any wishes of servers'.

        Args:
            kept: where logins are kept.
            hide: has the tokens of a login at a server taken out of all that is shown.
        """
        self.kept = kept
        self._hide = hide
        self._wanted: dict[str, str] = {}

    def sent(self, server: str, login: Login) -> None:
        """Note that a login is going to be sent to a server, which may repeat it in what it says."""
        secrets = (login.access_token, login.refresh_token, login.client_secret)
        self._hide(server, [each for each in secrets if each])

    def want(self, server: str, scope: str) -> None:
        """Remember that a server wants a scope; the next login asks for it."""
        self._wanted[server] = usable_scope(union(self._wanted.get(server), scope) or "") or scope

    def wanted(self, server: str, *others: str | None) -> str | None:
        """What a login at a server has to ask for: what it has wanted, and others; None if nothing is known."""
        return union(*others, self._wanted.get(server)) if server in self._wanted else None

    def satisfied(self, server: str) -> None:
        """Forget what a server has wanted: there is a new login, or none any more."""
        self._wanted.pop(server, None)


ANSWER_SECONDS = 10.0
"""For the Secret Service to answer; it is on this machine and looks into a file."""


class SecretServiceLogins(msgspec.Struct, frozen=True):
    """Logins in the default collection of the desktop's Secret Service (freedesktop.org).

    Every use has a connection of its own to the session bus: a login is read once for each connection to a
    server, and a bus that has gone away costs nothing then. Nobody is asked to unlock anything: a daemon has no
    screen.
    """

    state: Path
    """The state directory: daemons with different ones do not share logins. The locks lie there."""
    patience: float = LOCK_SECONDS
    """Seconds to wait for a lock."""

    def read(self, server: str, url: str | None) -> Login | None:
        """See `Logins.read`."""
        with _collection() as collection:
            for item in collection.search_items(self._attributes(server)):
                login = decoded(item.get_secret(), server, "the Secret Service")
                return login if url in {None, login.url} else None
        return None

    def write(self, server: str, login: Login) -> None:
        """See `Logins.write`."""
        with _collection() as collection:
            collection.create_item(
                f"mcpd: login at {server}",
                self._attributes(server),
                msgspec.json.encode(login),
                replace=True,
                content_type="application/json",
            )

    def remove(self, server: str) -> None:
        """See `Logins.remove`."""
        with _collection() as collection:
            for item in collection.search_items(self._attributes(server)):
                item.delete()

    def locked(self, server: str) -> AbstractContextManager[None]:
        """See `Logins.locked`."""
        return taken(self.state / DIRECTORY / f"{server}.json", self.patience)

    def _attributes(self, server: str) -> dict[str, str]:
        return {"application": "mcpd", "state": str(self.state.absolute()), "server": server}


@contextmanager
def _collection() -> Iterator[Collection]:
    """The default collection, unlocked.

    Raises:
        LoginsTrouble: there is none, or it is locked.
    """
    try:
        with closing(secretstorage.dbus_init()) as connection:
            # The library waits for ever: a service that hangs would hold our threads, one after the other.
            connection.send_and_get_reply = partial(connection.send_and_get_reply, timeout=ANSWER_SECONDS)
            collection = secretstorage.get_any_collection(connection)
            if collection.is_locked():
                raise LoginsTrouble(
                    "the Secret Service is locked: log in to the desktop, or unlock its keyring there"
                )
            yield collection
    except (secretstorage.SecretStorageException, OSError, KeyError) as error:
        raise LoginsTrouble(
            f"the Secret Service cannot be used ({type(error).__name__}): run mcpd within the desktop's"
            " session, or keep logins in files"
        ) from None
