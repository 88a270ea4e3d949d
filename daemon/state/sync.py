"""Synchronizes the store: reads other daemons' writes, writes what differs, deletes idle sessions.

Each round compares the whole state: a round that fails changes nothing, and the next one does the same again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import msgspec
import trio
from loguru import logger

from daemon.catalog.snapshot import Catalog
from daemon.kit.waiting import Watch
from daemon.kit.wording import counted
from daemon.state.event_rows import FORGOTTEN_EVENTS, KEPT_SECONDS, forget_events
from daemon.state.health import Health
from daemon.state.notes import GATHER_SECONDS, EventNotes, HourlyCounts, SessionNotes, Totals
from daemon.state.poll import Recalling, StorePoll
from daemon.state.server_notes import Difference, ServerNotes
from daemon.state.sql import FORGOTTEN_AT_ONCE, Batch, Written
from daemon.state.store import Store
from daemon.state.store_access import Opened, StoreAccess

TOUCH_SECONDS = 60.0
"""Seconds that times of use wait to be written with other changes: sessions expire after days."""

CHECK, FORGET, TOUCH, EVENTS = "check", "forget", "touch", "events"

LATER = {TOUCH: TOUCH_SECONDS, EVENTS: GATHER_SECONDS}
"""Seconds that changes which are not urgent wait to be written with others."""


FORGET_SECONDS = 600.0
"""Most seconds between two sweeps."""

ANONYMOUS_SECONDS = 600.0
"""Seconds that an unnamed session is kept after its last use: a bridge reconnects within seconds."""

MAX_STORED = 10_000
"""Most sessions in the store, the most recently used: 20 MB with twenty loaded tools each."""

MAX_BEGUN = 500
"""New sessions after which a sweep is due at once: the store may exceed `MAX_STORED` by as many."""

SWEEPS = 2
"""Sweeps per idle period: a session is deleted within one and a half periods of its last use."""

SHORTEST_SECONDS = 1.0
"""Fewest seconds between two sweeps: each sweep writes."""

CLOCK_JUMP = 60.0
"""Most seconds by which wall clock and monotonic clock may drift apart between sweeps. Beyond them, the clock
was set or the machine slept: expiry waits for the next sweep, when sessions in use have the new time."""


class Expiry:
    """Deletes idle sessions, old events, and the oldest of either if there are too many."""

    def __init__(
        self, notes: SessionNotes, access: StoreAccess, *, idle: float, wall: Callable[[], float]
    ) -> None:
        self._notes = notes
        self._access = access
        # Another daemon marks the sessions that it has in use only at its own sweeps.
        shortest = 2 * FORGET_SECONDS if access.opener.shared else 0.0
        self._idle = max(idle, shortest)
        self._anonymous_idle = min(self._idle, max(ANONYMOUS_SECONDS, shortest))
        self.period = min(FORGET_SECONDS, max(SHORTEST_SECONDS, self._idle / SWEEPS))
        """Seconds between sweeps."""
        self._wall = wall
        self._clocks = (0.0, 0.0)
        self._begun = 0

    def start(self) -> None:
        """Start to compare the clocks."""
        self._clocks = (self._wall(), trio.current_time())

    def is_crowded(self, begun: int) -> bool:
        """Count new sessions; returns whether there are enough for a sweep."""
        self._begun += begun
        return self._begun >= MAX_BEGUN

    async def sweep(
        self, live_keys: Callable[[], Iterable[str]], write: Callable[[], Awaitable[None]]
    ) -> float:
        """Mark sessions in use, delete idle or excess sessions and events; returns seconds to the next."""
        self._begun = 0
        now, live = self._wall(), frozenset(live_keys())
        for key in live:
            self._notes.touch(key, now)
        await write()
        if self._clock_jumped():
            logger.warning("the clock was set, or the machine slept: mcpd ends idle sessions later")
            return self.period
        before, anonymous = now - self._idle, now - self._anonymous_idle
        gone = await self._access.use(
            lambda store: store.forget_sessions(before, live, most=MAX_STORED, anonymous=anonymous)
        )
        self._notes.forget(before, live, anonymous=anonymous)
        if gone:
            why = (
                "{} sessions were forgotten: unused for {:g} s ({:g} s without a key), or beyond the newest {}"
            )
            logger.info(why, gone, self._idle, self._anonymous_idle, MAX_STORED)
        before = now - KEPT_SECONDS
        old = await self._access.use(lambda store: store.within(partial(forget_events, before), writes=True))
        for key in frozenset(live_keys()) - live:
            # A client came back to it while it was being deleted.
            if (known := self._notes.known(key)) is not None:
                self._notes.keep(known)
        more = gone >= FORGOTTEN_AT_ONCE or old >= FORGOTTEN_EVENTS
        return SHORTEST_SECONDS if more else self.period

    def _clock_jumped(self) -> bool:
        before = self._clocks
        self.start()
        return abs((self._clocks[0] - before[0]) - (self._clocks[1] - before[1])) > CLOCK_JUMP


class Notes(msgspec.Struct, frozen=True, kw_only=True):
    """All notes of changes that may not be stored yet."""

    catalog: Watch[Catalog]
    servers: ServerNotes
    sessions: SessionNotes
    totals: Totals
    events: EventNotes
    hours: HourlyCounts

    @property
    def waiting(self) -> int:
        """The number of unwritten changes that matter to readers of the store."""
        return len(self.sessions.waiting) + len(self.servers.difference(self.catalog.value))

    @property
    def lost(self) -> str:
        """The loss if the daemon ended now, in words; empty if nothing would be lost."""
        kinds = ((self.waiting, "change"), (self.events.waiting, "event"))
        return " and ".join(counted(count, kind) for count, kind in kinds if count)


class Sync:
    """Keeps the store in step with the daemon's knowledge, for the recorder."""

    def __init__(
        self,
        access: StoreAccess,
        notes: Notes,
        recalling: Recalling,
        expiry: Expiry,
        health: Health,
        poll: StorePoll,
    ) -> None:
        self.start_over = False
        """Whether the next opened store has lost everything."""
        self._access = access
        self._notes = notes
        self._recalling = recalling
        self._expiry = expiry
        self._health = health
        self._poll = poll
        self._remembered = False
        self._due: dict[str, float] = {}

    @property
    def due_at(self) -> float:
        """The time of the next round, on trio's clock; 0 for now."""
        if self._access.store is None or self._poll.is_due or self._notes.waiting or self._news:
            return 0.0
        return min(self._due.values())

    @property
    def idle(self) -> bool:
        """Whether everything known is in the store and in the catalog, and nothing is due."""
        return not self._recalling.untaken and self.due_at > trio.current_time()

    def start(self) -> None:
        """Start the timers."""
        self._expiry.start()
        self._put(CHECK, self._poll.period)
        self._put(FORGET, self._expiry.period)

    async def recall_trusted(self) -> None:
        """Send the switches that override the store's; returns once the catalog has them."""
        if (off := self._access.opener.trusted.off) is not None:
            self._recalling.switches(off, certainly=True)
            await self._recalling.settle()

    def later(self, what: str) -> bool:
        """Schedule a write for a key of `LATER`; returns False if one was scheduled already."""
        known = what in self._due
        if not known:
            self._put(what, LATER[what])
        return not known

    async def open(self) -> None:
        """Open the store and send its content to the registry; raises `StoreFault`."""
        self._take_in(await self._access.open())

    async def once(self, patience: float) -> None:
        """Run one round; raises `StoreFault`, or `trio.TooSlowError` if the catalog takes over `patience` s."""
        if self._access.store is None:
            await self.open()
        if self._poll.shared:
            await self._poll.refresh()
        with trio.fail_after(patience):
            await self._recalling.settle()
        self._poll.end()
        await self._write(touches=self._take(TOUCH, TOUCH_SECONDS))
        if self._take(FORGET, self._expiry.period):
            self._put(
                FORGET, await self._expiry.sweep(self._poll.live_keys, partial(self._write, touches=True))
            )
            self._notes.events.were_expired()

    async def last(self) -> None:
        """Write all unwritten changes, however long that takes; raises `StoreFault`."""
        if self._access.store is None and (self._unwritten or self._access.being_opened):
            await self.open()
        if self._poll.shared and self._access.store is not None:
            await self._poll.refresh()
        for settle in (True, False):
            while self._access.store is not None and self._unwritten:
                await self._write(touches=True)
            if settle:
                await self._recalling.settle_at_last()

    async def close(self) -> None:
        """Write the latest changes, and close the store; raises `StoreFault`."""
        while self._access.store is not None and self._notes.events.waiting:
            await self._write(touches=True)
        if (closing := self._access.close()) is not None:
            await closing.done.wait()

    @property
    def _news(self) -> bool:
        return bool(self._notes.servers.difference(self._notes.catalog.value))

    @property
    def _unwritten(self) -> bool:
        news = not self._recalling.untaken and self._news
        notes = self._notes
        beside = notes.totals.news or notes.events.waiting or notes.hours.gather()
        return news or bool(notes.sessions.waiting or notes.sessions.touched or beside)

    async def _write(self, *, touches: bool) -> None:
        """Write what differs (even mere `touches`), and check that the store still exists unless a poll has."""
        self._put(CHECK, self._poll.period)
        servers, sessions, totals = self._notes.servers, self._notes.sessions, self._notes.totals
        await self._complete(sessions)
        catalog = self._notes.catalog.value
        # Until the catalog has applied the recalled facts, it cannot say which changes are to be written.
        news = Difference(catalog=catalog) if self._recalling.untaken else servers.difference(catalog)
        if not self._recalling.untaken:
            self._access.opener.trusted.know(catalog.switched)
        records, touched = sessions.next_batch()
        events, increments, hours = self._notes.events.next_batch(), totals.news, self._notes.hours.gather()
        if increments or hours:
            self.later(TOUCH)
        if not (news or records or events or ((touched or increments or hours) and touches)):
            if not self._poll.shared:
                await self._access.use(lambda store: store.check())
            return
        batch = msgspec.structs.replace(
            news.batch,
            at=self._health.wall(),
            sessions=records,
            touched=touched,
            counted=increments,
            events=events,
            hours=hours,
        )
        written = await self._access.use(partial(_keep, batch=batch, checked=self._poll.shared))
        self._poll.wrote(written.version)
        self._notes.events.were_written(events)
        self._due.pop(EVENTS, None)
        if self._notes.events.waiting:
            self.later(EVENTS)
        if self._expiry.is_crowded(written.begun) or self._notes.events.is_crowded:
            self._put(FORGET, 0)
        sessions.were_written(records, touched)
        totals.were_written(increments, batch.at)
        self._notes.hours.were_written(hours)
        if not sessions.touched:
            self._due.pop(TOUCH, None)
        servers.was_written(news, written.epochs)
        self._recalling.epochs(batch.servers, written.epochs)
        self._access.moved.unpark_all()
        if written.marked:
            marked = ", ".join(f"{count} {status}" for status, count in sorted(written.marked.items()))
            logger.info("the validity of loaded tools has changed: {}", marked)

    async def _complete(self, sessions: SessionNotes) -> None:
        if parts := [key for key, each in sessions.waiting.items() if each.partial]:
            stored = await self._access.use(lambda store: {key: store.session(key) for key in parts})
            for key, record in stored.items():
                sessions.complete(key, record)

    def _take_in(self, opened: Opened) -> None:
        memory, notes = opened.memory, self._notes
        names = [record.server for record in memory.servers]
        if opened.replaces:
            self._health.note_aside(self._access.opener.aside)
        if opened.replaces or self.start_over or notes.servers.missing(names):
            for each in (notes.servers, notes.sessions, notes.totals, notes.events, notes.hours):
                each.start_over()
        else:
            notes.totals.read(memory.counted, memory.counted_since)
        self.start_over = False
        if not self._poll.shared:
            notes.servers.also_judge(names)
        again, self._remembered = self._remembered, True
        # The next poll reads other daemons' changes of sessions; all of them, as a database that has lost its
        # last commits gives their numbers again.
        self._poll.opened(0 if again and self._poll.shared else memory.version)
        # Switches first: they change the epoch of their server, and the stored epoch includes that.
        self._recalling.switches(memory.switched, opened.switched, certainly=not again)
        # Before the lists that they judge. A file that is edited behind a running daemon approves nothing.
        self._recalling.approvals(memory.approvals, whole=True, counting=self._poll.shared or not again)
        # Names before the tools that have them, so that no other tool is given one meanwhile.
        self._recalling.names(memory.names, shared=self._poll.shared)
        self._recalling.servers(memory.servers, memory.unreadable, by_another=again)

    def _put(self, what: str, seconds: float) -> None:
        self._due[what] = trio.current_time() + seconds

    def _take(self, what: str, period: float) -> bool:
        """Whether a task is due; if so, sets its next time."""
        due = self._due.get(what, trio.current_time() + 1) <= trio.current_time()
        if due:
            self._put(what, period)
        return due


def _keep(store: Store, batch: Batch, *, checked: bool) -> Written:
    if not checked:
        store.check()
    return store.keep(batch)
