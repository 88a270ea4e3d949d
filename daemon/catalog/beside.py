"""Which prompts, resources and templates are on, and which names servers claim, for these and for tools.

Beside tools nothing is in a category, and no profile describes it differently. What is derived from a server
that has not changed is reused: a list may hold ten thousand resources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.catalog.kinds import BESIDE_TOOLS, switch_of
from daemon.catalog.naming import Claims
from daemon.model import Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from daemon.catalog.entry import ServerEntry
    from daemon.model import Definition

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
    return before if in_order(lists) == in_order(before) else lists


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
        lists = [_own_names(entry, kind) for kind in kinds]
        known = [own for own in lists if own is not None]
        was = before.get(name)
        yield Claims(
            server=name,
            own=known[0] if len(known) == 1 else {each: None for own in known for each in own},
            pending=any(entry.awaits(kind) for kind in kinds),
            named=was is not None and all(_has_names(was, entry, kind) for kind in kinds),
        )


def _own_names(entry: ServerEntry, kind: Kind) -> Mapping[str, object] | None:
    if kind is Kind.TOOL:
        return entry.tools
    known = entry.lists.get(kind)
    return None if known is None else known.definitions


def _has_names(was: ServerEntry, now: ServerEntry, kind: Kind) -> bool:
    """Whether an entry lists the same names as before, or none."""
    had, has = _own_names(was, kind), _own_names(now, kind)
    return has is None or has is had or (had is not None and had.keys() == has.keys())


def in_order(lists: Lists) -> list[list[tuple[str, Mapping[str, Definition]]]]:
    """The lists in a form whose comparison heeds the order of the servers."""
    return [list(lists[kind].items()) for kind in BESIDE_TOOLS]


def _without(
    kind: Kind, definitions: Mapping[str, Definition], server: str, switched: Collection[tuple[str, str]]
) -> Mapping[str, Definition]:
    return {name: each for name, each in definitions.items() if (server, switch_of(kind, name)) not in switched}
