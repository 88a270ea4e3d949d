"""A one_for_one supervisor: runs each child repeatedly, behind a boundary that no exception passes.

An exception of a run becomes the reason of a finished `Run`; `backoff` decides about the next one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import trio

from daemon.causes import HEALTHY, Reason
from daemon.history.event import Event, EventKind
from daemon.states import SERVING, WAITING, WAKEABLE, ServerState
from daemon.supervision import lifecycle
from daemon.supervision.backoff import Ending, Run, Streak, is_stable, wants_restart
from daemon.supervision.starts import Look, QueuedStart, Rank, StartQueue

if TYPE_CHECKING:
    from daemon.facts import ServerStatus
    from daemon.history.event import Detail
    from daemon.processes.marks import Effort


NO_DETAILS: Mapping[str, Detail] = {}

INACTIVE = frozenset({ServerState.STOPPED, ServerState.DISABLED, ServerState.DORMANT})
"""States without a run (a clean-up may continue), and without a next run unless something causes one."""

_UNSAID = {ServerState.DORMANT: "nobody has used it for a while", ServerState.STOPPED: "mcpd has stopped it"}


class RunEvents:
    """Makes events from a child's statuses and from the ends of its runs."""

    def __init__(
        self, spec: lifecycle.ChildSpec, note: Callable[[Event], None], wall: Callable[[], float]
    ) -> None:
        """Begin as before a first run. `wall` is the wall clock: an outage may outlast the daemon."""
        self.spec = spec
        self._note = note
        self._wall = wall
        self._run = self._failures = 0
        self._began = 0.0
        self._ready: float | None = None
        self._away: float | None = None  # Since when it has not served, though it was to.
        self._over_restart = False  # Whether that began before this daemon.
        self._state = ServerState.STOPPED
        self._degraded: object = None
        self._why = ""

    def was_away(self, since: float) -> None:
        """Note that the child was away when the previous daemon ended; `since` in seconds since the epoch."""
        self._away, self._over_restart = since, True

    def moved(self, status: ServerStatus) -> None:
        """Note the event that a new status stands for, if any."""
        before, self._state = self._state, status.state
        # That mcpd stops, for which no reason is given, does not end an outage.
        if status.state in INACTIVE and (status.reason or self._why or status.state is not ServerState.STOPPED):
            self._away = None
        if status.state is ServerState.STARTING:
            if before is not ServerState.STARTING:
                self._failures = status.attempt
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
        elif status.state in INACTIVE:
            self._became_inactive(status, waited=before in WAITING)

    def ended(self, run: Run, state: ServerState, seconds: float) -> None:
        """Note that a run has ended, and that the next one is due in `seconds`."""
        if run.ending is Ending.ASKED:
            self._ends(None, state, {"retrySeconds": seconds, "asked": True}, text="for a restart")
        else:
            self._ends(run.reason, state, {"retrySeconds": seconds})

    def restarted(self, by: str) -> None:
        """Note that a restart was requested, and `by` what (`EventKind.RESTARTED`)."""
        self._tell(EventKind.RESTARTED, {"by": by})

    def _begins(self, number: int) -> None:
        self._run, self._began = number, trio.current_time()
        self._ready, self._degraded, self._why = None, None, ""
        self._tell(EventKind.STARTED)

    def _serves(self, *, again: bool) -> None:
        now = trio.current_time()
        if self._ready is None:
            self._ready = now
            self._tell(
                EventKind.READY, {"seconds": now - self._began, **self._outage(), **self.spec.event_details()}
            )
            self._away = None
        elif again:
            self._tell(EventKind.READY, {"again": True})

    def _outage(self) -> dict[str, Detail]:
        if self._away is None:
            return {}
        found: dict[str, Detail] = {"awaySeconds": max(0.0, self._wall() - self._away), "awaySince": self._away}
        return {**found, "awayOverRestart": True} if self._over_restart else found

    def _became_inactive(self, status: ServerStatus, *, waited: bool) -> None:
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
        if reason is not None and state not in INACTIVE and self._away is None:
            self._away, self._over_restart = self._wall(), False
        served = {} if self._ready is None else {"seconds": trio.current_time() - self._ready}
        lines = self.spec.last_lines(self._run)
        said: dict[str, Detail] = {"stderr": lines} if lines else {}
        if reason is not None:
            reason = lifecycle.by_cause(self.spec.name, reason)
            said |= {"byWords": True} if reason.remedy and reason.remedy.by_words else {}
            said |= {"attempt": self._failures + 1} if self._ready is None else {}
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
                details={**details, **why.diagnosis},
            )
        )


