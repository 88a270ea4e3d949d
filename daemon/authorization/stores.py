"""Where logins are kept: files, or the Secret Service, whose library is loaded only then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.authorization.logins import FileLogins
from daemon.kit.later import later

if TYPE_CHECKING:
    from pathlib import Path

    from daemon.authorization.logins import Logins
    from daemon.authorization.secret_service import SecretServiceLogins
else:
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
