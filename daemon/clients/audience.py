"""All clients, as what servers say reaches them that answers none of their requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs

from daemon.clients.logging_levels import LogLevels
from daemon.clients.roots import RootsOfClients
from daemon.clients.subscribed import ResourceSubscriptions
from daemon.clients.tasks import ClientTasks
from daemon.kit.mailbox import Watch
from daemon.model import StandingWishes
from daemon.protocol import LOG_MESSAGE, RESOURCE_UPDATED, TASK_STATUS
from daemon.wire.envelope import is_utf8

if TYPE_CHECKING:
    from msgspec import Raw

    from daemon.clients.member import Subscriber
    from daemon.ports import TaskOwner
    from daemon.wire.peer_requests import PeerRequest
    from daemon.wire.requests import Exchange, RemoteError


class Hearer(Protocol):
    """What takes notifications of servers to one client that need more than is known here."""

    def hear(self, server: str, method: str, params: Raw, cause: Exchange | None) -> None:
        """Take a notification of a server (`ports.ConnectionEvents.on_message`), or leave it."""


class ConnectedClients:
    """The clients that are connected: `ports.Audience`."""

    def __init__(self) -> None:
        """Begin without any."""
        self._wishes: dict[str, Watch[StandingWishes]] = {}
        self.levels = LogLevels(self.look)
        """The levels that they have set for the logs of servers."""
        self.resources = ResourceSubscriptions(self._wish)
        """The resources that they follow."""
        self.tasks = ClientTasks()
        """The tasks that they have made."""
        self.roots = RootsOfClients()
        """The clients that have roots."""
        self._hearers: dict[object, Hearer] = {}

    def join(self, hearer: Hearer) -> None:
        """Take notifications of other kinds to this, too, until it leaves."""
        self._hearers[hearer] = hearer

    def leave(self, hearer: Hearer) -> None:
        """Take nothing to this any more."""
        self._hearers.pop(hearer, None)

    def look(self) -> None:
        """Note that a client has come or gone, or sees other servers: what they want may have changed."""
        for server, watch in self._wishes.items():
            level = self.levels.wished(server)
            # What they follow does not depend on it, and may be ten thousand URIs.
            if level != watch.value.level:
                watch.set(attrs.evolve(watch.value, level=level))

    def look_at(self, server: str) -> None:
        """Note that a client uses an instance from now on: what is wanted of that may have changed."""
        self._wish(server)

    def forget(self, told: Subscriber) -> None:
        """Forget a client: it is gone."""
        self.levels.leave(told)
        self.resources.leave(told)
        self.tasks.leave(told)

    # --- ports.Audience ------------------------------------------------------------------------------------

    def hear(self, server: str, method: str, params: Raw, cause: Exchange | None) -> None:
        """Take a server's notification to the clients that it is for (`ports.Audience.hear`)."""
        if not is_utf8(bytes(params)):
            # It is passed on unread.
            return
        if method == LOG_MESSAGE:
            self.levels.hear(server, params, cause)
        elif method == RESOURCE_UPDATED:
            self.resources.hear(server, params)
        elif method == TASK_STATUS:
            self.tasks.hear(server, params)
        else:
            for each in list(self._hearers.values()):
                each.hear(server, method, params, cause)

    def wishes(self, server: str) -> Watch[StandingWishes]:
        """What clients want of a server beside answers (`ports.Audience.wishes`)."""
        if server not in self._wishes:
            self._wishes[server] = Watch(StandingWishes())
            self._wish(server)
        return self._wishes[server]

    def settled(self, server: str, uri: str, refusal: RemoteError | None) -> None:
        """Learn whether a server tells of updates of a resource (`ports.Audience.settled`)."""
        self.resources.settled(server, uri, refusal)

    def owner_of(self, request: PeerRequest) -> TaskOwner | None:
        """Who has made the task that a server's request belongs to (`ports.Audience.owner_of`)."""
        return self.tasks.owner_of(request)

    def ask(self, request: PeerRequest) -> None:
        """Put a server's request that no call has caused to the only client that can be meant, or refuse it."""
        self.roots.ask(request)

    def uses(self, server: str) -> bool:
        """Whether a client needs a server beside its calls (`ports.Audience.uses`)."""
        return bool(self.resources.wished(server)) or self.tasks.are_open(server)

    def lost(self, server: str) -> None:
        """Learn that a connection to a server has ended (`ports.Audience.lost`)."""
        self.resources.lost(server)
        self.tasks.lost(server)

    def gone(self, server: str) -> None:
        """Forget a server, or an instance of one, that will never be again (`ports.Audience.gone`)."""
        self.lost(server)
        self.resources.gone(server)
        self.roots.gone(server)
        self._wishes.pop(server, None)

    def _wish(self, server: str) -> None:
        watch = self._wishes.get(server)
        if watch is None:
            return
        wished = StandingWishes(level=self.levels.wished(server), uris=self.resources.wished(server))
        if wished != watch.value:
            watch.set(wished)
