"""One run of a child: its spec, its reports while it runs, its exception boundary, and the pause after it.

Exceptions become values here (`contained`), and their causes decide about the next run (`ending_of`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import attrs
import trio
from loguru import logger

from daemon.causes import CURED_BY_LOGIN, HEALTHY, Cause, Reason
from daemon.errors import RunError, leaf
from daemon.states import ServerState
from daemon.supervision.backoff import Ending

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from daemon.config.tuning import Restart
    from daemon.facts import ServerStatus
    from daemon.history.event import Detail
    from daemon.supervision.backoff import Run
    from daemon.supervision.starts import QueuedStart
    from daemon.supervision.status import ChildStatus


class Pause:
    """The time between two runs of a child, which can be cut short.

    `renew` prepares the next wait when a run begins, so that a nudge during the run is not lost.
    """

    def __init__(self) -> None:
        self._hold_until = -math.inf
        self.renew()

    def renew(self) -> None:
        """Forget earlier nudges: the next run is about to begin."""
        self._nudge, self._scope = trio.Event(), trio.CancelScope()

    @property
    def is_open(self) -> bool:
        """Whether the pause has not been cut short."""
        return not self._nudge.is_set() and self._scope.deadline == math.inf

    @property
    def held(self) -> float:
        """Remaining seconds that the server has asked us to wait: no call starts it earlier."""
        return max(0.0, self._hold_until - trio.current_time())

    def hold(self, seconds: float) -> None:
        """Note that the server has asked us to wait this many seconds."""
        self._hold_until = trio.current_time() + seconds
        # A call that came while the end was being reported did not know of this.
        self.renew()

    def release(self) -> None:
        """Cancel a wait that the server has asked for."""
        self._hold_until = -math.inf

    def nudge(self) -> None:
        """Let the next run begin now."""
        self._nudge.set()

    def shorten(self, until: float) -> None:
        """Let the next run begin at a time on trio's clock, at the latest."""
        self._scope.deadline = min(self._scope.deadline, until)

    async def wait(self, seconds: float) -> None:
        """Wait for a number of seconds, or until nudged."""
        self.shorten(trio.current_time() + seconds)
        with self._scope:
            await self._nudge.wait()

    async def wait_nudged(self) -> None:
        """Wait until nudged; a nudge since the last `renew` counts."""
        await self._nudge.wait()


@attrs.frozen(kw_only=True)
class ChildSpec:
    """The specification of a child (OTP's term)."""

    name: str
    """Unique within the supervisor."""
    run: Callable[[Lifecycle], Awaitable[None]]
    """The body of one run: returns or raises when it is over, and cleans up even when cancelled."""
    policy: Restart
    """The restart policy."""
    lazy: bool = False
    """Whether it stays dormant until woken."""
    spawns: bool = True
    """Whether it runs as processes of this machine, whose effort can be observed (`starts`)."""
    on_ended: Callable[[int, Run], None] = lambda _number, _run: None
    """Called with the number and the result of each run that has ended."""
    told: Callable[[], Mapping[str, Detail]] = dict
    """Returns what the event of a run that serves also says: the number of its process, say."""
    last_lines: Callable[[int], list[str]] = lambda _number: []
    """Returns the last lines that a run has written to stderr, as its event has them."""
    words: Callable[[int], list[str]] = lambda _number: []
    """Returns everything that a run has said which may tell why it ended, oldest first (`diagnosis`)."""
    of: str = ""
    """The server whose secrets its reasons may quote, if that is not its name."""
    on_status: Callable[[ServerStatus], None] | None = None
    """Called with each new status in place of the supervisor's own function."""


