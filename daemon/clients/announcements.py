"""What a client was given of its list of tools, and how it is notified, and waited for, when that changes.

A model asks for a tool to be loaded, reads that it is, and calls it. Its client takes the tools of the next
request to the model from the list that it has by then, and asks for a new list only when it is notified. So the
notification goes first, and the answer waits until the client has its list: for a second at most, and only for
clients that do ask.

Which clients ask is learned, never configured. A client that does is waited for, so that its model has a tool
when it reads that it was loaded. A client that was waited for and did not ask is waited for again only once it
has asked on a later occasion, and after each further failure in a row only once it has done so twice as often:
many programs list their tools at each turn, notified or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import trio
from loguru import logger

from daemon.catalog.kinds import LISTS
from daemon.clients.savings import MAX_LISTS
from daemon.kit.latest import keep_latest
from daemon.model import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.clients.client import Client
    from daemon.clients.subscriptions import Subscriptions

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
