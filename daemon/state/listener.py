"""Being told by the database when other daemons on it have written, instead of asking it each second.

Every commit tells all connections that listen who has written, and the version of the store since: never what
was written, which is read as it always is (`Looks`). So what is told is a reason to look and nothing
else, and one that is lost costs time only.

A connection that says nothing may be quiet or dead: a firewall forgets idle connections, a pooler may pass
nothing on. So a daemon believes that it is told only while it hears of its own writes, and while it writes
nothing, it has the store tell of nothing new (a *hail*). Until it hears that, it looks each second.
"""

from __future__ import annotations

import threading
from contextlib import closing
from functools import partial
from math import inf
from typing import TYPE_CHECKING

import trio
from loguru import logger

from daemon.kit.waiting import RetryPolicy
from daemon.state.faults import StoreFault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from daemon.catalog.loaded import SessionRecord
    from daemon.state.recalling import Recalling
    from daemon.state.server_notes import Switches
    from daemon.state.session_notes import SessionNotes
    from daemon.state.sql import Notifications, Told
    from daemon.state.store_access import StoreAccess


CHECK_SECONDS = 10.0
"""Seconds between checks that the store still exists, while nothing is written. In a shared store each check is
a look, in case something was not told."""

LOOK_SECONDS = 1.0
"""Seconds between looks while the store does not tell when others write."""


class Looks:
    """Reads what others have written, and tells the registry and the sessions in use."""

    def __init__(
        self, access: StoreAccess, sessions: SessionNotes, recalling: Recalling, listening: Listening
    ) -> None:
        """Start without having looked.

        Args:
            access: holds the store.
            sessions: records of sessions, written or not.
            recalling: tells the registry what the store holds.
            listening: knows when others have written.
        """
        self.live_keys: Callable[[], Iterable[str]] = tuple
        """Returns the keys of the sessions in use."""
        self.adopt: Callable[[SessionRecord], None] = lambda _: None
        """Updates a live session to what another daemon has written."""
        self.shared = access.opener.shared
        """Whether others may write to the store."""
        self.ended = 0
        """How many looks have ended: what they found is in the catalog and in the sessions."""
        self._access = access
        self._sessions = sessions
        self._recalling = recalling
        self._listening = listening
        self._begun = 0
        self._wanted = 0

    @property
    def are_due(self) -> bool:
        """Whether there is a reason to look now."""
        return self._listening.news or self._wanted > self._begun

    @property
    def period(self) -> float:
        """Seconds until the next look, or check, if there is no reason for one before."""
        return LOOK_SECONDS if self.shared and not self._listening.works else CHECK_SECONDS

    def want(self) -> int:
        """Have a look begun after now; returns what `ended` is at least when that has ended."""
        self._wanted = self._begun + 1
        return self._wanted

    async def look(self) -> None:
        """Read what others have written since the last look.

        Raises:
            StoreFault: the store failed.
        """
        listening, since = self._listening, self._listening.seen
        keys, hail = frozenset((*self.live_keys(), *self._sessions.waiting)), listening.wants_hail()
        # What is told or asked for from here on may be later than what is read.
        self._begun, listening.news = self._begun + 1, False
        token = trio.lowlevel.current_trio_token()

        def soon(off: Switches) -> None:
            token.run_sync_soon(partial(self._recalling.switches, off))

        changes = await self._access.use(
            lambda store: store.changes_since(since, keys, hail=hail, on_switched=soon)
        )
        listening.seen = changes.version
        if changes.switched is not None:
            self._recalling.switches(changes.switched)
        if changes.names is not None:
            self._recalling.names(changes.names, shared=self.shared)
        self._recalling.servers(changes.servers, changes.unreadable)
        for record in changes.sessions:
            self.adopt(self._sessions.joined(record))

    def end(self) -> None:
        """Note that what was found is in the catalog, and tell those who wait for that."""
        if self.ended != self._begun:
            self.ended = self._begun
            self._access.moved.notify()

    def opened(self, version: int) -> None:
        """Note that everything up to a version was read when the store was opened."""
        self._listening.seen = version

    def wrote(self, version: int) -> None:
        """Note an own write: if nobody else wrote since the last look, there is nothing to look for."""
        if version == self._listening.seen + 1:
            self._listening.seen = version


BACKOFF_SECONDS = 0.5
"""Seconds until a lost connection is made anew; doubles with each further failure. Meanwhile daemons look."""

BACKOFF_CAP = 30.0
"""The most seconds until that is tried again."""

