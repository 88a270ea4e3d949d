"""Changed lists, told by what a client was given: tools, prompts, resources, `subscriptions/listen`.

For prompts, resources and templates nobody waits until the client has asked for its new list, as for tools: no
model is promised a prompt. They depend on the profile of the client alone, so that all sessions of a connection
have the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import msgspec
import trio
from loguru import logger

from daemon import protocol
from daemon.catalog.kinds import BESIDE_TOOLS, LISTS
from daemon.counting.tally import tokens_in
from daemon.kit.waiting import keep_latest
from daemon.model import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daemon.catalog.kinds import ListOf
    from daemon.clients.client import Client
    from daemon.counting.tally import Tally
    from daemon.wire.outbox import Outbox
    from daemon.wire.peer import Peer


MAX_LISTS = 64
"""Sessions of one connection whose lists are compared, as many as it takes part in (`attachments.MAX_KEYS`)."""

TOLD_TWICE = 2
"""An answer of a meta-tool says the same in `content` and in `structuredContent`; a model is given one of the
two."""


@attrs.define(eq=False)
class Savings:
    """The tokens that one client was spared."""

    _tally: Tally
    applies: bool = True
    """Whether the client gives its model all tools that it is given (`surfaces.table.may_defer`)."""
    client: str = ""
    """The name that the client gives."""
    _spared: int = attrs.field(default=0, init=False)
    _margins: dict[str | None, int] = attrs.field(factory=dict, init=False)

    @property
    def tokens(self) -> int | None:
        """About how many tokens it was spared, negative if it was sent more; None if it defers tools itself."""
        return tokens_in(self._spared) if self.applies else None

    def listed(self, surface: str, key: str | None, *, sent: int, full: int) -> None:
        """Note that the client was given the list of a session.

        Args:
            surface: the surface that the list was made for.
            key: the session's key.
            sent: bytes of the tools in the list.
            full: bytes of all tools of the profile.
        """
        before = self._margins.get(key, 0)
        keep_latest(self._margins, key, full - sent, MAX_LISTS)
        self._count(surface, full - sent - before)

    def answered(self, surface: str, size: int) -> None:
        """Note that a meta-tool has answered the client with so many bytes."""
        self._count(surface, -(size // TOLD_TWICE))

    def _count(self, surface: str, spared: int) -> None:
        if self.applies:
            self._spared += spared
            self._tally.spared(surface, spared, self.client)


MAX_CLIENTS = 256
"""Kinds of clients whose habits are remembered, most recently learned: a machine has a few. A new one costs one
wait."""

MAX_OWED = 64
"""Most lists that a client must ask for before it is waited for again: at worst one load in 64 is slow."""


class Habit(msgspec.Struct, frozen=True):
    """What a kind of client was seen to do."""

    misses: int = 0
    """How often in a row it was waited for and did not ask."""
    owed: int = 0
    """How many announcements it must answer by asking for its list before it is waited for again."""

    @property
    def listens(self) -> bool:
        """Whether it is worth waiting for."""
        return self.owed == 0

    def unheard(self) -> Habit:
        """The habit after the client was waited for and did not ask."""
        return Habit(self.misses + 1, min(2**self.misses, MAX_OWED))

    def heard(self, *, waited: bool) -> Habit:
        """The habit after the client has asked for its list following an announcement.

        Args:
            waited: whether an answer was still waiting for that.
        """
        return Habit() if waited else Habit(self.misses, max(0, self.owed - 1))


_TOOLS = LISTS[Kind.TOOL]

PATIENCE = 1.0
"""Seconds from an announcement that answers wait for the client's `tools/list`; real clients ask after 30 to
45 ms."""

TAKING_IN = 0.2
"""Seconds that a client gets to absorb its new list before the answer comes, because it reads the two in
separate tasks: Claude Code needs none, Gemini CLI on a busy machine had the tool in its next request in 0 of 3
runs with none, 1 of 4 with 20 ms, 3 of 4 with 50 ms and with 100 ms, 5 of 5 with 200 ms."""


class Announcement(msgspec.Struct, eq=False):
    """An announcement that the client has not followed up with `tools/list` yet."""

    at: float
    """When the client was notified, on trio's clock."""
    listed: trio.Event = msgspec.field(default_factory=trio.Event)
    """Set once the client has been given its whole list."""
    asked: bool = False
    """Whether the client has asked for its list."""
    awaited: bool = False
    """Whether an answer waits for the client to ask, and has not given up yet."""


ListPlace = tuple[Kind, str | None]
"""One list of a client: its kind, and of tools the key of the session."""


class _GivenList(msgspec.Struct, eq=False):
    """A list as a client was given it, or was told that it is."""

    items: tuple[bytes, ...]
    look: Callable[[], tuple[bytes, ...]]
    """Returns the list that the client would be given now."""

    def has_changed(self, kind: Kind) -> bool:
        """Whether it is another list now; it counts as given then."""
        before = self.items
        try:
            self.items = self.look()
        except Exception:  # noqa: BLE001 - a bug of ours costs an announcement, not the session
            logger.exception("a fault of mcpd's own while listing {}", LISTS[kind].member)
        return self.items is not before and self.items != before


