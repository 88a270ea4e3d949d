"""Approves held definitions for an operator, the console, or a client's user (docs/trust.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import attrs
import msgspec
import trio
from loguru import logger

from daemon.catalog.kinds import switch_of
from daemon.catalog.trust import approval
from daemon.config.lock_file import LOCK
from daemon.errors import CannotApprove
from daemon.facts import Approved, Configured
from daemon.history.event import Event, EventKind
from daemon.kit.later import later

if TYPE_CHECKING:
    from pathlib import Path

    from daemon.catalog.snapshot import Catalog
    from daemon.documents import files
    from daemon.model import Definition
    from daemon.ports import CatalogWriter
    from daemon.setup import locking
else:  # Most daemons never write a lock.
    files = later("daemon.documents.files")
    locking = later("daemon.setup.locking")

LOCK_SECONDS = 10.0
"""Seconds for reading and writing the lock, as for the configuration."""


class Approver(msgspec.Struct, frozen=True, kw_only=True):
    """Approves definitions in the form that a person has seen."""

    registry: CatalogWriter
    note: Callable[[Event], None]
    wall: Callable[[], float]
    """Seconds since the epoch."""
    directory: Path
    """The configuration's directory."""
    shown: dict[tuple[int | None, str], str] = msgspec.field(default_factory=dict)
    """Forms that operators have seen and not approved yet, by user and `kinds.path_of`."""
    writing: trio.Lock = msgspec.field(default_factory=trio.Lock)
    """Held while the lock file is written: each writer must see the previous result."""

    async def approve(
        self, definitions: Sequence[Definition], by: str, where: Catalog | None = None
    ) -> list[Definition]:
        """Approve the definitions that are still held in this form, write a lock, and return them.

        `where` is the catalog of one instance's clients. Raises CannotApprove if the lock cannot be read or
        written, or the store was not read yet.
        """
        catalog = where or self.registry.catalog.value
        found = [
            each
            for each in definitions
            if (held := catalog.held((each.server, each.name), each.kind)) is not None
            and held.definition.schema_hash == each.schema_hash
        ]
        if not found:
            return []
        if catalog.approvals is None:
            # Otherwise the rest would be judged as if nobody had ever approved anything.
            text = "nothing can be approved before mcpd has read the store, which has the earlier approvals"
            raise CannotApprove(f"{text}: `mcpd status` says why it cannot be read")
        gates = {name: entry.gate for name, entry in catalog.servers.items()}
        approvals = tuple(approval(gates[each.server], each, by, self.wall()) for each in found)
        approved = Approved(approvals=approvals, at=self.wall())
        if catalog.config.lock is not None:
            identities = {name: gate.identity for name, gate in gates.items()}
            await self.rewrite(lambda content: locking.approve(content, found, identities), approved)
        else:
            self.registry.tell(approved)
            await self.registry.settle()
        for server in dict.fromkeys(each.server for each in found):
            names = [switch_of(each.kind, each.name) for each in found if each.server == server]
            self.note(Event(kind=EventKind.APPROVED, server=server, details={"names": names, "by": by}))
            logger.bind(server=server, event=True).info("{} approved {}", by, ", ".join(names))
        return found

    async def rewrite(
        self, change: Callable[[locking.Content], None], approved: Approved | None = None
    ) -> bool:
        """Change the lock file and apply it. Returns whether it differs. Raises CannotApprove."""
        path = self.directory / LOCK
        async with self.writing:
            work = partial(locking.changed, path, change)
            try:
                with trio.fail_after(LOCK_SECONDS):
                    differs, lock = await trio.to_thread.run_sync(work, abandon_on_cancel=True)
            except (files.DocumentError, trio.TooSlowError) as error:
                why = str(error) or f"no answer from its file system within {LOCK_SECONDS:g} s"
                raise CannotApprove(f"the approvals are in {path}: {why}") from None
            if approved is not None:
                # First who approved: the lock itself is the author of what nobody else approved.
                self.registry.tell(approved)
            config = attrs.evolve(self.registry.catalog.value.config, lock=lock)
            self.registry.tell(Configured(config=config, now=self.wall()))
            await self.registry.settle()
        return differs
