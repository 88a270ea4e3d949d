"""Looks for what other daemons have written to a shared store: when told of it, asked for it, or in time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from daemon.catalog.loaded import SessionRecord
    from daemon.state.access import StoreAccess
    from daemon.state.listening import Listening
    from daemon.state.recalling import Recalling
    from daemon.state.server_notes import Switches
    from daemon.state.session_notes import SessionNotes

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
