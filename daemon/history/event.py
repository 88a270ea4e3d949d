"""An event: one thing that happened to a server, a session or the daemon, as data.

Events are edge-triggered, where facts (`daemon.facts`) say how things are now: each one is kept, none replaces
another. What is shown of them is worded where it is shown; `text` is what somebody else has said.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from daemon.causes import Cause, Datum

    Detail = str | int | float | bool | None | Sequence["Detail"] | Mapping[str, "Detail"]


class EventKind(StrEnum):
    """What happened. Each member names the `details` that it carries."""

    # One run of a server.
    STARTED = "started"
    """A run has begun."""
    READY = "ready"
    """It serves. `seconds` since its start, `pid` if it is a child; `again`: it was degraded. `awaySeconds`
    since a fault ended it, or the first of several, which was at `awaySince` (seconds since the epoch);
    `awayOverRestart`: in the life of a daemon before this one."""
    DEGRADED = "degraded"
    """It serves, but not as it should: `text` and `cause` say why."""
    ENDED = "ended"
    """A run is over: `text` and `cause` say why. `state` that the server is in since; `seconds` that it served,
    if it did; `retrySeconds` until the next run, if one follows by itself; `stderr`: its last lines;
    `happened`: what they mean; `asked`: it was ended for a restart; `awaySince`: when the outage began that it
    belongs to. Shown to people, it stands for several: `times`, since `firstAt`."""
    RESTARTED = "restarted"
    """It is restarted on purpose. `by`: `operator`, `configuration`, `login`. One that takes more memory than
    it may ends with the cause `memory-ceiling`."""
    STATE = "state"
    """It has come to rest without a run that ended. `state` (`daemon.states`)."""

    # What servers offer.
    LISTS_CHANGED = "lists-changed"
    """A list is another one. `tools`, `prompts`, `resources`, `resourceTemplates`: each with the names that
    `came`, `went`, `changed`. `renamed`: old names to new ones. `toolsDiffer`: by names of changed
    tools, what of them differs (`operators.news`). `epoch`, `before`: the version of what it offers."""
    EPOCH = "epoch"
    """The version of what it offers has risen for another reason. `epoch`, `before`."""

    # What people and programs did.
    LOGIN = "login"
    """A login at a server has begun, succeeded, failed or ended. `outcome`."""
    SWITCHED = "switched"
    """An operator switched a server, or a tool of it, on or off. `what`, `on`."""
    RELOADED = "reloaded"
    """The configuration was read again. `restarted`, `added`, `removed`: servers. `text`: why not."""
    SIGNAL = "signal"
    """The daemon got a signal. `signal`."""
    REFUSED = "refused"
    """A peer was refused at a door. `door`, `reason`, `count`."""
    OVERLOADED = "overloaded"
    """Calls were refused because a bound was reached. `bound`, `count`."""

    QUESTION_REFUSED = "question-refused"
    """What a server wanted to ask was shown to no user. `reason` (`catalog.authorship`), `count`; `text` says
    why."""

    # Who comes and goes.
    INSTANCE_BEGAN = "instance-began"
    """An instance of a server was made for a client. `instance`."""
    INSTANCE_ENDED = "instance-ended"
    """An instance has ended. `instance`; `text` says why."""
    SESSION_BEGAN = "session-began"
    """A client has connected. `client`, `profile`, `surface`."""
    SESSION_ENDED = "session-ended"
    """A client has left. `calls`, `seconds`."""
    DAEMON_STARTED = "daemon-started"
    """The daemon starts. `version`, `pid`, `host`, `socket`; `unclean`: the one before did not stop in order,
    and was last heard of at `lastAt` (seconds since the epoch)."""
    DAEMON_STOPPED = "daemon-stopped"
    """The daemon stops. `seconds` that it has run."""
    LOST = "events-lost"
    """Events came faster than the store took them, and are gone from it. `count`."""


_BAD = frozenset(
    {
        EventKind.DEGRADED,
        EventKind.REFUSED,
        EventKind.OVERLOADED,
        EventKind.QUESTION_REFUSED,
        EventKind.LOST,
    }
)

TOLD = frozenset(EventKind) - {EventKind.EPOCH}
"""Kinds that people are told unless they ask for others: what raised an epoch is an event of its own."""

MAY_BE_BAD = _BAD | {EventKind.ENDED, EventKind.RELOADED, EventKind.DAEMON_STARTED}
"""Kinds of which some events are such that somebody should look at them."""


@attrs.frozen(kw_only=True)
class Event:
    """One thing that happened."""

    kind: EventKind
    """What happened."""
    at: float = 0.0
    """When, in seconds since the epoch; 0: when it is noted."""
    server: str = ""
    """The server that it concerns, by its name in the configuration; empty: none."""
    instance: str = ""
    """The instance of it (`server#12`), where clients do not share one."""
    session: str = ""
    """The session that it concerns: its key, or the number of its connection, `#12`."""
    run: int = 0
    """The number of the server's run (`incarnation`); 0: none."""
    text: str = ""
    """What went wrong, in words; without secrets."""
    cause: Cause | None = None
    """The same as a code for programs."""
    cause_data: Mapping[str, Datum] = attrs.field(factory=dict, hash=False)
    """The data that the `Cause` says it carries."""
    details: Mapping[str, Detail] = attrs.field(factory=dict, hash=False)
    """What its kind carries."""
    number: int = 0
    """Its place among the events of this daemon's life, from 1; given by `History`."""
    life: str = ""
    """Which life of which daemon has seen it, `host/pid/…`; given by `History`."""

    @property
    def is_bad(self) -> bool:
        """Whether somebody should look at it: what ended without being asked to, or does not work."""
        if self.kind is EventKind.ENDED:
            return self.cause is not None
        if self.kind is EventKind.RELOADED:
            return bool(self.text)
        return self.kind in _BAD or bool(self.details.get("unclean"))
