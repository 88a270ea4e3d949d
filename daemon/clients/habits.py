"""Which clients ask for their tools when they are told that these have changed: learned, never configured.

A client that does is waited for, so that its model has a tool when it reads that it was loaded. One that was
waited for in vain is so again only once it has asked later, and each further time in a row only once it has
done so twice as often: many programs list their tools at each turn, whatever they are told.
"""

from __future__ import annotations

import attrs

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