MAX_SUBSCRIPTIONS = 16
"""Open `subscriptions/listen` of one client: each gets every notification that it asked for, and one is all
that a client needs."""


@attrs.define(eq=False)
class ListChanges:
    """The lists that one client was given, what it has subscribed to, and what it was told since."""

    _peer: Peer
    _outbox: Outbox
    _client: Client
    _habits: dict[str, Habit]
    """What kinds of clients were seen to do, by name and version."""
    handshaken: bool = False
    """Whether the client has sent `initialize`: then it is notified without having subscribed."""
    open: dict[bytes, Mapping[str, object]] = attrs.field(factory=dict, init=False)
    """By the ids of its `subscriptions/listen`, raw, the members of their filters that they were promised (MCP,
    `SubscriptionFilter`); always the same object, which each call is compared with."""
    _own: Habit | None = attrs.field(default=None, init=False)
    _given: dict[ListPlace, _GivenList] = attrs.field(factory=dict, init=False)
    """What the client was given of each list, until that is announced to have changed."""
    _followed: set[ListPlace] = attrs.field(factory=set, init=False)
    """The lists whose every change is announced: they are not asked for over this connection."""
    _announced: dict[str | None, Announcement] = attrs.field(factory=dict, init=False)
    """By session, the announcement of changed tools that the client has not followed up yet."""

    def end_all(self) -> None:
        """Answer all subscriptions: the daemon ends them (MCP 2026-07-28)."""
        ended = list(self.open)
        self.open.clear()
        for each in ended:
            self._peer.answer(each, protocol.of_subscription(each, resultType="complete"))
        self._outbox.flush()

    def asking(self, wish: str) -> list[bytes]:
        """The ids of the subscriptions that were promised what this member of a filter asks for."""
        return [each for each, honoured in self.open.items() if honoured.get(wish)]

    def announce(self, changed: ListOf) -> None:
        """Tell the client that a list has changed, wherever it is told that."""
        if self.handshaken:
            self._peer.notify(changed.changed)
        for each in self.asking(changed.wish):
            self._peer.notify(changed.changed, protocol.of_subscription(each), each)
        self._outbox.flush()

    def follow(self, place: ListPlace, look: Callable[[], tuple[bytes, ...]]) -> None:
        """Announce each change of a list from now on, until it is asked for over this connection.

        An HTTP client subscribes over one connection and asks for its list over others.

        Args:
            place: the list.
            look: returns the list as it is whenever it is called.
        """
        self.given(place, look(), look, first=False, last=False)
        self._followed.add(place)

    def unfollow(self) -> None:
        """Follow no list any more that no subscription asks for."""
        self._followed = {place for place in self._followed if self.asking(LISTS[place[0]].wish)}

    def asked(self, key: str | None) -> None:
        """Note that the client asks for the tools of a session."""
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
        """Note that the client is given a page of a list.

        Args:
            place: the list.
            items: the whole list.
            look: returns the list as it is whenever it is called.
            first: whether the page is the first one.
            last: whether it is the last one.
        """
        self._followed.discard(place)
        # If the list has changed between its pages, the first ones may be outdated already.
        if first or place not in self._given:
            self._given.pop(place, None)
            self._given[place] = _GivenList(items, look)
            if len(self._given) > MAX_LISTS + len(BESIDE_TOOLS):
                del self._given[next(each for each in self._given if each[0] is Kind.TOOL)]
        announced = self._announced.pop(place[1], None) if last and place[0] is Kind.TOOL else None
        if announced is not None:
            announced.listed.set()

    def announce_if_changed(self) -> None:
        """Notify the client if what it was given is not what it would be given now."""
        # Looking judges what is loaded, and that may lead here again.
        before, self._given = self._given, {}
        changed = {place for place, each in before.items() if each.has_changed(place[0])}
        gone = changed - self._followed
        self._given = {place: each for place, each in before.items() if place not in gone}
        if self.handshaken or self.asking(_TOOLS.wish):
            for key in (key for kind, key in changed if kind is Kind.TOOL):
                keep_latest(self._announced, key, _renewed(self._announced.get(key)), MAX_LISTS)
        # Resources and their templates share a notification.
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
        """Return once the client has its tools and had time to absorb them, or did not ask for them in time."""
        with trio.move_on_at(announced.at + PATIENCE):
            await announced.listed.wait()
        if announced.listed.is_set():
            await trio.sleep(TAKING_IN)
        elif announced.awaited and not announced.asked:
            announced.awaited = False
            self._learn(self._habit.unheard())

    @property
    def _habit(self) -> Habit:
        """What this client does; until it was seen to do anything, what others of its kind do."""
        return self._own or self._habits.get(self._client.name, Habit())

    def _learn(self, habit: Habit) -> None:
        self._own = habit
        if self._client.name:
            keep_latest(self._habits, self._client.name, habit, MAX_CLIENTS)


def _renewed(before: Announcement | None) -> Announcement:
    """The announcement that follows another: the next list that the client is given ends the waits for both."""
    now = trio.current_time()
    if before is None:
        return Announcement(now)
    if before.asked:
        return Announcement(now, listed=before.listed)
    before.at = now
    return before
