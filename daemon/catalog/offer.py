"""The offer of a profile: each allowed tool once, under its one name, and prompts, resources and templates.

Offered tools are made on first use: most clients see few tools.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property, partial
from itertools import chain, islice
from typing import TYPE_CHECKING

import attrs
import msgspec
from msgspec import Raw

from daemon.catalog.categories import Lazily, Member, Table, ToolCategory
from daemon.catalog.definitions import shown_parts
from daemon.catalog.entry import ServerEntry, of_models
from daemon.catalog.kinds import BESIDE_TOOLS, LISTS, SHARING_NAMES
from daemon.catalog.naming import META, Template, among, skill_uri, with_own_page, with_uris
from daemon.catalog.permissions import Permissions
from daemon.catalog.snapshot import in_order
from daemon.config.config_model import Permission, Profile, SchemaForm, TransportType
from daemon.config.names import read_reference, read_shown
from daemon.kit.waiting import keep_latest
from daemon.model import Definition, Kind, Tool, ToolKey
from daemon.protocol import decode_members
from daemon.safety.legible import legible_definition

if TYPE_CHECKING:
    from daemon.catalog.snapshot import Catalog, Lists


class ProfileRules:
    """A profile's rules, applied to one catalog; immutable."""

    def __init__(self, catalog: Catalog, profile: Profile, permissions: Permissions | None = None) -> None:
        self._catalog = catalog
        self._profile = profile
        self.permissions = Permissions(profile.permissions) if permissions is None else permissions
        self.drawn_from = _by_server(catalog, profile)
        """The profile's categories by server, in order."""
        self.whole = {
            server: only.name
            for server, (only, *others) in self.drawn_from.items()
            if only.whole and not others
        }
        """Servers whose list is exactly one category, and that category's name."""
        self._partly_off = {server for server, _ in (*catalog.switched, *catalog.off)}
        self._excluded = _Named((*profile.excluded_tools, *_unnamed_scripts(catalog, profile)), catalog)
        self._optional = _Named(profile.included_optional_tools, catalog)
        self._texts = [
            (_Named((name,), catalog), text) for name, text in profile.tool_description_overrides.items()
        ]
        self.has_texts = bool(self._texts)

    def allows(self, key: ToolKey) -> bool:
        """Whether the profile allows a tool, listed or not. An operator's switch takes precedence."""
        if key in self._excluded or key in self._catalog.switched_tools or self.denies(key):
            return False
        if key in self._optional:
            return True
        if key in self._catalog.off:
            return False
        return self._profile.categories is None or self.place(key)[0] is not None

    def permission(self, key: ToolKey) -> Permission | None:
        """The rules' decision about calls of a tool; None while it depends on an unknown definition."""
        entry = self._catalog.servers.get(key[0])
        return self.permissions.of(*key, None if entry is None or entry.tools is None else entry.all_tools)

    def denies(self, key: ToolKey) -> bool:
        """Whether the rules are certain to deny a tool."""
        return self.permissions.hides and self.permission(key) is Permission.DENY

    def shows(self, member: Member) -> bool:
        """Whether a category shows this member."""
        key = (member.server, member.tool)
        if key in self._excluded or key in self._catalog.switched_tools or self.denies(key):
            return False
        return (member.enabled or key in self._optional) and not self.hides(key)

    def hides(self, key: ToolKey) -> bool:
        """Whether a tool is only for apps (SEP-1865), so that models do not see it."""
        entry = self._catalog.servers.get(key[0])
        tool = None if entry is None else entry.all_tools.get(key[1])
        return tool is not None and not tool.app.for_models

    def conceals(self, key: ToolKey) -> bool:
        """Whether the profile hides a tool from models, and no operator's switch does."""
        if key in self._excluded or self.denies(key) or self.hides(key):
            return True
        return self._profile.categories is not None and key not in self._optional and self.place(key)[0] is None

    def describe(self, tool: Tool, member: Member | None) -> str:
        """A tool's description: the profile's, else the category's, else the server's."""
        key = (tool.server, tool.name)
        text = None if member is None else member.description
        for named, override in self._texts:
            text = override if key in named else text
        return tool.description if text is None else text

    def place(self, key: ToolKey) -> tuple[str | None, Member | None]:
        """The profile's first category in which the tool is enabled, and its member there."""
        for category in self.drawn_from.get(key[0], ()):
            if category.whole and key[1] in category.members:
                return category.name, None
            member = category.member(key)
            if member is not None and member.enabled:
                return category.name, member
        return None, None

    def let_through(self, server: str, tools: Mapping[str, Tool]) -> Mapping[str, Tool]:
        """The tools of a server that are offered; the same object if all are."""
        places = self._profile.categories is None or server in self.whole
        if places and not self._excluded and server not in self._partly_off and not self.permissions.hides:
            return tools
        allowed = {name: tool for name, tool in tools.items() if self.allows((server, name))}
        return tools if len(allowed) == len(tools) else allowed


