"""The health of the store: its state for operators, and the time of the next try."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum

from loguru import logger
from msgspec import Struct, structs

from daemon.kit.waiting import RetryPolicy, Watch
from daemon.state.notes import MAX_SESSIONS
from daemon.state.sql import StoreCause, StoreFault

BACKOFF_SECONDS = 1.0
"""Seconds until the first retry after a failure, doubled with each further failure."""

BACKOFF_CAP = 30.0
"""Most seconds until the next retry: soon enough to notice that a disk has space again."""

PARKED_SECONDS = 300.0
"""Seconds until the next retry if only an operator can help."""

PARKED = frozenset({StoreCause.NEWER_SCHEMA, StoreCause.MISCONFIGURED})
"""Causes that only an operator can mend, so that mcpd retries rarely."""

DROPS_PER_LINE = 1000
"""Dropped changes reported by one log line."""

NOT_YET = "not opened yet"


class Condition(StrEnum):
    """Whether changes are written to disk."""

    OK = "ok"
    DEGRADED = "degraded"


class Persistence(Struct, frozen=True, kw_only=True):
    """Whether state survives a restart of the daemon, and if not, why."""

    state: Condition
    """If `degraded`, changes stay in memory until the store works."""
    cause: StoreCause | None = None
    """None unless degraded by a fault."""
    reason: str = ""
    """The cause in words, or a loss although the store works."""
    since: float = 0.0
    """The time when this state began, in seconds since the epoch."""
    where: str = ""
    """The store's location for people, without a password."""
    waiting: int = 0
    """The number of changes not written yet."""


class Health:
    """Tracks whether the store works, since when or why not, and how many tries have failed."""

    def __init__(self, *, where: str, wall: Callable[[], float], rng: Callable[[], float]) -> None:
        self.persistence = Watch(
            Persistence(state=Condition.DEGRADED, reason=NOT_YET, since=wall(), where=where)
        )
        self.failures = 0
        """Failed tries since the last success."""
        self.wall = wall
        """Returns seconds since the epoch."""
        self._retries = RetryPolicy(BACKOFF_SECONDS, BACKOFF_CAP, rng)
        self._parked = RetryPolicy(PARKED_SECONDS, PARKED_SECONDS, rng)
        self._notes: dict[str, str] = {}
        self._why = NOT_YET
        self._cause: StoreCause | None = None

    @property
    def degraded(self) -> bool:
        """Whether changes are kept in memory only."""
        return self.persistence.value.state is Condition.DEGRADED

    def note(self, topic: str, text: str, *, aloud: bool = True) -> None:
        """Report a loss until the daemon ends, in place of the topic's last one; `aloud`: log it."""
        if aloud and self._notes.get(topic) != text:
            logger.error("{}", text)
        self._notes[topic] = text
        self.count(self.persistence.value.waiting)

    def note_aside(self, name: str) -> None:
        """Note that a corrupt store was set aside under this name."""
        where = self.persistence.value.where
        text = (
            f"the store {where} was corrupt, and mcpd renamed it to {name}. mcpd fills a new store from its"
            " memory; only the old store has the sessions that nobody has used since mcpd started"
        )
        self.note("aside", text)

    def note_lost(self, fault: StoreFault) -> None:
        """Note that the opened store has disappeared."""
        when = datetime.fromtimestamp(self.wall(), UTC).isoformat(timespec="seconds")
        text = f"{fault}. Sessions that nobody has used since mcpd started are lost ({when})"
        self.note("lost", text)

    def note_dropped(self, count: int) -> None:
        """Note that this many changes of sessions were dropped because memory was full."""
        text = f"{count} changes of sessions were dropped: more than {MAX_SESSIONS} waited for the store"
        self.note("dropped", text, aloud=count % DROPS_PER_LINE == 1)

    def degrade(self, fault: StoreFault, waiting: int) -> None:
        """Record that the store does not work, and how many changes wait."""
        reason = str(fault)
        if reason != self._why:
            logger.error("{}", reason)
        self._why, self._cause = reason, fault.cause
        self._show(Condition.DEGRADED, waiting)

    def mend(self, waiting: int) -> None:
        """Record that the store works."""
        self.failures = 0
        if self._cause is not None:
            logger.info("the store {} works again", self.persistence.value.where)
        self._why, self._cause = "", None
        self._show(Condition.OK, waiting)

    def count(self, waiting: int) -> None:
        """Record how many changes wait."""
        self._show(self.persistence.value.state, waiting)

    def next_delay(self, cause: StoreCause) -> float:
        """Count a failure; returns the seconds until the next try."""
        delay = self._parked.delay(0) if cause in PARKED else self._retries.delay(self.failures)
        self.failures += 1
        return delay

    def _show(self, state: Condition, waiting: int) -> None:
        now = self.persistence.value
        reason = "; ".join(filter(None, [self._why, *self._notes.values()]))
        since = now.since if state is now.state else self.wall()
        told = structs.replace(now, state=state, cause=self._cause, reason=reason, since=since, waiting=waiting)
        if told != now:
            self.persistence.set(told)