class Lifecycle:
    """The interface through which a running child reports its state."""

    def __init__(self, status: ChildStatus, pause: Pause, start: QueuedStart) -> None:
        self.incarnation = status.runs
        self.ready_at: float | None = None
        self.scope = trio.CancelScope()
        """The cancel scope around the run."""
        self.restarting = False
        """Whether the run is being ended for a restart."""
        self.resting = False
        """Whether the run is being ended because nobody uses it."""
        self._status = status
        self._pause = pause
        self._start = start
        self._over = False

    def runs_as(self, mark: int) -> None:
        """Report the mark of its process tree: while that tree works, the start keeps its place."""
        self._start.runs_as(mark)

    def ready(self) -> None:
        """Report that the child serves."""
        # A child that is being ended may take another step before it notices.
        if self.ready_at is None and not self._over:
            self.ready_at = trio.current_time()
        self._serve(ServerState.READY, HEALTHY)

    def degraded(self, reason: Reason) -> None:
        """Report that the child works, but not properly: it serves, but does not count as healthy."""
        self._serve(ServerState.DEGRADED, reason)

    def ending(self, reason: Reason) -> None:
        """Report that the run is over except for the clean-up, which nobody need wait for."""
        if self.restarting or self.resting:
            return
        self._over = True
        self._status.become(ServerState.BACKOFF, reason)

    def restart(self, reason: Reason, grace: float = 0.0) -> None:
        """End this run for a restart, after `grace` seconds or by `restart_now`."""
        if not self._over:
            self.ending(reason)
        self.restarting = True
        self.scope.deadline = trio.current_time() + grace

    def restart_now(self) -> None:
        """End this run now if it is being ended for a restart."""
        if self.restarting:
            self.scope.cancel()

    def rest(self) -> None:
        """Note that the run is about to be ended because nobody uses it: nothing that it reports counts."""
        self._over = self.resting = True

    def hold_off(self, seconds: float) -> None:
        """Delay the next run, as the server has asked for; an operator can still start it."""
        if not self.restarting:
            self._pause.hold(seconds)

    def _serve(self, state: ServerState, reason: Reason) -> None:
        if self._over:
            return
        self._start.leave()
        self._status.untried = False
        self._status.become(state, reason)


ENDED = Reason("it ended", Cause.ENDED)
"""The reason of a run that returned."""

PARKED_STATUSES = frozenset({78, 126, 127})
"""Exit statuses that a restart does not cure: EX_CONFIG (sysexits.h), and a shell's codes for a program that it
may not execute or does not find."""

_ENDINGS = {
    Cause.ENDED: Ending.NORMAL,
    Cause.UNAUTHORIZED: Ending.NEEDS_AUTH,
    Cause.FORBIDDEN: Ending.NEEDS_AUTH,
    **dict.fromkeys(CURED_BY_LOGIN, Ending.NEEDS_AUTH),
} | dict.fromkeys(
    (
        Cause.COMMAND_NOT_FOUND,
        Cause.DIRECTORY_UNUSABLE,
        Cause.NOT_EXECUTABLE,
        Cause.NOT_A_PROGRAM,
        Cause.CANNOT_START,
        Cause.CONFIGURATION,
        Cause.BAD_URL,
        Cause.TLS_UNTRUSTED,
        Cause.TLS_EXPIRED,
        Cause.TLS_NAME,
    ),
    Ending.CANNOT_START,
)
"""The endings of certain causes; all others are crashes, restarted with backoff."""


def ending_of(reason: Reason) -> Ending:
    """The kind of end that a reason stands for, for the restart policy."""
    if reason.cause is Cause.EXITED and reason.data.get("status") in PARKED_STATUSES:
        return Ending.CANNOT_START
    return Ending.CRASHED if reason.cause is None else _ENDINGS.get(reason.cause, Ending.CRASHED)


def reason_of(error: BaseException | None) -> Reason:
    """The reason of a run that raised `error`, or returned (None); a fault of our own is logged in full."""
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
    """The exception boundary: return what `run` raises, except for a cancellation from outside of `scope`."""
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
            # We are not being cancelled: the body raised a foreign cancellation along with its own failure.
            return leaf(rest)
        logger.bind(server=name).opt(exception=rest).warning("failed while being stopped")
        raise cancelled from None
    return None