ASKED = Reason("restarting: an operator asked for it")

REPLACED = Reason("restarting: its configuration has changed")

WAKE_INTERVAL = 1.0
"""Fewest seconds between two starts of a server that calls cause."""


class Child:
    """One supervised child, run by `_live`; `supervise` starts over when the wanted state has changed."""

    def __init__(
        self,
        spec: lifecycle.ChildSpec,
        starts: StartQueue,
        on_status: Callable[[str, ServerStatus], None],
        rng: Callable[[], float],
        wall: Callable[[], float],
        redact: Callable[[str], str],
        note: Callable[[Event], None] = lambda _event: None,
    ) -> None:
        self.spec = spec
        self.off = ""
        self.left = trio.Event()
        """Set when the child has left the supervisor and cleaned up."""
        self.events = RunEvents(spec, note, wall)
        told = (self.events.moved, spec.on_status or partial(on_status, spec.name))
        self.status = lifecycle.ChildStatus(partial(_tell_each, told), wall, redact, spec.name)
        self.pause = lifecycle.Pause()
        self._starts = starts
        self._rng = rng
        self._redact = redact
        self._streak = Streak(spec.policy, rng)
        self._last_start = -WAKE_INTERVAL
        self._running: lifecycle.Lifecycle | None = None
        self._start: QueuedStart | None = None
        self._wanted = Rank.OTHER
        """The rank of its next start, or of the current one."""
        self._served = False
        self._idle = False
        self._whole = trio.CancelScope()
        self._phase: trio.CancelScope | None = None

    async def supervise(self) -> None:
        """Keep the child in its wanted state until cancelled or told to leave."""
        try:
            with self._whole:
                while True:
                    with trio.CancelScope() as self._phase:
                        if self.off:
                            self.status.become(ServerState.DISABLED, Reason(self.off))
                            await trio.sleep_forever()
                        await self._live()
                    self.status.become_inactive(self.status.value.why)
        finally:
            self.left.set()

    async def _live(self) -> None:
        """Run the child repeatedly; where its restart type forbids another run, wait for a nudge."""
        if self.spec.lazy or self._idle:
            self.status.become(ServerState.DORMANT)
            await self.pause.wait_nudged()
            self._idle = False
        self._forget_failures()
        while True:
            run = await self._run_once()
            if not wants_restart(self.spec.policy, run):
                self.status.become(ServerState.STOPPING, run.reason)
                self.status.become(ServerState.STOPPED, run.reason)
                self.pause.renew()
                await self.pause.wait_nudged()
                self._forget_failures()
            elif is_stable(self.spec.policy, run) and not self.pause.held:
                self.events.ended(run, ServerState.BACKOFF, 0.0)
                self._forget_failures()
            else:
                # However healthy it was: one that asked us to wait is not restarted at once.
                verdict = self._streak.judge(run)
                seconds = max(verdict.delay, self.pause.held)
                self.events.ended(run, verdict.state, seconds if self.pause.is_open else 0.0)
                # A restart that is due now is not announced: a call that waits would take it for a failure.
                is_announced = seconds > 0 and self.pause.is_open
                self.status.back_off(verdict.state, seconds if is_announced else None)
                await self.pause.wait(seconds)

    def switch_off(self, reason: str) -> None:
        """Stop the child and keep it stopped; `reason` is shown and must not be empty."""
        if not self.off:
            self.off, self._idle = reason, False
            self._turn(Reason(reason))

    def switch_on(self) -> None:
        """Let the child run again, with its failures forgotten."""
        if self.off:
            self.off = ""
            self._turn(HEALTHY)

    def replace(self, spec: lifecycle.ChildSpec, grace: float = 0.0) -> None:
        """Continue with another spec of the same name; the current run ends within `grace` seconds."""
        self.spec = self.events.spec = spec
        self._idle = False
        self.status.untried = True
        self._streak = Streak(spec.policy, self._rng)
        if self.off:
            return
        if spec.lazy and not grace:
            self._turn(REPLACED)
        else:
            self.restart(REPLACED, by="configuration", grace=grace)

    def go_idle(self) -> None:
        """End the run of a child that nobody uses; the child is dormant until woken."""
        if self._running is None or self.status.value.state not in SERVING:
            return
        self._idle = self.status.untried = True
        self._running.go_idle()
        # At once: who comes while it is being cleaned up waits for the next run.
        self.status.become(ServerState.DORMANT)
        self._turn(HEALTHY)

    def leave(self, reason: str) -> None:
        """Stop the child for good; from now on it shows only stopping and stopped."""
        self.status.end(Reason(reason))
        self._whole.cancel()

    def _turn(self, reason: Reason) -> None:
        self.status.stop(reason)
        self.pause.renew()
        if self._phase is not None:
            self._phase.cancel()

    def restart(self, reason: Reason = ASKED, *, by: str = "operator", grace: float = 0.0) -> None:
        """Restart unless switched off, and forget failures; the current run ends within `grace` seconds."""
        self.events.restarted(by)
        self._forget_failures()
        self.pause.release()
        self.pause.nudge()
        self._wanted = Rank.CALLED
        if self._start is not None:
            self._start.hurry()
        if self._running is not None:
            self._running.restart(reason, grace)

    def wake(self, rank: Rank = Rank.CALLED) -> None:
        """Cut short the wait for the next run, even in the queue, at most once in `WAKE_INTERVAL`."""
        state = self.status.value.state
        if state not in WAKEABLE or self.pause.held:
            return
        self._wanted = min(self._wanted, rank)
        if self._start is not None:
            self._start.hurry(rank)
        # A dormant one has not failed, however recently it was started.
        if state is ServerState.DORMANT:
            self.pause.nudge()
        else:
            self.pause.shorten(self._last_start + WAKE_INTERVAL)

    def _forget_failures(self) -> None:
        self._streak.forget()
        self.status.failures = 0

    async def _run_once(self) -> Run:
        self.pause.release()
        self.status.runs += 1
        async with self._in_turn() as start:
            self.pause.renew()
            self.status.become(ServerState.STARTING, self.status.again)
            # Watchers must see it start, however soon it is ready: they may be scheduled after us.
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            self._last_start = trio.current_time()
            life = self._running = lifecycle.Lifecycle(self.status, self.pause, start)
            try:
                error = await lifecycle.contained(partial(self.spec.run, life), life.scope, self.spec.name)
            finally:
                self._running = None
        self._served |= life.ready_at is not None
        reason = await self._diagnosed(lifecycle.reason_of(error))
        run = Run(
            ending=Ending.ASKED if life.restarting else lifecycle.ending_of(reason),
            reason=self.status.count_end(reason, asked=life.restarting),
            healthy=0.0 if life.ready_at is None else trio.current_time() - life.ready_at,
            ended_at=trio.current_time(),
        )
        self.spec.on_ended(self.status.runs, run)
        return run

    async def _diagnosed(self, reason: Reason) -> Reason:
        words = self.spec.words(self.status.runs) if lifecycle.needs_words(reason) else []
        if not words:
            return reason

        def read() -> Reason:
            lines = [self._redact(line) for line in words]
            return lifecycle.by_words(self.spec.name, reason.redacted(self._redact), lines)

        # The run is over whatever happens now: its end is counted even if the child is being stopped.
        with trio.CancelScope(shield=True):
            reason = await trio.to_thread.run_sync(read)
        return reason

    @asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[QueuedStart]:
        """Wait for a place to start, which is released when the run ends, if not before."""
        rank = Rank.SERVED if self._served and self.status.failures <= 1 else Rank.OTHER
        start = self._start = self._starts.ask(
            min(self._wanted, rank), self.status.queue, spawns=self.spec.spawns
        )
        try:
            if not start.granted.is_set():
                await start.granted.wait()
            self._wanted = Rank.OTHER
            yield start
        finally:
            self._start = None
            start.leave()


