"""Tools that a session may call without asking its user again, in one definition each.

Kept in memory; grants of a keyed session outlast its last connection for a while, because bridges and HTTP
clients reconnect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec
import trio

from daemon.clients.input_required import TTL
from daemon.kit.waiting import keep_latest
from daemon.model import Tool, ToolKey

MAX_AGREED = 1024
"""Calls that may be repeated once: as many as may wait for their clients' input."""


class AgreedCalls:
    """Approved calls of all clients that may each be repeated once without asking."""

    def __init__(self) -> None:
        self._agreed: dict[bytes, tuple[tuple[str, ...], float]] = {}

    def __len__(self) -> int:
        return len(self._agreed)

    def note(self, owner: bytes, tool: tuple[str, ...]) -> None:
        """Note that an approved call (`asking.owner_of`) was answered with a need for input."""
        keep_latest(self._agreed, owner, (tool, trio.current_time() + TTL), MAX_AGREED)

    def take(self, owner: bytes, tool: tuple[str, ...]) -> bool:
        """Whether this call may be repeated; uses the approval up."""
        known, until = self._agreed.pop(owner, ((), 0.0))
        return known == tool and trio.current_time() < until


MAX_GRANTS = 1024
"""Grants of one session, newest first to stay: as many as one pattern of an operator gives."""

MAX_LEFT = 256
"""Unconnected sessions whose grants are kept, most recently left."""

GRACE = 600.0
"""Seconds that grants outlast a session's last connection: as long as a user has to answer."""


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A grant for one definition of a tool."""

    schema_hash: str
    by: str
    until: float | None = None
    """On trio's clock; None lasts as long as the session."""

    def holds(self, now: float) -> bool:
        """Whether the grant has not expired."""
        return self.until is None or now < self.until


class Grants:
    """The grants of one session."""

    def __init__(self) -> None:
        self._grants: dict[ToolKey, Grant] = {}

    def __bool__(self) -> bool:
        return bool(self._grants)

    def allow(self, tool: Tool, by: str, until: float | None = None) -> None:
        """Allow calls of a tool in its present definition."""
        grant = Grant(schema_hash=tool.schema_hash, by=by, until=until)
        keep_latest(self._grants, (tool.server, tool.name), grant, MAX_GRANTS)

    def covers(self, tool: Tool, now: float) -> bool:
        """Whether a tool in its present definition may be called."""
        grant = self._grants.get((tool.server, tool.name))
        return grant is not None and grant.schema_hash == tool.schema_hash and grant.holds(now)

    def revoke(self, keys: Collection[ToolKey]) -> list[ToolKey]:
        """Revoke the grants of these tools; returns the keys that had one."""
        return [key for key in keys if self._grants.pop(key, None) is not None]

    def current(self, now: float) -> Mapping[ToolKey, Grant]:
        """The grants that have not expired."""
        self._grants = {key: grant for key, grant in self._grants.items() if grant.holds(now)}
        return dict(self._grants)


class SessionGrants:
    """The grants of all keyed sessions, in use or left a short while ago."""

    def __init__(self, used: Callable[[str], Grants | None]) -> None:
        """Begin empty; `used` returns the grants of a session in use."""
        self._used = used
        self._left: dict[str, tuple[Grants, float]] = {}

    def keep(self, key: str, grants: Grants) -> None:
        """Keep the grants of a session whose last connection has left."""
        if grants:
            keep_latest(self._left, key, (grants, trio.current_time()), MAX_LEFT)
        else:
            self._left.pop(key, None)

    def take(self, key: str) -> Grants:
        """Remove and return the grants of a session that comes into use."""
        grants, left = self._left.pop(key, (None, 0.0))
        return Grants() if grants is None or trio.current_time() - left >= GRACE else grants

    def change(self, key: str, act: Callable[[Grants], object]) -> None:
        """Apply `act` to the grants of a session, in use or not."""
        used = self._used(key)
        grants = self.take(key) if used is None else used
        act(grants)
        if used is None:
            self.keep(key, grants)
