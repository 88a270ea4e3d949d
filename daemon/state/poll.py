"""Reads other daemons' writes: after a notification of the database, or each second if notifications fail.

Every commit sends the writer and the store's version to all listening connections; a lost notification costs
time only. A silent connection may be dead: a daemon trusts a connection only while it brings the daemon's own
writes or a heartbeat.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import closing
from functools import partial
from math import inf
from typing import TYPE_CHECKING

import attrs
import trio
from loguru import logger

from daemon.facts import Approved, Fact, NamesRecalled, ServerRecord, Switched
from daemon.kit.waiting import ActorGone, RetryPolicy, Watch
from daemon.state.sql import StoreFault

if TYPE_CHECKING:
    from daemon.catalog.loaded import SessionRecord
    from daemon.catalog.snapshot import Catalog
    from daemon.model import Approval, GivenName
    from daemon.state.notes import SessionNotes
    from daemon.state.postgres import PostgresNotifications
    from daemon.state.server_notes import ServerNotes, Switches
    from daemon.state.sql import Notification
    from daemon.state.store_access import StoreAccess

LAST_SETTLE_SECONDS = 0.5
"""Seconds that the catalog may take at shutdown to apply the last facts."""


class Recalling:
    """Sends the store's news to the registry, and tracks whether the catalog has applied it."""

    def __init__(
        self,
        notes: ServerNotes,
        *,
        catalog: Watch[Catalog],
        tell: Callable[[Fact], None],
        settle: Callable[[], Awaitable[None]],
        where: str,
        wall: Callable[[], float],
    ) -> None:
        self.untaken = False
        """Whether the catalog may lack a sent fact: the fact's subject would then seem to have been removed."""
        self._notes = notes
        self._catalog = catalog
        self._tell = tell
        self._settle = settle
        self._where = where
        self._wall = wall
        self._complained: set[str] = set()

    async def settle(self) -> None:
        """Return once the catalog has applied every fact."""
        if self.untaken:
            await self._settle()
            self.untaken = False

    async def settle_at_last(self) -> None:
        """Settle at shutdown, with a short wait: the catalog may be gone."""
        with trio.move_on_after(LAST_SETTLE_SECONDS), contextlib.suppress(ActorGone):
            await self.settle()

    def servers(
        self, records: Iterable[ServerRecord], unreadable: Iterable[str], *, by_another: bool = True
    ) -> None:
        """Send the store's server records (`by_another` daemon); log each unreadable row once."""
        for record in records:
            if self._notes.heard(record):
                self._send(attrs.evolve(record, by_another=by_another))
        for text in unreadable:
            if text not in self._complained:
                self._complained.add(text)
                logger.warning("skipped an unreadable row of the store {}: {}", self._where, text)

    def approvals(self, stored: tuple[Approval, ...], *, whole: bool = False, counting: bool = True) -> None:
        """Report that the store was read, and its approvals if they are `counting` (`whole`: all of them)."""
        self._notes.heard_approvals(stored, whole=whole)
        self._send(Approved(approvals=stored if counting else (), at=self._wall()))

    def names(self, stored: Iterable[GivenName], *, shared: bool) -> None:
        """Send the store's names and URIs; `shared` says that other daemons give names, too."""
        names = tuple(stored)
        self._notes.heard_names(names, shared=shared)
        if names:
            self._send(NamesRecalled(names=names, shared=shared))

    def switches(self, stored: Switches, counting: Switches | None = None, *, certainly: bool = False) -> None:
        """Send the store's switches, or `counting` in their place; `certainly`: also unchanged ones."""
        off = self._notes.heard_switches(stored, stored if counting is None else counting, self._catalog.value)
        if certainly or off != self._catalog.value.switched:
            self._send(Switched(off=off))

    def epochs(self, asked: Iterable[ServerRecord], given: Mapping[str, int]) -> None:
        """Send the epochs that the store gave because another daemon had used the proposed ones."""
        for record in asked:
            if record.server in given:
                self._send(attrs.evolve(record, epoch=given[record.server], lists={}, by_another=True))

    def _send(self, fact: Fact) -> None:
        self._tell(fact)
        self.untaken = True


CHECK_SECONDS = 10.0
"""Seconds between checks that the store exists, while nothing is written."""

POLL_SECONDS = 1.0
"""Seconds between polls without working notifications."""


