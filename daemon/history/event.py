"""An event: one thing that happened, stored as data; `text` quotes others; sentences are made on display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from daemon.causes import Cause, Datum

    Detail = str | int | float | bool | None | Sequence["Detail"] | Mapping[str, "Detail"]


class EventKind(StrEnum):
    """The kinds of events, and the `details` of each."""

    # One run of a server.
    STARTED = "started"
    """A run has begun."""
    READY = "ready"
    """A server serves. `seconds` since its start, `pid` of a child; `again` after `degraded`. `awaySeconds` of
    an outage since `awaySince` (seconds since the epoch); `awayOverRestart`: begun under an earlier daemon."""
    DEGRADED = "degraded"
    """A server serves with a problem: `text` and `cause` say why; `happened`, `helps` as in a status."""
    ENDED = "ended"
    """A run has ended: `text` and `cause` say why. `state` since then; `seconds` that it served; `retrySeconds`
    until the next run; `stderr`: its last lines; `happened`, `helps`: diagnosis and remedy, `byWords` if from
    these lines; `asked`: ended for a restart; `attempt`: the number of a run that did not serve; `awaySince`:
    the start of the outage. When condensed for people: `times`, since `firstAt`."""
    RESTARTED = "restarted"
    """Restarted on purpose. `by`: `operator`, `configuration`, `login`."""
    STATE = "state"
    """A new state without the end of a run. `state` (`daemon.states`); `happened`, `helps` as above."""

    # What servers offer.
    LISTS_CHANGED = "lists-changed"
    """A list has changed. `tools`, `prompts`, `resources`, `resourceTemplates`, `skills`: the names that
    `came`, `went`, `changed`. `renamed`: old names to new ones. `toolsDiffer`: the differences by changed tool
    (`operators.news`). `epoch`, `before`: the version of the server's offer."""
    EPOCH = "epoch"
    """The version has risen for another reason. `epoch`, `before`."""

    HELD = "held"
    """Definitions wait for approval. `definitions`: by operators' words (`catalog.kinds.switch_of`), `because`
    (`catalog.trust.HeldBecause`) with the changed members; `more`: the number of others."""

    # What people and programs did.
    APPROVED = "approved"
    """Somebody approved definitions. `names`: operators' words for them; `by`."""
    ALLOWED = "allowed"
    """A person allowed calls of a tool. `tool`, `by`; `lasts`: `once`, `session`, or seconds; `traceId` of the
    call."""
    DECLINED = "declined"
    """A user did not allow a call, or approve a definition. `tool`, `by`, `why`, `traceId`."""
    LOGIN = "login"
    """A login at a server has begun, succeeded, failed or ended. `outcome`."""
    SWITCHED = "switched"
    """An operator switched a server or one of its definitions on or off. `what`, `on`."""
    RELOADED = "reloaded"
    """The configuration was read again. `restarted`, `added`, `removed`: servers. `text`: why it failed."""
    SIGNAL = "signal"
    """The daemon got a signal. `signal`."""
    REFUSED = "refused"
    """A connection was refused at a door. `door`, `reason`, `count`."""
    OVERLOADED = "overloaded"
    """Calls were refused at a limit. `bound`, `count`."""

    QUESTION_REFUSED = "question-refused"
    """mcpd showed a server's question to no user. `reason` (`catalog.authorship`), `count`; `text` says why."""

    HOST_REFUSED = "host-refused"
    """A server's sandbox refused a host. `host` (empty: further ones), `port`, `count`; `reason`
    (`config.hosts`); `allow`: the command that allows it."""

    # Who comes and goes.
    INSTANCE_BEGAN = "instance-began"
    """An instance of a server was created for a client. `instance`."""
    INSTANCE_ENDED = "instance-ended"
    """An instance has ended. `instance`; `text` says why."""
    SESSION_BEGAN = "session-began"
    """A client has connected. `client`, `profile`, `surface`."""
    SESSION_ENDED = "session-ended"
    """A client has disconnected. `calls`, `seconds`."""
    DAEMON_STARTED = "daemon-started"
    """The daemon starts. `version`, `pid`, `host`, `socket`; `unclean`: the previous daemon did not stop
    cleanly, and was last heard of at `lastAt` (seconds since the epoch)."""
    DAEMON_STOPPED = "daemon-stopped"
    """The daemon stops, after running for `seconds`."""
    LOST = "events-lost"
    """Events were lost: they came faster than the store took them. `count`."""


_BAD = frozenset(
    {
        EventKind.DEGRADED,
        EventKind.REFUSED,
        EventKind.OVERLOADED,
        EventKind.QUESTION_REFUSED,
        EventKind.HELD,
        EventKind.LOST,
    }
)

TOLD = frozenset(EventKind) - {EventKind.EPOCH}
"""Kinds that people see by default: all but a higher epoch, which another event causes."""

MAY_BE_BAD = _BAD | {EventKind.ENDED, EventKind.RELOADED, EventKind.DAEMON_STARTED}
"""Kinds of events that may need attention (`Event.is_bad`)."""


@attrs.frozen(kw_only=True)
class Event:
    """One thing that happened."""

    kind: EventKind
    at: float = 0.0
    """Seconds since the epoch; 0 means the time when it is noted."""
    server: str = ""
    """The server's name in the configuration, or empty."""
    instance: str = ""
    """The instance (`server#12`) of a divided server."""
    session: str = ""
    """The session's key, or its connection's number, `#12`."""
    run: int = 0
    """The number of the server's run (`incarnation`), or 0."""
    text: str = ""
    """The fault in words; without secrets."""
    cause: Cause | None = None
    """The fault as a code for programs."""
    cause_data: Mapping[str, Datum] = attrs.field(factory=dict, hash=False)
    """The data of `cause`."""
    details: Mapping[str, Detail] = attrs.field(factory=dict, hash=False)
    """The details of the kind."""
    number: int = 0
    """The event's number in this daemon's life, from 1; given by `History`."""
    life: str = ""
    """The name of the daemon's life, `host/pid/…`; given by `History`."""

    @property
    def is_bad(self) -> bool:
        """Whether the event needs attention: an unwanted end, or something that does not work."""
        if self.kind is EventKind.ENDED:
            return self.cause is not None
        if self.kind is EventKind.RELOADED:
            return bool(self.text)
        return self.kind in _BAD or bool(self.details.get("unclean"))
