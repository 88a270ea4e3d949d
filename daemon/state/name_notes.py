"""What the store holds of the names of tools, held against the catalog: bookkeeping, without I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daemon.catalog.naming import Names
    from daemon.model import GivenName


class NameNotes:
    """Names by what they mean; since when they do is the store's to say once it has them."""

    def __init__(self) -> None:
        """Begin with none."""
        self._held: dict[str, GivenName] = {}
        self._settled: Names | None = None
        self._shared = False

    def heard(self, names: Iterable[GivenName], *, shared: bool) -> None:
        """The store holds these, and no others.

        Args:
            names: all of them.
            shared: whether other daemons give names, too: what one of them gave is not taken back here.
        """
        self._held = {each.name: each for each in names}
        self._shared = shared
        self._settled = None

    def difference(self, names: Names) -> tuple[tuple[GivenName, ...], tuple[GivenName, ...]]:
        """What is to be written, and what is to go."""
        if names is self._settled:
            return (), ()
        given = tuple(each for each in names.records() if not self._is_held(each))
        gone = tuple(each for each in self._held.values() if self._is_gone(each, names))
        if not (given or gone):
            self._settled = names
        return given, gone

    def were_written(self, given: Iterable[GivenName], gone: Iterable[GivenName]) -> None:
        """They are on disk."""
        for each in gone:
            self._held.pop(each.name, None)
        self._held.update({each.name: each for each in given})

    def _is_gone(self, held: GivenName, names: Names) -> bool:
        owner = names.owners.get(held.name)
        return owner is None if self._shared else owner != held.key

    def _is_held(self, name: GivenName) -> bool:
        held = self._held.get(name.name)
        return held is not None and attrs.evolve(held, since=name.since) == name
