"""What goes into the store and comes out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daemon.catalog.loaded import LoadedStatus, Verdict
    from daemon.catalog.remembered import ServerRecord, SessionRecord
    from daemon.model import GivenName

    Judge = Callable[[str, str, str], Verdict]
    """What became of a tool since it was loaded: of its server, its name and its schema hash then."""


FORGOTTEN_AT_ONCE = 2000
"""Sessions that are deleted in one transaction: with twenty loaded tools each a fifth of a second."""


@attrs.frozen(kw_only=True)
class Batch:
    """What is written together: all of it, or nothing."""

    at: float
    """When, in seconds since the epoch."""
    servers: tuple[ServerRecord, ...] = ()
    """Each replaces what is known of its server."""
    sessions: tuple[SessionRecord, ...] = ()
    """Each replaces what is known of its session."""
    names: tuple[GivenName, ...] = ()
    """Names that tools were given; one that means another tool by now is nobody's in the lives to come."""
    names_gone: tuple[GivenName, ...] = ()
    """Names that mean these tools no more."""
    touched: Mapping[str, float] = attrs.field(factory=dict)
    """Sessions by key that were only used, and when; unknown ones are passed over."""
    switched_off: frozenset[tuple[str, str]] = frozenset()
    """Servers and tools that operators have switched off now; an empty tool is the whole server."""
    switched_on: frozenset[tuple[str, str]] = frozenset()
    """Those that they have switched on again."""
    counted: Mapping[str, int] = attrs.field(factory=dict)
    """What was counted besides what the store has, by name."""
    judge: Judge | None = attrs.field(default=None, repr=False)
    """Marks loaded tools of all sessions again; pure, for it is asked inside the transaction."""
    judged: tuple[str, ...] = ()
    """Servers whose loaded tools are marked."""


@attrs.frozen(kw_only=True)
class Written:
    """What became of a batch that was written."""

    version: int
    """The store's, after it."""
    epochs: Mapping[str, int]
    """Servers that have another epoch now than was asked for."""
    marked: Mapping[LoadedStatus, int]
    """Loaded tools whose verdict changed, by the status that they have now."""
    begun: int = 0
    """Sessions that were not there before."""


@attrs.frozen(kw_only=True)
class Recollection:
    """All that a store remembers, but for sessions."""

    version: int = 0
    """The store's: what to ask for others' changes with."""
    servers: tuple[ServerRecord, ...] = ()
    """By name."""
    switched: frozenset[tuple[str, str]] = frozenset()
    """Servers and tools that operators have switched off; an empty tool is the whole server."""
    names: tuple[GivenName, ...] = ()
    """The names that tools were given."""
    unreadable: tuple[str, ...] = ()
    """What could not be read, each with its reason; somebody has edited it by hand."""
    counted: Mapping[str, int] = attrs.field(factory=dict)
    """What was ever counted, by name."""
    counted_since: float = 0.0
    """Since when, in seconds since the epoch; 0: nothing was."""


@attrs.frozen(kw_only=True)
class Changes:
    """What other daemons wrote since a version."""

    version: int
    """The store's now: the one to ask with next time."""
    servers: tuple[ServerRecord, ...] = ()
    """Servers as they are now."""
    sessions: tuple[SessionRecord, ...] = ()
    """Those that were asked for and changed, as they are now."""
    names: tuple[GivenName, ...] | None = None
    """All names that tools were given; None if nobody gave or took any."""
    switched: frozenset[tuple[str, str]] | None = None
    """All that is switched off; None if nobody switched anything."""
    unreadable: tuple[str, ...] = ()
    """What could not be read, each with its reason."""
