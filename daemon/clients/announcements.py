"""What a client was given of its list of tools, and how it is told, and waited for, when that changes.

A model asks for a tool to be loaded, reads that it is, and calls it. Its client takes the tools of the next
request to the model from the list that it has by then, and asks for that only when it is told. So it is told
first, and the answer waits until it has its list: for a second at most, and only for clients that do ask
(`clients.announcements`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import trio
from loguru import logger

from daemon import protocol
from daemon.clients.client import MAX_LISTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.clients.client import Client
    from daemon.wire.outbox import Outbox
    from daemon.wire.peer import Peer

MAX_CLIENTS = 256
"""Kinds of clients of which this is remembered, those learned last: a machine has a few. A new one costs one
wait."""

MAX_OWED = 64
"""Most lists that a client must ask for until it is waited for once more: one load in so many is slow then."""


@attrs.frozen
class Habit:
    """What a kind of client was seen to do."""

    vain: int = 0
    """How often in a row it was waited for in vain."""
    owed: int = 0
    """How many announcements it must answer with a list until it is waited for again."""

    @property
    def listens(self) -> bool:
        """Whether it is worth waiting for."""
        return self.owed == 0

    def unheard(self) -> Habit:
        """It was waited for, and did not ask."""
        return Habit(self.vain + 1, min(2**self.vain, MAX_OWED))

    def heard(self, *, waited: bool) -> Habit:
        """It has asked for its list after it was told.

        Args:
            waited: whether somebody was still waiting for that.
        """
        return Habit() if waited else Habit(self.vain, max(0, self.owed - 1))


class Habits:
    """Those of all kinds of clients that have come, by name and version."""

    def __init__(self) -> None:
        """Begin without any: everybody is given a chance."""
        self._known: dict[str, Habit] = {}

    def of(self, client: str) -> Habit:
        """What is known of a kind of client."""
        return self._known.get(client, Habit())

    def learn(self, client: str, habit: Habit) -> None:
        """One of its kind does this. Who gives no name is of no kind."""
        if client:
            self._known.pop(client, None)
            self._known[client] = habit
        while len(self._known) > MAX_CLIENTS:
            del self._known[next(iter(self._known))]


MAX_SUBSCRIPTIONS = 16
"""Open `subscriptions/listen` of one client: each gets every announcement, one is all that a client needs."""

PATIENCE = 1.0
"""Seconds from an announcement until nobody waits any longer for the client's `tools/list`; real ones ask after
30 to 45 ms."""

TAKING_IN = 0.2
"""Seconds that a client gets to take its new list in before the answer comes, for the two are read in tasks of
their own: Claude Code needs none, Gemini CLI on a busy machine had the tool in its next request in 0 of 3 runs
with none, 1 of 4 with 20 ms, 3 of 4 with 50 ms and with 100 ms, 5 of 5 with 200 ms."""

CHANGED = "notifications/tools/list_changed"


@attrs.define(eq=False)
class Announcement:
    """One that the client has not looked after yet."""

    at: float
    """When it was made, on trio's clock."""
    listed: trio.Event = attrs.field(factory=trio.Event)
    """Set once it has been given all of its list."""
    asked: bool = False
    """Whether it has asked for it."""
    awaited: bool = False
    """Whether an answer waits for that, and is not known to have done so in vain."""


@attrs.frozen(eq=False)
class _GivenList:
    """A list as a client was given it."""

    tools: tuple[bytes, ...]
    look: Callable[[], tuple[bytes, ...]]
    """What it would be given now."""


class Announcements:
    """What one client was given of its lists of tools, and told since."""

    def __init__(self, peer: Peer, outbox: Outbox, habits: Habits, client: Client) -> None:
        """Begin with a client that was given nothing.

        Args:
            peer: where it is told.
            outbox: flushed when it was.
            habits: what is known of its kind.
            client: who it is.
        """
        self.handshaken = False
        """Whether it has shaken hands: then it is told without having asked for that."""
        self._peer = peer
        self._outbox = outbox
        self._habits = habits
        self._client = client
        self._own: Habit | None = None
        self.subscriptions: list[bytes] = []
        """The ids of open `subscriptions/listen`."""
        self._given: dict[str | None, _GivenList] = {}
        """By session, what the client was given of its list, until that is announced to have changed."""
        self._open: dict[str | None, Announcement] = {}
        """By session, what the client was told since."""

    @property
    def is_full(self) -> bool:
        """Whether no more subscriptions are taken."""
        return len(self.subscriptions) >= MAX_SUBSCRIPTIONS

    def subscribe(self, request_id: bytes) -> None:
        """Tell the client in this subscription, too."""
        self.subscriptions.append(request_id)

    def unsubscribe(self, request_id: bytes) -> None:
        """Do so no more, if it was one."""
        if request_id in self.subscriptions:
            self.subscriptions.remove(request_id)

    def asked(self, key: str | None) -> None:
        """The client asks for the list of a session."""
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
        """The client is given a page of the list of a session.

        Args:
            key: the session's.
            tools: the whole list.
            look: what it is at any later time.
            first: whether the page is the first one.
            last: whether it is the last one.
        """
        # Of a list that has changed between its pages the first ones are not known to be as they were.
        if first or key not in self._given:
            self._given.pop(key, None)
            self._given[key] = _GivenList(tools, look)
            _bound(self._given)
        told = self._open.pop(key, None) if last else None
        if told is not None:
            told.listed.set()

    def announce_if_changed(self) -> None:
        """Tell the client when what it was given is not what it would be given now."""
        # Looking judges what is loaded, and that may lead here again.
        before, self._given = self._given, {}
        self._given = {key: each for key, each in before.items() if not _has_changed(each)}
        changed = before.keys() - self._given.keys()
        if changed and (self.handshaken or self.subscriptions):
            for key in changed:
                self._open[key] = _renewed(self._open.get(key))
            _bound(self._open)
            self._announce()

    def expect(self, key: str | None) -> Announcement | None:
        """What the client was told of a session's list and will look after in a moment, to be waited for."""
        told = self._open.get(key)
        if told is None or not self._habit.listens or trio.current_time() >= told.at + PATIENCE:
            return None
        told.awaited = True
        return told

    async def wait_listed(self, told: Announcement) -> None:
        """Return once the client has its list and could take it in, or has not asked for it in time."""
        with trio.move_on_at(told.at + PATIENCE):
            await told.listed.wait()
        if told.listed.is_set():
            await trio.sleep(TAKING_IN)
        elif told.awaited and not told.asked:
            told.awaited = False
            self._learn(self._habit.unheard())

    @property
    def _habit(self) -> Habit:
        """What this very client does; before it was seen to do anything, what others of its kind do."""
        return self._habits.of(self._client.name) if self._own is None else self._own

    def _learn(self, habit: Habit) -> None:
        self._own = habit
        self._habits.learn(self._client.name, habit)

    def _announce(self) -> None:
        if self.handshaken:
            self._peer.notify(CHANGED)
        for subscription in self.subscriptions:
            self._peer.notify(CHANGED, protocol.of_subscription(subscription))
        self._outbox.flush()


def _renewed(before: Announcement | None) -> Announcement:
    """What a client is told now, by whose list also those are served that wait for the last announcement."""
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