class _Named:
    def __init__(self, names: Iterable[str], catalog: Catalog) -> None:
        # All configured servers, even where a client sees only some.
        servers = catalog.config.mcp_servers
        references = [read_reference(name, servers) for name in names]
        self._bare = frozenset(each.tool for each in references if each.server is None)
        # A bare name may be qualified as shown to clients: `server__tool`.
        shown = [read_shown(name, servers) for name in self._bare]
        self._full = frozenset(
            (each.server, each.tool)
            for each in (*references, *(each for each in shown if each.server in servers))
            if each.server is not None
        )

    def __bool__(self) -> bool:
        return bool(self._bare or self._full)

    def __contains__(self, key: ToolKey) -> bool:
        return key[1] in self._bare or key in self._full


def _unnamed_scripts(catalog: Catalog, profile: Profile) -> Iterator[str]:
    for name, entry in catalog.servers.items():
        if catalog.config.mcp_servers[name].type is TransportType.SCRIPT and "*" not in profile.scripts:
            yield from (f"{name}/{tool}" for tool in entry.all_tools if tool not in profile.scripts)


def _by_server(catalog: Catalog, profile: Profile) -> dict[str, list[ToolCategory]]:
    found: dict[str, list[ToolCategory]] = {}
    for category in catalog.categories.values():
        if profile.categories is None or category.name in profile.categories:
            for server in category.servers:
                found.setdefault(server, []).append(category)
    return found


@attrs.frozen(kw_only=True, eq=False)
class OfferedDefinition:
    """A prompt, resource or template that a profile offers."""

    definition: Definition = attrs.field(repr=False)
    name: str

    def listed(self) -> bytes:
        """The entry in lists: the server's bytes, unless it is renamed or has hidden characters."""
        shown = legible_definition(self.definition.raw)
        if self.name == self.definition.name:
            return shown
        named = msgspec.json.encode({**decode_members(shown), LISTS[self.definition.kind].key: self.name})
        if self.definition.kind is not Kind.SKILL:
            return named
        return with_uris(partial(skill_uri, self.definition.server), ("resources.*.uri",), named)


def offered(catalog: Catalog, servers: Collection[str], kind: Kind) -> Mapping[str, OfferedDefinition]:
    """The offered definitions of a kind other than tools, by clients' name or URI, in order."""
    given = catalog.names_of(kind).given
    qualified = kind is Kind.SKILL and len(catalog.chosen) != 1
    named = (
        (skill_uri(server, own) if qualified else given.get((server, own), own), definition)
        for server, definitions in catalog.lists[kind].items()
        if server in servers
        for own, definition in definitions.items()
    )
    return {name: OfferedDefinition(definition=definition, name=name) for name, definition in named}


MAX_CHOICES = 256
"""Cached selections: more than the clients of one machine have; others are made at each use."""


class Choices:
    """The catalogs of selected servers, each made once per change of the whole catalog."""

    def __init__(self) -> None:
        self._made: dict[Collection[str], tuple[Catalog, Catalog]] = {}

    def of(
        self, catalog: Catalog, servers: tuple[str, ...], elsewhere: frozenset[str] = frozenset()
    ) -> Catalog:
        """The catalog of the selected servers, else of all but those elsewhere."""
        place = servers or elsewhere
        if not place:
            return catalog
        made = self._made.get(place)
        if made is not None and made[0] is catalog:
            return made[1]
        whole, before = (catalog, catalog) if made is None else made
        seen = _narrowed(catalog, servers, before) if servers else _without(catalog, elsewhere, whole, before)
        keep_latest(self._made, place, (catalog, seen), MAX_CHOICES)
        return seen


