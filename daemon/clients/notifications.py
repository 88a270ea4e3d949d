"""Notifications outside of requests to one client, servers' questions outside of calls, and changed lists.

For a slow client only the newest required notification about each subject is kept, and others are dropped.
Changed lists are announced by comparison with those given; a call that loads tools is answered once the client
has listed them. Only tools differ between sessions of a connection.
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
from daemon.counting.tally import Tally, tokens_in
from daemon.kit.waiting import Watch, keep_latest
from daemon.model import Kind
from daemon.ports import Upstream
from daemon.protocol import LIST_ROOTS, ROOTS_CHANGED, UNREADABLE
from daemon.wire.envelope import INTERNAL_ERROR, RemoteError
from daemon.wire.outbox import Outbox
from daemon.wire.requests import Peer, PeerRequest

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
        """Send a required notification as soon as the client takes it; of two with one `key`, the newer."""
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


MAX_LISTS = 64
"""Sessions of one connection whose lists are compared (`connection.MAX_KEYS`)."""

TOLD_TWICE = 2
"""A meta-tool's answer holds the same in `content` and `structuredContent`; a model gets one of the two."""


@attrs.define(eq=False, repr=False)
class Savings:
    """The tokens that one client was spared."""

    _tally: Tally
    applies: bool = True
    """Whether the client gives its model all listed tools (`surfaces.table.may_defer`)."""
    client: str = ""
    _spared: int = attrs.field(default=0, init=False)
    _margins: dict[str | None, int] = attrs.field(factory=dict, init=False)

    @property
    def tokens(self) -> int | None:
        """An estimate, negative if the client was sent more; None if it defers tools itself."""
        return tokens_in(self._spared) if self.applies else None

    def listed(self, surface: str, key: str | None, *, sent: int, full: int) -> None:
        """Record the list that a session was given; `sent` and `full` are bytes of its tools and of all."""
        before = self._margins.get(key, 0)
        keep_latest(self._margins, key, full - sent, MAX_LISTS)
        self._count(surface, full - sent - before)

    def answered(self, surface: str, size: int) -> None:
        """Record the bytes of a meta-tool's answer."""
        self._count(surface, -(size // TOLD_TWICE))

    def _count(self, surface: str, spared: int) -> None:
        if self.applies:
            self._spared += spared
            self._tally.spared(surface, spared, self.client)


MAX_CLIENTS = 256
"""Kinds of clients with a known habit, the latest learned; a new one costs one wait."""

MAX_OWED = 64
"""Most lists that a client must ask for before it is waited for again: at worst one load in 64 is slow."""


class Habit(msgspec.Struct, frozen=True):
    """The observed reaction of a kind of client to announcements."""

    misses: int = 0
    """Consecutive waits in which it did not list."""
    owed: int = 0
    """Announcements that it must follow up before it is waited for again."""

    @property
    def listens(self) -> bool:
        """Whether waiting for it is worth it."""
        return self.owed == 0

    def unheard(self) -> Habit:
        """The habit after the client was waited for and did not list."""
        return Habit(self.misses + 1, min(2**self.misses, MAX_OWED))

    def heard(self, *, waited: bool) -> Habit:
        """The habit after the client has listed; `waited` if an answer was waiting for that."""
        return Habit() if waited else Habit(self.misses, max(0, self.owed - 1))


_TOOLS = LISTS[Kind.TOOL]

PATIENCE = 1.0
"""Seconds from an announcement that answers wait for `tools/list`; real clients take 30 to 45 ms."""

TAKING_IN = 0.2
"""Seconds for the client to absorb its new list: a busy Gemini CLI had the tool in its next request in 0 of 3
runs without, 3 of 4 with 50 or 100 ms, 5 of 5 with 200 ms."""


class Announcement(msgspec.Struct, eq=False):
    """An announcement that the client has not followed up with `tools/list` yet."""

    at: float
    """On trio's clock."""
    listed: trio.Event = msgspec.field(default_factory=trio.Event)
    asked: bool = False
    awaited: bool = False
    """Whether an answer waits for the client to ask."""


ListPlace = tuple[Kind, str | None]
"""One list of a client: its kind, and for tools the session key."""


class _GivenList(msgspec.Struct, eq=False):
    items: tuple[bytes, ...]
    look: Callable[[], tuple[bytes, ...]]

    def has_changed(self, kind: Kind) -> bool:
        """Whether the list has changed since; the present one counts as given then."""
        before = self.items
        try:
            self.items = self.look()
        except Exception:  # noqa: BLE001 - a bug in a list costs an announcement, not the session
            logger.exception("internal error in mcpd while listing {}", LISTS[kind].member)
        return self.items is not before and self.items != before


MAX_SUBSCRIPTIONS = 16
"""Open `subscriptions/listen` of one client: each gets its own notifications, and one is enough."""


@attrs.define(eq=False, repr=False)
class ListChanges:
    """The lists and announcements of one client."""

    _peer: Peer
    _outbox: Outbox
    _client: Client
    _habits: dict[str, Habit]
    handshaken: bool = False
    """Whether the client sent `initialize`, and is notified without subscriptions."""
    open: dict[bytes, Mapping[str, object]] = attrs.field(factory=dict, init=False)
    """The acknowledged filters of its `subscriptions/listen` by raw request id (MCP, `SubscriptionFilter`);
    always the same object, which each call is compared with."""
    _own: Habit | None = attrs.field(default=None, init=False)
    _given: dict[ListPlace, _GivenList] = attrs.field(factory=dict, init=False)
    _followed: set[ListPlace] = attrs.field(factory=set, init=False)
    """The lists whose every change is announced: they are not requested over this connection."""
    _announced: dict[str | None, Announcement] = attrs.field(factory=dict, init=False)
    """By session key, the announcement of changed tools that has no `tools/list` yet."""

    def end_all(self) -> None:
        """End all subscriptions (MCP 2026-07-28)."""
        ended = list(self.open)
        self.open.clear()
        for each in ended:
            self._peer.answer(each, protocol.of_subscription(each, resultType="complete"))
        self._outbox.flush()

    def asking(self, wish: str) -> list[bytes]:
        """The ids of the subscriptions acknowledged with this member of the filter."""
        return [each for each, honoured in self.open.items() if honoured.get(wish)]

    def announce(self, changed: ListOf) -> None:
        """Notify the client that a list has changed, in its era's way."""
        if self.handshaken:
            self._peer.notify(changed.changed)
        for each in self.asking(changed.wish):
            self._peer.notify(changed.changed, protocol.of_subscription(each), each)
        self._outbox.flush()

    def follow(self, place: ListPlace, look: Callable[[], tuple[bytes, ...]]) -> None:
        """Announce each change of a list until it is requested here: HTTP clients list elsewhere."""
        self.given(place, look(), look, first=False, last=False)
        self._followed.add(place)

    def unfollow(self) -> None:
        """Stop following lists that no subscription asks for."""
        self._followed = {place for place in self._followed if self.asking(LISTS[place[0]].wish)}

    def asked(self, key: str | None) -> None:
        """Record that the client asks for the tools of a session."""
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
        """Record a page of the whole list `items`; `look` returns the present list."""
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
        """Notify the client of the lists that have changed since it got them."""
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
        """The announcement that the client is likely to follow up in a moment; None if there is none."""
        announced = self._announced.get(key)
        if announced is None or not self._habit.listens or trio.current_time() >= announced.at + PATIENCE:
            return None
        announced.awaited = True
        return announced

    async def wait_listed(self, announced: Announcement) -> None:
        """Return once the client has absorbed its tools, or did not ask for them in time."""
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
