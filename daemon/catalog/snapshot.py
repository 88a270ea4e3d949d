"""The catalog: an immutable snapshot of servers, tools and categories, and the effect of facts on it.

`fold` and `fold_all` return the same object if nothing changed. Categories and names are derived once per batch
of facts, with the parts of unchanged servers reused, so the cost of a fact depends on its change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import attrs
from msgspec import structs

from daemon.catalog.categories import ToolCategory, concerned, of_server, resolve
from daemon.catalog.entry import ServerEntry, changed_by, fresh, reconfigured, with_gate
from daemon.catalog.kinds import BESIDE_TOOLS, NAMED_AS, SHARING_NAMES, switch_of, switched_by
from daemon.catalog.naming import NO_NAMES, Claims, Names, assign
from daemon.catalog.trust import HeldDefinition, gate_of, joined
from daemon.facts import Approved, Configured, Fact, NamesRecalled, ServerFact, ServerRecord, Switched
from daemon.model import Approval, Definition, Kind, Known, ToolKey

if TYPE_CHECKING:
    from daemon.config.config_model import Config, Server

    Lists = Mapping[Kind, Mapping[str, Mapping[str, Definition]]]


NO_LISTS: Lists = {kind: {} for kind in BESIDE_TOOLS}


def switched_on(
    servers: Mapping[str, ServerEntry], switched: Collection[tuple[str, str]], before: Lists
) -> Lists:
    """The enabled prompts, resources and so on of all servers; `before` itself if nothing differs."""
    partly_off = {server for server, _ in switched}
    lists = {
        kind: {
            name: _without_uri(kind, known.definitions, name, switched)
            if name in partly_off
            else known.definitions
            for name, entry in servers.items()
            if not entry.disabled and (known := entry.lists.get(kind)) is not None
        }
        for kind in BESIDE_TOOLS
    }
    # The order of servers counts; unchanged servers compare by identity.
    return before if in_order(lists) == in_order(before) else lists


def claims(
    servers: Mapping[str, ServerEntry], kinds: Iterable[Kind], before: Mapping[str, ServerEntry]
) -> Iterator[Claims]:
    """The definitions that need names, switched off or not; `before` are the entries at the last naming."""
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
    known = entry.list_of(kind)
    return known.all if known.listed else None


def _has_names(was: ServerEntry, now: ServerEntry, kind: Kind) -> bool:
    had, has = _own_names(was, kind), _own_names(now, kind)
    return has is None or has is had or (had is not None and had.keys() == has.keys())


def in_order(lists: Lists) -> list[list[tuple[str, Mapping[str, Definition]]]]:
    """The lists in a form whose comparison includes the order of servers."""
    return [list(lists[kind].items()) for kind in BESIDE_TOOLS]


def _without_uri(
    kind: Kind, definitions: Mapping[str, Definition], server: str, switched: Collection[tuple[str, str]]
) -> Mapping[str, Definition]:
    return {name: each for name, each in definitions.items() if (server, switch_of(kind, name)) not in switched}


__all__ = ["Catalog", "ServerEntry", "begin", "fold", "fold_all", "with_settled_names"]

WHOLE = ""
"""Stands for the whole server in place of a tool's name."""


