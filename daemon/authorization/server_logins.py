"""The logins at all servers, as the parts of a daemon share them: where they are kept, and what they lack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.authorization.logins import FileLogins, union, usable_scope
from daemon.kit.later import later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from daemon.authorization.logins import Login, Logins
    from daemon.authorization.secret_service import SecretServiceLogins
    from daemon.config.model import Server
else:
    # Most daemons keep logins in files, and do without its library.
    SecretServiceLogins = later("daemon.authorization.secret_service", "SecretServiceLogins")


def logins_in(state: Path, *, secret_service: bool) -> Logins:
    """The logins of a daemon; nothing is opened yet.

    Args:
        state: its state directory, in which their locks lie, too.
        secret_service: whether they are kept in the Secret Service.

    Raises:
        ImportError: the Secret Service is wanted, and the extra `secret-service` is not installed.
    """
    return SecretServiceLogins(state) if secret_service else FileLogins(state)


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
