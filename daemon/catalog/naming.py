"""Under which name a tool is called where tools of several servers stand side by side.

A tool keeps its own name unless another server has the same. The name then belongs to one of them, for as
long as the daemon lives, and the others are called `server__tool`. It belongs to whoever had it first; of
servers that come up together, to the one that stands first in the configuration. So a second server never
renames the tools of the first, and a name never comes to mean another tool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from daemon.config.names import read_reference

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from daemon.model import ToolKey

MAX_REMEMBERED = 50_000
"""Names that are kept although nobody may list them any more: against a server that invents new ones all the
time."""


@attrs.frozen(kw_only=True)
class Names:
    """Who is called what."""

    owners: Mapping[str, str]
    """Bare name to the server whose tool it is."""
    settled: frozenset[str] = attrs.field(repr=False)
    """The bare names whose owner will not change any more."""

    def name_of(self, key: ToolKey) -> str:
        """What a client calls a tool."""
        server, tool = key
        if self.owners.get(tool, server) == server:
            return tool
        name = f"{server}__{tool}"
        # A third server may have a tool that is really called so.
        return name if name not in self.owners else f"{server}/{tool}"

    def key_of(self, name: str, servers: Collection[str]) -> ToolKey | None:
        """Which tool a name means, in any spelling, listed or not; None for a bare name that nobody has.

        A tool's own name comes first, then `server/tool`, `server__tool` and `mcp__server__tool`, then what
        is left of `mcp__us__name`: clients put a prefix before the names that we give.
        """
        if name in self.owners:
            return self.owners[name], name
        for spelling in (name, f"mcp__{name}"):
            reference = read_reference(spelling, servers)
            if reference.server is not None and reference.server in servers:
                return reference.server, reference.tool
        if name.startswith("mcp__"):
            rest = name.removeprefix("mcp__").partition("__")[2]
            return self.key_of(rest, servers) if rest and not rest.startswith("mcp__") else None
        return None


NOBODY = Names(owners={}, settled=frozenset())
"""Before anything is known."""


@attrs.frozen(kw_only=True)
class Claims:
    """The names that one server would have."""

    server: str
    """Which."""
    tools: Collection[str]
    """What it lists."""
    pending: bool
    """Whether it is on its way to its first list."""


def assign(names: Names, servers: Iterable[Claims]) -> Names:
    """The names after something changed; the same object if they are the same.

    Args:
        names: as they were.
        servers: in the configuration's order.
    """
    settled = set(names.settled) if len(names.settled) <= MAX_REMEMBERED else set()
    owners = {name: owner for name, owner in names.owners.items() if name in settled}
    all_settled = True
    for claims in servers:
        for tool in claims.tools:
            owners.setdefault(tool, claims.server)
            if all_settled:
                settled.add(tool)
        all_settled = all_settled and not claims.pending
    if owners == names.owners and settled == names.settled:
        return names
    return Names(owners=owners, settled=frozenset(settled))
