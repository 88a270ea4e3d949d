"""What a supervisor is told of a child, and what a running child tells of itself."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import attrs
import trio
from loguru import logger

from daemon.causes import HEALTHY, Cause, Reason
from daemon.errors import RunError, leaf
from daemon.states import ServerState
from daemon.supervision.backoff import Ending

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from daemon.config.tuning import Restart
    from daemon.supervision.backoff import Run
    from daemon.supervision.starts import QueuedStart
    from daemon.supervision.status import ChildStatus


class Pause:
    """One child's; made ready for the next wait by `renew`, since who is early must not wait in vain."""

    def __init__(self) -> None:
        self._hold_until = -math.inf
        self.renew()

    def renew(self) -> None:
        """Forget who wanted the next run: this one is about to begin."""
        self._nudge, self._scope = trio.Event(), trio.CancelScope()

    @property
    def is_open(self) -> bool:
        """Whether nobody has cut it short, or is about to."""
        return not self._nudge.is_set() and self._scope.deadline == math.inf

    @property
    def held(self) -> float:
        """Seconds for which the server has asked to be left alone: no call starts it before."""
        return max(0.0, self._hold_until - trio.current_time())

    def hold(self, seconds: float) -> None:
        """The server wants to be left alone for so long."""
        self._hold_until = trio.current_time() + seconds
        # A call that came while the end was being told did not know of it.
        self.renew()

    def release(self) -> None:
        """The server need not be left alone any longer."""
        self._hold_until = -math.inf

    def nudge(self) -> None:
        """The next run begins now."""
        self._nudge.set()

    def shorten(self, until: float) -> None:
        """The next run begins then at the latest, on trio's clock."""
        self._scope.deadline = min(self._scope.deadline, until)

    async def wait(self, seconds: float) -> None:
        """Wait so long, or until nudged."""
        self.shorten(trio.current_time() + seconds)
        with self._scope:
            await self._nudge.wait()

    async def wait_nudged(self) -> None:
        """Wait until nudged from now on."""
        self._nudge = trio.Event()
        await self._nudge.wait()


@attrs.frozen(kw_only=True)
class ChildSpec:
    """What a supervisor needs to know of a child (OTP's word)."""

    name: str
    """Unique within the supervisor."""
    run: Callable[[Lifecycle], Awaitable[None]]
    """One run: returns or raises when it is over. Cleans up after itself, also when cancelled."""
    policy: Restart
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


ENDED = Reason("it ended", Cause.ENDED)
"""Of a run that returned."""

PARKED_STATUSES = frozenset({78, 126, 127})
"""Exit statuses that trying again does not cure: EX_CONFIG (sysexits.h), and a shell's words for a program that
it may not execute or does not find."""

_ENDINGS = {
    Cause.ENDED: Ending.NORMAL,
    Cause.UNAUTHORIZED: Ending.NEEDS_AUTH,
    Cause.FORBIDDEN: Ending.NEEDS_AUTH,
} | dict.fromkeys(
    (
        Cause.COMMAND_NOT_FOUND,
        Cause.DIRECTORY_UNUSABLE,
        Cause.NOT_EXECUTABLE,
        Cause.NOT_A_PROGRAM,
        Cause.CANNOT_START,
        Cause.BAD_URL,
        Cause.TLS_UNTRUSTED,
        Cause.TLS_EXPIRED,
        Cause.TLS_NAME,
    ),
    Ending.CANNOT_START,
)
"""All others are crashes, tried again with backoff."""


def ending_of(reason: Reason) -> Ending:
    """What kind of end it was, for the policy."""
    if reason.cause is Cause.EXITED and reason.data.get("status") in PARKED_STATUSES:
        return Ending.CANNOT_START
    return Ending.CRASHED if reason.cause is None else _ENDINGS.get(reason.cause, Ending.CRASHED)


def reason_of(error: BaseException | None) -> Reason:
    """Why a run ended that raised `error`, or returned; a fault of our own is logged in full."""
    if error is None:
        return ENDED
    if isinstance(error, RunError):
        return error.reason
    logger.opt(exception=error).error("a fault of mcpd's own, contained")
    said = f"{type(error).__name__}: {error}"
    return Reason(f"mcpd's own fault: {said}", Cause.INTERNAL, {"error": said})


async def contained(
    run: Callable[[], Awaitable[None]], scope: trio.CancelScope, name: str
) -> BaseException | None:
    """The exception boundary: returns whatever `run` raises, but for a cancellation from outside of `scope`."""
    try:
        with scope:
            await run()
    except Exception as error:  # noqa: BLE001 - the boundary that keeps neighbours alive
        return leaf(error) if isinstance(error, BaseExceptionGroup) else error
    except BaseExceptionGroup as group:
        cancelled, rest = group.split(trio.Cancelled)
        if cancelled is None or rest is None or not isinstance(rest, ExceptionGroup):
            raise
        if trio.current_effective_deadline() > -math.inf:
            # Nobody cancels us: the body raised somebody else's cancellation along with its own failure.
            return leaf(rest)
        logger.bind(server=name).opt(exception=rest).warning("failed while being stopped")
        raise cancelled from None
    return None
