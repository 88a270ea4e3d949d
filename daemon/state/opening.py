"""Opening the store, and what it remembers by then."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

import attrs

from daemon.state.faults import StoreCause, StoreFault
from daemon.state.store import Store, listen, set_aside

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.config.state_url import StateUrl
    from daemon.state.sql import Notifications
    from daemon.state.values import Recollection


@attrs.frozen(kw_only=True)
class Opened:
    """An opened store, and what it remembers."""

    store: Store = attrs.field(repr=False)
    """The open store."""
    memory: Recollection = attrs.field(repr=False)
    """Everything the store remembers except sessions."""
    replaces: bool = False
    """Whether it replaces a store that was set aside."""


class Opener:
    """Opens the store, in the worker thread; sets a corrupt store aside, once per run of the daemon.

    Only once: a disk that corrupts every new file needs an operator, not a directory full of corrupt files.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        *,
        where: str,
        set_aside: Callable[[], str] | None = None,
        shared: bool = False,
        listen: Callable[[], Notifications] | None = None,
    ) -> None:
        """Start with nothing opened.

        Args:
            open_store: opens the store; blocks.
            where: the store's location for people, without a password.
            set_aside: renames a corrupt store and returns its new name; None where that is impossible.
            shared: whether other daemons may write to it.
            listen: opens a connection that tells when others have written; blocks. None where there is none.
        """
        self.where = where
        self.shared = shared
        self.listen = listen
        self._open = open_store
        self._set_aside = set_aside
        self._condemned: StoreFault | None = None
        self._replaces = False
        self.aside = ""
        """The new name of the corrupt store; empty if none was set aside."""

    def condemn(self, fault: StoreFault) -> None:
        """Note that the store was found corrupt in use, and has been closed."""
        self._condemned = fault

    def __call__(self) -> Opened:
        """Open the store and read what it remembers.

        Raises:
            StoreFault: the store cannot be opened, or is corrupt and cannot be set aside.
        """
        if self._condemned is not None and self._set_aside is not None:
            self._put_aside(self._condemned)
        try:
            return self._opened()
        except StoreFault as fault:
            if fault.cause is not StoreCause.CORRUPT:
                raise
            self._put_aside(fault)
            return self._opened()

    def _opened(self) -> Opened:
        store = self._open()
        try:
            opened = Opened(store=store, memory=store.recall(), replaces=self._replaces)
        except BaseException:
            with contextlib.suppress(Exception):
                store.close()
            raise
        self._replaces = False
        return opened

    def _put_aside(self, fault: StoreFault) -> None:
        if self._set_aside is None or self.aside:
            raise fault
        try:
            self.aside = self._set_aside()
        except (StoreFault, OSError) as error:
            why = f"and it cannot be set aside: {error}"
            raise StoreFault(StoreCause.CORRUPT, fault.where, why, "Move the file away by hand") from fault
        self._condemned, self._replaces = None, True


def opener_of(place: StateUrl, *, writer: str, wall: Callable[[], float]) -> Opener:
    """What opens the store at a place: a file may be set aside, a shared database tells when others write.

    Args:
        place: the location of the store.
        writer: the name of this daemon, as for `Store.open`.
        wall: seconds since the epoch.
    """
    return Opener(
        lambda: Store.open(place, writer=writer),
        where=place.where,
        set_aside=None if place.shared else lambda: set_aside(place, wall()),
        shared=place.shared,
        listen=partial(listen, place, writer=writer) if place.shared else None,
    )
