"""Changed lists, told by what a client was given: tools, prompts, resources, `subscriptions/listen`.

For prompts, resources and templates nobody waits until the client has asked for its new list, as for tools: no
model is promised a prompt. They depend on the profile of the client alone, so that all sessions of a connection
have the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import trio
from loguru import logger

from daemon import protocol
from daemon.catalog.kinds import BESIDE_TOOLS, LISTS
from daemon.catalog.offer import MAX_OFFERS
from daemon.counting.tally import tokens_in
from daemon.kit.mailbox import keep_latest
from daemon.model import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from daemon.catalog.kinds import ListOf
    from daemon.catalog.offer import OfferedDefinition
    from daemon.clients.client import Client
    from daemon.counting.tally import Tally
    from daemon.surfaces.base import View
    from daemon.wire.outbox import Outbox
    from daemon.wire.peer import Peer


MAX_LISTS = 64
"""Sessions of one connection whose lists are compared, as many as it takes part in (`attachments.MAX_KEYS`)."""

TOLD_TWICE = 2
"""An answer of a meta-tool says the same in `content` and in `structuredContent`; a model is given one of the
two."""


class Savings:
    """The tokens that one client was spared."""

    def __init__(self, tally: Tally) -> None:
        """Begin with a client that was not sent anything."""
        self.applies = True
        """Whether the client gives its model all tools that it is given (`defers_tools`)."""
        self.client = ""
        """The name that the client gives."""
        self._tally = tally
        self._spared = 0
        self._margins: dict[str | None, int] = {}

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


class Habits:
    """The habits of all kinds of clients seen so far, by name and version."""

    def __init__(self) -> None:
        """Begin without any: every client gets the benefit of the doubt."""
        self._known: dict[str, Habit] = {}

    def of(self, client: str) -> Habit:
        """The habit of a kind of client, by its name; the default for an unknown one."""
        return self._known.get(client, Habit())

    def learn(self, client: str, habit: Habit) -> None:
        """Remember what a client of this name was seen to do; a client without a name is not remembered."""
        if client:
            keep_latest(self._known, client, habit, MAX_CLIENTS)


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


class _GivenList(msgspec.Struct, frozen=True, eq=False):
    """A list of tools as a client was given it."""

    tools: tuple[bytes, ...]
    look: Callable[[], tuple[bytes, ...]]
    """Returns the list that the client would be given now."""


class Announcements:
    """The lists of tools that one client was given, and the announcements made since."""

    def __init__(self, subscriptions: Subscriptions, habits: Habits, client: Client) -> None:
        """Begin with a client that was given nothing.

        Args:
            subscriptions: where the client is told.
            habits: what is known of its kind of client.
            client: its name.
        """
        self.subscriptions = subscriptions
        self._habits = habits
        self._client = client
        self._own: Habit | None = None
        self._given: dict[str | None, _GivenList] = {}
        """By session, what the client was given of its list, until that is announced to have changed."""
        self._followed: set[str | None] = set()
        """The sessions whose every change is announced: their lists are not asked for over this connection."""
        self._open: dict[str | None, Announcement] = {}
        """By session, the announcement that the client has not followed up yet."""

    def follow(self, key: str | None, look: Callable[[], tuple[bytes, ...]]) -> None:
        """Announce each change of a list from now on, until it is asked for over this connection.

        An HTTP client subscribes over one connection and asks for its list over others.

        Args:
            key: the session's key.
            look: returns the list as it is whenever it is called.
        """
        self.given(key, look(), look, first=False, last=False)
        self._followed.add(key)

    def unfollow(self) -> None:
        """Announce changes only of lists that are asked for over this connection, if nothing is subscribed."""
        if not any(self.subscriptions.asking(_TOOLS.wish)):
            self._followed.clear()

    def asked(self, key: str | None) -> None:
        """Note that the client asks for the list of a session."""
        told = self._open.get(key)
        if told is not None and not told.asked:
            told.asked = True
            self._learn(self._habit.heard(waited=told.awaited))

    def given(
        self,
        key: str | None,
        tools: tuple[bytes, ...],
        look: Callable[[], tuple[bytes, ...]],
        *,
        first: bool,
        last: bool,
    ) -> None:
        """Note that the client is given a page of the list of a session.

        Args:
            key: the session's key.
            tools: the whole list.
            look: returns the list as it is whenever it is called.
            first: whether the page is the first one.
            last: whether it is the last one.
        """
        self._followed.discard(key)
        # If the list has changed between its pages, the first ones may be outdated already.
        if first or key not in self._given:
            self._given.pop(key, None)
            self._given[key] = _GivenList(tools, look)
            _bound(self._given)
        told = self._open.pop(key, None) if last else None
        if told is not None:
            told.listed.set()

    def announce_if_changed(self) -> None:
        """Notify the client if what it was given is not what it would be given now."""
        # Looking judges what is loaded, and that may lead here again.
        before, self._given = self._given, {}
        self._given = {key: each for key, each in before.items() if not _has_changed(each)}
        changed = before.keys() - self._given.keys()
        for key in changed & self._followed:
            self._given[key] = _GivenList(before[key].look(), before[key].look)
        if changed and self.subscriptions.hears(_TOOLS.wish):
            for key in changed:
                self._open[key] = _renewed(self._open.get(key))
            _bound(self._open)
            self.subscriptions.announce(_TOOLS)

    def expect(self, key: str | None) -> Announcement | None:
        """The announcement that the client is likely to follow up in a moment; None if there is none."""
        told = self._open.get(key)
        if told is None or not self._habit.listens or trio.current_time() >= told.at + PATIENCE:
            return None
        told.awaited = True
        return told

    async def wait_listed(self, told: Announcement) -> None:
        """Return once the client has its list and had time to absorb it, or did not ask for it in time."""
        with trio.move_on_at(told.at + PATIENCE):
            await told.listed.wait()
        if told.listed.is_set():
            await trio.sleep(TAKING_IN)
        elif told.awaited and not told.asked:
            told.awaited = False
            self._learn(self._habit.unheard())

    @property
    def _habit(self) -> Habit:
        """What this client does; until it was seen to do anything, what others of its kind do."""
        return self._habits.of(self._client.name) if self._own is None else self._own

    def _learn(self, habit: Habit) -> None:
        self._own = habit
        self._habits.learn(self._client.name, habit)


def _renewed(before: Announcement | None) -> Announcement:
    """The announcement that follows another: the next list that the client is given ends the waits for both."""
    now = trio.current_time()
    if before is None:
        return Announcement(now)
    if before.asked:
        return Announcement(now, listed=before.listed)
    before.at = now
    return before


def _has_changed(given: _GivenList) -> bool:
    try:
        return given.tools != given.look()
    except Exception:  # noqa: BLE001 - a bug of ours costs an announcement, not the session
        logger.exception("a fault of mcpd's own while listing tools")
        return False


def _bound(by_session: dict[str | None, Any]) -> None:
    while len(by_session) > MAX_LISTS:
        del by_session[next(iter(by_session))]


MAX_LISTINGS = 3 * MAX_OFFERS
"""Most lists that are kept: of three kinds, for as many offers as are kept."""


class Listings:
    """What the present offers of profiles are as lists: thousands of clients may be compared with one."""

    def __init__(self) -> None:
        """Begin without any."""
        self._made: dict[
            tuple[str, tuple[str, ...], Kind], tuple[Mapping[str, OfferedDefinition], tuple[bytes, ...]]
        ] = {}

    def of(self, view: View, kind: Kind) -> tuple[bytes, ...]:
        """A list of a view, each a raw JSON object; the same tuple as long as nothing in it changes."""
        key, offered = (view.profile.name, view.catalog.chosen, kind), view.offer.definitions(kind)
        made = self._made.get(key)
        if made is not None and made[0] is offered:
            return made[1]
        listing = tuple(each.listed() for each in offered.values())
        if made is not None and made[1] == listing:
            listing = made[1]
        keep_latest(self._made, key, (offered, listing), MAX_LISTINGS)
        return listing


MAX_SUBSCRIPTIONS = 16
"""Open `subscriptions/listen` of one client: each gets every notification that it asked for, and one is all
that a client needs."""


class Subscriptions:
    """What one client has subscribed to."""

    def __init__(self, peer: Peer, outbox: Outbox) -> None:
        """Begin with a client that is told nothing.

        Args:
            peer: the client's end, which is notified.
            outbox: flushed after each notification.
        """
        self.handshaken = False
        """Whether the client has sent `initialize`: then it is notified without having subscribed."""
        self._peer = peer
        self._outbox = outbox
        self.open: dict[bytes, Mapping[str, object]] = {}
        """By their ids, what they were promised; always the same object, which each call is compared with."""

    @property
    def is_full(self) -> bool:
        """Whether the client has as many subscriptions as it may have."""
        return len(self.open) >= MAX_SUBSCRIPTIONS

    def add(self, request_id: bytes, honoured: Mapping[str, object]) -> None:
        """Tell this subscription, too.

        Args:
            request_id: the id of the `subscriptions/listen`, raw.
            honoured: the members of its filter that it was promised (MCP, `SubscriptionFilter`).
        """
        self.open[request_id] = honoured

    def end(self, request_id: bytes) -> None:
        """End a subscription, if there is one with this id."""
        self.open.pop(request_id, None)

    def end_all(self) -> None:
        """Answer all subscriptions: the daemon ends them (MCP 2026-07-28)."""
        ended = list(self.open)
        self.open.clear()
        for each in ended:
            self._peer.answer(each, protocol.of_subscription(each, resultType="complete"))
        self._outbox.flush()

    def hears(self, wish: str) -> bool:
        """Whether the client is told of what this member of a filter asks for."""
        return self.handshaken or any(self.asking(wish))

    def asking(self, wish: str) -> Iterator[bytes]:
        """The ids of the subscriptions that were promised what this member of a filter asks for."""
        return (each for each, honoured in self.open.items() if honoured.get(wish))

    def announce(self, changed: ListOf) -> None:
        """Tell the client that a list has changed, wherever it is told that."""
        if self.handshaken:
            self._peer.notify(changed.changed)
        for each in self.asking(changed.wish):
            self._peer.notify(changed.changed, protocol.of_subscription(each), each)
        self._outbox.flush()


class ListChanges:
    """The lists beside tools that one client was given."""

    def __init__(self, subscriptions: Subscriptions, look: Callable[[Kind], tuple[bytes, ...]]) -> None:
        """Begin with a client that was given nothing.

        Args:
            subscriptions: where the client is told.
            look: returns a list as it is whenever it is called.
        """
        self._subscriptions = subscriptions
        self._look = look
        self._given: dict[Kind, tuple[bytes, ...]] = {}
        """What the client was given, until that is announced to have changed."""
        self._followed: set[Kind] = set()
        """The lists whose every change is announced: they are not asked for over this connection."""

    def follow(self, honoured: Mapping[str, object]) -> None:
        """Announce each change of what a subscription asks for, until it is asked for over this connection.

        An HTTP client subscribes over one connection and asks for its lists over others.

        Args:
            honoured: the members of its filter that it was promised.
        """
        for kind in BESIDE_TOOLS:
            if honoured.get(LISTS[kind].wish):
                self._given.setdefault(kind, self._look(kind))
                self._followed.add(kind)

    def unfollow(self) -> None:
        """Follow no list any more that no subscription asks for."""
        self._followed = {each for each in self._followed if any(self._subscriptions.asking(LISTS[each].wish))}

    def given(self, kind: Kind, items: tuple[bytes, ...], *, first: bool) -> None:
        """Note that the client is given a page of a list.

        Args:
            kind: which list.
            items: the whole list.
            first: whether the page is the first one.
        """
        self._followed.discard(kind)
        # If the list has changed between its pages, the first ones may be outdated already.
        if first or kind not in self._given:
            self._given[kind] = items

    def announce_if_changed(self) -> None:
        """Notify the client if what it was given is not what it would be given now."""
        changed = [kind for kind in self._given if self._has_changed(kind)]
        for kind in changed:
            if kind in self._followed:
                self._given[kind] = self._look(kind)
            else:
                del self._given[kind]
        # Resources and their templates share a notification.
        for told in {LISTS[kind].changed: LISTS[kind] for kind in changed}.values():
            self._subscriptions.announce(told)

    def _has_changed(self, kind: Kind) -> bool:
        try:
            now = self._look(kind)
        except Exception:  # noqa: BLE001 - a bug of ours costs an announcement, not the session
            logger.exception("a fault of mcpd's own while listing {}", LISTS[kind].member)
            return False
        return now is not self._given[kind] and now != self._given[kind]
