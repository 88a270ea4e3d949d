"""Logins in the desktop's Secret Service (freedesktop.org), which encrypts them while nobody is logged in.

Every use has a connection of its own to the session bus: a login is read once for each connection to a server,
and a bus that has gone away costs nothing then. Nobody is asked to unlock anything: a daemon has no screen.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import secretstorage
from secretstorage.exceptions import SecretStorageException

from daemon.authorization.logins import DIRECTORY, LOCK_SECONDS, Login, LoginsTrouble, decoded, taken

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from secretstorage import Collection

ANSWER_SECONDS = 10.0
"""For the Secret Service to answer; it is on this machine and looks into a file."""


class SecretServiceLogins(msgspec.Struct, frozen=True):
    """Logins in the default collection, found by the state directory and the server's name."""

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
    except (SecretStorageException, OSError, KeyError) as error:
        raise LoginsTrouble(
            f"the Secret Service cannot be used ({type(error).__name__}): run mcpd within the desktop's"
            " session, or keep logins in files"
        ) from None
