"""The runs of a child as events: each begins, serves, is degraded and ends, and why is told once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from daemon.causes import HEALTHY
from daemon.history.event import Event, EventKind
from daemon.states import WAITING, ServerState
from daemon.supervision.backoff import Ending

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daemon.causes import Reason
    from daemon.facts import ServerStatus
    from daemon.history.event import Detail
    from daemon.supervision.backoff import Run
    from daemon.supervision.lifecycle import ChildSpec

NO_DETAILS: Mapping[str, Detail] = {}

REST = frozenset({ServerState.STOPPED, ServerState.DISABLED, ServerState.DORMANT})
"""States in which no run is under way, or only its clean-up, and none follows by itself."""

_UNSAID = {ServerState.DORMANT: "nobody has used it for a while", ServerState.STOPPED: "mcpd has stopped it"}
"""Why a run ended whose state does not say it."""


class RunEvents:
    """Makes events of a child's statuses, and of the ends of its runs."""

    def __init__(self, spec: ChildSpec, note: Callable[[Event], None], wall: Callable[[], float]) -> None:
        """Start before the first run.

        Args:
            spec: the child; another one of the same name may take its place.
            note: takes each event.
            wall: returns seconds since the epoch: an outage may be longer than the daemon's life.
        """
        self.spec = spec
        self._note = note
        self._wall = wall
        self._run = 0
        self._began = 0.0
        self._ready: float | None = None
        self._away: float | None = None  # Since when it has not served, though it was to.
        self._over_restart = False  # Whether that began before this daemon.
        self._state = ServerState.STOPPED
        self._degraded: object = None
        self._why = ""

    def was_away(self, since: float) -> None:
        """Note that it was away when the daemon before this one ended.

        Args:
            since: in seconds since the epoch.
        """
        self._away, self._over_restart = since, True

    def moved(self, status: ServerStatus) -> None:
        """Note what a new status means, if anything has happened."""
        before, self._state = self._state, status.state
        # That mcpd stops, for which no reason is given, does not end an outage.
        if status.state in REST and (status.reason or self._why or status.state is not ServerState.STOPPED):
            self._away = None
        if status.state is ServerState.STARTING:
            if before is not ServerState.STARTING:
                self._begins(status.incarnation)
        elif status.state is ServerState.READY:
            self._serves(again=before is ServerState.DEGRADED)
        elif status.state is ServerState.DEGRADED:
            self._ready = self._ready or trio.current_time()
            if before is not status.state or status.cause is not self._degraded:
                self._tell(EventKind.DEGRADED, reason=status.why)
            self._degraded = status.cause
        elif status.state is ServerState.STOPPING:
            self._why = status.reason
        elif status.state in REST:
            self._rests(status, waited=before in WAITING)

    def ended(self, run: Run, state: ServerState, seconds: float) -> None:
        """Note that a run has ended by itself, or for a restart, and that the next one begins.

        Args:
            run: the run.
            state: the state in which the next run is waited for.
            seconds: how long until then.
        """
        if run.ending is Ending.ASKED:
            self._ends(None, state, {"retrySeconds": seconds, "asked": True}, text="for a restart")
        else:
            self._ends(run.reason, state, {"retrySeconds": seconds})

    def restarted(self, by: str) -> None:
        """Note that a restart was asked for, and by what (`EventKind.RESTARTED`)."""
        self._tell(EventKind.RESTARTED, {"by": by})

    def _begins(self, number: int) -> None:
        self._run, self._began = number, trio.current_time()
        self._ready, self._degraded, self._why = None, None, ""
        self._tell(EventKind.STARTED)

    def _serves(self, *, again: bool) -> None:
        now = trio.current_time()
        if self._ready is None:
            self._ready = now
            self._tell(EventKind.READY, {"seconds": now - self._began, **self._outage(), **self.spec.told()})
            self._away = None
        elif again:
            self._tell(EventKind.READY, {"again": True})

    def _outage(self) -> dict[str, Detail]:
        """How long it was away, if it was."""
        if self._away is None:
            return {}
        found: dict[str, Detail] = {"awaySeconds": max(0.0, self._wall() - self._away), "awaySince": self._away}
        return {**found, "awayOverRestart": True} if self._over_restart else found

    def _rests(self, status: ServerStatus, *, waited: bool) -> None:
        if self._run:
            text = status.reason or self._why or _UNSAID.get(status.state, "")
            self._ends(status.why if status.cause else None, status.state, {}, text=text)
        elif waited:
            self._tell(EventKind.STATE, {"state": str(status.state)}, status.why)

    def _ends(
        self, reason: Reason | None, state: ServerState, details: dict[str, Detail], *, text: str = ""
    ) -> None:
        if not self._run:
            return
        if reason is not None and state not in REST and self._away is None:
            self._away, self._over_restart = self._wall(), False
        served = {} if self._ready is None else {"seconds": trio.current_time() - self._ready}
        lines = self.spec.last_lines(self._run)
        said: dict[str, Detail] = {"stderr": lines} if lines else {}
        if reason is not None and reason.remedy is not None and reason.remedy.by_words:
            said["happened"] = reason.remedy.happened
        away = {} if self._away is None else {"awaySince": self._away}
        self._tell(EventKind.ENDED, {"state": str(state), **served, **away, **details, **said}, reason, text)
        self._run = 0

    def _tell(
        self,
        kind: EventKind,
        details: Mapping[str, Detail] = NO_DETAILS,
        reason: Reason | None = None,
        text: str = "",
    ) -> None:
        whole = self.spec.of or self.spec.name
        why = reason or HEALTHY
        self._note(
            Event(
                kind=kind,
                server=whole,
                instance="" if whole == self.spec.name else self.spec.name,
                run=self._run,
                text=text or why.text,
                cause=why.cause,
                cause_data=why.data,
                details=details,
            )
        )
