"""What a supervisor is told of a child, and what a running child tells of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from daemon.causes import HEALTHY
from daemon.states import ServerState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from daemon.causes import Reason
    from daemon.supervision.backoff import RestartPolicy, Run
    from daemon.supervision.pause import Pause
    from daemon.supervision.starts import QueuedStart
    from daemon.supervision.status import ChildStatus


@attrs.frozen(kw_only=True)
class ChildSpec:
    """What a supervisor needs to know of a child (OTP's word)."""

    name: str
    """Unique within the supervisor."""
    run: Callable[[Lifecycle], Awaitable[None]]
    """One run: returns or raises when it is over. Cleans up after itself, also when cancelled."""
    policy: RestartPolicy
    """When to start it again."""
    lazy: bool = False
    """Stay dormant until woken."""
    spawns: bool = True
    """Whether it runs as processes of this machine, whose work is seen (`starts`)."""
    on_ended: Callable[[int, Run], None] = lambda _number, _run: None
    """Told of each run that has ended, and which it was."""


class Lifecycle:
    """A running child's way to tell how it is."""

    def __init__(self, status: ChildStatus, pause: Pause, start: QueuedStart) -> None:
        self.incarnation = status.runs
        self.ready_at: float | None = None
        self.scope = trio.CancelScope()
        """Around the run."""
        self.restarting = False
        """Whether the run is being ended because an operator wants a fresh one."""
        self._status = status
        self._pause = pause
        self._start = start
        self._over = False

    def runs_as(self, mark: int) -> None:
        """It is the tree of processes with this mark: as long as that works, its start keeps its place."""
        self._start.runs_as(mark)

    def ready(self) -> None:
        """The child does its work."""
        # A child that is being ended may have a step to go before it notices.
        if self.ready_at is None and not self._over:
            self.ready_at = trio.current_time()
        self._serve(ServerState.READY, HEALTHY)

    def degraded(self, reason: Reason) -> None:
        """It works, but not as it should: of use, but not healthy, so it earns no forgetting."""
        self._serve(ServerState.DEGRADED, reason)

    def ending(self, reason: Reason) -> None:
        """The run is over and only cleans up: tell everybody now, not after the clean-up."""
        if self.restarting:
            return
        self._over = True
        self._status.become(ServerState.BACKOFF, reason)

    def restart(self, reason: Reason) -> None:
        """An operator wants a fresh run: end this one."""
        if not self._over:
            self.ending(reason)
        self.restarting = True
        self.scope.cancel()

    def hold_off(self, seconds: float) -> None:
        """The server wants to be left alone for so long: no next run before, unless an operator says so."""
        if not self.restarting:
            self._pause.hold(seconds)

    def _serve(self, state: ServerState, reason: Reason) -> None:
        if self._over:
            return
        self._start.leave()
        self._status.untried = False
        self._status.become(state, reason)
