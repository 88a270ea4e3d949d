"""The status of a supervised child: a watchable value that changes along `states.move` only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from daemon.causes import HEALTHY, Reason
from daemon.facts import ServerStatus
from daemon.kit.mailbox import Watch
from daemon.states import SERVING, WAITING, ServerState, move
from daemon.supervision.diagnosis import by_cause

if TYPE_CHECKING:
    from collections.abc import Callable

AT_REST = frozenset({ServerState.STOPPED, ServerState.STOPPING, ServerState.DISABLED, ServerState.DORMANT})
"""States in which nothing runs that would have to be stopped."""


class ChildStatus(Watch[ServerStatus]):
    """A child's `ServerStatus`, and the counts that go into it."""

    def __init__(
        self,
        on_change: Callable[[ServerStatus], None],
        wall: Callable[[], float],
        redact: Callable[[str], str],
        name: str = "",
    ) -> None:
        """Start as stopped.

        Args:
            on_change: called with each new status, synchronously.
            wall: returns seconds since the epoch.
            redact: removes secrets from reasons.
            name: what operators call the child, for the commands that help.
        """
        super().__init__(ServerStatus(state=ServerState.STOPPED, since=wall()))
        self.runs = 0
        """The number of runs that have begun."""
        self.failures = 0
        """The number of failed runs in the current streak."""
        self.untried = True
        """Whether it has neither served nor failed since it was configured, or since it was put to rest."""
        self.last = HEALTHY
        """Why the last run ended."""
        self._on_change = on_change
        self._wall = wall
        self._redact = redact
        self._name = name
        self._ends = False

    def become(self, state: ServerState, reason: Reason = HEALTHY, *, retry_at: float | None = None) -> None:
        """Change the state; a change to the same state only updates the reason and the clock."""
        now = self.value
        if state is not ServerState.STOPPED and now.state is ServerState.STOPPING:
            return
        if self._ends and state not in {ServerState.STOPPING, ServerState.STOPPED}:
            return
        shown = self._diagnosed(reason.redacted(self._redact))
        if now.state is not state:
            move(now.state, state)
        elif (now.why, now.next_retry_at, now.incarnation) == (shown, retry_at, self.runs):
            return
        status = ServerStatus(
            state=state,
            reason=shown.text,
            cause=shown.cause,
            cause_data=shown.data,
            remedy=shown.remedy,
            since=now.since if now.state is state else self._wall(),
            attempt=self.failures,
            next_retry_at=retry_at,
            incarnation=self.runs,
            restarts=max(0, self.runs - 1),
        )
        self.set(status)
        self._on_change(status)

    def _diagnosed(self, reason: Reason) -> Reason:
        """The reason with its remedy; an end like the last one has the same, until its words are read."""
        last = self.last
        if reason.remedy is None and (reason.cause, reason.data) == (last.cause, last.data):
            reason = attrs.evolve(reason, remedy=last.remedy)
        return by_cause(self._name, reason)

    def count_end(self, reason: Reason, *, asked: bool) -> Reason:
        """Count the end of a run, and return its reason without secrets. One we asked for is no failure."""
        self.last = reason.redacted(self._redact)
        self.failures = 0 if asked else self.failures + 1
        self.untried &= asked
        return self.last

    def back_off(self, state: ServerState, seconds: float | None) -> None:
        """Show that the next run follows after a delay in seconds; None if the delay is not announced."""
        self.become(state, self.last, retry_at=None if seconds is None else self._wall() + seconds)

    def queue(self, before: int) -> None:
        """Show that it waits in the queue of starts, with a number of others before it."""
        line = f"waits for its turn to start, {before or 'nobody'} before it"
        self.become(ServerState.QUEUED, self.again.after(f"{line}; ") if self.failures else Reason(line))

    @property
    def again(self) -> Reason:
        """The reason shown for a start: the failure that it follows, if any."""
        return self.last.after("trying again after: ") if self.failures else HEALTHY

    def stop(self, reason: Reason) -> None:
        """Show that the current run is about to be ended, if there is one."""
        if self.value.state not in AT_REST:
            self.become(ServerState.STOPPING, reason)

    def come_to_rest(self, reason: Reason) -> None:
        """Show that nothing runs."""
        self.stop(reason)
        if self.value.state is ServerState.STOPPING:
            self.become(ServerState.STOPPED, reason)

    def end(self, reason: Reason = HEALTHY) -> None:
        """Show only stopping and stopped from now on: the child's task is about to be cancelled."""
        self._ends = True
        if self.value.state is not ServerState.STOPPED:
            self.become(ServerState.STOPPING, reason)

    async def wait_settled(self, since: ServerStatus | None = None) -> bool:
        """Wait until the child serves, or the current attempt has failed. True if it serves.

        Args:
            since: a status from when that attempt was under way or imminent; None for the current one.
        """
        seen = since or self.value
        while seen.state not in SERVING:
            if self._ends or seen.state is ServerState.DISABLED:
                return False
            attempts = seen.attempt
            seen = await self.wait_changed(seen)
            if seen.state in WAITING and seen.attempt > attempts and seen.next_retry_at is not None:
                return False
        return True
