"""What a session may call without its user being asked again, and what becomes of that when the session ends.

A grant is for one definition of one tool: with another hash it is worth nothing. Grants are kept in memory
only. Those of a session with a key stay for a while after its last connection has left, because a bridge comes
back within seconds and a client over HTTP connects anew for each request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio

from daemon.clients.input_required import TTL
from daemon.kit.waiting import keep_latest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from daemon.model import Tool, ToolKey


MAX_AGREED = 1024
"""Calls that may be repeated once: as many as may wait for their clients' input."""


class AgreedCalls:
    """The calls of all clients that may each be repeated once without asking."""

    def __init__(self) -> None:
        """Begin without any."""
        self._agreed: dict[bytes, tuple[tuple[str, ...], float]] = {}

    def __len__(self) -> int:
        return len(self._agreed)

    def note(self, owner: bytes, tool: tuple[str, ...]) -> None:
        """Note that a call was answered with a need for input.

        Args:
            owner: the digest of who has called what with what (`asking.owner_of`).
            tool: what its user has agreed to.
        """
        keep_latest(self._agreed, owner, (tool, trio.current_time() + TTL), MAX_AGREED)

    def take(self, owner: bytes, tool: tuple[str, ...]) -> bool:
        """Whether such a call may be repeated, which is then used up."""
        known, until = self._agreed.pop(owner, ((), 0.0))
        return known == tool and trio.current_time() < until


MAX_GRANTS = 1024
"""Grants of one session, the latest: as many as an operator may give with one pattern, and no user more."""

MAX_LEFT = 256
"""Sessions without a connection whose grants are kept, most recently left."""

GRACE = 600.0
"""Seconds that a session's grants stay after its last connection has left: as long as a user has to answer."""


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """That one tool may be called as it is now."""

    schema_hash: str
    """The hash of its definition."""
    by: str
    """Who has said so, in words."""
    until: float | None = None
    """When it ends, in seconds on trio's clock; None: with the session."""

    def holds(self, now: float) -> bool:
        """Whether it has not ended."""
        return self.until is None or now < self.until


class Grants:
    """What one session may call."""

    def __init__(self) -> None:
        """Begin without any."""
        self._grants: dict[ToolKey, Grant] = {}

    def __bool__(self) -> bool:
        return bool(self._grants)

    def allow(self, tool: Tool, by: str, until: float | None = None) -> None:
        """Have a tool called as it is now without asking."""
        grant = Grant(schema_hash=tool.schema_hash, by=by, until=until)
        keep_latest(self._grants, (tool.server, tool.name), grant, MAX_GRANTS)

    def covers(self, tool: Tool, now: float) -> bool:
        """Whether a tool may be called as it is now."""
        grant = self._grants.get((tool.server, tool.name))
        return grant is not None and grant.schema_hash == tool.schema_hash and grant.holds(now)

    def revoke(self, keys: Collection[ToolKey]) -> list[ToolKey]:
        """Have users asked about these tools again; returns those that were allowed."""
        return [key for key in keys if self._grants.pop(key, None) is not None]

    def current(self, now: float) -> Mapping[ToolKey, Grant]:
        """The grants that have not ended."""
        self._grants = {key: grant for key, grant in self._grants.items() if grant.holds(now)}
        return dict(self._grants)


class SessionGrants:
    """The grants of all sessions with keys, in use or left a short while ago."""

    def __init__(self, used: Callable[[str], Grants | None]) -> None:
        """Begin without any; `used` returns the grants of a session in use, by its key."""
        self._used = used
        self._left: dict[str, tuple[Grants, float]] = {}

    def keep(self, key: str, grants: Grants) -> None:
        """Keep the grants of a session whose last connection has left."""
        if grants:
            keep_latest(self._left, key, (grants, trio.current_time()), MAX_LEFT)
        else:
            self._left.pop(key, None)

    def take(self, key: str) -> Grants:
        """The grants of a session that a connection uses from now on."""
        grants, left = self._left.pop(key, (None, 0.0))
        return Grants() if grants is None or trio.current_time() - left >= GRACE else grants

    def change(self, key: str, act: Callable[[Grants], object]) -> None:
        """Look at the grants of a session, or change them."""
        used = self._used(key)
        grants = self.take(key) if used is None else used
        act(grants)
        if used is None:
            self.keep(key, grants)
