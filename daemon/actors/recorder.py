"""The recorder: owns the store, and writes to it what has changed.

Only callers that read, or that ask whether something is on disk, wait for the store, and only for a limited
time. A store that fails, hangs or disappears costs only time: changes stay in memory until they can be written.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial

import attrs
import msgspec
import trio
from loguru import logger

from daemon.audit.record import ChainHead
from daemon.catalog.loaded import SessionRecord
from daemon.catalog.snapshot import Catalog
from daemon.catalog.tool_results import Observed
from daemon.facts import Fact
from daemon.history.journal import History
from daemon.kit.waiting import Watch
from daemon.state.event_rows import put_head, put_shapes, stored_heads, stored_shapes
from daemon.state.health import Health
from daemon.state.notes import EventNotes, HourlyCounts, SessionNotes, StoredEvents, Totals, hours_since
from daemon.state.poll import Listening, Recalling, StorePoll
from daemon.state.server_notes import ServerNotes
from daemon.state.sql import StoreCause, StoreFault, T, Transaction
from daemon.state.store_access import KEPT_OPEN, Opener, StoreAccess, own_fault
from daemon.state.sync import EVENTS, TOUCH, Expiry, Notes, Sync

OPERATION_SECONDS = 1.5
"""Seconds that a caller waits for one operation: a client that loads a tool must not notice longer waits."""

FINISH_SECONDS = 4.3
"""Seconds for the last writes at a stop: servers take 4 s to stop, and the whole must take less than 5 s."""

OBSERVE_SECONDS = 1.0
"""Seconds between two results of one tool that are examined."""

BEGUN_AGAIN = frozenset({StoreCause.LOST, StoreCause.CORRUPT})
"""Faults after which mcpd begins a new store, at once unless earlier tries have failed."""


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """The recorder's time limits and clocks."""

    session_idle: float
    """Seconds after which an unused session is deleted."""
    patience: float = OPERATION_SECONDS
    """Seconds that a caller waits for one operation."""
    wall: Callable[[], float] = time.time
    """Returns seconds since the epoch."""
    rng: Callable[[], float] = random.random
    """Returns a random number in [0, 1)."""