@attrs.frozen(kw_only=True)
class Catalog:
    """Everything that servers offer, at one moment."""

    config: Config = attrs.field(repr=False)
    servers: Mapping[str, ServerEntry]
    categories: Mapping[str, ToolCategory]
    """The categories in the configuration's order; a new object after any change of a tool."""
    naming: Mapping[Kind, Names] = attrs.field(default=NO_NAMES, repr=False)
    lists: Lists = attrs.field(default=NO_LISTS, repr=False)
    """The enabled prompts, resources, templates and skills; a new object after any change of one."""
    reserved: frozenset[str] = attrs.field(default=frozenset(), repr=False)
    switched: frozenset[tuple[str, str]] = frozenset()
    """Operators' switches: a server, and `kinds.switch_of` or `WHOLE`; server and definition need not exist."""
    switched_tools: frozenset[ToolKey] = attrs.field(default=frozenset(), repr=False)
    off: frozenset[ToolKey] = attrs.field(default=frozenset(), repr=False)
    """Tools that an operator has disabled, or that all their categories disable."""
    begun: float = 0.0
    """When this run of the daemon began, in epoch seconds."""
    chosen: tuple[str, ...] = ()
    """The selected servers of a narrowed catalog (`catalog.offer`)."""
    elsewhere: frozenset[str] = frozenset()
    """Servers left out because they are for clients in other directories (`catalog.offer`)."""
    approvals: Mapping[str, Known] | None = attrs.field(default=None, repr=False)
    """Approvals by the identity of a server; None until the store was read."""
    departed: Mapping[str, int] = attrs.field(factory=dict, repr=False)
    """The last epochs of removed servers; a server that returns continues from its own."""

    @property
    def names(self) -> Names:
        """The tools' names."""
        return self.naming[Kind.TOOL]

    def held(self, key: ToolKey, kind: Kind = Kind.TOOL) -> HeldDefinition | None:
        """The definition with this key, if it waits for approval; else None."""
        entry = self.servers.get(key[0])
        return None if entry is None else entry.list_of(kind).held.get(key[1])

    def names_of(self, kind: Kind) -> Names:
        """The names of one kind; templates and resources share a table."""
        return self.naming[NAMED_AS[kind]]


def begin(config: Config, now: float, reserved: frozenset[str] = frozenset()) -> Catalog:
    """Make the catalog at the daemon's start; `now` is epoch seconds."""
    servers = {server.name: fresh(server, now, begun=now) for server in config.mcp_servers.values()}
    catalog = Catalog(
        config=config,
        servers=servers,
        categories={},
        naming={kind: attrs.evolve(names, begun=now) for kind, names in NO_NAMES.items()},
        reserved=reserved,
        begun=now,
    )
    return _assembled(_gated(catalog, now))


def fold(catalog: Catalog, fact: Fact) -> Catalog:
    """The catalog after a fact; the same object if unchanged."""
    return fold_all(catalog, (fact,))


def fold_all(catalog: Catalog, facts: Iterable[Fact]) -> Catalog:
    """The catalog after several facts, in order; the same object if unchanged."""
    after = catalog
    for fact in facts:
        if isinstance(fact, Switched):
            # Compared with the former catalog, which must reflect all facts before.
            catalog = after = _with_words(_drawn(after, catalog), fact.off)
        elif isinstance(fact, Configured):
            catalog = after = _with_config(_drawn(after, catalog), fact.config, fact.now)
        elif isinstance(fact, NamesRecalled):
            catalog = after = _with_recalled_names(_drawn(after, catalog), fact)
        elif isinstance(fact, Approved):
            after = _with_approvals(after, fact.approvals, fact.at)
        else:
            after = _with_fact(after, fact)
    return _drawn(after, catalog)


def _with_fact(catalog: Catalog, fact: ServerFact) -> Catalog:
    entry = catalog.servers.get(fact.server)
    if entry is None:
        return _with_departed(catalog, fact)
    changed = changed_by(entry, fact)
    if changed is entry:
        return catalog
    after = attrs.evolve(catalog, servers={**catalog.servers, entry.name: changed})
    known, identity = changed.gate.known, changed.gate.identity
    if known is entry.gate.known or known is None:
        return after
    # Another entry may mean the same server.
    return _gated(attrs.evolve(after, approvals={**(catalog.approvals or {}), identity: known}), after.begun)


def _with_approvals(catalog: Catalog, approvals: Iterable[Approval], now: float) -> Catalog:
    by_identity: dict[str, list[Approval]] = {}
    for each in approvals:
        by_identity.setdefault(each.identity, []).append(each)
    known = catalog.approvals or {}
    merged = {identity: joined(known.get(identity, {}), each) for identity, each in by_identity.items()}
    if catalog.approvals is not None and all(known.get(identity) is each for identity, each in merged.items()):
        return catalog
    return _gated(attrs.evolve(catalog, approvals={**known, **merged}), now)


def _gated(catalog: Catalog, now: float) -> Catalog:
    """Judge again the lists of servers whose gates have changed, and record the approvals of first lists."""
    servers, approvals = dict(catalog.servers), catalog.approvals
    for name, entry in catalog.servers.items():
        gate = gate_of(catalog.config.mcp_servers[name], catalog.config, approvals)
        if (gate.is_open and entry.gate.is_open) or gate == entry.gate:
            continue
        servers[name] = after = with_gate(entry, gate, now)
        if after.gate.known is not gate.known and after.gate.known is not None:
            approvals = {**(approvals or {}), gate.identity: after.gate.known}
    same = all(each is catalog.servers[name] for name, each in servers.items())
    return catalog if same else attrs.evolve(catalog, servers=servers, approvals=approvals)


