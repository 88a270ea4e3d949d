"""The daemon's loop as one server in the sense of queueing, on a clock of its own.

A turn takes every link that has something to read, one visit each, in the order in which they became ready;
what becomes ready meanwhile has to wait for the next turn, as with epoll. A visit handles all messages that the
link holds, so that they share its cost, and what came of them leaves at its end. A large message is worked at
in slices, one in each turn. When no two messages share a visit and the arrivals are Poisson's, this is M/G/1,
and a test says so.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock:
    """Events in the order of their times; those of one time in the order in which they were asked for."""

    def __init__(self) -> None:
        """Begin at 0 s."""
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()

    def at(self, time: float, act: Callable[[], None]) -> None:
        """Do something at a time that has not passed."""
        heapq.heappush(self._events, (time, next(self._number), act))

    def run(self, until: float) -> None:
        """Let it go by, up to a time."""
        events = self._events
        while events and events[0][0] <= until:
            self.now, _, act = heapq.heappop(events)
            act()
        self.now = until


@attrs.define(slots=True)
class Message:
    """Something that a link brings."""

    work: float
    """Seconds of the loop beside the visit."""
    then: Callable[[], None]
    """What comes of it, once it has left the loop."""
    came: float = 0.0
    begun: float = -1.0
    """When the loop came to it, in seconds; below zero: not yet."""


class Loop:
    """One daemon's loop."""

    def __init__(self, clock: Clock, visit: float, most: float) -> None:
        """Make an idle one.

        Args:
            clock: of everything.
            visit: seconds for each visit of a link.
            most: seconds that one message may keep the loop in a turn.
        """
        self.waits: list[float] = []
        """Seconds from the arrival of each message until the loop came to it."""
        self._clock = clock
        self._visit = visit
        self._most = most
        self._ready: dict[object, list[Message]] = {}
        self._turning = False
        self._work = 0.0
        self._until = 0.0

    @property
    def busy(self) -> float:
        """Seconds of work up to now."""
        return self._work - max(0.0, self._until - self._clock.now)

    def arrive(self, link: object, message: Message) -> None:
        """A link has something to read."""
        message.came = self._clock.now
        self._ready.setdefault(link, []).append(message)
        if not self._turning:
            self._turn()

    def _turn(self) -> None:
        self._turning = bool(self._ready)
        if not self._turning:
            return
        ready, self._ready = self._ready, {}
        now = begun = self._clock.now
        for link, messages in ready.items():
            now = self._visited(link, messages, now + self._visit)
        self._work += now - begun
        self._until = now
        self._clock.at(now, self._turn)

    def _visited(self, link: object, messages: list[Message], now: float) -> float:
        """Work at a link's messages from a time on. Returns when that is done; then they leave together."""
        done = []
        for message in messages:
            if message.begun < 0:
                message.begun = now - self._visit
                self.waits.append(message.begun - message.came)
            worked = min(message.work, self._most)
            message.work -= worked
            now += worked
            if message.work > 0:
                self._ready.setdefault(link, []).append(message)
            else:
                done.append(message.then)
        for then in done:
            self._clock.at(now, then)
        return now


def waiting(rate: float, work: float, square: float) -> float:
    """Seconds that a Poisson arrival waits for a server of general service times (Pollaczek and Khinchine).

    Args:
        rate: arrivals a second.
        work: the mean of the service times, in seconds.
        square: the mean of their squares.
    """
    busy = rate * work
    return float("inf") if busy >= 1 else rate * square / (2 * (1 - busy))
