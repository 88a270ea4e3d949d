"""Under which name a tool is called where tools of several servers stand side by side.

A tool keeps its own name unless another server has the same. The name then belongs to one of them, for as long
as its server is configured, whatever becomes of the daemon; the others are called `server__tool`. It belongs to
whoever had it first; of servers that come up together, to the one that stands first in the configuration, as
long as nobody was shown it. So a second server never renames the tools of the first, and a name that was shown
never comes to mean another tool: whatever is handed out is owned, and no two tools ever have one name.
"""

from __future__ import annotations

from itertools import count
from math import inf
from typing import TYPE_CHECKING

import attrs

from daemon.config.names import read_reference
from daemon.model import GivenName

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Mapping

    from daemon.model import ToolKey

MAX_REMEMBERED = 50_000
"""Names that are kept although nobody may list them any more: against a server that invents new ones all the
time."""


@attrs.frozen(kw_only=True)
class Names:
    """Who is called what."""

    owners: Mapping[str, ToolKey]
    """Every name that was given, with its tool: no two tools share one."""
    given: Mapping[ToolKey, str] = attrs.field(repr=False)
    """What each tool is called."""
    beside: Mapping[ToolKey, str] = attrs.field(repr=False)
    """What a tool is called beside a meta-tool of the same name."""
    provisional: frozenset[ToolKey] = attrs.field(default=frozenset(), repr=False)
    """Tools whose names may still go to a server that stands before theirs, until somebody is shown them."""
    begun: float = 0.0
    """Since when names that were given in this life mean what they mean: nobody else had them in it."""
    remembered: Mapping[str, float] = attrs.field(factory=dict, repr=False)
    """Since when those mean it that are known from earlier lives."""

    def name_of(self, key: ToolKey) -> str:
        """What a client calls a tool."""
        return self.given.get(key, key[1])

    def name_beside(self, key: ToolKey, meta_tools: Container[str]) -> str:
        """What a client calls a tool where these meta-tools stand beside it: their names are not to be had."""
        name = self.name_of(key)
        return self.beside.get(key, f"{key[0]}__{key[1]}") if name in meta_tools else name

    def key_of(self, name: str, servers: Collection[str]) -> ToolKey | None:
        """Which tool a name means, in any spelling, listed or not; None for a bare name that nobody has.

        A name that was given comes first, then `server/tool`, `server__tool` and `mcp__server__tool`, then what
        is left of `mcp__us__name`: clients put a prefix before the names that we give.
        """
        owner = self.owners.get(name)
        if owner is not None and owner[0] in servers:
            return owner
        for spelling in (name, f"mcp__{name}"):
            reference = read_reference(spelling, servers)
            if reference.server is not None and reference.server in servers:
                return reference.server, reference.tool
        if name.startswith("mcp__"):
            rest = name.removeprefix("mcp__").partition("__")[2]
            return self.key_of(rest, servers) if rest and not rest.startswith("mcp__") else None
        return None

    def since(self, key: ToolKey) -> float:
        """Since when every name of a tool has meant it, in seconds since the epoch."""
        names = (self.given.get(key), self.beside.get(key))
        return max((self._since(name) for name in names if name), default=self.begun)

    def records(self) -> Iterator[GivenName]:
        """What is to be remembered: the names that cannot go to another tool any more."""
        for table, beside in ((self.given, False), (self.beside, True)):
            for key, name in table.items():
                if key not in self.provisional:
                    yield GivenName(name=name, key=key, beside=beside, since=self._since(name))

    def remembering(self, names: Iterable[GivenName]) -> Names:
        """With names of earlier lives; those that were given in this one may have been shown, and stay."""
        given = {key: name for key, name in self.given.items() if key not in self.provisional}
        beside = {key: name for key, name in self.beside.items() if key in given}
        owners = {name: key for table in (given, beside) for key, name in table.items()}
        remembered = dict(self.remembered)
        for each in names:
            table = beside if each.beside else given
            if each.name not in owners and each.key not in table:
                owners[each.name], table[each.key] = each.key, each.name
            if owners.get(each.name) == each.key:
                remembered[each.name] = each.since
        return attrs.evolve(
            self,
            owners=owners,
            given=given,
            beside=beside,
            provisional=frozenset(),
            remembered=remembered,
        )

    def _since(self, name: str) -> float:
        return self.remembered.get(name, self.begun)

    def settled(self) -> Names:
        """The same, now that somebody was shown them; the same object if nothing was open."""
        return attrs.evolve(self, provisional=frozenset()) if self.provisional else self


NOBODY = Names(owners={}, given={}, beside={})
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
    named: bool = False
    """Whether each of its tools was among those that names were given to last."""


def assign(names: Names, servers: Iterable[Claims], reserved: Container[str] = ()) -> Names:
    """The names after something changed; the same object if they are the same.

    Args:
        names: as they were.
        servers: in the configuration's order.
        reserved: names of meta-tools: a tool that is called like one gets a second name.
    """
    servers = list(servers)
    if _has_all(names, servers):
        return names
    given = {key: name for key, name in names.given.items() if key not in names.provisional}
    begun = names.begun
    if len(given) > MAX_REMEMBERED:
        # From here on nobody knows which of the names that are given have meant something else.
        begun = inf
        listed = {(claims.server, tool) for claims in servers for tool in claims.tools}
        given = {key: name for key, name in given.items() if key in listed}
    beside = {key: name for key, name in names.beside.items() if key in given}
    owners = {name: key for table in (given, beside) for key, name in table.items()}
    provisional: set[ToolKey] = set()
    before_settled = True
    for claims in servers:
        for tool in () if claims.named and not names.provisional else claims.tools:
            key = claims.server, tool
            if key not in given:
                given[key] = tool if tool not in owners else _free(owners, key)
                owners[given[key]] = key
                if not before_settled:
                    provisional.add(key)
            if given[key] in reserved and key not in beside:
                beside[key] = _free(owners, key)
                owners[beside[key]] = key
        before_settled = before_settled and not claims.pending
    made = Names(
        owners=owners,
        given=given,
        beside=beside,
        provisional=frozenset(provisional),
        begun=begun,
        remembered={name: since for name, since in names.remembered.items() if name in owners},
    )
    return names if made == names else made


def _has_all(names: Names, servers: Iterable[Claims]) -> bool:
    """Whether nothing is open and nobody is new: most lists that change are lists of the same names."""
    return (
        not names.provisional
        and len(names.given) <= MAX_REMEMBERED
        and all(
            claims.named or all((claims.server, tool) in names.given for tool in claims.tools)
            for claims in servers
        )
    )


def _free(owners: Container[str], key: ToolKey) -> str:
    return next(name for name in _qualified(key) if name not in owners)


def _qualified(key: ToolKey) -> Iterator[str]:
    """What a tool may be called if its own name is taken. Endless: servers may really have such names."""
    server, tool = key
    yield from (f"{server}__{tool}", f"{server}/{tool}", f"mcp__{server}__{tool}")
    yield from (f"{server}__{tool}_{number}" for number in count(2))
