"""The clients of the daemon as operators' commands see them, what lets them in, and operators' own calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs
import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping

    from daemon.catalog.loaded import SessionRecord
    from daemon.clients.call import ClientCall
    from daemon.clients.calls import CallsInFlight
    from daemon.clients.client import Moves
    from daemon.clients.context import SessionStatistics
    from daemon.clients.permissions.grants import Grants
    from daemon.config.listen import ConsoleRole
    from daemon.errors import CallError
    from daemon.host.tokens import Kept
    from daemon.model import ToolKey
    from daemon.ports import OwnCall, Upstream
    from daemon.processes.peers import Connections


class LiveSession(Protocol):
    """An open connection of a client (`actors.session`)."""

    number: int
    """The number of the connection, counted from 1 since the daemon started."""

    calls: CallsInFlight
    """Its calls that have no answer yet."""

    @property
    def key(self) -> str | None:
        """The key of the connection's session; None if the session ends with the connection."""

    def statistics(self) -> SessionStatistics:
        """The connection's statistics."""

    def move(self, profile: str) -> None:
        """Serve another profile from now on, and tell the client."""


@attrs.frozen(kw_only=True)
class Clients:
    """The connected clients, by session and by listening socket."""

    live: Callable[[], Iterable[LiveSession]]
    """Returns the open connections of clients."""
    in_use: Callable[[], Iterable[tuple[SessionRecord, int]]]
    """Returns the keyed sessions that are in use, each with its number of connections: one connection may take
    part in several sessions."""
    moves: Moves
    """Sessions that were given another profile."""
    change_grants: Callable[[str, Callable[[Grants], object]], None]
    """Changes what the session with a key may call without its user being asked again."""
    unload: Callable[[Hashable, Collection[ToolKey]], Awaitable[bool]]
    """Takes tools away from a session (`clients.unloading`)."""
    parked: Callable[[], Iterable[ClientCall]]
    """Returns the calls that are parked: their clients were asked something, and have not come back yet."""
    connections: Callable[[], Mapping[str, Connections]]
    """Returns how many clients each listening socket has accepted and refused."""

    def statistics(self) -> list[SessionStatistics]:
        """The statistics of each open connection."""
        return [session.statistics() for session in self.live()]


@attrs.define(eq=False, kw_only=True)
class OperatorCall:
    """A request of an operator's that waits for an answer (`operators.forwarding`)."""

    sent: OwnCall
    """What is sent."""
    tool: str
    """The server's own name of the tool; empty if it is no call of one."""
    upstream: Upstream
    """The server, or the instance, that it is for."""
    started: float
    """When it began, in seconds on trio's clock."""
    lose: Callable[[CallError], None]
    """Ends it with an error."""
    waiting: trio.CancelScope = attrs.field(factory=trio.CancelScope, repr=False)
    """The scope in which it waits for its server to come up."""
    key: int | None = None
    """The key to cancel it by at that server; None until it is sent."""
    shown_as: tuple[int, float] | None = None
    """The number that operators know it by, and when it began for them, in seconds since the epoch; None if it
    was not shown to any (`operators.calls`)."""


class Access(Protocol):
    """The tokens that let clients in over HTTP (`clients.doors.http.tokens`)."""

    @property
    def used(self) -> Mapping[str, float]:
        """When each was last shown, by name, in seconds since the epoch; the one without a name under ""."""

    @property
    def problem(self) -> str:
        """Why those that mcpd keeps cannot be read; empty if they can."""

    @property
    def kept(self) -> Kept:
        """Those that mcpd keeps and that count."""

    @property
    def doubted(self) -> Kept:
        """Those that wait to be confirmed."""

    async def shown_default(self) -> str:
        """The value of the one without a name."""

    async def renew_default(self) -> None:
        """Replace the one without a name."""

    async def add(
        self,
        name: str,
        profiles: tuple[str, ...] | None,
        console: ConsoleRole | None = None,
        workspaces: tuple[str, ...] = (),
    ) -> str:
        """Make one with a name; returns its value."""

    async def confirm(self, name: str | None) -> None:
        """Let one in again; None: the one without a name."""

    async def revoke(self, name: str) -> None:
        """Forget one."""


class ConsoleAccess(Protocol):
    """Who is let into the console (`console.console`)."""

    async def link(self, *, may_change: bool) -> str:
        """Make a link that lets one browser in, once.

        Raises:
            OSError: the console cannot be served.
        """

    def end_all(self) -> int:
        """End all sessions; returns how many there were."""