def _without(catalog: Catalog, elsewhere: frozenset[str], whole: Catalog, before: Catalog) -> Catalog:
    categories = before.categories
    if whole.categories is not catalog.categories or before is whole:
        left = (
            _left(category, elsewhere) if elsewhere.intersection(category.servers) else category
            for category in catalog.categories.values()
        )
        categories = {category.name: category for category in left if category is not None}
    entries = {name: entry for name, entry in catalog.servers.items() if name not in elsewhere}
    lists = _lists_of(catalog, entries, before)
    return attrs.evolve(catalog, servers=entries, categories=categories, lists=lists, elsewhere=elsewhere)


def _left(category: ToolCategory, elsewhere: frozenset[str]) -> ToolCategory | None:
    servers = tuple(name for name in category.servers if name not in elsewhere)
    members = {name: each for name, each in category.members.items() if each.server not in elsewhere}
    return msgspec.structs.replace(category, servers=servers, members=members) if servers else None


def _lists_of(catalog: Catalog, entries: Collection[str], before: Catalog) -> Lists:
    """These servers' lists other than tools; the former object if equal."""
    lists = {
        kind: {name: each for name, each in of_all.items() if name in entries}
        for kind, of_all in catalog.lists.items()
    }
    return before.lists if in_order(before.lists) == in_order(lists) else lists


def _narrowed(catalog: Catalog, servers: tuple[str, ...], before: Catalog) -> Catalog:
    entries = {name: entry for name, entry in catalog.servers.items() if name in servers}
    naming = {
        kind: among(names, {name: _own_names(entry, kind) for name, entry in entries.items()})
        for kind, names in catalog.naming.items()
    }
    return attrs.evolve(
        catalog,
        servers=entries,
        chosen=servers,
        lists=_lists_of(catalog, entries, before),
        naming=before.naming if before.naming == naming else naming,
    )


def _own_names(entry: ServerEntry, named_as: Kind) -> Collection[str]:
    """A server's names of the kinds that share a table, including switched off and earlier names."""
    known = [entry.list_of(kind) for kind in SHARING_NAMES[named_as]]
    return dict.fromkeys(name for each in known for name in (*each.all, *each.renamed))


MAX_OFFERS = 256
"""Cached offers: more than profiles and selections on one machine."""


@attrs.frozen(kw_only=True, eq=False)
class Offered:
    """A tool that a profile offers."""

    tool: Tool = attrs.field(repr=False)
    name: str
    category: str | None
    description: str
    asks: bool = False
    form: SchemaForm = SchemaForm.ORIGINAL
    among: bool = True
    """Whether the client sees several servers, so that the URI of a tool's app must name the server."""
    cut: bool = False
    """Whether results may be cut. The output schema is then left out: a client would check results by it."""

    @property
    def key(self) -> ToolKey:
        """Server and bare name of the tool."""
        return self.tool.server, self.tool.name

    def listed(self, name: str | None = None) -> bytes:
        """The entry in `tools/list`, under `name` if given; the server's bytes unless something differs."""
        name = self.name if name is None else name
        parts = shown_parts(self.tool, self.form, cut=self.cut)
        if self.among and self.tool.app.page:
            parts = {**parts, META: with_own_page(parts[META], self.tool.server)}
        if parts is self.tool.parts and (name, self.description) == (self.tool.name, self.tool.description):
            return self.tool.raw
        members: dict[str, object] = {key: Raw(value) for key, value in parts.items()}
        return msgspec.json.encode({**members, "name": name, "description": self.description})


