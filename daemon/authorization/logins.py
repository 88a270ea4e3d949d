"""The logins at servers: challenges, messages of login processes, and the stores of logins, which block."""

from __future__ import annotations

import math
import re
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import attrs
import msgspec
import trio

from daemon.config.config_model import OAuth, Server
from daemon.config.login_keys import Auth
from daemon.errors import McpdError
from daemon.host import private_files
from daemon.host.sockets import private_directory
from daemon.kit.later import pattern
from daemon.secrets import keyring

INSUFFICIENT_SCOPE = "insufficient_scope"
"""The error of a token whose scopes do not cover the request (RFC 6750, section 3.1)."""

MAX_HEADER = 8 * 1024  # characters read of a header: most servers allow no more for a whole header

MAX_SCOPE = 1024  # characters of a requested scope, which becomes part of a URL for browsers

_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PART = pattern(
    rf'[\s,]*(?:(?P<name>{_WORD})\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s,"]+))'
    rf"|(?P<scheme>{_WORD})(?=[\s,]|$))"
)
_SCOPE = pattern(r"[\x21\x23-\x5b\x5d-\x7e]+(?: [\x21\x23-\x5b\x5d-\x7e]+)*")  # RFC 6749, section 3.3


class Challenge(msgspec.Struct, frozen=True, kw_only=True):
    """A challenge of the scheme Bearer (RFC 6750, section 3)."""

    error: str = ""  # the reason for refusing the token; empty without one
    scope: str = ""  # the scope that a token needs; empty if missing or malformed


def bearer_challenge(header: str) -> Challenge | None:
    """The Bearer challenge in the comma-joined values of `WWW-Authenticate`; None without one."""
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
    """A scope that may be requested; empty if it is malformed or too long."""
    return text if len(text) <= MAX_SCOPE and _SCOPE.fullmatch(text) else ""


def union(*scopes: str | None) -> str | None:
    """The scopes of several lists, in order and without repetitions; None if there are none."""
    words = [word for scope in scopes if scope for word in scope.split()]
    return " ".join(dict.fromkeys(words)) or None


class Wish(msgspec.Struct, tag="wish", rename="camel", kw_only=True):
    """A request for a login."""

    server: str
    url: str
    auth: Auth | None = None  # the keys of mcpd's own login, which nothing stores; None: a user logs in
    directory: str = ""  # the state directory, for logins of users and their locks
    secret_service: bool = False  # keep logins in the Secret Service instead
    scope: str | None = None  # all scopes to ask for; None: those in the server's challenge or metadata
    oauth: OAuth = OAuth()  # a client registered by hand, and the way of logging in

    def __repr__(self) -> str:
        return f"Wish(server={self.server!r})"


class LoginPage(msgspec.Struct, tag="link", rename="camel"):
    """A page that the user has to open."""

    url: str
    redirect: str  # the browser's next address: a loopback one of the login's process


class DeviceCode(msgspec.Struct, tag="device", rename="camel"):
    """A page that the user opens on any device, and the code to type there."""

    url: str
    code: str
    complete_url: str | None = None  # the page with the code in it


class Answer(msgspec.Struct, tag="answer", rename="camel"):
    """The address at which the browser ended, pasted from another machine."""

    url: str


class Done(msgspec.Struct, tag="done", rename="camel"):
    """The result of a login that succeeded; stored, or reported here if it is mcpd's own."""

    scope: str | None = None
    expires_at: float | None = None  # end of the access token, seconds since the epoch
    login: Login | None = None  # of mcpd itself, which nothing stores


class Failed(msgspec.Struct, tag="failed", rename="camel"):
    """The result of a login that failed; the store is unchanged."""

    message: str  # the failure, its reason and the remedy, without a secret
    temporary: bool = False  # whether a later attempt may succeed


class NoLogin(McpdError):
    """A login failed, with the text of `Failed`."""


class NotNow(NoLogin):
    """A login failed, but may succeed later."""


DIRECTORY = "logins"  # for logins and locks, below the state directory

LOCK_SECONDS = 60.0  # seconds to wait for another renewal: twice the longest (`RENEWAL_SECONDS`)

