"""What the catalog derives for prompts, resources and templates: those that are on, and what they are called.

They are in no category, and no profile describes them differently, so this is all. What is derived from an
unchanged server is reused: a list may hold ten thousand resources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.catalog.kinds import BESIDE_TOOLS, switch_of
from daemon.catalog.naming import Claims

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from daemon.catalog.entry import ServerEntry
    from daemon.model import Definition, Kind

    Lists = Mapping[Kind, Mapping[str, Mapping[str, Definition]]]
    """Definitions by kind, server and name."""

NO_LISTS: Lists = {kind: {} for kind in BESIDE_TOOLS}
"""The lists before any server has listed."""


def switched_on(
    servers: Mapping[str, ServerEntry], switched: Collection[tuple[str, str]], before: Lists
) -> Lists:
    """What the servers list beside their tools, without what is switched off.

    Args:
        servers: all servers, in the configuration's order.
        switched: what operators have switched off.
        before: the lists before; the same object comes back if nothing differs.
    """
    partly_off = {server for server, _ in switched}
    lists = {
        kind: {
            name: _without(kind, known.definitions, name, switched) if name in partly_off else known.definitions
            for name, entry in servers.items()
            if not entry.disabled and (known := entry.lists.get(kind)) is not None
        }
        for kind in BESIDE_TOOLS
    }
    # The order of the servers counts, too; unchanged servers are compared by identity.
    return before if _in_order(lists) == _in_order(before) else lists


def claims(
    servers: Mapping[str, ServerEntry], kinds: Iterable[Kind], before: Mapping[str, ServerEntry]
) -> Iterator[Claims]:
    """The names that servers claim for what they list of these kinds, switched off or not.

    Args:
        servers: all servers, in the configuration's order.
        kinds: what shares its names.
        before: the servers when names were last given.
    """
    kinds = tuple(kinds)
    for name, entry in servers.items():
        known = [entry.lists[kind].definitions for kind in kinds if kind in entry.lists]
        was = before.get(name)
        yield Claims(
            server=name,
            own=known[0] if len(known) == 1 else {own: None for each in known for own in each},
            pending=any(entry.awaits(kind) for kind in kinds),
            named=was is not None and was.lists is entry.lists,
        )


def _in_order(lists: Lists) -> list[list[tuple[str, Mapping[str, Definition]]]]:
    return [list(lists[kind].items()) for kind in BESIDE_TOOLS]


def _without(
    kind: Kind, definitions: Mapping[str, Definition], server: str, switched: Collection[tuple[str, str]]
) -> Mapping[str, Definition]:
    return {name: each for name, each in definitions.items() if (server, switch_of(kind, name)) not in switched}
