"""Notifications to one client that belong to none of its requests.

A client that reads slowly must not fill the memory: what may be lost is dropped, and of what may not, only the
newest about each thing is kept until there is room again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from daemon.surfaces.base import View

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from daemon.catalog.snapshot import Catalog
    from daemon.clients.calls import CallsInFlight
    from daemon.clients.client import Client
    from daemon.clients.context import SessionContext
    from daemon.clients.server_requests import RelayedRequest
    from daemon.clients.subscribers import Following
    from daemon.config.model import Profile
    from daemon.wire.peer import Peer
    from daemon.wire.requests import PeerRequest


OWED_SECONDS = 0.5
"""Seconds between looks whether a client that was behind takes what is owed to it."""


class ClientNotifier:
    """The way to one client for what belongs to none of its requests: a `clients.identity.Subscriber`."""

    def __init__(
        self,
        peer: Peer,
        calls: CallsInFlight,
        client: Client,
        context: SessionContext,
        later: Callable[..., None],
    ) -> None:
        """Begin with nothing owed.

        Args:
            peer: the client's end.
            calls: the client's calls, which also identify it (`wire.requests.Exchange.asker`).
            client: what it gets.
            context: what all sessions share.
            later: starts a task that ends with the connection.
        """
        self._calls = calls
        self.waiting = 0
        """How many of its subscriptions wait for servers."""
        self.listens: set[bytes] = set()
        """The ids of its `subscriptions/listen` that are not acknowledged yet."""
        self.resuming: set[Following] = set()
        """What it followed at servers that are no more, and is about to follow elsewhere."""
        self._peer = peer
        self._client = client
        self._context = context
        self._later = later
        self._owed: dict[Hashable, tuple[str, bytes, bytes | None]] = {}
        self._repays = False
        self._seen: tuple[Catalog, Profile] | None = None
        self._servers: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"<ClientNotifier {self._client.name or 'unnamed'}: {len(self._owed)} owed>"

    @property
    def asker(self) -> object:
        """The client, as its calls name it (`wire.requests.Exchange.asker`)."""
        return self._calls

    @property
    def level(self) -> int | None:
        """The level that the client has set for the logs of servers; None if it has set none."""
        return self._calls.log_level

    def sees(self, server: str) -> bool:
        """Whether its profile has this server, or it uses this instance of one."""
        selection = self._client.select(self._context.catalog.value.config)
        if selection.denied:
            return False
        catalog = self._context.means.offers.choices.of(self._context.catalog.value, selection.servers)
        if self._seen is None or self._seen[0] is not catalog or self._seen[1] is not selection.profile:
            view = View(
                catalog=catalog,
                profile=selection.profile,
                now=self._context.wall,
                means=self._context.means,
                keeps=False,
            )
            self._seen, self._servers = (catalog, selection.profile), frozenset(view.servers)
        return self._client.has(server, self._servers)

    def sees_others(self) -> bool:
        """Whether its profile has other servers than when that was last asked."""
        before = self._servers
        self.sees("")
        return self._servers != before

    def ask(self, request: PeerRequest, until: float) -> None:
        """Put a server's request to the client that belongs to none of its own, for a bounded time.

        Args:
            request: the request.
            until: when it ends without an answer, on trio's clock.
        """
        asked = self._calls.server_requests.ask(request, None)
        if asked is not None:
            self._later(_limit, request, asked, until)

    def say(self, method: str, params: bytes) -> None:
        """Send what the client can do without; dropped if it is behind, or takes nothing just now."""
        if self.has_room():
            self._peer.notify(method, params)

    def enqueue(self, key: Hashable, method: str, params: bytes, request_id: bytes | None = None) -> None:
        """Send what the client must learn, as soon as it takes it.

        Args:
            key: what it is about: of two that wait, only the newer is sent.
            method: the method of the notification.
            params: its params.
            request_id: the request of the client's that it belongs to, if any.
        """
        if not self._owed and self.has_room(request_id):
            self._peer.notify(method, params, request_id)
            return
        self._owed.pop(key, None)
        self._owed[key] = method, params, request_id
        if not self._repays:
            self._repays = True
            self._later(self._repay)

    def is_pending(self, key: Hashable) -> bool:
        """Whether something about this waits for the client."""
        return key in self._owed

    def discard_pending(self, key: Hashable) -> None:
        """Send no more what is owed about this."""
        self._owed.pop(key, None)

    def has_room(self, request_id: bytes | None = None) -> bool:
        """Whether the client takes what is sent now, and not too much waits for it already."""
        limit = self._context.catalog.value.config.limits.client_queue_bytes
        return self._peer.link.waiting(request_id) <= limit

    async def _repay(self) -> None:
        try:
            while self._owed:
                await trio.sleep(OWED_SECONDS)
                for key in list(self._owed):
                    method, params, request_id = self._owed[key]
                    if self.has_room(request_id):
                        del self._owed[key]
                        self._peer.notify(method, params, request_id)
                self._context.outbox.flush()
        finally:
            self._repays = False


async def _limit(request: PeerRequest, asked: RelayedRequest, until: float) -> None:
    if not request.is_open:
        return
    asked.limit = trio.CancelScope(deadline=until)
    with asked.limit:
        await trio.sleep_forever()
    if request.is_open:
        request.end("the task that it belongs to is no longer known")