MAX_BYTES = 1 << 18  # bytes of a login: tokens with all of a company's groups have some ten thousand


class LoginsTrouble(McpdError):
    """Logins cannot be read or stored; the text has the reason and the remedy."""


_collection = partial(keyring.collection, LoginsTrouble, LoginsTrouble, "keep logins in files")


class Login(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A login at one server, with the data needed to renew and end it."""

    url: str  # of the server; valid for no other
    issuer: str  # the authorization server
    token_endpoint: str  # for renewals (RFC 6749, section 6)
    client_id: str
    access_token: str
    resource: str | None = None  # the token's audience (RFC 8707)
    client_secret: str | None = None
    auth_method: str = "none"  # none, client_secret_post, client_secret_basic
    refresh_token: str | None = None  # none: the login ends with its access token
    renew_at: float | None = None  # seconds since the epoch, some time before `expires_at`
    expires_at: float | None = None  # seconds since the epoch; None: the server did not say
    scope: str | None = None  # as granted
    revocation_endpoint: str | None = None  # RFC 7009; None: the login cannot be ended there

    def __repr__(self) -> str:
        return f"Login(url={self.url!r}, issuer={self.issuer!r})"

    def serves(self, rejected: str | None) -> bool:
        """Whether the login is neither `rejected`, an access token, nor due for renewal."""
        is_due = self.renew_at is not None and time.time() >= self.renew_at
        return self.access_token != rejected and not is_due


Report = LoginPage | DeviceCode | Done | Failed  # what the process of a login writes
Order = Wish | Answer  # what it reads


@attrs.frozen
class Logins(ABC):
    """A store of logins. All methods block, and raise LoginsTrouble on failure."""

    state: Path  # separates daemons, and holds the locks
    patience: float = LOCK_SECONDS  # seconds to wait for a lock

    def read(self, server: str, url: str | None) -> Login | None:
        """The login at a server; None without one for this url."""
        content, place = self._stored(server)
        login = None if content is None else decoded(content, server, place)
        return login if login is not None and url in {None, login.url} else None

    @abstractmethod
    def _stored(self, server: str) -> tuple[bytes | None, str]:
        """The login as it is stored, or None, and the name of its place."""

    @abstractmethod
    def write(self, server: str, login: Login) -> None:
        """Replace a login, whose lock the caller holds. After a failure the previous login stays."""

    @abstractmethod
    def remove(self, server: str) -> None:
        """Forget a login in any state. Idempotent."""

    @contextmanager
    def locked(self, server: str) -> Iterator[None]:
        """Lock a server's login against other daemons and commands; waits at most `patience`."""
        path = self.path(server)
        with ExitStack() as held:
            try:
                private_directory(path.parent)
                held.enter_context(private_files.locked(path, self.patience))
            except TimeoutError:
                why = f"another mcpd has been changing {path} for {self.patience:g} s"
                raise LoginsTrouble(f"{why}: find out why it does not end") from None
            except OSError as error:
                raise LoginsTrouble(f"{path} cannot be locked: {error.strerror}") from None
            yield

    def path(self, server: str) -> Path:
        """The file of a server's login, and of its lock."""
        return self.state / DIRECTORY / f"{server}.json"


class FileLogins(Logins):
    """Logins in files that only this user can read: `logins/SERVER.json` in the state directory."""

    def _stored(self, server: str) -> tuple[bytes | None, str]:
        path = self.path(server)
        try:
            return private_files.content(path, MAX_BYTES + 1), str(path)
        except OSError as error:
            raise LoginsTrouble(f"the login in {path} cannot be read: {error.strerror}") from None

    def write(self, server: str, login: Login) -> None:
        """See `Logins.write`."""
        path = self.path(server)
        try:
            private_directory(path.parent)
            private_files.replace(path, msgspec.json.format(msgspec.json.encode(login)) + b"\n")
        except OSError as error:
            raise LoginsTrouble(f"mcpd cannot store the login in {path}: {error.strerror}") from None

    def remove(self, server: str) -> None:
        """See `Logins.remove`."""
        path = self.path(server)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise LoginsTrouble(f"{path} cannot be removed: {error.strerror}") from None


def decoded(content: bytes, server: str, place: str) -> Login:
    """Decode a stored login. Raises LoginsTrouble, whose text names the place."""
    try:
        return msgspec.json.decode(content, type=Login)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # The decoder's text may quote the content.
        raise LoginsTrouble(
            f"the login in {place} is damaged: `mcpd login {server}` makes a new one in its place"
        ) from None


def logins_in(state: Path, *, secret_service: bool) -> Logins:
    """The login store, not opened yet. Raises `ImportError` without the extra `secret-service`."""
    if not secret_service:
        return FileLogins(state)
    keyring.need_library()
    return SecretServiceLogins(state)


def login_url(server: Server) -> str:
    """The URL that a server's login is for; logins at a WebSocket are made over HTTP."""
    url = server.url or ""
    return f"http{url.removeprefix('ws')}" if url.startswith(("ws://", "wss://")) else url


async def _unable(_server: Server, _rejected: str | None) -> Login:
    raise NotNow("the daemon is still starting: try again in a moment")


AGAIN_SECONDS = 5.0  # from a failed renewal to the next attempt: every call waits for a renewal

R = TypeVar("R")


class Renewals(msgspec.Struct, eq=False):
    """The renewals of one login, one at a time: file locks alone would block a thread for each caller."""

    lock: trio.Lock = msgspec.field(default_factory=trio.Lock)
    failure: Exception = NotNow("")  # the last
    again: float = -math.inf  # on trio's clock: until then, the failure counts

    async def renewed(
        self,
        login: Login | None,
        rejected: str | None,
        renew: Callable[[], Awaitable[R]],
        outage: type[Exception],
    ) -> R | Login:
        """Renew a login, unless that has just failed. During an outage, an unexpired login serves as it is.

        Raises the failure of `renew`; `outage` is the class of failures that a later attempt may mend.
        """
        async with self.lock:
            if trio.current_time() >= self.again:
                try:
                    return await renew()
                except (McpdError, outage) as error:
                    self.failure, self.again = error, trio.current_time() + AGAIN_SECONDS
            if login is None or login.access_token == rejected or not isinstance(self.failure, outage):
                raise self.failure
            if login.expires_at is not None and time.time() >= login.expires_at:
                raise self.failure
            return login


class ServerLogins:
    """The login store, its renewals, and the scopes that servers have asked for."""

    def __init__(
        self, kept: Logins, hide: Callable[[str, Iterable[str]], None] = lambda _server, _values: None
    ) -> None:
        self.kept = kept
        self.obtain: Callable[[Server, str | None], Awaitable[Login]] = _unable  # later `LoginRuns.obtain`
        self.renewals: defaultdict[tuple[str, str], Renewals] = defaultdict(Renewals)  # by server and URL
        self._hide = hide
        self._wanted: dict[str, str] = {}

    def sent(self, server: str, login: Login) -> None:
        """Hide the secrets of a login that is sent to its server, which may repeat them."""
        secrets = (login.access_token, login.refresh_token, login.client_secret)
        self._hide(server, [each for each in secrets if each])

    def want(self, server: str, scope: str) -> None:
        """Remember a scope that a server has asked for, for its next login."""
        self._wanted[server] = usable_scope(union(self._wanted.get(server), scope) or "") or scope

    def wanted(self, server: str, *others: str | None) -> str | None:
        """The scopes for the next login: those that the server has asked for, and others; None without any."""
        return union(*others, self._wanted.get(server)) if server in self._wanted else None

    def satisfied(self, server: str) -> None:
        """Forget the scopes that a server has asked for, because its login has changed."""
        self._wanted.pop(server, None)


class SecretServiceLogins(Logins):
    """Logins in the desktop's Secret Service (freedesktop.org), in the default collection if unlocked."""

    def _stored(self, server: str) -> tuple[bytes | None, str]:
        with _collection() as collection:
            item = next(iter(collection.search_items(self._attributes(server))), None)
            return None if item is None else item.get_secret(), "the Secret Service"

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

    def _attributes(self, server: str) -> dict[str, str]:
        return {"application": "mcpd", "state": str(self.state.absolute()), "server": server}
