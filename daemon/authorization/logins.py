"""What is kept of a login: a private file for each server in the state directory.

Everything here blocks: call it in a thread.
"""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol

import attrs
import msgspec

from daemon.errors import McpdError
from daemon.host import private_files
from daemon.host.sockets import private_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

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


@attrs.frozen
class FileLogins:
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