class Recorder:
    """Writes changes to the store, and reads from it."""

    def __init__(
        self,
        opener: Opener,
        *,
        catalog: Watch[Catalog],
        tell: Callable[[Fact], None],
        settle: Callable[[], Awaitable[None]],
        timing: Timing,
        count: Callable[[], Mapping[str, int]] = dict,
        history: History | None = None,
        count_hourly: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._opener, self._timing = opener, timing
        self.shared = opener.shared
        self._health = Health(where=opener.where, wall=timing.wall, rng=timing.rng)
        self.persistence = self._health.persistence
        self.totals = Totals(count)
        self._notes = Notes(
            catalog=catalog,
            servers=ServerNotes(),
            sessions=SessionNotes(),
            totals=self.totals,
            events=EventNotes(history or History(timing.wall)),
            hours=HourlyCounts(count_hourly, timing.wall),
        )
        self._access = StoreAccess(
            opener,
            patience=timing.patience,
            on_overdue=lambda fault: self._health.degrade(fault, self._notes.waiting),
        )
        self.events = StoredEvents(self._access)
        self.hours = partial(hours_since, self._access, self._notes.hours)
        """Returns the hourly counts since a time (`state.notes`), in epoch seconds."""
        self._listening = Listening(self._access, opener.listen, timing.rng)
        recalling = Recalling(
            self._notes.servers, catalog=catalog, tell=tell, settle=settle, where=opener.where, wall=timing.wall
        )
        self._poll = StorePoll(self._access, self._notes.sessions, recalling, self._listening)
        expiry = Expiry(self._notes.sessions, self._access, idle=timing.session_idle, wall=timing.wall)
        self._sync = Sync(self._access, self._notes, recalling, expiry, self._health, self._poll)
        self._retry_at: float | None = None
        """When the next try is due (seconds, trio's clock); None unless the last try failed."""
        self._running = trio.CancelScope()

    async def keep_head(self, head: ChainHead) -> None:
        """Store the head of an audit chain, if the store can be written now."""
        with suppress(StoreFault):
            await self._write(partial(put_head, head, self._timing.wall()))

    async def heads(self) -> list[ChainHead]:
        """The stored heads of all audit chains; raises `StoreFault`."""
        return await self._access.ask(lambda store: store.within(stored_heads))

    async def observe(self, observed: Observed) -> None:
        """Examine one result of each tool per `OBSERVE_SECONDS`, and store its shape, until cancelled."""
        with suppress(StoreFault):
            observed.know(await self._write(stored_shapes))
        while True:
            if not observed.waiting:
                observed.wake = (woken := trio.Event()).set
                await woken.wait()
            taken, observed.waiting = observed.waiting, {}
            try:
                if changed := await trio.to_thread.run_sync(observed.learn, taken):
                    await self._write(partial(put_shapes, changed))
            except Exception as error:  # noqa: BLE001 - the boundary: calls go on without shapes
                if not isinstance(error, StoreFault):
                    logger.exception("internal error in mcpd while examining results")
            await trio.sleep(OBSERVE_SECONDS)
            observed.resting.difference_update(taken)

    # --- the daemon's side ---------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open the store and send its content to the registry, within `timing.patience` seconds."""
        with trio.move_on_after(self._timing.patience) as scope:
            try:
                await self._sync.recall_trusted()
                await self._sync.open()
                self._health.mend(self._notes.waiting)
            except Exception as error:  # noqa: BLE001 - the boundary: the daemon serves without a memory
                self._failed(error)
        if scope.cancelled_caught:
            self._access.overdue()

    async def run(self, live_keys: Callable[[], Iterable[str]], adopt: Callable[[SessionRecord], None]) -> None:
        """Write changes until `finish`; `adopt` gets each session in use that another daemon has written."""
        self._poll.live_keys, self._poll.adopt = live_keys, adopt
        self._sync.start()
        async with trio.open_nursery() as nursery:
            self._running = nursery.cancel_scope
            nursery.start_soon(self._follow_catalog)
            nursery.start_soon(self._notes.events.follow, partial(self._sync.later, EVENTS), self._access.moved)
            if self.shared:
                nursery.start_soon(self.events.follow, self._notes.events.history)
            nursery.start_soon(self._listening.run)
            while True:
                try:
                    await self._wait_due()
                    if (suspicion := self._access.suspicion) is not None:
                        self._access.suspicion = None
                        raise suspicion
                    await self._sync.once(self._timing.patience)
                except Exception as error:  # noqa: BLE001 - the boundary
                    self._failed(error)
                else:
                    self._retry_at = None
                    self._health.mend(self._notes.waiting)

    async def finish(self, ended: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint) -> None:
        """End `run`, write and close within `FINISH_SECONDS`; `ended` returns once no more events come."""
        self._running.cancel()
        self._access.ends_at = ends_at = trio.current_time() + FINISH_SECONDS
        # While servers stop, which takes as long: a store that is only slow gets all of it.
        await _at_last(self._sync.last, ends_at)
        await ended()
        await _at_last(self._sync.close, ends_at)
        if lost := self._notes.lost:
            logger.error("{} could not be written to the store {} and are lost", lost, self._opener.where)

    # --- the sessions' side --------------------------------------------------------------------------------

    def keep(self, record: SessionRecord) -> None:
        """Keep a session's new state to be written, in place of an unwritten one; never blocks."""
        sessions = self._notes.sessions
        sessions.keep(record)
        if sessions.dropped:
            self._health.note_dropped(sessions.dropped)
        self._stir()

    def touch(self, key: str, at: float) -> None:
        """Record that a session was used; written with the next batch, or after a minute."""
        self._notes.sessions.touch(key, at)
        self._sync.later(TOUCH)

    async def kept(self, key: str | None = None) -> bool:
        """Wait until a session (no key: all switches and approvals) is on disk; False if not in time."""
        notes = self._notes
        with trio.move_on_after(self._timing.patience):
            while key in notes.sessions.waiting if key else notes.servers.lacks_words(notes.catalog.value):
                if self._health.degraded:
                    return False
                await self._access.moved.park()
            return True
        return False

    async def look(self) -> None:
        """Return once all earlier writes of other daemons are known here, or cannot be read for now."""
        if not self.shared:
            return
        look = self._poll.request_refresh()
        self._access.moved.unpark_all()
        with trio.move_on_after(self._timing.patience):
            while self._poll.ended < look and not self._health.degraded:
                await self._access.moved.park()

    async def recall(self, key: str) -> SessionRecord | None:
        """Read a session by its key; None if there is none. Raises `StoreFault`: no store and no copy here.

        If the store fails, returns the session as known here, marked partial if the store may have more.
        """
        sessions = self._notes.sessions
        if (unwritten := sessions.unwritten(key)) is not None:
            return unwritten
        try:
            found = await self._access.ask(lambda store: store.session(key))
        except StoreFault:
            known = sessions.known(key)
            if known is None:
                raise
            return attrs.evolve(known, partial=True) if self.shared else known
        return sessions.complete(key, found)

    async def sessions(self, limit: int) -> tuple[SessionRecord, ...]:
        """List sessions, the most recently used first; only this daemon's if the store cannot be read."""
        try:
            stored = await self._access.ask(lambda store: store.sessions(limit))
        except StoreFault:
            return self._notes.sessions.merged(None, limit)
        return self._notes.sessions.merged(stored, limit)

    # --- waiting, and failures -----------------------------------------------------------------------------

    async def _write(self, work: Callable[[Transaction], T]) -> T:
        return await self._access.ask(lambda store: store.within(work, writes=True))

    async def _follow_catalog(self) -> None:
        seen = self._notes.catalog.value
        while True:
            seen = await self._notes.catalog.wait_changed(seen)
            self._stir()

    def _stir(self) -> None:
        """Wake the writer, and report how much waits to be written while the store fails."""
        if self._health.degraded:
            self._health.count(self._notes.waiting)
        self._access.moved.unpark_all()

    async def _wait_due(self) -> None:
        while self._access.suspicion is None:
            due = self._sync.due_at if self._retry_at is None else self._retry_at
            if due <= trio.current_time():
                return
            with trio.move_on_at(due):
                await self._access.moved.park()

    def _failed(self, error: Exception) -> None:
        """Contain an error and schedule the next try: a daemon without a store is better than no daemon."""
        fault = error if isinstance(error, StoreFault) else own_fault(self._opener.where)
        in_use = self._access.store is not None
        if fault is not error:
            logger.opt(exception=error).error("internal error in mcpd while writing to the store")
        elif fault.cause not in KEPT_OPEN:
            self._access.close()
        if fault.cause is StoreCause.CORRUPT and in_use:
            self._opener.mark_corrupt(fault)
        if fault.cause is StoreCause.LOST:
            self._health.note_lost(fault)
            self._sync.start_over = True
        at_once = in_use and fault.cause in BEGUN_AGAIN and not self._health.failures
        delay = self._health.next_delay(fault.cause)
        self._retry_at = trio.current_time() + (0 if at_once else delay)
        if not at_once:
            self._health.degrade(fault, self._notes.waiting)
            self._access.give_up(fault)


async def _at_last(write: Callable[[], Awaitable[None]], ends_at: float) -> None:
    with trio.move_on_at(ends_at, shield=True):
        try:
            await write()
        except StoreFault as fault:
            logger.error("{}", fault)
        except Exception:  # noqa: BLE001 - the boundary: the daemon ends in order
            logger.exception("internal error in mcpd while writing the last changes")
