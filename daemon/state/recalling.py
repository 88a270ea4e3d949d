"""What the store holds becomes facts for the registry: at the start, and when others have written."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import attrs
import trio
from loguru import logger

from daemon.facts import NamesRecalled, Recalled, Switched
from daemon.kit.mailbox import ActorGone

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from daemon.catalog.remembered import ServerRecord
    from daemon.catalog.snapshot import Catalog
    from daemon.facts import Fact
    from daemon.kit.mailbox import Watch
    from daemon.model import GivenName
    from daemon.state.server_notes import ServerNotes, Switches


LAST_SETTLE_SECONDS = 0.5
"""How long the catalog may take, when the daemon ends, to take in what was just recalled: it has nothing else
to do."""


class Recalling:
    """Tells what is news, and knows whether the catalog has taken it in."""

    def __init__(
        self,
        notes: ServerNotes,
        *,
        catalog: Watch[Catalog],
        tell: Callable[[Fact], None],
        settle: Callable[[], Awaitable[None]],
        where: str,
    ) -> None:
        """Begin with nothing told.

        Args:
            notes: what the store holds.
            catalog: the newest catalog.
            tell: leaves a fact for the registry.
            settle: returns once everything told is in the catalog.
            where: which store, for the log.
        """
        self.untaken = False
        """Whether something was told that the catalog may not have taken in: comparing it with the store would
        tell that what it does not have yet was taken back."""
        self._notes = notes
        self._catalog = catalog
        self._tell = tell
        self._settle = settle
        self._where = where
        self._complained: set[str] = set()

    async def settle(self) -> None:
        """Return once the catalog has taken everything in."""
        if self.untaken:
            await self._settle()
            self.untaken = False

    async def settle_at_last(self) -> None:
        """The same when the daemon ends: the catalog may be gone, and nobody waits for one that is not."""
        with trio.move_on_after(LAST_SETTLE_SECONDS), contextlib.suppress(ActorGone):
            await self.settle()

    def servers(
        self, records: Iterable[ServerRecord], unreadable: Iterable[str], *, by_another: bool = True
    ) -> None:
        """The store holds these.

        Args:
            records: servers.
            unreadable: what could not be read, each with the reason; logged once.
            by_another: whether another daemon has written them meanwhile.
        """
        for record in records:
            if self._notes.heard(record):
                self._recalled(record, by_another=by_another)
        for text in unreadable:
            if text not in self._complained:
                self._complained.add(text)
                logger.warning("left out of what the store {} remembers: {}", self._where, text)

    def names(self, stored: Iterable[GivenName], *, shared: bool) -> None:
        """The store says that these names were given.

        Args:
            stored: all of them.
            shared: whether other daemons give names, too.
        """
        names = tuple(stored)
        self._notes.heard_names(names, shared=shared)
        if names:
            self._tell(NamesRecalled(names=names, shared=shared))
            self.untaken = True

    def switches(self, stored: Switches, *, certainly: bool = False) -> None:
        """The store says that these are switched off.

        Args:
            stored: all of them.
            certainly: whether it is told even if the catalog says the same.
        """
        off = self._notes.heard_switches(stored, self._catalog.value)
        if certainly or off != self._catalog.value.switched:
            self._tell(Switched(off=off))
            self.untaken = True

    def epochs(self, asked: Iterable[ServerRecord], given: Mapping[str, int]) -> None:
        """The store gave other epochs than were asked for: another daemon had used them."""
        for record in asked:
            if record.name in given:
                self._recalled(attrs.evolve(record, epoch=given[record.name], tools=None), by_another=True)

    def _recalled(self, record: ServerRecord, *, by_another: bool) -> None:
        self._tell(
            Recalled(
                server=record.name,
                fingerprint=record.fingerprint,
                epoch=record.epoch,
                tools=record.tools,
                summary=record.summary,
                sentences=record.sentences,
                since=record.since,
                about=record.about,
                by_another=by_another,
            )
        )
        self.untaken = True
