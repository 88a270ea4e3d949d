"""Which events somebody asks for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import attrs

from daemon.history.event import EventKind
from daemon.history.event_words import of_tool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.history.event import Event


@attrs.frozen(kw_only=True)
class EventQuery:
    """Which events somebody asks for; what is empty does not restrict."""

    server: str = ""
    """A server by its name, with all of its instances."""
    instance: str = ""
    """One instance by its own name."""
    session: str = ""
    """A session, by its key or the number of its connection (`#12`)."""
    loaded: Mapping[tuple[str, str], float] = attrs.field(factory=dict, hash=False)
    """What this session has loaded, by server and name, each since when: its changes are the session's, too."""
    life: str = ""
    """A life of one daemon."""
    kinds: frozenset[EventKind] = frozenset()
    """Kinds of events."""
    since: float = 0.0
    """The earliest time, in seconds since the epoch."""
    until: float = math.inf
    """The latest time, in seconds since the epoch."""
    seen: Mapping[str, int] = attrs.field(factory=dict, hash=False)
    """The number of the last event that the caller has, by life: earlier ones of that life are left out."""
    fresh: float = 0.0
    """The earliest time of events of lives that are not in `seen`."""
    limit: int = 50
    """The most events."""
    oldest: bool = False
    """Whether the oldest of them are wanted, for a caller that goes on from there; otherwise the newest."""

    def matches(self, event: Event) -> bool:
        """Whether an event is asked for."""
        return (
            event.at >= (self.since if event.life in self.seen else max(self.since, self.fresh))
            and event.at <= self.until
            and (not self.server or event.server == self.server)
            and (not self.instance or event.instance == self.instance)
            and (not self.session or event.session == self.session or self._has_changed_loaded(event))
            and (not self.life or event.life == self.life)
            and (not self.kinds or event.kind in self.kinds)
            and event.number > self.seen.get(event.life, 0)
        )

    def _has_changed_loaded(self, event: Event) -> bool:
        return event.kind is EventKind.LISTS_CHANGED and any(
            server == event.server and event.at >= at and of_tool(event, name)
            for (server, name), at in self.loaded.items()
        )
