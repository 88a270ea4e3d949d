"""One child of a supervisor: started again and again behind a boundary that no exception passes.

Whatever leaves a child's body becomes the reason of a finished `Run` and nothing else ever notices. Policy is
arithmetic in `backoff`; the retry loop is tenacity's, with a sleep that a call or an operator can cut short. A
child's state is a `Watch`, changed through `states.move` only.
"""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import tenacity
import trio
from loguru import logger

from daemon.backoff import Ending, Run, is_stable, wait_for_verdict, wants_restart
from daemon.errors import leaf
from daemon.facts import ServerStatus
from daemon.states import SERVING, WAITING, WAKEABLE, ServerState, move
from daemon.supervision.endings import ending_of, reason_of
from daemon.supervision.lifecycle import Lifecycle
from daemon.supervision.starts import Rank
from daemon.watch import Watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from daemon.supervision.lifecycle import ChildSpec
    from daemon.supervision.starts import Start, Starts

ASKED = "restarting: an operator asked for it"
"""Shown while a run is ended for a fresh one."""

REPLACED = "restarting: its configuration has changed"
"""Likewise."""

_AT_REST = frozenset({ServerState.STOPPED, ServerState.STOPPING, ServerState.DISABLED, ServerState.DORMANT})
"""States in which nothing has to be told to stop."""

WAKE_INTERVAL = 1.0
"""Calls wake a server at most this often (seconds), however many there are."""