def _drawn(after: Catalog, before: Catalog) -> Catalog:
    if after.servers is before.servers:
        return after
    changed = [
        (was, after.servers[name]) for name, was in before.servers.items() if was is not after.servers[name]
    ]
    if any(_lists_others(was, now) for was, now in changed):
        return _assembled(after, before)
    if any(was.lists is not now.lists for was, now in changed):
        return _named(_with_lists(after), before)
    expected = any(was.awaits(kind) != now.awaits(kind) for was, now in changed for kind in Kind)
    return _named(after, before) if expected else after


def _lists_others(was: ServerEntry, now: ServerEntry) -> bool:
    return was.tools is not now.tools or was.all_tools is not now.all_tools


def with_settled_names(catalog: Catalog) -> Catalog:
    """Make all names final after a client has seen them; the same object if they were final."""
    return _with_names(catalog, {kind: names.settled() for kind, names in catalog.naming.items()})


def _with_names(catalog: Catalog, naming: Mapping[Kind, Names]) -> Catalog:
    same = all(names is catalog.naming[kind] for kind, names in naming.items())
    return catalog if same else attrs.evolve(catalog, naming=naming)


def _with_departed(catalog: Catalog, fact: ServerFact) -> Catalog:
    """Keep the epoch of a server that was removed from the configuration: it may return."""
    if not isinstance(fact, ServerRecord) or fact.epoch <= catalog.departed.get(fact.server, 0):
        return catalog
    return attrs.evolve(catalog, departed={**catalog.departed, fact.server: fact.epoch})


def _with_words(catalog: Catalog, off: frozenset[tuple[str, str]]) -> Catalog:
    if off == catalog.switched:
        return catalog
    servers = {name: _switched(entry, off=(name, WHOLE) in off) for name, entry in catalog.servers.items()}
    return _risen(catalog, _assembled(attrs.evolve(catalog, servers=servers, switched=off), catalog))


def _with_recalled_names(catalog: Catalog, fact: NamesRecalled) -> Catalog:
    """Restore stored names; free those of removed servers, unless other daemons give names, too."""
    kept = [each for each in fact.names if fact.shared or each.key[0] in catalog.servers]
    recalled = {kind: names.remembering(kept) for kind, names in catalog.naming.items()}
    return catalog if recalled == catalog.naming else _assembled(attrs.evolve(catalog, naming=recalled))


def _switched(entry: ServerEntry, *, off: bool) -> ServerEntry:
    return entry if entry.switched_off is off else attrs.evolve(entry, switched_off=off)


def _with_config(catalog: Catalog, config: Config, now: float) -> Catalog:
    if config is catalog.config:
        return catalog
    epochs = {**catalog.departed, **{name: entry.epoch for name, entry in catalog.servers.items()}}
    servers = {
        server.name: _reconfigured(catalog, server, now, epochs.get(server.name, 0))
        for server in config.mcp_servers.values()
    }
    departed = {name: epoch for name, epoch in epochs.items() if name not in servers and epoch}
    after = _gated(attrs.evolve(catalog, config=config, servers=servers, departed=departed), now)
    return _risen(catalog, _assembled(after, catalog))


def _reconfigured(catalog: Catalog, server: Server, now: float, epoch: int) -> ServerEntry:
    switched_off = (server.name, WHOLE) in catalog.switched
    made = fresh(server, now, begun=catalog.begun, epoch=epoch, switched_off=switched_off)
    entry = catalog.servers.get(server.name)
    return made if entry is None else reconfigured(entry, made)


def _risen(before: Catalog, after: Catalog) -> Catalog:
    changed = {
        name: after.off != before.off or entry.tools is not before.servers[name].tools
        for name, entry in after.servers.items()
        if name in before.servers
    }
    risen = {
        name: attrs.evolve(after.servers[name], epoch=after.servers[name].epoch + 1)
        for name, tools in changed.items()
        if _looks(before, name, tools=tools) != _looks(after, name, tools=tools)
    }
    return attrs.evolve(after, servers={**after.servers, **risen}) if risen else after