class Offer:
    """Everything that a profile offers at one moment; immutable."""

    def __init__(self, catalog: Catalog, profile: Profile, before: Offer | None = None) -> None:
        self.reads_resources = profile.resources
        self._catalog = catalog
        self._profile = profile
        permissions = None if before is None else before.rules.permissions
        self.rules: ProfileRules = ProfileRules(catalog, profile, permissions)
        self._allowed = {
            entry.name: self.rules.let_through(entry.name, entry.tools)
            for entry in catalog.servers.values()
            if entry.tools and not entry.disabled
        }
        self._listed = {server: of_models(tools) for server, tools in self._allowed.items()}
        self._among = len(catalog.chosen) != 1
        self._cut = profile.results.max_tokens is not None and not catalog.chosen
        self.table = Table(self._listed)
        """The listed tools; unlike the offered ones, they keep no catalog in memory."""
        self.tools = Lazily[ToolKey, Offered](self.table, self._offered)
        """The offered tools, in the order of the configuration's servers and of their lists."""
        self._listed_beside: dict[Kind, tuple[bytes, ...]] = {}
        self.all: Collection[Offered] = self.tools.values()
        """The offered tools in order; their number is known before any is made."""

    def find(self, name: str) -> Offered | None:
        """The offered tool that a name in any spelling means."""
        key = self._catalog.names.key_of(name, self._catalog.servers)
        return None if key is None else self.tools.get(key)

    def definitions(self, kind: Kind) -> Mapping[str, OfferedDefinition]:
        """The prompts, resources or templates, by the name or URI for clients, in order."""
        return self._beside_tools[kind]

    def listed(self, kind: Kind) -> tuple[bytes, ...]:
        """The entries of a kind's list, each a raw JSON object."""
        if kind not in self._listed_beside:
            self._listed_beside[kind] = tuple(each.listed() for each in self.definitions(kind).values())
        return self._listed_beside[kind]

    def servers_of(self, kind: Kind) -> Collection[str]:
        """The servers whose definitions of a kind the profile shows, in the configuration's order."""
        shows = self._profile.prompts if kind is Kind.PROMPT else self._profile.resources
        return self._drawn_from if shows else ()

    @cached_property
    def templates(self) -> tuple[Template, ...]:
        """The templates that are shown under their own text."""
        shown = self.definitions(Kind.TEMPLATE).values()
        plain = (each.definition for each in shown if each.name == each.definition.name)
        return tuple(Template(server=each.server, text=each.name) for each in plain)

    @cached_property
    def _drawn_from(self) -> dict[str, None]:
        everywhere = self._profile.categories is None
        return {
            name: None
            for name, entry in self._catalog.servers.items()
            if not entry.disabled and (everywhere or name in self.rules.drawn_from)
        }

    @cached_property
    def _beside_tools(self) -> dict[Kind, Mapping[str, OfferedDefinition]]:
        return {kind: offered(self._catalog, self.servers_of(kind), kind) for kind in BESIDE_TOOLS}

    @cached_property
    def listing(self) -> tuple[bytes, ...]:
        """The entries of `tools/list`."""
        lists = (self._listing_of(server, tools) for server, tools in self._listed.items())
        return tuple(chain.from_iterable(lists))

    @cached_property
    def listing_bytes(self) -> int:
        """The bytes of the entries of `tools/list`."""
        return sum(map(len, self.listing))

    @cached_property
    def apps(self) -> AppTools:
        """The tools as clients that show MCP Apps see them."""
        return AppTools(self, self._allowed, self._offered)

    @cached_property
    def is_everything(self) -> bool:
        """Whether every tool of every server is offered."""
        servers = self._catalog.servers.values()
        return all(not entry.tools or self._listed.get(entry.name) is entry.tools for entry in servers)

    @cached_property
    def categories(self) -> tuple[str, ...]:
        """The profile's categories, in the configuration's order."""
        allowed = self._profile.categories
        return tuple(name for name in self._catalog.categories if allowed is None or name in allowed)

    @cached_property
    def core(self) -> tuple[Offered, ...]:
        """The profile's core tools that are known, in the profile's order."""
        found = (self.find(name) for name in self._profile.core_tools or ())
        return tuple(dict.fromkeys(offered for offered in found if offered is not None))

    def _offered(self, key: ToolKey) -> Offered:
        server, name = key
        tool = self._allowed[server][name]
        category, description = self.rules.whole.get(server), tool.description
        if not self._catalog.chosen and (category is None or self.rules.has_texts):
            category, member = self.rules.place(key)
            description = self.rules.describe(tool, member)
        given = self._catalog.names.given.get(key, name)
        asks = self.rules.permission(key) is Permission.ASK
        return Offered(
            tool=tool,
            name=given,
            category=category,
            description=description,
            asks=asks,
            form=self._profile.schemas,
            among=self._among,
            cut=self._cut,
        )

    def _listing_of(self, server: str, tools: Mapping[str, Tool]) -> Iterator[bytes]:
        given = self._catalog.names.given
        untold = bool(self._catalog.chosen) or (server in self.rules.whole and not self.rules.has_texts)
        plain = untold and self._profile.schemas is SchemaForm.ORIGINAL and not self._cut
        return (
            tool.raw
            if plain and given.get((server, name), name) == name and not (self._among and tool.app.page)
            else self.tools[server, name].listed()
            for name, tool in tools.items()
        )