class Child:
    """One supervised child.

    Two loops: the inner one (`_live`) starts it again and again; the outer one (`supervise`) begins anew
    whenever what is wanted of it has changed (`_turn`).
    """

    def __init__(
        self,
        spec: ChildSpec,
        starts: Starts,
        on_status: Callable[[str, ServerStatus], None],
        rng: Callable[[], float],
        wall: Callable[[], float],
        redact: Callable[[str], str],
    ) -> None:
        self.spec = spec
        self.off = ""
        """Why it is kept stopped; empty if it is not."""
        self.left = trio.Event()
        """Set once it was told to leave and has cleaned up."""
        self.untried = True
        """Whether it has neither served nor failed since it was configured."""
        self._hold_until = -math.inf
        self.status = Watch(ServerStatus(state=ServerState.STOPPED, since=wall()))
        self._starts = starts
        self._on_status = on_status
        self._wall = wall
        self._redact = redact
        self._rng = rng
        self._wait = wait_for_verdict(spec.policy, rng)
        self._runs = 0
        self._failures = 0
        self._last_start = -WAKE_INTERVAL
        self._scope: trio.CancelScope | None = None
        self._lifecycle: Lifecycle | None = None
        self._start: Start | None = None
        self._called = False
        self._served = False
        self._nudge, self._pausing = trio.Event(), trio.CancelScope()
        self._restart_asked = False
        self._last_reason = ""
        self._whole = trio.CancelScope()
        self._phase: trio.CancelScope | None = None
        self._ends = False

    def __repr__(self) -> str:
        status = self.status.value
        return f"<Child {self.spec.name}: {status.state}, incarnation {status.incarnation}>"

    @property
    def restarting(self) -> bool:
        """Whether the run is being ended because an operator wants a fresh one."""
        return self._restart_asked

    async def supervise(self) -> None:
        """Do what is wanted of the child, until cancelled or told to leave."""
        try:
            with self._whole:
                while True:
                    with trio.CancelScope() as self._phase:
                        await (self._stay_off() if self.off else self._live())
                    self._come_to_rest(self.status.value.reason)
        finally:
            self.left.set()

    async def _stay_off(self) -> None:
        self.become(ServerState.DISABLED, self.off)
        await trio.sleep_forever()

    async def _live(self) -> None:
        """Run the child again and again; when its restart type says that it is over, wait for a nudge."""
        if self.spec.lazy:
            self.become(ServerState.DORMANT)
            await self._nudged()
        while True:
            self._failures = 0
            streak = tenacity.AsyncRetrying(
                sleep=self._pause,
                wait=self._judged,
                retry=tenacity.retry_if_result(self._continues_streak),
                stop=tenacity.stop_never,
            )
            run: Run = await streak(self._run_once)
            if not wants_restart(self.spec.policy, run):
                self.become(ServerState.STOPPING, run.reason)
                self.become(ServerState.STOPPED, run.reason)
                await self._nudged()

    def switch_off(self, reason: str) -> None:
        """Stop it, and keep it stopped; `reason` is shown and must not be empty."""
        if not self.off:
            self.off = reason
            self._turn(reason)

    def switch_on(self) -> None:
        """Let it live again, its failures forgotten."""
        if self.off:
            self.off = ""
            self._wait.forget()
            self._turn("")

    def replace(self, spec: ChildSpec) -> None:
        """Go on by another spec of the same name: what runs is ended first. Incarnations are counted on."""
        self.spec = spec
        self.untried = True
        self._wait = wait_for_verdict(spec.policy, self._rng)
        if self.off:
            return
        if spec.lazy:
            self._turn(REPLACED)
        else:
            self.restart(REPLACED)

    def leave(self, reason: str) -> None:
        """Stop it for good: no state but stopping and stopped is shown from now on."""
        self.end(reason)
        self._whole.cancel()

    def end(self, reason: str = "") -> None:
        """Show it as stopping; its task is about to be cancelled."""
        self._ends = True
        if self.status.value.state is not ServerState.STOPPED:
            self.become(ServerState.STOPPING, reason)

    def _turn(self, reason: str) -> None:
        """End what it does now, cleanly, and look again at what is wanted of it."""
        if self.status.value.state not in _AT_REST:
            self.become(ServerState.STOPPING, reason)
        if self._phase is not None:
            self._phase.cancel()

    def _come_to_rest(self, reason: str) -> None:
        """A phase is over, maybe just when a start was shown."""
        if self.status.value.state not in _AT_REST:
            self.become(ServerState.STOPPING, reason)
        if self.status.value.state is ServerState.STOPPING:
            self.become(ServerState.STOPPED, reason)

    def restart(self, reason: str = ASKED) -> None:
        """Start afresh now, whatever the state but switched off: such a word also forgets the failures."""
        self._wait.forget()
        self._failures = 0
        self._hold_until = -math.inf
        self._nudge.set()
        self._hurry()
        if self._scope is not None and self._lifecycle is not None:
            self._restart_asked = True
            self._lifecycle.ending(reason)
            self._scope.cancel()

    def wake(self, *, called: bool = True) -> None:
        """Cut a wait short because somebody wants it: such starts are `WAKE_INTERVAL` apart.

        Args:
            called: whether it goes first in line, too; else only its own wait is over.
        """
        state = self.status.value.state
        if state not in WAKEABLE or self.held:
            return
        if called:
            self._hurry()
        # One that sleeps has not failed, however lately it was started.
        if state is ServerState.DORMANT:
            self._nudge.set()
        else:
            self._pausing.deadline = min(self._pausing.deadline, self._last_start + WAKE_INTERVAL)

    def _hurry(self) -> None:
        """Somebody waits for it: in line, now or the next time, it goes first."""
        self._called = True
        if self._start is not None:
            self._start.hurry()

    def hold_off(self, seconds: float) -> None:
        """See `Lifecycle.hold_off`."""
        if not self._restart_asked:
            self._hold_until = trio.current_time() + seconds
            # A call that came while the end was being told did not know of it.
            self._nudge, self._pausing = trio.Event(), trio.CancelScope()

    @property
    def held(self) -> float:
        """Seconds for which the server has asked to be left alone: no call starts it before."""
        return max(0.0, self._hold_until - trio.current_time())

    async def wait_settled(self, since: ServerStatus | None = None) -> bool:
        """Wait until the child serves, or the attempt under way has failed. True if it serves.

        Args:
            since: what it was when that attempt was under way, or about to be; what it is now.
        """
        seen = since or self.status.value
        while seen.state not in SERVING:
            if self._ends or seen.state is ServerState.DISABLED:
                return False
            attempts = seen.attempt
            seen = await self.status.wait_changed(seen)
            if seen.state in WAITING and seen.attempt > attempts and seen.next_retry_at is not None:
                return False
        return True

    def become(self, state: ServerState, reason: str = "", *, retry_at: float | None = None) -> None:
        """Change the state; a change to the same state only updates the reason and the clock."""
        now = self.status.value
        reason = self._redact(reason)
        if state is not ServerState.STOPPED and now.state is ServerState.STOPPING:
            return
        if self._ends and state not in {ServerState.STOPPING, ServerState.STOPPED}:
            return
        if now.state is not state:
            move(now.state, state)
        elif (now.reason, now.next_retry_at, now.incarnation) == (reason, retry_at, self._runs):
            return
        status = ServerStatus(
            state=state,
            reason=reason,
            since=now.since if now.state is state else self._wall(),
            attempt=self._failures,
            next_retry_at=retry_at,
            incarnation=self._runs,
            restarts=max(0, self._runs - 1),
        )
        self.status.set(status)
        self._on_status(self.spec.name, status)

    def _judged(self, retry_state: tenacity.RetryCallState) -> float:
        return max(self._wait(retry_state), self.held)

    def _continues_streak(self, run: Run) -> bool:
        policy = self.spec.policy
        # However healthy it was: one that wants to be left alone is not asked again at once.
        return wants_restart(policy, run) and (self.held > 0 or not is_stable(policy, run))

    async def _run_once(self) -> Run:
        self._restart_asked = False
        self._hold_until = -math.inf
        self._runs += 1
        async with self._in_turn() as start:
            self._nudge, self._pausing = trio.Event(), trio.CancelScope()
            self.become(ServerState.STARTING, self._again())
            # Whoever watches sees it start, however soon it is ready: he may come after us in the first round.
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            self._last_start = trio.current_time()
            lifecycle = self._lifecycle = Lifecycle(self, self._runs, start)
            error = await self._bounded(lifecycle)
        self._served |= lifecycle.ready_at is not None
        healthy = 0.0 if lifecycle.ready_at is None else trio.current_time() - lifecycle.ready_at
        run = Run(
            ending=ending_of(error, asked=self._restart_asked),
            reason=self._redact(reason_of(error)),
            healthy=healthy,
            ended_at=trio.current_time(),
        )
        self._last_reason = run.reason
        self.spec.on_ended(self._runs, run)
        self._failures = 0 if run.ending is Ending.ASKED else self._failures + 1
        self.untried &= run.ending is Ending.ASKED
        return run

    @asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[Start]:
        """A start whose turn it is; its place is given back at the latest when the run is over."""
        rank = Rank.SERVED if self._served and self._failures <= 1 else Rank.OTHER
        start = self._start = self._starts.ask(
            Rank.CALLED if self._called else rank, self._stand_in_line, spawns=self.spec.spawns
        )
        try:
            if not start.granted.is_set():
                await start.granted.wait()
            self._called = False
            yield start
        finally:
            self._start = None
            start.leave()

    def _stand_in_line(self, before: int) -> None:
        again = self._again()
        line = f"waits for its turn to start, {before or 'nobody'} before it"
        self.become(ServerState.QUEUED, f"{line}; {again}" if again else line)

    def _again(self) -> str:
        return f"trying again after: {self._last_reason}" if self._failures else ""

    async def _bounded(self, lifecycle: Lifecycle) -> BaseException | None:
        """The exception boundary: whatever the child's body raises is returned, but for cancellation."""
        try:
            with trio.CancelScope() as self._scope:
                await self.spec.run(lifecycle)
        except Exception as error:  # noqa: BLE001 - the boundary that keeps neighbours alive
            return leaf(error) if isinstance(error, BaseExceptionGroup) else error
        except BaseExceptionGroup as group:
            cancelled, rest = group.split(trio.Cancelled)
            if cancelled is None or rest is None or not isinstance(rest, ExceptionGroup):
                raise
            if trio.current_effective_deadline() > -math.inf:
                # Nobody cancels us: the body raised somebody else's cancellation along with its own failure.
                return leaf(rest)
            logger.bind(server=self.spec.name).opt(exception=rest).warning("failed while being stopped")
            raise cancelled from None
        finally:
            self._scope = None
        return None

    async def _pause(self, seconds: float) -> None:
        """Tenacity's sleep: wait out the verdict, unless nudged."""
        verdict = self._wait.verdict
        # A try that is due now is not announced as one to wait for: a call would take it for a failure.
        due = seconds > 0 and not self._nudge.is_set() and self._pausing.deadline == math.inf
        self.become(verdict.state, self._last_reason, retry_at=self._wall() + seconds if due else None)
        self._pausing.deadline = min(self._pausing.deadline, trio.current_time() + seconds)
        with self._pausing:
            await self._nudge.wait()

    async def _nudged(self) -> None:
        self._nudge = trio.Event()
        await self._nudge.wait()