def _looks(catalog: Catalog, name: str, *, tools: bool) -> tuple[object, ...]:
    """The parts of a server's state that clients see; its tools only if they may differ."""
    entry = catalog.servers[name]
    listed = (entry.tools or {}).values() if tools else ()
    hashes = {tool.name: (tool.schema_hash, (name, tool.name) in catalog.off) for tool in listed}
    known = [entry.list_of(kind).definitions for kind in BESIDE_TOOLS]
    on = [catalog.lists[kind].get(name, {}).keys() for kind in BESIDE_TOOLS]
    return entry.disabled, hashes, known, on


def _with_lists(catalog: Catalog) -> Catalog:
    lists = switched_on(catalog.servers, catalog.switched, catalog.lists)
    return catalog if lists is catalog.lists else attrs.evolve(catalog, lists=lists)


def _named(catalog: Catalog, before: Catalog | None) -> Catalog:
    were: Mapping[str, ServerEntry] = {} if before is None else before.servers
    naming = {
        kind: assign(
            catalog.naming[kind],
            claims(catalog.servers, kinds, were),
            catalog.reserved if kind is Kind.TOOL else (),
        )
        for kind, kinds in SHARING_NAMES.items()
    }
    return _with_names(catalog, naming)


def _assembled(catalog: Catalog, before: Catalog | None = None) -> Catalog:
    catalog = _named(_with_lists(catalog), before)
    categories = _categories(catalog, before)
    named = ((server, *switched_by(word)) for server, word in catalog.switched if word)
    switched = frozenset((server, name) for server, kind, name in named if kind is Kind.TOOL)
    if switched:
        categories = {name: _without(each, switched) for name, each in categories.items()}
    off = switched | _off(categories)
    return attrs.evolve(catalog, categories=categories, off=off, switched_tools=switched)


def _categories(catalog: Catalog, before: Catalog | None) -> dict[str, ToolCategory]:
    if catalog.config.categories:
        return _resolved(catalog, before)
    return {
        name: _taken_over(entry, before)
        or of_server(name, entry.description, entry.all_tools, entry.tool_list.held)
        for name, entry in catalog.servers.items()
        if not entry.disabled
    }


def _resolved(catalog: Catalog, before: Catalog | None) -> dict[str, ToolCategory]:
    wanted = catalog.config.categories
    entries = {name: entry for name, entry in catalog.servers.items() if not entry.disabled}
    listed = {name: None if entry.tools is None else entry.all_tools for name, entry in entries.items()}
    held = {(name, tool) for name, entry in entries.items() for tool in entry.tool_list.held}
    known: Mapping[str, ToolCategory] = {}
    changed: set[str] = set()
    if before is not None and catalog.config is before.config and catalog.switched == before.switched:
        known = before.categories
        changed = {name for name, entry in entries.items() if _lists_others(before.servers[name], entry)}
    return {
        name: known[name]
        if name in known and changed.isdisjoint(concerned(category, listed))
        else resolve(category, listed, catalog.names.given, held)
        for name, category in wanted.items()
    }


def _taken_over(entry: ServerEntry, before: Catalog | None) -> ToolCategory | None:
    if before is None or before.config.categories or any(name == entry.name for name, _ in before.switched):
        return None
    was = before.servers.get(entry.name)
    if was is None or _lists_others(was, entry) or was.description != entry.description:
        return None
    return before.categories.get(entry.name)


def _without(category: ToolCategory, switched: frozenset[tuple[str, str]]) -> ToolCategory:
    if {server for server, _ in switched}.isdisjoint(category.servers):
        return category
    members = {
        name: structs.replace(member, enabled=False) if (member.server, member.tool) in switched else member
        for name, member in category.members.items()
    }
    return structs.replace(category, members=members, whole=False)


def _off(categories: Mapping[str, ToolCategory]) -> set[ToolKey]:
    partial = [category for category in categories.values() if not category.whole]
    members = (member for category in partial for member in category.members.values())
    if not (off := {(each.server, each.tool) for each in members if not each.enabled}):
        return off
    members = (member for category in categories.values() for member in category.members.values())
    return off - {(each.server, each.tool) for each in members if each.enabled}
