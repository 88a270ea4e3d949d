"""Changed lists, announced by comparison with the lists that the client was given.

A call that loads tools is answered once the client has listed them. Prompts, resources and templates depend on
the profile alone, so all sessions of a connection have the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
import msgspec
import trio
from loguru import logger

from daemon import protocol
from daemon.catalog.kinds import BESIDE_TOOLS, LISTS, ListOf
from daemon.clients.client import Client
from daemon.counting.tally import Tally, tokens_in
from daemon.kit.waiting import keep_latest
from daemon.model import Kind
from daemon.wire.outbox import Outbox
from daemon.wire.peer import Peer

MAX_LISTS = 64
"""Sessions of one connection whose lists are compared (`connection.MAX_KEYS`)."""

TOLD_TWICE = 2
"""A meta-tool's answer holds the same in `content` and `structuredContent`; a model gets one of the two."""


@attrs.define(eq=False)
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
"""Seconds for the client to absorb its new list, which it reads in another task than the answer. Claude Code
needs none; a busy Gemini CLI had the tool in its next request in 0 of 3 runs without, 3 of 4 with 50 or 100 ms,
5 of 5 with 200 ms."""


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
    """A list as the client last got it or learned of it."""

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


@attrs.define(eq=False)
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
