"""Opening the store: what is needed of it, and what becomes of one that is corrupt."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

import attrs

from daemon.state.faults import StoreCause, StoreFault

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from daemon.catalog.remembered import SessionRecord
    from daemon.state.values import Batch, Changes, Recollection, Written


class Store(Protocol):
    """What is needed of `daemon.state`. Blocks; raises `StoreFault`."""

    def recall(self) -> Recollection:
        """All that is remembered, but for sessions."""

    def keep(self, batch: Batch) -> Written:
        """Write all of it or nothing."""

    def session(self, key: str) -> SessionRecord | None:
        """One session, None if there is none of this key."""

    def sessions(self, limit: int) -> tuple[SessionRecord, ...]:
        """Those that were used last."""

    def forget_sessions(
        self, before: float, sparing: Collection[str] = (), *, most: int, anonymous: float = 0.0
    ) -> int:
        """Drop those last used before a time, and the oldest of too many, but for these keys; how many."""

    def changes_since(self, version: int, keys: Collection[str] = ()) -> Changes:
        """What others have written since a version; of sessions those with these keys."""

    def check(self) -> None:
        """Raise if what was opened is gone or broken. Cheap."""

    def close(self) -> None:
        """Let it go."""


def keep_checked(store: Store, batch: Batch) -> Written:
    """Write a batch to a store that is still there.

    Raises:
        StoreFault: it is not, or nothing could be written.
    """
    store.check()
    return store.keep(batch)


def sessions_in(store: Store, keys: Collection[str]) -> dict[str, SessionRecord | None]:
    """What a store has of sessions, by key.

    Raises:
        StoreFault: they cannot be read now.
    """
    return {key: store.session(key) for key in keys}


@attrs.frozen(kw_only=True)
class Opened:
    """A store and what it remembers."""

    store: Store = attrs.field(repr=False)
    """It."""
    memory: Recollection = attrs.field(repr=False)
    """All but sessions."""
    anew: bool = False
    """Whether it takes the place of one that was set aside."""


class Opener:
    """Opens the store, in a thread. One that is corrupt is set aside, once in the life of a daemon.

    Once: a disk that makes a corrupt file of each new one needs an operator, not a folder full of them.
    """

    def __init__(self, open_store: Callable[[], Store], set_aside: Callable[[], str] | None) -> None:
        """Begin with nothing opened.

        Args:
            open_store: opens it.
            set_aside: renames a corrupt one and returns its new name; None where that cannot be done.
        """
        self._open = open_store
        self._set_aside = set_aside
        self._condemned: StoreFault | None = None
        self._anew = False
        self.aside = ""
        """What the one that was corrupt is called now; empty if none was."""

    def condemn(self, fault: StoreFault) -> None:
        """It was found corrupt in use; it has been closed."""
        self._condemned = fault

    def __call__(self) -> Opened:
        """Open it and read what it remembers.

        Raises:
            StoreFault: it cannot be opened, or is corrupt and cannot be set aside.
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
            opened = Opened(store=store, memory=store.recall(), anew=self._anew)
        except BaseException:
            with contextlib.suppress(Exception):
                store.close()
            raise
        self._anew = False
        return opened

    def _put_aside(self, fault: StoreFault) -> None:
        if self._set_aside is None or self.aside:
            raise fault
        try:
            self.aside = self._set_aside()
        except (StoreFault, OSError) as error:
            why = f"and it cannot be set aside: {error}"
            raise StoreFault(StoreCause.CORRUPT, fault.where, why, "Move the file away by hand") from fault
        self._condemned, self._anew = None, True
