"""The catalog: an immutable picture of all servers, tools and categories, and how facts change it.

`fold` is the only way to a new catalog, and returns the very same object when nothing changed, so that "did it
change" is an identity test everywhere. A server's epoch rises by one when its visible capabilities change and
never otherwise: a reconnect that lists the same tools is no change. Facts of an incarnation that is not the
present one are dropped: they come from a dead child.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from daemon.catalog.categories import Category, of_server, resolve
from daemon.catalog.naming import NOBODY, Claims, Names, assign
from daemon.facts import Fact, ListingFailed, ServerStatus, StatusChanged, ToolsListed
from daemon.states import SERVING, ServerState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.config.model import Config
    from daemon.model import Tool


UNSETTLED = frozenset({ServerState.STOPPED, ServerState.STARTING})
"""States in which a server that has listed nothing may be about to."""


@attrs.frozen(kw_only=True)
class ServerEntry:
    """One server as the catalog knows it."""

    name: str
    """Its configured name."""
    description: str
    """What it is good for."""
    status: ServerStatus
    """How it is."""
    tools: Mapping[str, Tool] | None = None
    """The last known tools by name, in the server's order; None if it never listed any."""
    epoch: int = 0
    """Version of its visible capabilities."""
    quarantined: Mapping[str, str] = attrs.field(factory=dict)
    """Tools that cannot be used, with reasons."""
    listing_error: str = ""
    """Why the last attempt to list its tools failed; empty if it did not."""

    @property
    def available(self) -> bool:
        """Whether its tools can be called now."""
        return self.status.state in SERVING

    @property
    def usable(self) -> bool:
        """Whether a call to one of its tools would be taken: a server that only sleeps wakes for it."""
        return self.available or (self.tools is not None and self.status.state is ServerState.DORMANT)

    @property
    def disabled(self) -> bool:
        """Whether it is switched off."""
        return self.status.state is ServerState.DISABLED


@attrs.frozen(kw_only=True)
class Catalog:
    """Everything that exists, at one moment."""

    config: Config = attrs.field(repr=False)
    """What it was built after."""
    servers: Mapping[str, ServerEntry]
    """Servers by name, in the configuration's order."""
    categories: Mapping[str, Category]
    """Categories by name, in the configuration's order; another object whenever any tool changed."""
    names: Names = attrs.field(default=NOBODY, repr=False)
    """What tools are called where those of several servers stand side by side."""
    reserved: frozenset[str] = attrs.field(default=frozenset(), repr=False)
    """Names of meta-tools, which some surface shows beside tools."""


def begin(config: Config, now: float, reserved: frozenset[str] = frozenset()) -> Catalog:
    """The catalog before anything has started.

    Args:
        config: the configuration.
        now: seconds since the epoch.
        reserved: names of meta-tools.
    """
    servers = {
        server.name: ServerEntry(
            name=server.name,
            description=server.description,
            status=_initial_status(now, enabled=server.enabled),
        )
        for server in config.mcp_servers.values()
    }
    return Catalog(config=config, servers=servers, categories=_categories(config, servers), reserved=reserved)


def fold(catalog: Catalog, fact: Fact) -> Catalog:
    """The catalog after a fact; the same object if the fact is stale or changes nothing."""
    entry = catalog.servers.get(fact.server)
    if entry is None:
        return catalog
    changed = _after(entry, fact)
    if changed is entry:
        return catalog
    servers = {**catalog.servers, entry.name: changed}
    same_tools = changed.tools is entry.tools and changed.disabled == entry.disabled
    if same_tools and may_be_about_to_list(changed) == may_be_about_to_list(entry):
        return attrs.evolve(catalog, servers=servers)
    return attrs.evolve(
        catalog,
        servers=servers,
        names=assign(catalog.names, [_claims(each) for each in servers.values()], catalog.reserved),
        categories=catalog.categories if same_tools else _categories(catalog.config, servers),
    )


def with_settled_names(catalog: Catalog) -> Catalog:
    """The catalog once somebody was shown its names; the same object if none were open."""
    names = catalog.names.settled()
    return catalog if names is catalog.names else attrs.evolve(catalog, names=names)


def _after(entry: ServerEntry, fact: Fact) -> ServerEntry:
    match fact:
        case StatusChanged(status=status):
            return entry if status == entry.status else attrs.evolve(entry, status=status)
        case ToolsListed():
            return _with_tools(entry, fact)
        case ListingFailed():
            return _with_failure(entry, fact)


def _initial_status(now: float, *, enabled: bool) -> ServerStatus:
    if enabled:
        return ServerStatus(state=ServerState.STOPPED, since=now, reason="not started yet")
    return ServerStatus(state=ServerState.DISABLED, since=now, reason="disabled in the configuration")


def _is_stale(entry: ServerEntry, incarnation: int) -> bool:
    return incarnation < entry.status.incarnation


def _with_tools(entry: ServerEntry, fact: ToolsListed) -> ServerEntry:
    if _is_stale(entry, fact.incarnation):
        return entry
    tools = {tool.name: tool for tool in fact.tools}
    known = entry.tools
    if known is not None and _hashes(known) == _hashes(tools):
        if _bytes(known) != _bytes(tools):
            # Icons and the like: shown as they are now, but nothing that a caller depends on.
            return attrs.evolve(entry, tools=tools, listing_error="", quarantined=fact.quarantined)
        if not entry.listing_error and entry.quarantined == fact.quarantined:
            return entry
        return attrs.evolve(entry, listing_error="", quarantined=fact.quarantined)
    return attrs.evolve(
        entry, tools=tools, epoch=entry.epoch + 1, quarantined=fact.quarantined, listing_error=""
    )


def _hashes(tools: Mapping[str, Tool]) -> dict[str, str]:
    return {name: tool.schema_hash for name, tool in tools.items()}


def _bytes(tools: Mapping[str, Tool]) -> dict[str, bytes]:
    return {name: tool.raw for name, tool in tools.items()}


def _with_failure(entry: ServerEntry, fact: ListingFailed) -> ServerEntry:
    if _is_stale(entry, fact.incarnation) or entry.listing_error == fact.reason:
        return entry
    return attrs.evolve(entry, listing_error=fact.reason)


def may_be_about_to_list(entry: ServerEntry) -> bool:
    """Whether a server is on its way to its first list."""
    return entry.tools is None and not entry.listing_error and entry.status.state in UNSETTLED


def _claims(entry: ServerEntry) -> Claims:
    return Claims(server=entry.name, tools=entry.tools or (), pending=may_be_about_to_list(entry))


def _categories(config: Config, servers: Mapping[str, ServerEntry]) -> dict[str, Category]:
    if config.categories:
        listed = {name: entry.tools for name, entry in servers.items() if not entry.disabled}
        return {name: resolve(category, listed) for name, category in config.categories.items()}
    return {
        name: of_server(name, entry.description, entry.tools)
        for name, entry in servers.items()
        if not entry.disabled
    }
