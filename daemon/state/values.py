"""Values that go into the store and come out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daemon.catalog.loaded import LoadedStatus, ServerRecord, SessionRecord, Verdict
    from daemon.history.event import Event
    from daemon.model import GivenName

    Judge = Callable[[str, str, str], Verdict]
    """Returns the verdict on a loaded tool, given its server, its name and its schema hash when loaded."""

FORGOTTEN_AT_ONCE = 2000
"""The most sessions deleted in one transaction: a fifth of a second with twenty loaded tools each."""


@attrs.frozen(kw_only=True)
class Batch:
    """Changes that are written together: all of them or none."""

    at: float
    """When the batch is written, in seconds since the epoch."""
    servers: tuple[ServerRecord, ...] = ()
    """Servers, each replacing its stored record."""
    sessions: tuple[SessionRecord, ...] = ()
    """Sessions, each replacing its stored record."""
    names: tuple[GivenName, ...] = ()
    """Names that were given; one that already means another tool, say, belongs to neither after a restart."""
    names_gone: tuple[GivenName, ...] = ()
    """Names that no longer mean these."""
    touched: Mapping[str, float] = attrs.field(factory=dict)
    """The times of use of sessions by key, in seconds since the epoch; unknown keys are skipped."""
    switched_off: frozenset[tuple[str, str]] = frozenset()
    """What operators have newly switched off (`facts.Switched`)."""
    switched_on: frozenset[tuple[str, str]] = frozenset()
    """What operators have switched on again."""
    counted: Mapping[str, int] = attrs.field(factory=dict)
    """Increments of counts, by name."""
    events: tuple[Event, ...] = ()
    """What happened; those that are stored already are skipped."""
    hours: Mapping[tuple[int, str], int] = attrs.field(factory=dict)
    """Increments of counts by the hour (`state.hour_rows`)."""
    judge: Judge | None = attrs.field(default=None, repr=False)
    """Judges loaded tools of all sessions again; pure, since it is called inside the transaction."""
    judged: tuple[str, ...] = ()
    """Servers whose loaded tools are judged again."""


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of writing a batch."""

    version: int
    """The store's version after the batch."""
    epochs: Mapping[str, int]
    """The epochs of servers that were given another epoch than asked for."""
    marked: Mapping[LoadedStatus, int]
    """The number of loaded tools whose verdict changed, by their new status."""
    begun: int = 0
    """The number of new sessions."""


class Recollection(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a store remembers except sessions."""

    version: int = 0
    """The store's version, to ask for others' changes with."""
    servers: tuple[ServerRecord, ...] = ()
    """All servers, in order of their names."""
    switched: frozenset[tuple[str, str]] = frozenset()
    """Everything that operators have switched off (`facts.Switched`)."""
    names: tuple[GivenName, ...] = ()
    """The names that tools and prompts were given, and what URIs mean."""
    unreadable: tuple[str, ...] = ()
    """Rows that could not be read because they were edited by hand, each with the reason."""
    counted: Mapping[str, int] = msgspec.field(default_factory=dict)
    """All counts by name."""
    counted_since: float = 0.0
    """When counting began, in seconds since the epoch; 0 if nothing was counted."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that other daemons wrote since a version."""

    version: int
    """The store's current version, to ask with next time."""
    servers: tuple[ServerRecord, ...] = ()
    """The current records of changed servers."""
    sessions: tuple[SessionRecord, ...] = ()
    """The current records of changed sessions among those that were asked for."""
    names: tuple[GivenName, ...] | None = None
    """All names that were given; None if none has changed."""
    switched: frozenset[tuple[str, str]] | None = None
    """Everything that is switched off; None if nothing was switched, or the caller was told before."""
    unreadable: tuple[str, ...] = ()
    """Rows that could not be read, each with the reason."""


class Told(msgspec.Struct, frozen=True):
    """Word from the database that somebody has written."""

    own: bool
    """Whether that was this daemon."""
    version: int
    """The version of the store since."""
