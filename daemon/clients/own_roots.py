"""The roots of one client, as servers ask for them outside of calls, and what it says when they change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio
from msgspec import Struct

from daemon.clients.identity import has
from daemon.protocol import LIST_ROOTS, ROOTS_CHANGED
from daemon.wire.envelope import INTERNAL_ERROR
from daemon.wire.requests import RemoteError

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.clients.client import Client
    from daemon.clients.context import SessionContext
    from daemon.clients.server_requests import RelayedRequest, ServerRequests
    from daemon.wire.requests import PeerRequest

WORKSPACE_SECONDS = 10.0
"""Seconds that a client has to tell its roots because a call needs its workspace. Clients answer that without
asking anybody; one that does not must not hold its call up until it gives that up itself."""

ROOTS_SECONDS = 60.0
"""Seconds that a client has for its roots where no call bounds them: SDKs wait no longer for an answer."""

TOO_LATE = f"the client has not told its roots within {ROOTS_SECONDS:g} s"


class _ToldRoot(Struct):
    uri: str


class _ToldRoots(Struct):
    roots: list[_ToldRoot]


_decode = msgspec.json.Decoder(_ToldRoots).decode


class OwnRoots:
    """The roots of one client, as servers ask for them outside of calls: a `roots.RootsClient`."""

    def __init__(
        self,
        asking: ServerRequests,
        context: SessionContext,
        client: Client,
        later: Callable[..., None],
    ) -> None:
        """Begin with a client that has not finished its handshake.

        Args:
            asking: what servers have asked the client.
            context: what all sessions share.
            client: the client.
            later: starts a task that ends with the connection.
        """
        self._asking = asking
        self._context = context
        self._client = client
        self._later = later

    def begin(self) -> None:
        """Take requests from now on, if the client has roots: its handshake is over."""
        if has(self._asking.capabilities, "roots"):
            self._context.audience.roots.join(self)
            self._client.workspace.have_roots(self.uris)

    def end(self) -> None:
        """Take no more requests: the client is gone."""
        self._context.audience.roots.leave(self)
        # Servers keep what they were told: now they ask whoever is left, or once somebody comes.
        self.changed()
        self._context.outbox.flush()

    def sees(self, server: str) -> bool:
        """Whether the client's profile has anything of this server, or it uses this instance of one."""
        catalog = self._context.catalog.value
        selection = self._client.select(catalog.config)
        wanted = selection.profile.categories
        if selection.servers:
            return self._client.has(server, selection.servers)
        if wanted is None:
            return self._client.has(server, catalog.servers)
        shown = (catalog.categories[name].servers for name in wanted if name in catalog.categories)
        return self._client.has(server, {each for servers in shown for each in servers})

    def ask(self, request: PeerRequest) -> None:
        """Ask the client for its roots, for a bounded time."""
        asked = self._asking.ask(request, None)
        if asked is not None:
            self._later(self._limit, request, asked)

    def changed(self) -> None:
        """Tell the servers that know the client's roots that they have changed."""
        self._client.workspace.changed()
        for server in list(self._asking.told_roots):
            self.tell(server)

    def tell(self, server: str) -> None:
        """Tell one server that the client's roots have changed."""
        upstream = self._context.upstreams.get(server)
        if upstream is None:
            self._asking.told_roots.discard(server)
        else:
            upstream.notify(ROOTS_CHANGED)

    async def uris(self, request_id: bytes | None) -> list[str]:
        """The URIs of the client's roots, as it tells them now.

        Args:
            request_id: the client's request on whose account it is asked.

        Raises:
            RemoteError: the client refuses.
            CallError: it does not answer.
        """
        told = await self._asking.ask_ourselves(LIST_ROOTS, request_id, WORKSPACE_SECONDS)
        try:
            return [each.uri for each in _decode(told).roots]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise RemoteError(INTERNAL_ERROR, f"they cannot be read: {error}") from None

    async def _limit(self, request: PeerRequest, asked: RelayedRequest) -> None:
        if not request.is_open:
            return
        asked.limit = trio.CancelScope(deadline=trio.current_time() + ROOTS_SECONDS)
        with asked.limit:
            await trio.sleep_forever()
        if request.is_open:
            request.end(TOO_LATE)
            self._context.outbox.flush()
