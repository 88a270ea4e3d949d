"""All connected clients, as servers reach them outside of calls: notifications, roots and tasks."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from msgspec import Raw

from daemon.catalog.authorship import UnsafeQuestion
from daemon.catalog.extensions import is_unknown
from daemon.clients.client_tasks import ClientTasks
from daemon.clients.notifications import ConnectedClient
from daemon.clients.server_requests import COMPLETE, ServerRequests
from daemon.clients.subscribers import LogLevels, ResourceSubscriptions
from daemon.config.labels import server_of
from daemon.history.event import Event, EventKind
from daemon.kit.waiting import Watch
from daemon.model import StandingWishes
from daemon.ports import TaskOwner
from daemon.protocol import LIST_ROOTS, LOG_MESSAGE, RESOURCE_UPDATED, TASK_STATUS
from daemon.wire.envelope import INVALID_REQUEST, is_utf8
from daemon.wire.requests import NO_CLIENT, Exchange, PeerRequest, RemoteError


class RootsOfClients:
    """The clients that have roots."""

    def __init__(self) -> None:
        self._clients: dict[ConnectedClient, None] = {}
        self._refused: set[str] = set()

    def ask(self, request: PeerRequest) -> None:
        """Put a request that belongs to no call to the only eligible client, or refuse it."""
        only = self._only(request.server) if request.method == LIST_ROOTS else None
        if only is not None:
            only.ask_roots(request)
            return
        if request.method == LIST_ROOTS:
            self._refused.add(request.server)
        request.refuse(INVALID_REQUEST, NO_CLIENT)

    def join(self, client: ConnectedClient) -> None:
        """Add a client that has roots."""
        self._clients[client] = None
        self._tell_refused()

    def leave(self, client: ConnectedClient) -> None:
        """Remove a client."""
        self._clients.pop(client, None)
        self._tell_refused()

    def gone(self, server: str) -> None:
        """Forget a server that was removed."""
        self._refused.discard(server)

    def _tell_refused(self) -> None:
        for server in list(self._refused):
            only = self._only(server)
            if only is not None:
                self._refused.discard(server)
                only.tell_roots_changed(server)

    def _only(self, server: str) -> ConnectedClient | None:
        found = [client for client in self._clients if client.sees(server)]
        return found[0] if len(found) == 1 else None


class ConnectedClients:
    """The connected clients: `ports.Subscribers`."""

    def __init__(self, gather: Callable[[Event], None] = lambda _event: None) -> None:
        """Begin without clients; `gather` takes refused questions, which may be many."""
        self._gather = gather
        self._wishes: dict[str, Watch[StandingWishes]] = {}
        self.levels = LogLevels(self.refresh_levels)
        self.resources = ResourceSubscriptions(self.refresh_wishes)
        self.tasks = ClientTasks()
        self.roots = RootsOfClients()
        self.sent_to_urls: dict[ServerRequests, None] = {}
        self.connected: dict[ConnectedClient, None] = {}

    def refresh_levels(self) -> None:
        """Recompute the wanted log levels: a client has come, left or changed servers."""
        for server, watch in self._wishes.items():
            level = self.levels.wished(server)
            # Subscriptions do not depend on this, and may be ten thousand URIs.
            if level != watch.value.level:
                watch.set(attrs.evolve(watch.value, level=level))

    def forget(self, client: ConnectedClient) -> None:
        """Forget a client that has disconnected."""
        self.connected.pop(client, None)
        self.roots.leave(client)
        # Servers keep the roots that they know: now they ask the remaining client, or the next one.
        client.roots_changed()
        self.levels.leave(client)
        self.resources.leave(client)
        self.tasks.leave(client.asker)

    # --- ports.Subscribers ----------------------------------------------------------------------------------

    def hear(self, server: str, method: str, params: Raw, cause: Exchange | None) -> None:
        """Deliver a server's notification to its subscribers (`ports.Subscribers.hear`)."""
        if not is_utf8(bytes(params)):
            # Unread: the payload is the client's.
            return
        if method == LOG_MESSAGE:
            self.levels.hear(server, params, cause)
        elif method == RESOURCE_UPDATED:
            self.resources.hear(server, params)
        elif method == TASK_STATUS:
            self.tasks.hear(server, params)
        elif method == COMPLETE:
            for each in list(self.sent_to_urls):
                each.hear(server, params)
        elif is_unknown(method):
            for client in list(self.connected):
                if client.is_single and client.sees(server):
                    client.say(method, bytes(params))

    def wishes(self, server: str) -> Watch[StandingWishes]:
        """The subscriptions of all clients at a server (`ports.Subscribers.wishes`)."""
        if server not in self._wishes:
            self._wishes[server] = Watch(StandingWishes())
            self.refresh_wishes(server)
        return self._wishes[server]

    def settled(self, server: str, uri: str, refusal: RemoteError | None) -> None:
        """Record whether a server sends updates of a resource (`ports.Subscribers.settled`)."""
        self.resources.settled(server, uri, refusal)

    def owner_of(self, request: PeerRequest) -> TaskOwner | None:
        """The owner of the task that a server's request belongs to (`ports.Subscribers.owner_of`)."""
        return self.tasks.owner_of(request)

    def ask(self, request: PeerRequest) -> None:
        """Put a request that no call has caused to the only eligible client, or refuse it."""
        self.roots.ask(request)

    def unsafe(self, server: str, why: UnsafeQuestion) -> None:
        """Record a server's question that was withheld from users (`ports.Subscribers.unsafe`)."""
        kind, details = EventKind.QUESTION_REFUSED, {"reason": why.reason}
        self._gather(Event(kind=kind, server=server_of(server), text=str(why), details=details))

    def refused_host(self, refusal: Event) -> None:
        """Record a host that a sandbox refused (`ports.Subscribers.refused_host`)."""
        self._gather(refusal)

    def uses(self, server: str) -> bool:
        """Whether a client needs a server outside of calls (`ports.Subscribers.uses`)."""
        return bool(self.resources.wished(server)) or self.tasks.are_open(server)

    def lost(self, server: str) -> None:
        """Handle the end of a connection to a server (`ports.Subscribers.lost`)."""
        self.resources.lost(server)
        self.tasks.lost(server)

    def gone(self, server: str) -> None:
        """Forget a removed server or an ended instance (`ports.Subscribers.gone`)."""
        self.resources.lost(server)
        self.tasks.lost(server, wholly=True)
        self.resources.gone(server)
        self.roots.gone(server)
        self._wishes.pop(server, None)

    def refresh_wishes(self, server: str) -> None:
        """Recompute the subscriptions at a server."""
        watch = self._wishes.get(server)
        if watch is None:
            return
        wished = StandingWishes(level=self.levels.wished(server), uris=self.resources.wished(server))
        if wished != watch.value:
            watch.set(wished)
