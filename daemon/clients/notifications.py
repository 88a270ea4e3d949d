"""Notifies one client outside of its requests, and tells it when lists have changed.

If a client reads slowly, mcpd keeps only the newest required notification about each subject and drops optional
ones. A list counts as changed if it differs from the one that the client got. A call that loads tools is
answered once the client has listed them. Sessions of a connection differ only in their tools.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

import attrs
import msgspec
import trio
from loguru import logger
from msgspec import Struct

from daemon import protocol
from daemon.catalog.kinds import BESIDE_TOOLS, LISTS, ListOf
from daemon.catalog.snapshot import Catalog
from daemon.clients.client import Client
from daemon.clients.server_requests import RelayedRequest, ServerRequests
from daemon.counting.tally import Tally
from daemon.kit.waiting import Watch, keep_latest
from daemon.model import Kind
from daemon.ports import Upstream
from daemon.protocol import LIST_ROOTS, ROOTS_CHANGED, UNREADABLE
from daemon.wire.envelope import INTERNAL_ERROR, RemoteError
from daemon.wire.outbox import Outbox
from daemon.wire.requests import Peer, PeerRequest

OWED_SECONDS = 0.5
"""Seconds between checks whether a slow client can take its pending notifications."""

WORKSPACE_SECONDS = 10.0
"""Seconds for a client to name its roots when a call needs its workspace: no user is asked."""

ROOTS_SECONDS = 60.0
"""Seconds for a client to name its roots otherwise: SDKs wait no longer for an answer."""

ROOTS_TOO_LATE = f"the client has not named its roots within {ROOTS_SECONDS:g} s"

TASK_TOO_LATE = "the task that it belongs to is no longer known"


class _ClientRoot(Struct):
    uri: str


class _ClientRoots(Struct):
    roots: list[_ClientRoot]


_decode_roots = msgspec.json.Decoder(_ClientRoots).decode


@attrs.define(eq=False, repr=False)
class ConnectedClient:
    """Sends one client notifications and questions that belong to none of its requests."""

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
        """The client's identity in its exchanges (`wire.requests.Exchange.asker`)."""
        return self._client

    @property
    def only(self) -> str:
        """The only server that the client has chosen (`client.Selection.only`)."""
        return self._client.selection.only

    @property
    def level(self) -> int | None:
        """The rank of the client's log level; None if unset."""
        return self._client.log_level

    # --- notifications --------------------------------------------------------------------------------------

    def say(self, method: str, params: bytes) -> None:
        """Send an optional notification, or drop it if the client reads too slowly."""
        if self.has_room():
            self._peer.notify(method, params)

    def enqueue(self, key: Hashable, method: str, params: bytes, request_id: bytes | None = None) -> None:
        """Send a required notification, later if the client is slow; it replaces one with the same `key`."""
        if not self._owed and self.has_room(request_id):
            self._peer.notify(method, params, request_id)
            return
        self._owed.pop(key, None)
        self._owed[key] = method, params, request_id
        if not self._repays:
            self._repays = True
            self._later(self._repay)

    def is_pending(self, key: Hashable) -> bool:
        """Whether a notification with this key waits for the client."""
        return key in self._owed

    def discard_pending(self, key: Hashable) -> None:
        """Drop the waiting notification with this key."""
        self._owed.pop(key, None)

    def has_room(self, request_id: bytes | None = None) -> bool:
        """Whether few enough bytes wait for the client to send it more."""
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
        """Relay a server's request that belongs to no call, with a deadline on trio's clock."""
        asked = self._asking.ask(request, None)
        if asked is not None:
            self._later(self._limit, request, asked, until, too_late)

    def ask_roots(self, request: PeerRequest) -> None:
        """Ask the client for its roots on behalf of a server, with a time limit."""
        self.ask(request, trio.current_time() + ROOTS_SECONDS, ROOTS_TOO_LATE)

    def roots_changed(self) -> None:
        """Tell the servers that know the client's roots that the roots have changed."""
        self._client.workspace.changed()
        for server in list(self._asking.roots_known_to):
            self.tell_roots_changed(server)

    def tell_roots_changed(self, server: str) -> None:
        """Tell one server that the client's roots have changed."""
        upstream = self._upstreams.get(server)
        if upstream is None:
            self._asking.roots_known_to.discard(server)
        else:
            upstream.notify(ROOTS_CHANGED)

    async def roots(self, request_id: bytes | None) -> list[str]:
        """The URIs of the client's roots. Raises `RemoteError` for a refusal, `CallError` without an answer."""
        answer = await self._peer.request(
            LIST_ROOTS, {}, timeout=WORKSPACE_SECONDS, tells=False, request_id=request_id
        )
        try:
            return [each.uri for each in _decode_roots(answer).roots]
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


