"""Notifications outside of requests to one client, and servers' questions outside of calls.

For a slow client, of required notifications only the newest about each subject is kept, and others are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

import attrs
import msgspec
import trio
from msgspec import Struct

from daemon.catalog.snapshot import Catalog
from daemon.clients.client import Client
from daemon.clients.server_requests import RelayedRequest, ServerRequests
from daemon.kit.waiting import Watch
from daemon.ports import Upstream
from daemon.protocol import LIST_ROOTS, ROOTS_CHANGED, UNREADABLE
from daemon.wire.envelope import INTERNAL_ERROR
from daemon.wire.outbox import Outbox
from daemon.wire.peer import Peer
from daemon.wire.requests import PeerRequest, RemoteError

OWED_SECONDS = 0.5
"""Seconds between checks whether a client that was behind takes its pending notifications."""

WORKSPACE_SECONDS = 10.0
"""Seconds for a client's roots when a call needs its workspace: clients answer without asking anybody."""

ROOTS_SECONDS = 60.0
"""Seconds for a client's roots elsewhere: SDKs wait no longer for an answer."""

ROOTS_TOO_LATE = f"the client has not told its roots within {ROOTS_SECONDS:g} s"

TASK_TOO_LATE = "the task that it belongs to is no longer known"


class _ToldRoot(Struct):
    uri: str


class _ToldRoots(Struct):
    roots: list[_ToldRoot]


_decode_roots = msgspec.json.Decoder(_ToldRoots).decode


@attrs.define(eq=False, repr=False)
class ConnectedClient:
    """Notifies one client outside of its requests."""

    _peer: Peer
    _client: Client
    _asking: ServerRequests
    sees: Callable[[str], bool]
    _catalog: Watch[Catalog]
    _upstreams: Mapping[str, Upstream]
    _outbox: Outbox
    _later: Callable[..., None]
    _owed: dict[Hashable, tuple[str, bytes, bytes | None]] = attrs.field(factory=dict, init=False)
    _repays: bool = attrs.field(default=False, init=False)

    def __repr__(self) -> str:
        return f"<ConnectedClient {self._client.name or 'unnamed'}: {len(self._owed)} owed>"

    @property
    def asker(self) -> object:
        """The client as its requests name it (`wire.requests.Exchange.asker`)."""
        return self._client

    @property
    def is_single(self) -> bool:
        """Whether the client has chosen one server alone."""
        return self._client.selection.is_single

    @property
    def level(self) -> int | None:
        """The rank of the client's log level; None if unset."""
        return self._client.log_level

    # --- notifications --------------------------------------------------------------------------------------

    def say(self, method: str, params: bytes) -> None:
        """Send an optional notification; dropped if the client is behind."""
        if self.has_room():
            self._peer.notify(method, params)

    def enqueue(self, key: Hashable, method: str, params: bytes, request_id: bytes | None = None) -> None:
        """Send a required notification as soon as the client takes it.

        `key` is its subject; of two that wait, only the newer is sent. `request_id` is the client's request
        that it belongs to, if any.
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
        """Whether a notification about this subject waits."""
        return key in self._owed

    def discard_pending(self, key: Hashable) -> None:
        """Drop the waiting notification about this subject."""
        self._owed.pop(key, None)

    def has_room(self, request_id: bytes | None = None) -> bool:
        """Whether the client takes notifications now, and few wait for it."""
        return self._peer.link.waiting(request_id) <= self._catalog.value.config.limits.client_queue_bytes

    async def _repay(self) -> None:
        try:
            while self._owed:
                await trio.sleep(OWED_SECONDS)
                for key in list(self._owed):
                    method, params, request_id = self._owed[key]
                    if self.has_room(request_id):
                        del self._owed[key]
                        self._peer.notify(method, params, request_id)
                self._outbox.flush()
        finally:
            self._repays = False

    # --- what servers ask outside of calls ------------------------------------------------------------------

    def ask(self, request: PeerRequest, until: float, too_late: str = TASK_TOO_LATE) -> None:
        """Relay a server's request that belongs to no call, until a deadline on trio's clock."""
        asked = self._asking.ask(request, None)
        if asked is not None:
            self._later(self._limit, request, asked, until, too_late)

    def ask_roots(self, request: PeerRequest) -> None:
        """Ask the client for its roots, for a bounded time."""
        self.ask(request, trio.current_time() + ROOTS_SECONDS, ROOTS_TOO_LATE)

    def roots_changed(self) -> None:
        """Notify the servers that know the client's roots of their change."""
        self._client.workspace.changed()
        for server in list(self._asking.roots_known_to):
            self.tell_roots_changed(server)

    def tell_roots_changed(self, server: str) -> None:
        """Notify one server that the client's roots have changed."""
        upstream = self._upstreams.get(server)
        if upstream is None:
            self._asking.roots_known_to.discard(server)
        else:
            upstream.notify(ROOTS_CHANGED)

    async def roots(self, request_id: bytes | None) -> list[str]:
        """The URIs of the client's roots; raises `RemoteError`: it refuses; `CallError`: it does not answer."""
        told = await self._peer.request(
            LIST_ROOTS, {}, timeout=WORKSPACE_SECONDS, tells=False, request_id=request_id
        )
        try:
            return [each.uri for each in _decode_roots(told).roots]
        except UNREADABLE as error:
            raise RemoteError(INTERNAL_ERROR, f"they cannot be read: {error}") from None

    async def _limit(self, request: PeerRequest, asked: RelayedRequest, until: float, too_late: str) -> None:
        if not request.is_open:
            return
        asked.limit = trio.CancelScope(deadline=until)
        with asked.limit:
            await trio.sleep_forever()
        if request.is_open:
            request.end(too_late)
            self._outbox.flush()