def _tell_each(listeners: Iterable[Callable[[ServerStatus], None]], status: ServerStatus) -> None:
    for listener in listeners:
        listener(status)


async def _nobody_seen(_marks: frozenset[int]) -> Mapping[int, Effort]:
    return {}


class Supervisor:
    """Starts children, restarts them, and reports each change of their status."""

    def __init__(
        self,
        specs: Sequence[lifecycle.ChildSpec],
        *,
        starts: int,
        on_status: Callable[[str, ServerStatus], None],
        rng: Callable[[], float],
        wall: Callable[[], float],
        redact: Callable[[str], Callable[[str], str]] = lambda _name: str,
        look: Look = _nobody_seen,
        note: Callable[[Event], None] = lambda _event: None,
    ) -> None:
        """Create the children without starting them; `starts` of them may start at once.

        `on_status` gets a child's name and each new status; `redact` returns the function that removes secrets
        from a child's reasons. Raises ValueError: two children share a name.
        """
        self._starts = StartQueue(starts, look)
        self._make = partial(Child, starts=self._starts, on_status=on_status, rng=rng, wall=wall, note=note)
        self._redact = redact
        self._nursery: trio.Nursery | None = None
        self.children: dict[str, Child] = {}
        """The children by name; always the same object."""
        self._retired: set[Child] = set()
        for spec in specs:
            self.add(spec)

    def add(self, spec: lifecycle.ChildSpec) -> Child:
        """Add a child, and start it if the supervisor runs. Raises ValueError: the name is in use."""
        if spec.name in self.children:
            raise ValueError(f"two children are named {spec.name!r}")
        child = self.children[spec.name] = self._make(spec, redact=self._redact(spec.of or spec.name))
        if self._nursery is not None:
            self._nursery.start_soon(child.supervise)
        return child

    async def remove(self, name: str, reason: str) -> None:
        """Remove a child, and return once it has cleaned up; raises KeyError: there is no such child."""
        await self.end(self.retire(name), reason)

    def retire(self, name: str) -> Child:
        """Free a child's name now; the child runs until `end`. Raises KeyError: there is no such child."""
        child = self.children.pop(name)
        self._retired.add(child)
        return child

    async def end(self, child: Child, reason: str) -> None:
        """Stop a retired child for good, and return once it has cleaned up."""
        child.leave(reason)
        if self._nursery is not None:
            await child.left.wait()
        self._retired.discard(child)
        child.status.become(ServerState.STOPPED, Reason(reason))

    async def run(self) -> None:
        """Supervise until cancelled; returns after every child has cleaned up."""
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._starts.watch)
                for child in self.children.values():
                    self._nursery.start_soon(child.supervise)
                await trio.sleep_forever()
        finally:
            self._nursery = None
            self.announce_stop()
            for child in self._all:
                child.status.become(ServerState.STOPPED)

    def announce_stop(self) -> None:
        """Show all children as stopping: `run` is about to be cancelled."""
        for child in self._all:
            child.status.end()

    @property
    def _all(self) -> list[Child]:
        return [*self.children.values(), *self._retired]
