"""The store's content about names and URIs, compared with the catalog: bookkeeping without I/O."""

from __future__ import annotations

from operator import is_
from typing import TYPE_CHECKING

from daemon.catalog.naming import NO_NAMES
from daemon.model import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from daemon.catalog.naming import Names
    from daemon.catalog.snapshot import Catalog
    from daemon.model import GivenName

NAME_BYTES = 2000
"""Longest name that is kept, in bytes of UTF-8: PostgreSQL finds rows by 2.7 kB at most. Only a URI may be
longer; whom that belongs to is settled anew at each start."""


class NameNotes:
    """The store's content about names; since when a name means its tool, say, is for the store to say."""

    def __init__(self) -> None:
        """Start with no stored names."""
        self._held: dict[Kind, dict[str, GivenName]] = {}
        self._settled: tuple[Names, ...] = ()
        self._shared = False

    def heard(self, names: Iterable[GivenName], *, shared: bool) -> None:
        """Note that the store holds exactly these names.

        Args:
            names: all stored names.
            shared: whether other daemons give names, too, which are not taken back here.
        """
        self._held = {}
        self.were_written(names, ())
        self._shared = shared
        self._settled = ()

    def difference(self, now: Mapping[Kind, Names]) -> tuple[tuple[GivenName, ...], tuple[GivenName, ...]]:
        """The names to write, and the names to delete.

        Args:
            now: all present names, by the kind that stands in their records (`names_in`).
        """
        tables = tuple(now.values())
        if len(tables) == len(self._settled) and all(map(is_, tables, self._settled)):
            return (), ()
        given = tuple(
            each
            for names in tables
            for each in names.records(self._held.get(names.spelling.kind, {}))
            if _can_be_kept(each)
        )
        gone = tuple(
            each
            for kind, held in self._held.items()
            for each in held.values()
            if self._is_gone(each, now.get(kind, NO_NAMES))
        )
        if not (given or gone):
            self._settled = tables
        return given, gone

    def were_written(self, given: Iterable[GivenName], gone: Iterable[GivenName]) -> None:
        """Note that the store has been written."""
        for each in gone:
            self._held.get(each.kind, {}).pop(each.name, None)
        for each in given:
            self._held.setdefault(each.kind, {})[each.name] = each

    def _is_gone(self, held: GivenName, names: Names) -> bool:
        owner = names.owners.get(held.name)
        return owner is None if self._shared else owner != held.key


def names_in(catalog: Catalog) -> Mapping[Kind, Names]:
    """The names in a catalog by the kind that stands in their records: URIs of templates are resources'."""
    return {Kind.TOOL: catalog.names, Kind.PROMPT: catalog.prompt_names, Kind.RESOURCE: catalog.uris}


def _can_be_kept(name: GivenName) -> bool:
    return len(name.name) <= NAME_BYTES and len(name.name.encode(errors="replace")) <= NAME_BYTES
