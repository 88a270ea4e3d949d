"""The recorder: owns the store, and keeps it in step with what is known.

It watches the catalog and is handed sessions; whatever differs from what is on disk is written, everything at
once in one transaction. Nobody waits for it but those who ask whether something is on disk, and those who want
something read, and none of them for longer than a bound. A store that fails, hangs or is taken away costs
nothing but time: what was not written stays known here, `persistence` says why, and it is tried again.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

import trio
from loguru import logger

from daemon.state.custody import KEPT_OPEN, Custody
from daemon.state.expiry import Expiry
from daemon.state.faults import StoreCause, StoreFault
from daemon.state.health import Health
from daemon.state.opening import Opener, keep_checked, sessions_in
from daemon.state.recalling import Recalling
from daemon.state.server_notes import Difference, ServerNotes
from daemon.state.session_notes import SessionNotes
from daemon.state.timetable import Timetable
from daemon.state.totals import Totals

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from daemon.catalog.remembered import SessionRecord
    from daemon.catalog.snapshot import Catalog
    from daemon.facts import Fact
    from daemon.state.opening import Opened, Store
    from daemon.watch import Watch

OPERATION_SECONDS = 1.5
"""The longest that anybody waits for one operation: a client that loads a tool must not notice more."""

POLL_SECONDS = 1.0
"""Between looks at what other daemons have written to a store that is shared."""

CHECK_SECONDS = 10.0
"""Between looks at whether the store is still there, while nothing is written."""

TOUCH_SECONDS = 60.0
"""Times of use wait so long for something else to be written with: they only count for expiry, in days."""

BEGUN_ANEW = frozenset({StoreCause.LOST, StoreCause.CORRUPT})
"""After these another store is begun, at once the first time."""

CHECK, POLL, FORGET, TOUCH = "check", "poll", "forget", "touch"


class Recorder:
    """Writes what changes, reads what is asked for."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        *,
        catalog: Watch[Catalog],
        tell: Callable[[Fact], None],
        settle: Callable[[], Awaitable[None]],
        wall: Callable[[], float],
        where: str,
        session_idle: float,
        live_keys: Callable[[], Iterable[str]],
        adopt: Callable[[SessionRecord], None],
        count: Callable[[], Mapping[str, int]] = dict,
        set_aside: Callable[[], str] | None = None,
        shared: bool = False,
        patience: float = OPERATION_SECONDS,
        rng: Callable[[], float] = random.random,
    ) -> None:
        """Begin with nothing opened.

        Args:
            open_store: opens the store; blocks.
            catalog: the newest catalog.
            tell: leaves a fact for the registry.
            settle: returns once everything told is in the catalog.
            wall: seconds since the epoch.
            where: which store, for people: without a password.
            session_idle: seconds after which a session that nobody uses is forgotten.
            live_keys: keys of the sessions that somebody uses now.
            adopt: takes a live session as another daemon has written it.
            count: what was counted in this life, by name.
            set_aside: renames a corrupt store and returns its new name; None where that cannot be done.
            shared: whether other daemons may write to the same store.
            patience: seconds that anybody waits for one operation.
            rng: a random number in [0, 1).
        """
        self._health = Health(where=where, wall=wall, rng=rng)
        self.persistence = self._health.persistence
        self._opener = Opener(open_store, set_aside)
        self._custody = Custody(self._opener, where=where, patience=patience, on_overdue=self._overdue)
        self._catalog = catalog
        self._wall = wall
        self._where = where
        self._live_keys = live_keys
        self._adopt = adopt
        self._shared = shared
        self._patience = patience
        self._servers = ServerNotes()
        self._sessions = SessionNotes()
        self.totals = Totals(count)
        self._recalling = Recalling(self._servers, catalog=catalog, tell=tell, settle=settle, where=where)
        self._remembered = self._anew = False
        self._expiry = Expiry(
            self._sessions, self._custody, idle=session_idle, shared=shared, live_keys=live_keys, wall=wall
        )
        self._version = 0
        self._retry_at: float | None = None
        self._due = Timetable()
        self._stirred = trio.Event()

    # --- the daemon's side ---------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open the store and tell what it remembers; returns within the patience, in any case."""
        with trio.move_on_after(self._patience) as scope:
            try:
                self._take_in(await self._custody.open())
                self._health.mend(self._waiting)
            except StoreFault as fault:
                self._failed(fault)
            except Exception:  # noqa: BLE001 - the boundary: the daemon serves without a memory
                self._failed_ourselves()
        if scope.cancelled_caught:
            self._custody.overdue()

    async def run(self) -> None:
        """Write what changes, until cancelled. A fault of ours costs time, nothing else."""
        self._expiry.start()
        self._due.put(CHECK, CHECK_SECONDS)
        self._due.put(FORGET, self._expiry.period)
        if self._shared:
            self._due.put(POLL, POLL_SECONDS)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_catalog)
            nursery.start_soon(self._heed_readers)
            while True:
                try:
                    await self._wait_due()
                    await self._round()
                except StoreFault as fault:
                    self._failed(fault)
                except Exception:  # noqa: BLE001 - the boundary
                    self._failed_ourselves()
                else:
                    self._retry_at = None
                    self._health.mend(self._waiting)

    async def finish(self) -> None:
        """Write what is not written and close the store, at the end; returns within the patience."""
        with trio.move_on_after(self._patience) as scope:
            scope.shield = True
            try:
                await self._last_round()
            except StoreFault as fault:
                logger.error("{}", fault)
            except Exception:  # noqa: BLE001 - the boundary: the daemon ends in order
                logger.exception("a fault of mcpd's own while writing what was left")
        if self._waiting:
            logger.error("{} changes did not get to the store {} and are lost", self._waiting, self._where)

    # --- the sessions' side --------------------------------------------------------------------------------

    def keep(self, record: SessionRecord) -> None:
        """A session is now so; never blocks. The newest of a key replaces one that is not written yet."""
        self._sessions.keep(record)
        if self._sessions.dropped:
            self._health.note_dropped(self._sessions.dropped)
        self._recount()
        self._stirred.set()

    def touch(self, key: str, at: float) -> None:
        """A session was used; written with the next batch, or after a minute."""
        self._sessions.touch(key, at)
        self._due.put_if_none(TOUCH, TOUCH_SECONDS)

    async def kept(self, key: str | None = None) -> bool:
        """Whether what was kept of a key is on disk, or what operators said; False when that takes too long."""
        with trio.move_on_after(self._patience):
            while key in self._sessions if key else self._servers.lacks_words(self._catalog.value):
                if self._health.degraded:
                    return False
                await self._custody.moved.wait()
            return True
        return False

    async def recall(self, key: str) -> SessionRecord | None:
        """A session as it was left; None if there is none of this key.

        Raises:
            StoreFault: it cannot be known; within the patience.
        """
        if (unwritten := self._sessions.unwritten(key)) is not None:
            return unwritten
        try:
            found = await self._custody.ask(lambda store: store.session(key))
        except StoreFault:
            known = self._sessions.known(key)
            if known is None or self._shared:
                raise
            return known
        return self._sessions.complete(key, found)

    async def sessions(self, limit: int) -> tuple[SessionRecord, ...]:
        """Sessions, those used last first; of a store that cannot be read those that this life knows.

        Args:
            limit: how many at most.
        """
        try:
            stored = await self._custody.ask(lambda store: store.sessions(limit))
        except StoreFault:
            return self._sessions.all_known(limit)
        return self._sessions.merged(stored, limit)

    # --- one round -----------------------------------------------------------------------------------------

    async def _follow_catalog(self) -> None:
        seen = self._catalog.value
        while True:
            seen = await self._catalog.wait_changed(seen)
            self._recount()
            self._stirred.set()

    async def _heed_readers(self) -> None:
        while True:
            await self._custody.moved.wait()
            self._stirred.set()

    async def _wait_due(self) -> None:
        while (due := self._next_due()) > trio.current_time():
            with trio.move_on_at(due):
                await self._stirred.wait()
            self._stirred = trio.Event()

    def _next_due(self) -> float:
        if self._custody.suspicion is not None:
            return 0.0
        if self._retry_at is not None:
            return self._retry_at
        if self._custody.store is None or len(self._sessions) or self._servers.difference(self._catalog.value):
            return 0.0
        return self._due.next

    async def _round(self) -> None:
        if (suspicion := self._custody.suspicion) is not None:
            self._custody.suspicion = None
            raise suspicion
        if self._custody.store is None:
            self._take_in(await self._custody.open())
        if self._due.take(POLL, POLL_SECONDS):
            await self._poll()
        with trio.fail_after(self._patience):
            await self._recalling.settle()
        await self._write(touches=self._due.take(TOUCH, TOUCH_SECONDS))
        if self._due.take(FORGET, self._expiry.period):
            wait = await self._expiry.look(partial(self._write, touches=True))
            self._due.put(FORGET, wait)

    async def _last_round(self) -> None:
        if self._custody.store is None and (self._unwritten or self._custody.being_opened):
            self._take_in(await self._custody.open())
        if self._shared and self._custody.store is not None:
            await self._poll()
        await self._write_all()
        await self._recalling.settle_at_last()
        await self._write_all()
        closing = self._custody.let_go()
        if closing is not None:
            await closing.back.wait()

    async def _write_all(self) -> None:
        while self._custody.store is not None and self._unwritten:
            await self._write(touches=True)

    @property
    def _unwritten(self) -> bool:
        news = not self._recalling.untaken and bool(self._servers.difference(self._catalog.value))
        return news or bool(len(self._sessions)) or self._sessions.touched or bool(self.totals.news)

    async def _write(self, *, touches: bool) -> None:
        """Write what differs; look whether the store is there, in any case.

        Args:
            touches: whether times of use, and counts, are worth a transaction of their own.
        """
        self._due.put(CHECK, CHECK_SECONDS)
        if parts := self._sessions.partial():
            for key, stored in (await self._custody.use(partial(sessions_in, keys=parts))).items():
                self._sessions.complete(key, stored)
        catalog = self._catalog.value
        # Until the catalog has taken in what was recalled, it says nothing about what is to be written.
        news = Difference(catalog=catalog) if self._recalling.untaken else self._servers.difference(catalog)
        records, touched = self._sessions.next_batch()
        counted = self.totals.news
        if counted:
            self._due.put_if_none(TOUCH, TOUCH_SECONDS)
        if not (news or records or ((touched or counted) and touches)):
            await self._custody.use(lambda store: store.check())
            return
        batch = news.batch(self._wall(), records, touched, counted)
        kept = await self._custody.use(partial(keep_checked, batch=batch))
        if self._expiry.is_crowded(kept.begun):
            self._due.put(FORGET, 0)
        self._sessions.were_written(records, touched)
        self.totals.were_written(counted, batch.at)
        if not self._sessions.touched:
            self._due.drop(TOUCH)
        self._servers.was_written(news, kept.epochs)
        self._recalling.epochs(news.records, kept.epochs)
        self._custody.moved.beat()
        if kept.marked:
            marked = ", ".join(f"{count} {status}" for status, count in sorted(kept.marked.items()))
            logger.info("loaded tools of sessions were marked anew: {}", marked)

    def _take_in(self, opened: Opened) -> None:
        """Tell what a store remembers that was opened just now."""
        names = [record.name for record in opened.memory.servers]
        if opened.anew:
            self._health.note_aside(self._opener.aside)
        if opened.anew or self._anew or self._servers.missing(names):
            self._servers.start_over()
            self._sessions.start_over()
            self.totals.start_over()
        else:
            self.totals.read(opened.memory.counted, opened.memory.counted_since)
        self._anew = False
        if not self._shared:
            self._servers.also_judge(names)
        again, self._remembered = self._remembered, True
        if again and self._shared:
            # What others did to sessions meanwhile, before anything is written over it.
            self._due.put(POLL, 0)
        else:
            self._version = opened.memory.version
        # Switches first: a server that they switch off has another epoch, which the stored one includes.
        self._recalling.switches(opened.memory.switched, certainly=not again)
        # Names before the tools that have them: nobody else is given one meanwhile.
        self._recalling.names(opened.memory.names, shared=self._shared)
        self._recalling.servers(opened.memory.servers, opened.memory.unreadable, by_another=again)

    async def _poll(self) -> None:
        """See what other daemons have written."""
        keys = frozenset((*self._live_keys(), *self._sessions.keys()))
        version = self._version
        changes = await self._custody.use(lambda store: store.changes_since(version, keys))
        self._version = changes.version
        if changes.switched is not None:
            self._recalling.switches(changes.switched)
        if changes.names is not None:
            self._recalling.names(changes.names, shared=self._shared)
        self._recalling.servers(changes.servers, changes.unreadable)
        for record in changes.sessions:
            self._adopt(self._sessions.joined(record))

    # --- failures ------------------------------------------------------------------------------------------

    @property
    def _waiting(self) -> int:
        return len(self._sessions) + len(self._servers.difference(self._catalog.value))

    def _recount(self) -> None:
        """Show what is not written now, however long the next try is off."""
        if self._health.degraded:
            self._health.count(self._waiting)

    def _failed(self, fault: StoreFault) -> None:
        in_use = self._custody.store is not None
        if fault.cause not in KEPT_OPEN:
            self._custody.let_go()
        if fault.cause is StoreCause.CORRUPT and in_use:
            self._opener.condemn(fault)
        if fault.cause is StoreCause.LOST:
            self._health.note_lost(fault)
        self._anew |= fault.cause is StoreCause.LOST
        at_once = in_use and fault.cause in BEGUN_ANEW and not self._health.failures
        delay = self._health.next_delay(fault.cause)
        self._retry_at = trio.current_time() + (0 if at_once else delay)
        if not at_once:
            self._health.degrade(str(fault), self._waiting)
            self._custody.give_up(fault)

    def _failed_ourselves(self) -> None:
        """A fault of ours: contained, for a daemon without a memory is better than none."""
        logger.exception("a fault of mcpd's own while keeping things")
        fault = StoreFault(StoreCause.UNAVAILABLE, self._where, "a fault of mcpd's own, see its log")
        self._retry_at = trio.current_time() + self._health.next_delay(fault.cause)
        self._health.degrade(str(fault), self._waiting)
        self._custody.give_up(fault)

    def _overdue(self, fault: StoreFault) -> None:
        self._health.degrade(str(fault), self._waiting)
