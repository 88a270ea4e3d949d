"""The end of a login: forgotten here, so that nobody sends it any more, then at its authorization server."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import httpx2
import msgspec
import trio

from daemon.authorization.logins import LoginsTrouble
from daemon.authorization.refreshing import revoke

if TYPE_CHECKING:
    from daemon.authorization.logins import Login, Logins


class Ended(msgspec.Struct, frozen=True, rename="camel"):
    """What became of a login that was to end."""

    existed: bool
    """Whether there was one; it is forgotten."""
    revoked: bool = False
    """Whether its authorization server has ended it, too."""
    problem: str = ""
    """Why it has not, as part of a sentence; empty if it has, or need not."""


async def end_login(kept: Logins, server: str, url: str | None) -> Ended:
    """End a login.

    Args:
        kept: where logins are kept.
        server: the server's name.
        url: what the login counts for; None: whatever there is.

    Raises:
        LoginsTrouble: it cannot be forgotten; nothing has happened.
    """
    existed, login = await trio.to_thread.run_sync(_taken_out, kept, server, url)
    if login is None:
        return Ended(existed, problem="it could not be read" if existed else "")
    try:
        revoked = await revoke(login)
    except httpx2.TransportError as error:
        return Ended(existed, problem=str(error) or type(error).__name__)
    return Ended(existed, revoked, "" if revoked else "its authorization server offers no way to end one")


def _taken_out(kept: Logins, server: str, url: str | None) -> tuple[bool, Login | None]:
    """Whether there was a login, and what it was; forgotten whatever state it was in."""
    with suppress(LoginsTrouble):
        # A lock makes a file: not for a name that somebody has mistyped.
        if url is None and kept.read(server, None) is None:
            return False, None
    with kept.locked(server):
        try:
            login = kept.read(server, url)
            existed = login is not None
        except LoginsTrouble:
            login, existed = None, True
        kept.remove(server)
    return existed, login
