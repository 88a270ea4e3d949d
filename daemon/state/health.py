"""How the store does: what operators are shown, and when to try again."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

import attrs
from loguru import logger

from daemon.kit.delay import doubled, jittered
from daemon.kit.mailbox import Watch
from daemon.state.faults import StoreCause, StoreFault
from daemon.state.session_notes import MAX_SESSIONS

if TYPE_CHECKING:
    from collections.abc import Callable

BACKOFF_SECONDS = 1.0
"""Until the first try after a failure; doubles with each further one."""

BACKOFF_CAP = 30.0
"""The longest until the next try: a disk that has room again is found soon enough."""

PARKED_SECONDS = 300.0
"""Until the next try where only an operator can help (reliability.md §1.1)."""

PARKED = frozenset({StoreCause.NEWER_SCHEMA, StoreCause.MISCONFIGURED})
"""Trying these again soon is pointless."""

DROPS_PER_LINE = 1000
"""Dropped changes for each line of the log about them."""


NOT_YET = "not opened yet"


class Condition(StrEnum):
    """Whether what changes gets to disk."""

    OK = "ok"
    DEGRADED = "degraded"


@attrs.frozen(kw_only=True)
class Persistence:
    """How keeping things from one life of the daemon to the next goes."""

    state: Condition
    """`degraded`: what changes is kept in memory only, until the store works."""
    cause: StoreCause | None = None
    """Why it is degraded; None if it is not, or nothing was tried yet."""
    reason: str = ""
    """In words: why it is degraded, or what was lost although it is not."""
    since: float = 0.0
    """When it entered the state, in seconds since the epoch."""
    where: str = ""
    """Where things are kept, for people: without a password."""
    waiting: int = 0
    """Things that are not written yet."""


class Health:
    """Knows since when the store works, or why it does not, and how often it was tried in vain."""

    def __init__(self, *, where: str, wall: Callable[[], float], rng: Callable[[], float]) -> None:
        """Begin with a store that was not opened yet.

        Args:
            where: where things are kept, without a password.
            wall: seconds since the epoch.
            rng: a random number in [0, 1).
        """
        self.persistence = Watch(
            Persistence(state=Condition.DEGRADED, reason=NOT_YET, since=wall(), where=where)
        )
        self.failures = 0
        """Failed tries in the present streak."""
        self.wall = wall
        """Seconds since the epoch."""
        self._rng = rng
        self._notes: dict[str, str] = {}
        self._said = ""
        self._why = NOT_YET
        self._cause: StoreCause | None = None

    @property
    def degraded(self) -> bool:
        """Whether what changes is kept in memory only."""
        return self.persistence.value.state is Condition.DEGRADED

    def note(self, topic: str, text: str, *, aloud: bool = True) -> None:
        """Something was lost, which is shown as long as this daemon lives.

        Args:
            topic: of several about one topic the newest counts.
            text: in words.
            aloud: whether it is logged.
        """
        if aloud and self._notes.get(topic) != text:
            logger.error("{}", text)
        self._notes[topic] = text
        self.count(self.persistence.value.waiting)

    def note_aside(self, name: str) -> None:
        """A corrupt store was set aside under this name."""
        where = self.persistence.value.where
        text = (
            f"the store {where} was corrupt and is set aside as {name}: what mcpd knows goes into a new one;"
            " sessions that nobody has used since mcpd started are in the old one only"
        )
        self.note("aside", text)

    def note_lost(self, fault: StoreFault) -> None:
        """What was opened is gone."""
        when = datetime.fromtimestamp(self.wall(), UTC).isoformat(timespec="seconds")
        text = f"{fault}. Sessions that nobody has used since mcpd started are not known any more ({when})"
        self.note("lost", text)

    def note_dropped(self, count: int) -> None:
        """So many changes of sessions were given up: the memory was full."""
        text = f"{count} changes of sessions were dropped: more than {MAX_SESSIONS} waited for the store"
        self.note("dropped", text, aloud=count % DROPS_PER_LINE == 1)

    def degrade(self, fault: StoreFault, waiting: int) -> None:
        """It does not work.

        Args:
            fault: why.
            waiting: things that are not written.
        """
        reason = str(fault)
        if reason != self._said:
            self._said = reason
            logger.error("{}", reason)
        self._why, self._cause = reason, fault.cause
        self._show(Condition.DEGRADED, waiting)

    def mend(self, waiting: int) -> None:
        """It works."""
        self.failures = 0
        if self._said:
            self._said = ""
            logger.info("the store {} works again", self.persistence.value.where)
        self._why, self._cause = "", None
        self._show(Condition.OK, waiting)

    def count(self, waiting: int) -> None:
        """So many things are not written."""
        self._show(self.persistence.value.state, waiting)

    def next_delay(self, cause: StoreCause) -> float:
        """Count a failure; how many seconds until the next try."""
        parked = cause in PARKED
        nominal = PARKED_SECONDS if parked else doubled(BACKOFF_SECONDS, BACKOFF_CAP, self.failures)
        self.failures += 1
        return jittered(nominal, self._rng())

    def _show(self, state: Condition, waiting: int) -> None:
        now = self.persistence.value
        reason = "; ".join(filter(None, [self._why, *self._notes.values()]))
        since = now.since if state is now.state else self.wall()
        shown = attrs.evolve(now, state=state, cause=self._cause, reason=reason, since=since, waiting=waiting)
        if shown != now:
            self.persistence.set(shown)
