"""Being told by the database when other daemons on it have written, instead of asking it each second.

Every commit tells all connections that listen who has written, and the version of the store since: never what
was written, which is read as it always is (`state.looks`). So what is told is a reason to look and nothing
else, and one that is lost costs time only.

A connection that says nothing may be quiet or dead: a firewall forgets idle connections, a pooler may pass
nothing on. So a daemon believes that it is told only while it hears of its own writes, and while it writes
nothing, it has the store tell of nothing new (a *hail*). Until it hears that, it looks each second.
"""

from __future__ import annotations

import threading
from contextlib import closing
from math import inf
from typing import TYPE_CHECKING

import trio
from loguru import logger

from daemon.kit.retries import RetryPolicy
from daemon.state.faults import StoreFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.state.access import StoreAccess
    from daemon.state.sql import Notifications
    from daemon.state.values import Told

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
