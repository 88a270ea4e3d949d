"""Custody of the store: it is opened, used and let go in one worker thread, and nobody waits for it in vain.

Two ways to use it. Its owner waits as long as an operation takes, for a second one beside it would hang, too;
from the patience on everybody is told that it does not answer. Others wait for the patience, and then hear why
not.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio
from loguru import logger

from daemon.state.errand import Errand, Errands
from daemon.state.faults import StoreCause, StoreFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.state.opening import Opened, Opener, Store

T = TypeVar("T")

KEPT_OPEN = frozenset({StoreCause.FULL, StoreCause.LOCKED, StoreCause.READ_ONLY})
"""After these the store is still the same, and can be read."""


class Pulse:
    """Something that happens again and again, and can be waited for."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def beat(self) -> None:
        """It happens: wake everybody who waits."""
        self._event.set()
        self._event = trio.Event()

    async def wait(self) -> None:
        """Wait until it happens the next time."""
        await self._event.wait()


class Custody:
    """Holds the store, or the reason why there is none."""

    def __init__(
        self, opener: Opener, *, where: str, patience: float, on_overdue: Callable[[StoreFault], None]
    ) -> None:
        """Begin with nothing opened.

        Args:
            opener: opens the store.
            where: which store, without a password.
            patience: seconds that anybody waits for one operation.
            on_overdue: told when an operation takes longer.
        """
        self.store: Store | None = None
        """The store while it is open."""
        self.suspicion: StoreFault | None = None
        """A fault that a reader met and that costs the store; for its owner to look at."""
        self.moved = Pulse()
        """Beats whenever it is opened, let go or given up."""
        self._opener = opener
        self._where = where
        self._patience = patience
        self._on_overdue = on_overdue
        self._errands = Errands("mcpd-store")
        self._opening: Errand[Opened] | None = None
        self._hanging = False
        self._why_not: StoreFault | None = None

    @property
    def being_opened(self) -> bool:
        """Whether an attempt to open it has not come back, or was not looked at."""
        return self._opening is not None

    async def open(self) -> Opened:
        """Open it, and read what it remembers. An attempt that is under way is waited for.

        Raises:
            StoreFault: it cannot be opened.
        """
        if self._opening is None:
            self._opening = self._errands.send(self._opener)
        await self._wait(self._opening)
        errand, self._opening = self._opening, None
        opened = errand.result()
        self.store, self._why_not = opened.store, None
        self.moved.beat()
        return opened

    async def use(self, work: Callable[[Store], T]) -> T:
        """Use the open store, for its owner: however long it takes.

        Raises:
            StoreFault: it failed.
        """
        assert self.store is not None
        errand = self._errands.send(partial(work, self.store))
        # What is cancelled meanwhile is done all the same: who did not hear of it would count it again.
        await self._wait(errand, shield=True)
        return errand.result()

    async def ask(self, work: Callable[[Store], T]) -> T:
        """Use it for somebody who waits no longer than the patience.

        Raises:
            StoreFault: it failed, does not answer, or is not open.
        """
        with trio.move_on_after(self._patience):
            while self.store is None and self._why_not is None and not self._hanging:
                await self.moved.wait()
            if self.store is None or self._hanging:
                raise self._why_not or self._slow()
            errand = self._errands.send(partial(work, self.store))
            try:
                await errand.back.wait()
                return errand.result()
            except StoreFault as fault:
                self._suspect(fault)
                raise
            except Exception as error:
                logger.exception("a fault of mcpd's own while reading from the store")
                why = "a fault of mcpd's own, see its log"
                raise StoreFault(StoreCause.UNAVAILABLE, self._where, why) from error
            finally:
                self._errands.withdraw(errand)
        raise self._slow()

    def give_up(self, fault: StoreFault) -> None:
        """Until it is opened again, this is why nobody can use it."""
        self._why_not = fault
        self.moved.beat()

    def let_go(self) -> Errand[None] | None:
        """Close it, in its turn; nobody has to wait for the errand."""
        store, self.store, self.suspicion, self._why_not = self.store, None, None, None
        return None if store is None else self._errands.send(partial(_close, store))

    def overdue(self) -> None:
        """An operation takes longer than anybody waits for one."""
        self._hanging = True
        fault = self._slow()
        self._on_overdue(fault)
        self.moved.beat()

    async def _wait(self, errand: Errand[T], *, shield: bool = False) -> None:
        with trio.move_on_after(self._patience, shield=shield):
            await errand.back.wait()
        if not errand.back.is_set():
            self.overdue()
            await errand.back.wait()
        self._hanging = False

    def _slow(self) -> StoreFault:
        why = f"it has not answered for {self._patience:g} s"
        return StoreFault(StoreCause.UNAVAILABLE, self._where, why)

    def _suspect(self, fault: StoreFault) -> None:
        if fault.cause not in KEPT_OPEN and self.store is not None:
            self.suspicion = fault
            self.moved.beat()


def _close(store: Store) -> None:
    try:
        store.close()
    except Exception as error:  # noqa: BLE001 - it is of no use any more
        logger.warning("the store did not close well: {}", error)
