"""Under which name a tool is called where tools of several servers stand side by side.

A tool keeps its own name unless another server has the same. The name then belongs to one of them, for as long
as its server is configured, whatever becomes of the daemon; the others are called `server__tool`. It belongs to
whoever had it first; of servers that come up together, to the one that stands first in the configuration, as
long as nobody was shown it. So a second server never renames the tools of the first, and a name that was shown
never comes to mean another tool: whatever is handed out is owned, and no two tools ever have one name.

No tool is given a name that reads as another server's, as `github/delete` or `mcp__github__delete`: else a
server could take over what a configuration or a model writes of its neighbour. When a server comes to the
configuration, names that read as its tools from then on are given up.
"""

from __future__ import annotations

from itertools import count
from math import inf
from typing import TYPE_CHECKING

import attrs

from daemon.config.names import CLIENT_PREFIX, read_reference, read_shown, spellings
from daemon.model import GivenName

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Mapping

    from daemon.model import ToolKey

MAX_REMEMBERED = 50_000
"""Names that are kept although nobody may list them any more: against a server that invents new ones all the
time."""


@attrs.frozen(kw_only=True)
class Names:
    """The names under which clients call tools, and the tools that they mean."""

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
    servers: frozenset[str] = frozenset()
    """All that are configured: no name of one's tools reads as a reference to another one's."""

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
        if (key := _referred(name, servers)) is not None:
            return key
        rest = _without_client_prefix(name)
        return self.key_of(rest, servers) if rest else None

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
            free = each.name not in owners and each.key not in table
            if free and not _misleads(each.name, each.key[0], self.servers):
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
"""The names before any server has listed."""


@attrs.frozen(kw_only=True)
class Claims:
    """The names that one server would have."""

    server: str
    """Which."""
    tools: Collection[str]
    """The tools that the server lists, by their own names."""
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
    configured = frozenset(claims.server for claims in servers)
    same = configured == names.servers
    if same and _has_all(names, servers):
        return names
    given = {
        key: name
        for key, name in names.given.items()
        if key not in names.provisional and (same or not _misleads(name, key[0], configured))
    }
    begun = names.begun
    if len(given) > MAX_REMEMBERED:
        # From here on nobody knows which of the names that are given have meant something else.
        begun = inf
        listed = {(claims.server, tool) for claims in servers for tool in claims.tools}
        given = {key: name for key, name in given.items() if key in listed}
    beside = {
        key: name
        for key, name in names.beside.items()
        if key in given and (same or not _misleads(name, key[0], configured))
    }
    owners = {name: key for table in (given, beside) for key, name in table.items()}
    provisional: set[ToolKey] = set()
    before_settled = True
    for claims in servers:
        for tool in () if same and claims.named and not names.provisional else claims.tools:
            key = claims.server, tool
            if key not in given:
                given[key] = _free(owners, key, configured)
                owners[given[key]] = key
                if not before_settled:
                    provisional.add(key)
            if given[key] in reserved and key not in beside:
                beside[key] = _free(owners, key, configured)
                owners[beside[key]] = key
        before_settled = before_settled and not claims.pending
    made = Names(
        owners=owners,
        given=given,
        beside=beside,
        provisional=frozenset(provisional),
        begun=begun,
        remembered={name: since for name, since in names.remembered.items() if name in owners},
        servers=configured,
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


def _free(owners: Container[str], key: ToolKey, servers: Collection[str]) -> str:
    """The first name for a tool that nobody has and that means no other server's tool."""
    return next(name for name in _spellings(key) if name not in owners and not _misleads(name, key[0], servers))


def _spellings(key: ToolKey) -> Iterator[str]:
    """What a tool may be called: its own name first. Endless: servers may really have such names."""
    server, tool = key
    bare, slashed, prefixed = spellings(server, tool)
    yield from (bare, f"{server}__{tool}", slashed, prefixed)
    for number in count(2):
        # A server's name has no slash: this one reads as no other server's tool.
        yield from (f"{server}__{tool}_{number}", f"{server}/{tool}_{number}")


def _misleads(name: str, server: str, servers: Collection[str]) -> bool:
    """Whether a name for a tool of one server reads as a reference to a tool of another one."""
    if "/" not in name and "__" not in name:
        return False
    key = _referred(name, servers)
    if key is None and (rest := _without_client_prefix(name)):
        key = _referred(rest, servers)
    return key is not None and key[0] != server


def _referred(name: str, servers: Collection[str]) -> ToolKey | None:
    """The tool that `server/tool`, `server__tool` or `mcp__server__tool` means; None if that is no server."""
    for read in (read_reference, read_shown):
        reference = read(name, servers)
        if reference.server is not None and reference.server in servers:
            return reference.server, reference.tool
    return None


def _without_client_prefix(name: str) -> str:
    """What is left of `mcp__us__name`, as clients write the names that we give; empty if it is no such name."""
    if not name.startswith(CLIENT_PREFIX):
        return ""
    rest = name.removeprefix(CLIENT_PREFIX).partition("__")[2]
    return "" if rest.startswith(CLIENT_PREFIX) else rest