MAX_LISTS = 64
"""Sessions of one connection whose lists mcpd compares (`connection.MAX_KEYS`)."""

TOLD_TWICE = 2
"""A meta-tool's answer is sent as `content` and as `structuredContent`; a model gets one of them."""


@attrs.define(eq=False, repr=False)
class Savings:
    """Counts the bytes that mcpd saves one client."""

    _tally: Tally
    applies: bool = True
    """Whether the client gives all listed tools to its model (`surfaces.table.may_defer`)."""
    client: str = ""
    spared: int = attrs.field(default=0, init=False)
    """Bytes not sent; negative if the client got more than without mcpd."""
    _margins: dict[str | None, int] = attrs.field(factory=dict, init=False)

    def listed(self, surface: str, key: str | None, *, sent: int, full: int) -> None:
        """Record a list: `sent` are the bytes of its tools, `full` the bytes of all tools."""
        before = self._margins.get(key, 0)
        keep_latest(self._margins, key, full - sent, MAX_LISTS)
        self._count(surface, full - sent - before)

    def answered(self, surface: str, size: int) -> None:
        """Record the bytes of a meta-tool's answer."""
        self._count(surface, -(size // TOLD_TWICE))

    def _count(self, surface: str, spared: int) -> None:
        if self.applies:
            self.spared += spared
            self._tally.spared(surface, spared, self.client)


MAX_CLIENTS = 256
"""Kinds of clients whose habit is known, the latest ones; each unknown kind costs one wait."""

MAX_OWED = 64
"""Most lists that a client must ask for before mcpd waits for it again: at worst one load in 64 is slow."""


class Habit(msgspec.Struct, frozen=True):
    """The habit of a kind of client: whether it lists its tools soon after an announcement."""

    misses: int = 0
    """Consecutive waits in which the client did not list its tools."""
    owed: int = 0
    """Announcements that the client must follow up before mcpd waits for it again."""

    @property
    def listens(self) -> bool:
        """Whether mcpd waits until the client has listed its tools."""
        return self.owed == 0

    def unheard(self) -> Habit:
        """The habit of a client that did not list its tools while mcpd waited."""
        return Habit(self.misses + 1, min(2**self.misses, MAX_OWED))

    def heard(self, *, waited: bool) -> Habit:
        """The habit of a client that listed its tools; `waited` if an answer waited for the list."""
        return Habit() if waited else Habit(self.misses, max(0, self.owed - 1))


_TOOLS = LISTS[Kind.TOOL]

PATIENCE = 1.0
"""Seconds that an answer waits for `tools/list` after an announcement; real clients take 30 to 45 ms."""

TAKING_IN = 0.2
"""Seconds for a client to take in its new list: a busy Gemini CLI had the tool in its next request in 0 of 3
runs without the pause, in 3 of 4 with 50 or 100 ms, in 5 of 5 with 200 ms."""


class Announcement(msgspec.Struct, eq=False):
    """An announcement after which the client has not sent `tools/list` yet."""

    at: float
    """When it was announced, on trio's clock."""
    listed: trio.Event = msgspec.field(default_factory=trio.Event)
    asked: bool = False
    awaited: bool = False


ListPlace = tuple[Kind, str | None]
"""Names one list of a client: its kind, and for tools the session key."""


class _GivenList(msgspec.Struct, eq=False):
    items: tuple[bytes, ...]
    look: Callable[[], tuple[bytes, ...]]

    def has_changed(self, kind: Kind) -> bool:
        """Whether the list has changed since it was given; from now on the present list counts as given."""
        before = self.items
        try:
            self.items = self.look()
        except Exception:  # noqa: BLE001 - a bug in a list costs an announcement, not the session
            logger.exception("internal error in mcpd while listing {}", LISTS[kind].member)
        return self.items is not before and self.items != before


MAX_SUBSCRIPTIONS = 16
"""Open `subscriptions/listen` of one client; one is enough, since each gets its own notifications."""

PENDING: Mapping[str, object] = {}
"""The filter of a `subscriptions/listen` that is not acknowledged yet."""


@attrs.define(eq=False, repr=False)
class ListChanges:
    """Tells one client which of its lists have changed."""

    _peer: Peer
    _outbox: Outbox
    _client: Client
    _habits: dict[str, Habit]
    handshaken: bool = False
    """Whether the client sent `initialize`, and so gets notifications without a subscription."""
    open: dict[bytes, Mapping[str, object]] = attrs.field(factory=dict, init=False)
    """The acknowledged filter of each `subscriptions/listen`, by raw request id (MCP, `SubscriptionFilter`);
    each call's id is looked up in it."""
    _own: Habit | None = attrs.field(default=None, init=False)
    _given: dict[ListPlace, _GivenList] = attrs.field(factory=dict, init=False)
    _followed: set[ListPlace] = attrs.field(factory=set, init=False)
    """Lists that the client requests over other connections; every change of one is announced here."""
    _announced: dict[str | None, Announcement] = attrs.field(factory=dict, init=False)
    """The announcement that waits for `tools/list`, by session key."""

    def end_all(self) -> None:
        """End all subscriptions (MCP 2026-07-28)."""
        ended = list(self.open)
        self.open.clear()
        for each in ended:
            self._peer.answer(each, protocol.of_subscription(each, resultType="complete"))
        self._outbox.flush()

    def asking(self, wish: str) -> list[bytes]:
        """The ids of the subscriptions whose acknowledged filter has this member."""
        return [each for each, honoured in self.open.items() if honoured.get(wish)]

    def announce(self, changed: ListOf) -> None:
        """Notify the client that a list has changed, as its era does."""
        if self.handshaken:
            self._peer.notify(changed.changed)
        for each in self.asking(changed.wish):
            self._peer.notify(changed.changed, protocol.of_subscription(each), each)
        self._outbox.flush()

    def follow(self, place: ListPlace, look: Callable[[], tuple[bytes, ...]]) -> None:
        """Announce every change of a list that the client requests over other connections, as over HTTP."""
        self.given(place, look(), look, first=False, last=False)
        self._followed.add(place)

    def unfollow(self) -> None:
        """Stop following lists that no subscription asks for."""
        self._followed = {place for place in self._followed if self.asking(LISTS[place[0]].wish)}

    def asked(self, key: str | None) -> None:
        """Record that the client has sent `tools/list` for a session."""
        announced = self._announced.get(key)
        if announced is not None and not announced.asked:
            announced.asked = True
            self._learn(self._habit.heard(waited=announced.awaited))

    def given(
        self,
        place: ListPlace,
        items: tuple[bytes, ...],
        look: Callable[[], tuple[bytes, ...]],
        *,
        first: bool,
        last: bool,
    ) -> None:
        """Record that the client got a page of the list `items`; `look` returns the present list."""
        self._followed.discard(place)
        # If the list has changed between its pages, the first ones may be outdated.
        if first or place not in self._given:
            self._given.pop(place, None)
            self._given[place] = _GivenList(items, look)
            if len(self._given) > MAX_LISTS + len(BESIDE_TOOLS):
                del self._given[next(each for each in self._given if each[0] is Kind.TOOL)]
        announced = self._announced.pop(place[1], None) if last and place[0] is Kind.TOOL else None
        if announced is not None:
            announced.listed.set()

    def announce_if_changed(self) -> None:
        """Notify the client of the lists that differ from those it got."""
        # Building a list may judge loaded tools, which can lead here again.
        before, self._given = self._given, {}
        changed = {place for place, each in before.items() if each.has_changed(place[0])}
        gone = changed - self._followed
        self._given = {place: each for place, each in before.items() if place not in gone}
        if self.handshaken or self.asking(_TOOLS.wish):
            for key in (key for kind, key in changed if kind is Kind.TOOL):
                keep_latest(self._announced, key, _renewed(self._announced.get(key)), MAX_LISTS)
        # Resources and templates share a notification.
        for each in {LISTS[kind].changed: LISTS[kind] for kind in Kind if kind in dict(changed)}.values():
            self.announce(each)

    def expect(self, key: str | None) -> Announcement | None:
        """The announcement that an answer should wait for; None if the client is not expected to list soon."""
        announced = self._announced.get(key)
        if announced is None or not self._habit.listens or trio.current_time() >= announced.at + PATIENCE:
            return None
        announced.awaited = True
        return announced

    async def wait_listed(self, announced: Announcement) -> None:
        """Return once the client has listed and taken in its tools, or `PATIENCE` is over."""
        with trio.move_on_at(announced.at + PATIENCE):
            await announced.listed.wait()
        if announced.listed.is_set():
            await trio.sleep(TAKING_IN)
        elif announced.awaited and not announced.asked:
            announced.awaited = False
            self._learn(self._habit.unheard())

    @property
    def _habit(self) -> Habit:
        return self._own or self._habits.get(self._client.name, Habit())

    def _learn(self, habit: Habit) -> None:
        self._own = habit
        if self._client.name:
            keep_latest(self._habits, self._client.name, habit, MAX_CLIENTS)


def _renewed(before: Announcement | None) -> Announcement:
    now = trio.current_time()
    if before is None:
        return Announcement(now)
    if before.asked:
        return Announcement(now, listed=before.listed)
    before.at = now
    return before