MAX_APPS = 20
"""Tools with apps that a surface of meta-tools lists: at 0.8 kB each, some 4,000 tokens of a conversation."""


class AppTools:
    """A profile's tools for clients that show MCP Apps (SEP-1865)."""

    def __init__(
        self, offer: Offer, allowed: Mapping[str, Mapping[str, Tool]], make: Callable[[ToolKey], Offered]
    ) -> None:
        self._offer, self._allowed, self._make = offer, allowed, make

    @cached_property
    def hidden(self) -> Mapping[ToolKey, Offered]:
        """The tools that only apps may call."""
        return {
            (server, name): self._make((server, name))
            for server, tools in self._allowed.items()
            for name in tools.keys() - of_models(tools).keys()
        }

    @cached_property
    def shown(self) -> Mapping[ToolKey, Offered]:
        """The tools that open an app, as many as a surface of meta-tools lists."""
        keys = ((server, name) for server, tools in self._allowed.items() for name in tools)
        tools = (self._offer.tools[key] for key in keys if key not in self.hidden)
        return {each.key: each for each in islice((each for each in tools if each.tool.app.page), MAX_APPS)}

    @cached_property
    def by_name(self) -> Mapping[str, Mapping[str, Offered]]:
        """The tools that apps of the same server may call, by the tools' own names and their servers."""
        found: dict[str, dict[str, Offered]] = {}
        for server, tools in self._allowed.items():
            if any(tool.app.page for tool in tools.values()):
                for name in (name for name, tool in tools.items() if tool.app.for_apps):
                    found.setdefault(name, {})[server] = self._make((server, name))
        return found

    @cached_property
    def contested(self) -> frozenset[str]:
        """The names in `by_name` that tools of several servers have."""
        allowed = self._allowed.values()
        return frozenset(name for name in self.by_name if sum(name in tools for tools in allowed) > 1)

    @cached_property
    def all(self) -> Collection[Offered]:
        """All tools, including those only for apps, in the order of servers and their lists."""
        if not self.hidden:
            return self._offer.all
        keys = [(server, name) for server, tools in self._allowed.items() for name in tools]
        return [self.hidden.get(key) or self._offer.tools[key] for key in keys]

    @cached_property
    def listing(self) -> tuple[bytes, ...]:
        """The entries of `tools/list`."""
        if not (self.hidden or self.contested):
            return self._offer.listing
        return tuple(each.listed(self.name_of(each.key, each.name)) for each in self.all)

    def name_of(self, key: ToolKey, name: str) -> str:
        """The listed name of a contested tool, else `name`: apps call tools by their own names."""
        return f"{key[0]}__{key[1]}" if key[1] in self.contested else name


class Offers:
    """The offers of all profiles; each is made once per change."""

    def __init__(self) -> None:
        self.choices = Choices()
        self._made: dict[tuple[str, Collection[str]], tuple[Catalog, Profile, Offer]] = {}

    def of(self, catalog: Catalog, profile: Profile) -> Offer:
        """The present offer of a profile in a catalog, whole or narrowed; the same object while unchanged."""
        place = profile.name, catalog.chosen or catalog.elsewhere
        made = self._made.get(place)
        if made is not None and _same_lists(made[0], catalog) and made[1] is profile:
            return made[2]
        offer = Offer(catalog, profile, made[2] if made is not None and made[1] is profile else None)
        keep_latest(self._made, place, (catalog, profile, offer), MAX_OFFERS)
        return offer


def _same_lists(one: Catalog, other: Catalog) -> bool:
    return one is other or (
        one.categories is other.categories and one.naming is other.naming and one.lists is other.lists
    )
