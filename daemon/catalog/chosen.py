"""The catalog of a client that has chosen servers, to see each as if it were connected to it directly.

It has those servers and no others, under the names that they give what they list: of one server, each name is
its own; of several, only what two of them call alike is qualified. The configuration, its categories and the
operators' switches are those of the whole catalog, so that whatever restricts a profile restricts this, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from daemon.catalog.beside import in_order
from daemon.catalog.naming import among
from daemon.kit.latest import keep_latest
from daemon.model import Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from daemon.catalog.entry import ServerEntry
    from daemon.catalog.naming import Names
    from daemon.catalog.snapshot import Catalog

MAX_CHOICES = 256
"""Choices of servers whose catalogs are kept: more than the clients of one machine have. One more is made anew
at each look."""


class Choices:
    """The catalogs of all choices of servers, each made once per change of the whole catalog."""

    def __init__(self) -> None:
        """Begin without any."""
        self._made: dict[tuple[str, ...], tuple[Catalog, Catalog]] = {}

    def of(self, catalog: Catalog, servers: tuple[str, ...]) -> Catalog:
        """What a client sees that has chosen these servers; all of the catalog if it has chosen none."""
        if not servers:
            return catalog
        made = self._made.get(servers)
        if made is not None and made[0] is catalog:
            return made[1]
        narrowed = _narrowed(catalog, servers, catalog if made is None else made[1])
        keep_latest(self._made, servers, (catalog, narrowed), MAX_CHOICES)
        return narrowed


def _narrowed(catalog: Catalog, servers: tuple[str, ...], before: Catalog) -> Catalog:
    """The catalog of these servers; parts that are equal to those of the one before are the same objects."""
    entries = {name: entry for name, entry in catalog.servers.items() if name in servers}

    def named(names: Names, was: Names, *kinds: Kind) -> Names:
        now = among(names, {name: _own_names(entry, kinds) for name, entry in entries.items()})
        return was if was == now else now

    lists = {
        kind: {name: each for name, each in of_all.items() if name in entries}
        for kind, of_all in catalog.lists.items()
    }
    return attrs.evolve(
        catalog,
        servers=entries,
        chosen=servers,
        lists=before.lists if in_order(before.lists) == in_order(lists) else lists,
        names=named(catalog.names, before.names, Kind.TOOL),
        prompt_names=named(catalog.prompt_names, before.prompt_names, Kind.PROMPT),
        uris=named(catalog.uris, before.uris, Kind.RESOURCE, Kind.TEMPLATE),
    )


def _own_names(entry: ServerEntry, kinds: Iterable[Kind]) -> Collection[str]:
    """What a server lists of these kinds, switched off or not, and what its tools were called before."""
    found: dict[str, None] = {}
    for kind in kinds:
        if kind is Kind.TOOL:
            found |= dict.fromkeys((*(entry.tools or ()), *entry.renamed))
        elif (known := entry.lists.get(kind)) is not None:
            found |= dict.fromkeys(known.definitions)
    return found
