"""Turns what the store holds into facts for the registry: at the start, and when other daemons have written."""

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

    from daemon.catalog.loaded import ServerRecord
    from daemon.catalog.snapshot import Catalog
    from daemon.facts import Fact
    from daemon.kit.mailbox import Watch
    from daemon.model import GivenName
    from daemon.state.server_notes import ServerNotes, Switches


LAST_SETTLE_SECONDS = 0.5
"""Seconds that the catalog may take at shutdown to apply what was just recalled: it has nothing else to do."""


class Recalling:
    """Tells the registry what is new in the store, and knows whether the catalog has applied it."""

    def __init__(
        self,
        notes: ServerNotes,
        *,
        catalog: Watch[Catalog],
        tell: Callable[[Fact], None],
        settle: Callable[[], Awaitable[None]],
        where: str,
    ) -> None:
        """Start with nothing told.

        Args:
            notes: what the store holds.
            catalog: the newest catalog.
            tell: leaves a fact for the registry.
            settle: returns once every fact told is in the catalog.
            where: the store's location, for the log.
        """
        self.untaken = False
        """Whether the catalog may lack a fact that was told: what it lacks would then look as if it had been
        removed."""
        self._notes = notes
        self._catalog = catalog
        self._tell = tell
        self._settle = settle
        self._where = where
        self._complained: set[str] = set()

    async def settle(self) -> None:
        """Return once the catalog has applied every fact."""
        if self.untaken:
            await self._settle()
            self.untaken = False

    async def settle_at_last(self) -> None:
        """Settle at shutdown: the catalog may be gone, and the wait for it is short."""
        with trio.move_on_after(LAST_SETTLE_SECONDS), contextlib.suppress(ActorGone):
            await self.settle()

    def servers(
        self, records: Iterable[ServerRecord], unreadable: Iterable[str], *, by_another: bool = True
    ) -> None:
        """Tell the server records that the store holds.

        Args:
            records: the servers.
            unreadable: rows that could not be read, each with the reason; logged once.
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
        """Tell the names and URIs that the store holds.

        Args:
            stored: all given names.
            shared: whether other daemons give names, too.
        """
        names = tuple(stored)
        self._notes.heard_names(names, shared=shared)
        if names:
            self._tell(NamesRecalled(names=names, shared=shared))
            self.untaken = True

    def switches(self, stored: Switches, *, certainly: bool = False) -> None:
        """Tell the switches that the store holds.

        Args:
            stored: everything that is switched off.
            certainly: whether to tell it even if the catalog says the same.
        """
        off = self._notes.heard_switches(stored, self._catalog.value)
        if certainly or off != self._catalog.value.switched:
            self._tell(Switched(off=off))
            self.untaken = True

    def epochs(self, asked: Iterable[ServerRecord], given: Mapping[str, int]) -> None:
        """Tell the epochs that the store gave instead of those asked for: another daemon had used these."""
        for record in asked:
            if record.name in given:
                bare = attrs.evolve(record, epoch=given[record.name], tools=None, definitions={})
                self._recalled(bare, by_another=True)

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
                introduction=record.introduction,
                definitions=record.definitions,
                by_another=by_another,
            )
        )
        self.untaken = True