PROOF_SECONDS = 5.0
"""Seconds for which hearing of an own write proves that others' are heard; after that, the next look hails."""

DEAF_SECONDS = 5.0
"""Seconds after which a connection on which a hail was not heard is made anew."""


class Listening:
    """Keeps one listening connection while the store is in use, and knows whether it works."""

    def __init__(
        self, access: StoreAccess, listen: Callable[[], Notifications] | None, rng: Callable[[], float]
    ) -> None:
        """Start without a connection.

        Args:
            access: holds the store; told when there is a reason to look.
            listen: opens a connection, in a worker thread; None where nobody else writes.
            rng: returns a random number in [0, 1).
        """
        self.news = False
        """Whether there is a reason to look at the store; whoever looks takes it back before."""
        self.seen = 0
        """The version of the store that was looked at last: being told of that is no news."""
        self._access = access
        self._listen = listen
        self._retries = RetryPolicy(BACKOFF_SECONDS, BACKOFF_CAP, rng)
        self._connection: trio.CancelScope | None = None
        self._heard_at = -inf
        self._hailed_at: float | None = None
        self._failures = 0
        self._complained = False

    @property
    def works(self) -> bool:
        """Whether this daemon is told of whatever others write."""
        return self._connection is not None and self._heard_at > -inf and self._hailed_at is None

    def wants_hail(self) -> bool:
        """Whether the store is to be hailed now; a connection that has not heard earlier hails is given up."""
        if self._connection is None:
            return False
        now = trio.current_time()
        if self._hailed_at is None:
            if now - self._heard_at < PROOF_SECONDS:
                return False
            self._hailed_at = now
        elif now - self._hailed_at >= DEAF_SECONDS:
            self._connection.cancel()
            return False
        return True

    async def run(self) -> None:
        """Listen until cancelled, also after the connection was lost; returns at once if there is none."""
        if self._listen is None:
            return
        while True:
            while self._access.store is None:
                await self._access.moved.wait()
            why = "nothing is heard on the connection that listens"
            try:
                await self._follow(await self._connected(self._listen))
            except StoreFault as fault:
                why = str(fault)
            except Exception as error:  # noqa: BLE001 - the boundary: who is not told looks
                logger.opt(exception=error).error("a fault of mcpd's own while listening to the store")
            self._complain(why)
            delay = self._retries.delay(self._failures)
            self._failures += 1
            await trio.sleep(delay)

    async def _connected(self, listen: Callable[[], Notifications]) -> Notifications:
        attempt = _Attempt(listen)
        try:
            return await trio.to_thread.run_sync(attempt.make, abandon_on_cancel=True)
        except trio.Cancelled:
            attempt.give_up()
            raise

    async def _follow(self, listener: Notifications) -> None:
        """Hear until the connection is lost, or given up by `wants_hail`."""
        self._heard_at, self._hailed_at = -inf, None
        with closing(listener), trio.CancelScope() as scope:
            self._connection = scope
            # What was written before this connection listened is told to nobody.
            self._look()
            try:
                while True:
                    await trio.lowlevel.wait_readable(listener.fileno())
                    for told in listener.heard():
                        self._take(told)
            finally:
                self._connection = None
                self._look()

    def _take(self, told: Told) -> None:
        if told.own:
            self._heard_at, self._hailed_at, self._failures = trio.current_time(), None, 0
            if self._complained:
                self._complained = False
                logger.info("the store {} tells again what others write", self._access.opener.where)
        elif told.version != self.seen:
            self._look()

    def _look(self) -> None:
        self.news = True
        self._access.moved.notify()

    def _complain(self, why: str) -> None:
        if not self._complained:
            self._complained = True
            logger.warning("what other daemons write is looked for each second, not told: {}", why)


class _Attempt:
    """An attempt to connect, in a worker thread that cannot be stopped when nobody waits for it any more."""

    def __init__(self, listen: Callable[[], Notifications]) -> None:
        self._listen = listen
        self._lock = threading.Lock()
        self._made: Notifications | None = None
        self._given_up = False

    def make(self) -> Notifications:
        """Connect; called in the thread."""
        made = self._listen()
        with self._lock:
            self._made = made
            unwanted = self._given_up
        if unwanted:
            made.close()
        return made

    def give_up(self) -> None:
        """Have the connection closed, whenever it is there."""
        with self._lock:
            self._given_up = True
            made = self._made
        if made is not None:
            made.close()