class StorePoll:
    """Reads other daemons' writes, and passes them to the registry and to sessions in use."""

    def __init__(
        self, access: StoreAccess, sessions: SessionNotes, recalling: Recalling, listening: Listening
    ) -> None:
        self.live_keys: Callable[[], Iterable[str]] = tuple
        """Returns the keys of sessions in use."""
        self.adopt: Callable[[SessionRecord], None] = lambda _: None
        """Updates a live session with another daemon's write."""
        self.shared = access.opener.shared
        """Whether other daemons may write to the store."""
        self.ended = 0
        """The number of polls whose result is in the catalog and in the sessions."""
        self._access = access
        self._sessions = sessions
        self._recalling = recalling
        self._listening = listening
        self._begun = 0
        self._wanted = 0

    @property
    def is_due(self) -> bool:
        """Whether there is a reason to poll now."""
        return self._listening.news or self._wanted > self._begun

    @property
    def period(self) -> float:
        """Seconds until the next poll or check if nothing happens before."""
        return POLL_SECONDS if self.shared and not self._listening.works else CHECK_SECONDS

    def request_refresh(self) -> int:
        """Request a poll that begins after this call; returns the `ended` to which that poll leads."""
        self._wanted = self._begun + 1
        return self._wanted

    async def refresh(self) -> None:
        """Read other daemons' writes since the last poll; raises `StoreFault`."""
        listening, since = self._listening, self._listening.seen
        keys, heartbeat = frozenset((*self.live_keys(), *self._sessions.waiting)), listening.wants_heartbeat()
        # A notification or request from here on may be later than the snapshot that is read.
        self._begun, listening.news = self._begun + 1, False
        token = trio.lowlevel.current_trio_token()

        def soon(off: Switches) -> None:
            token.run_sync_soon(partial(self._recalling.switches, off))

        changes = await self._access.use(
            lambda store: store.changes_since(since, keys, heartbeat=heartbeat, on_switched=soon)
        )
        listening.seen = changes.version
        if changes.approvals:
            self._recalling.approvals(changes.approvals)
        if changes.names is not None:
            self._recalling.names(changes.names, shared=self.shared)
        self._recalling.servers(changes.servers, changes.unreadable)
        for record in changes.sessions:
            self.adopt(self._sessions.joined(record))

    def end(self) -> None:
        """Note that the result is in the catalog, and wake the waiting callers."""
        if self.ended != self._begun:
            self.ended = self._begun
            self._access.moved.unpark_all()

    def opened(self, version: int) -> None:
        """Note that opening the store has read everything up to a version."""
        self._listening.seen = version

    def wrote(self, version: int) -> None:
        """Note this daemon's own write: unless another daemon wrote in between, no poll is due."""
        if version == self._listening.seen + 1:
            self._listening.seen = version


BACKOFF_SECONDS = 0.5
"""Seconds until a lost connection is replaced, doubled with each failure; daemons poll meanwhile."""

BACKOFF_CAP = 30.0
"""Most seconds until the next try."""

PROOF_SECONDS = 5.0
"""Seconds for which this daemon's own notification proves the connection; then it sends a heartbeat."""

DEAF_SECONDS = 5.0
"""Seconds without an answer to a heartbeat until the connection is replaced."""


class Listening:
    """Keeps one listening connection while the store is in use, and tracks whether it works."""

    def __init__(
        self, access: StoreAccess, listen: Callable[[], PostgresNotifications] | None, rng: Callable[[], float]
    ) -> None:
        self.news = False
        """Whether there is a reason to poll; a poll resets it before it reads."""
        self.seen = 0
        """The store's version at the last poll, whose notification is no news."""
        self._access = access
        self._listen = listen
        self._retries = RetryPolicy(BACKOFF_SECONDS, BACKOFF_CAP, rng)
        self._connection: trio.CancelScope | None = None
        self._heard_at = -inf
        self._heartbeat_at: float | None = None
        self._failures = 0

    @property
    def works(self) -> bool:
        """Whether this daemon hears of every write by others."""
        return self._connection is not None and self._heard_at > -inf and self._heartbeat_at is None

    def wants_heartbeat(self) -> bool:
        """Whether to send a heartbeat; drops a connection that did not hear earlier ones."""
        if self._connection is None:
            return False
        now = trio.current_time()
        if self._heartbeat_at is None:
            if now - self._heard_at < PROOF_SECONDS:
                return False
            self._heartbeat_at = now
        elif now - self._heartbeat_at >= DEAF_SECONDS:
            self._connection.cancel()
            return False
        return True

    async def run(self) -> None:
        """Listen until cancelled, reconnecting; returns at once if no other daemon writes."""
        if self._listen is None:
            return
        while True:
            while self._access.store is None:
                await self._access.moved.park()
            why = "the listening connection is silent"
            try:
                await self._follow(await self._connected(self._listen))
            except StoreFault as fault:
                why = str(fault)
            except Exception as error:  # noqa: BLE001 - the boundary: without notifications the daemon polls
                logger.opt(exception=error).error("internal error in mcpd while listening to the store")
            if not self._failures:
                logger.warning(
                    "mcpd polls the store for other daemons' writes each second, as notifications fail: {}", why
                )
            delay = self._retries.delay(self._failures)
            self._failures += 1
            await trio.sleep(delay)

    async def _connected(self, listen: Callable[[], PostgresNotifications]) -> PostgresNotifications:
        made: Future[PostgresNotifications] = Future()

        def connect() -> PostgresNotifications:
            made.set_result(listen())
            return made.result()

        try:
            return await trio.to_thread.run_sync(connect, abandon_on_cancel=True)
        except trio.Cancelled:
            # The thread cannot be stopped: the connection is closed, whenever it exists.
            made.add_done_callback(lambda done: done.result().close())
            raise

    async def _follow(self, listener: PostgresNotifications) -> None:
        self._heard_at, self._heartbeat_at = -inf, None
        with closing(listener), trio.CancelScope() as scope:
            self._connection = scope
            # Writes from before this connection listened cause no notification.
            self._look()
            try:
                while True:
                    await trio.lowlevel.wait_readable(listener.fileno())
                    for notification in listener.heard():
                        self._take(notification)
            finally:
                self._connection = None
                self._look()

    def _take(self, notification: Notification) -> None:
        if notification.own:
            if self._failures:
                logger.info(
                    "the store {} sends notifications of other daemons' writes again", self._access.opener.where
                )
            self._heard_at, self._heartbeat_at, self._failures = trio.current_time(), None, 0
        elif notification.version != self.seen:
            self._look()

    def _look(self) -> None:
        self.news = True
        self._access.moved.unpark_all()
