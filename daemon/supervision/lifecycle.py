"""What a supervisor is told of a child, and what a running child tells of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs
import trio

from daemon.states import ServerState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from daemon.backoff import RestartPolicy, Run
    from daemon.supervision.starts import Start


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


class Told(Protocol):
    """Who is told: the child that runs."""

    untried: bool
    """Whether it has neither served nor failed since it was configured."""

    @property
    def restarting(self) -> bool:
        """Whether the run is being ended because an operator wants a fresh one."""

    def become(self, state: ServerState, reason: str = "") -> None:
        """Change the state."""

    def hold_off(self, seconds: float) -> None:
        """See `Lifecycle.hold_off`."""


class Lifecycle:
    """A running child's way to tell how it is."""

    def __init__(self, child: Told, incarnation: int, start: Start) -> None:
        self.incarnation = incarnation
        self._child = child
        self._start = start
        self._over = False
        self.ready_at: float | None = None

    def runs_as(self, mark: int) -> None:
        """It is the tree of processes with this mark: as long as that works, its start keeps its place."""
        self._start.runs_as(mark)

    def ready(self) -> None:
        """The child does its work."""
        self._serve(ServerState.READY, "")

    def degraded(self, reason: str) -> None:
        """It works, but not as it should."""
        self._serve(ServerState.DEGRADED, reason)

    def ending(self, reason: str) -> None:
        """The run is over and only cleans up: tell everybody now, not after the clean-up."""
        if self._over and self._child.restarting:
            return
        self._over = True
        self._child.become(ServerState.BACKOFF, reason)

    def hold_off(self, seconds: float) -> None:
        """The server wants to be left alone for so long: no next run before, unless an operator says so."""
        self._child.hold_off(seconds)

    def _serve(self, state: ServerState, reason: str) -> None:
        # A child that is being ended may have a step to go before it notices.
        if self._over:
            return
        # A server that does not list its tools is of use, but not healthy: it earns no forgetting.
        if self.ready_at is None and state is ServerState.READY:
            self.ready_at = trio.current_time()
        self._start.leave()
        self._child.untried = False
        self._child.become(state, reason)
