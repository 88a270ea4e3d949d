"""The offer of a profile: every tool that its rules allow, once, under the one name by which clients call it.

Prompts, resources and templates are offered of the servers that the profile's categories draw from.

Categories group tools and may show one in several places; a flat surface shows each once. Which tools a profile
allows, its rules say.

Most clients are shown few of the tools, and when one server's list changes, all other tools are offered as
before. So an offered tool is made on first use, and reused while it is right.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING, overload

import attrs
import msgspec
from msgspec import Raw

from daemon.catalog.categories import Lazily, Table
from daemon.catalog.definitions import shown_parts
from daemon.catalog.kinds import BESIDE_TOOLS, LISTS, SHARING_NAMES
from daemon.catalog.naming import Template, among
from daemon.catalog.permissions import Permissions
from daemon.catalog.snapshot import in_order
from daemon.config.config_model import Permission, SchemaForm
from daemon.config.names import read_reference, read_shown
from daemon.kit.waiting import keep_latest
from daemon.model import Kind
from daemon.safety.legible import legible_definition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from daemon.catalog.categories import Member, ToolCategory
    from daemon.catalog.entry import ServerEntry
    from daemon.catalog.snapshot import Catalog, Lists
    from daemon.config.config_model import Profile
    from daemon.model import Definition, Tool, ToolKey


class ProfileRules:
    """What one profile allows of one catalog. Immutable."""

    def __init__(self, catalog: Catalog, profile: Profile, permissions: Permissions | None = None) -> None:
        """Look up what the profile names.

        Args:
            catalog: the present catalog.
            profile: the profile.
            permissions: what its rules said before, if it is the same profile.
        """
        self._catalog = catalog
        self._profile = profile
        self.permissions = Permissions(profile.permissions) if permissions is None else permissions
        """What its rules of permission say."""
        self.drawn_from = _by_server(catalog, profile)
        """The profile's categories, in their order, by each server whose tools they hold."""
        self.whole = {
            server: only.name
            for server, (only, *others) in self.drawn_from.items()
            if only.whole and not others
        }
        """Servers whose whole list is one category and that are in no other, with the category's name."""
        self._partly_off = {server for server, _ in (*catalog.switched, *catalog.off)}
        self._excluded = _Named(profile.excluded_tools, catalog)
        self._optional = _Named(profile.included_optional_tools, catalog)
        self._texts = [
            (_Named((name,), catalog), text) for name, text in profile.tool_description_overrides.items()
        ]
        self.has_texts = bool(self._texts)
        """Whether the profile has descriptions of its own."""

    def allows(self, key: ToolKey) -> bool:
        """Whether the profile allows a tool, listed or not; what an operator switched off it cannot allow."""
        if key in self._excluded or key in self._catalog.switched_tools or self.denies(key):
            return False
        if key in self._optional:
            return True
        if key in self._catalog.off:
            return False
        return self._profile.categories is None or self.place(key)[0] is not None

    def permission(self, key: ToolKey) -> Permission | None:
        """What the profile's rules say about calls of a tool; None while that depends on what is not known."""
        entry = self._catalog.servers.get(key[0])
        return self.permissions.of(*key, None if entry is None else entry.tools)

    def denies(self, key: ToolKey) -> bool:
        """Whether the profile's rules surely deny a tool."""
        return self.permissions.hides and self.permission(key) is Permission.DENY

    def shows(self, member: Member) -> bool:
        """Whether a category's tool is shown in that category."""
        key = (member.server, member.tool)
        if key in self._excluded or key in self._catalog.switched_tools or self.denies(key):
            return False
        return member.enabled or key in self._optional

    def describe(self, tool: Tool, member: Member | None) -> str:
        """The description of a tool: the profile's, else its category's, else the server's."""
        key = (tool.server, tool.name)
        text = None if member is None else member.description
        for named, said in self._texts:
            text = said if key in named else text
        return tool.description if text is None else text

    def place(self, key: ToolKey) -> tuple[str | None, Member | None]:
        """The first of the profile's categories that holds a tool enabled, and the tool's member there."""
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
    """The tools that a list of names in a profile means; a bare name means every server's tool of that name."""

    def __init__(self, names: Iterable[str], catalog: Catalog) -> None:
        # Those of the whole configuration, also where a client sees a few of them.
        servers = catalog.config.mcp_servers
        references = [read_reference(name, servers) for name in names]
        self._bare = frozenset(each.tool for each in references if each.server is None)
        # A bare name may also be a qualified one as clients are shown it: `server__tool`.
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


def _by_server(catalog: Catalog, profile: Profile) -> dict[str, list[ToolCategory]]:
    """The profile's categories, in their order, by each server whose tools they hold."""
    found: dict[str, list[ToolCategory]] = {}
    for category in catalog.categories.values():
        if profile.categories is None or category.name in profile.categories:
            for server in category.servers:
                found.setdefault(server, []).append(category)
    return found


_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


@attrs.frozen(kw_only=True, eq=False)
class OfferedDefinition:
    """One prompt, resource or template as a profile shows it."""

    definition: Definition = attrs.field(repr=False)
    """It as its server described it."""
    name: str
    """The name or URI by which clients ask for it."""

    def listed(self) -> bytes:
        """Its object for the list: the server's own bytes, unless it has another name or hides characters."""
        shown = legible_definition(self.definition.raw)
        if self.name == self.definition.name:
            return shown
        return msgspec.json.encode({**_decode_members(shown), LISTS[self.definition.kind].key: self.name})


def offered(catalog: Catalog, servers: Collection[str], kind: Kind) -> Mapping[str, OfferedDefinition]:
    """What a profile offers of one kind, by the name or URI that clients use.

    Args:
        catalog: the present catalog.
        servers: the servers whose definitions of this kind the profile shows.
        kind: which kind, but tools.

    Returns:
        Those of each server in its order, and the servers in the configuration's.
    """
    given = catalog.names_of(kind).given
    found = {
        given.get((server, own), own): definition
        for server, definitions in catalog.lists[kind].items()
        if server in servers
        for own, definition in definitions.items()
    }
    return Lazily(found, lambda name: OfferedDefinition(definition=found[name], name=name))


MAX_CHOICES = 256
"""Choices of servers whose catalogs are kept: more than the clients of one machine have. One more is made anew
at each look."""


class Choices:
    """The catalogs that clients see of some servers, each made once per change of the whole catalog."""

    def __init__(self) -> None:
        """Begin without any."""
        self._made: dict[Collection[str], tuple[Catalog, Catalog]] = {}

    def of(
        self, catalog: Catalog, servers: tuple[str, ...], elsewhere: frozenset[str] = frozenset()
    ) -> Catalog:
        """What a client sees that has chosen these servers, else all but those for clients elsewhere."""
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
    """The catalog without these servers; `before` was made of `whole`, and its parts are reused."""
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
    """What is left of a category without these servers; None if nothing is."""
    servers = tuple(name for name in category.servers if name not in elsewhere)
    members = {name: each for name, each in category.members.items() if each.server not in elsewhere}
    return attrs.evolve(category, servers=servers, members=members) if servers else None


def _lists_of(catalog: Catalog, entries: Collection[str], before: Catalog) -> Lists:
    """What these servers list beside tools; the object of the catalog before if that is the same."""
    lists = {
        kind: {name: each for name, each in of_all.items() if name in entries}
        for kind, of_all in catalog.lists.items()
    }
    return before.lists if in_order(before.lists) == in_order(lists) else lists


def _narrowed(catalog: Catalog, servers: tuple[str, ...], before: Catalog) -> Catalog:
    """The catalog of these servers; parts that are equal to those of the one before are the same objects."""
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
    """What a server lists, switched off or not, of the kinds that share names, and their earlier names."""
    known = [entry.list_of(kind) for kind in SHARING_NAMES[named_as]]
    return dict.fromkeys(name for each in known for name in (*each.definitions, *each.renamed))


MAX_OFFERS = 256
"""Most offers that are cached: more than a configuration has profiles, and the clients of one machine have
chosen servers."""


@attrs.frozen(kw_only=True, eq=False)
class Offered:
    """One tool as a profile shows it."""

    tool: Tool = attrs.field(repr=False)
    """The tool as its server described it."""
    name: str
    """The name by which clients call it."""
    category: str | None
    """The first of the profile's categories that holds it, if any."""
    description: str
    """The profile's description of it, else the category's, else the server's."""
    asks: bool = False
    """Whether the profile has it called only if the client's user agrees."""
    form: SchemaForm = SchemaForm.ORIGINAL
    """How its input schema is listed."""

    @property
    def key(self) -> ToolKey:
        """The tool, by server and name."""
        return self.tool.server, self.tool.name

    def listed(self, name: str | None = None) -> bytes:
        """The tool object of `tools/list`: the server's own bytes, unless name, description or schema differ.

        Args:
            name: the name to list it by; None for its own.
        """
        name = self.name if name is None else name
        parts = shown_parts(self.tool, self.form)
        if parts is self.tool.parts and (name, self.description) == (self.tool.name, self.tool.description):
            return self.tool.raw
        members: dict[str, object] = {key: Raw(value) for key, value in parts.items()}
        return msgspec.json.encode({**members, "name": name, "description": self.description})


class OfferedTools(Lazily["ToolKey", Offered]):
    """Offered tools by key."""

    __slots__ = ("table",)

    def __init__(self, table: Table, make: Callable[[ToolKey], Offered], made: dict[ToolKey, Offered]) -> None:
        """Offer these tools (`Lazily`)."""
        super().__init__(table, make, made)
        self.table = table
        """The tools themselves; unlike the offered ones, they keep no catalog alive."""


class Offer:
    """Everything that one profile offers at one moment. Immutable."""

    def __init__(self, catalog: Catalog, profile: Profile, before: Offer | None = None) -> None:
        """Work out what the profile allows.

        Args:
            catalog: the present catalog.
            profile: the profile.
            before: the previous offer of the same profile, whose unchanged parts are reused.
        """
        self.reads_resources = profile.resources
        """Whether clients of the profile may read resources at all."""
        self._catalog = catalog
        self._profile = profile
        permissions = None if before is None else before.rules.permissions
        self.rules: ProfileRules = ProfileRules(catalog, profile, permissions)
        """Which tools the profile allows, and what it says of them."""
        self._listed = {
            entry.name: self.rules.let_through(entry.name, entry.tools)
            for entry in catalog.servers.values()
            if entry.tools and not entry.disabled
        }
        self.tools = OfferedTools(
            Table(self._listed), self._offered, {} if before is None else self._still_offered(before)
        )
        """Tools in the order of the configuration's servers, and of each server's list."""
        self._listed_beside: dict[Kind, tuple[bytes, ...]] = {}
        self.all: Sequence[Offered] = _All(self.tools)
        """Every tool, in order."""

    def find(self, name: str) -> Offered | None:
        """The offered tool that a name means, in any spelling."""
        key = self._catalog.names.key_of(name, self._catalog.servers)
        return None if key is None else self.tools.get(key)

    def definitions(self, kind: Kind) -> Mapping[str, OfferedDefinition]:
        """The prompts, resources or templates, by the name or URI that clients use, in order."""
        return self._beside_tools[kind]

    def listed(self, kind: Kind) -> tuple[bytes, ...]:
        """The prompts, resources or templates as clients are given them, each a raw JSON object."""
        if kind not in self._listed_beside:
            self._listed_beside[kind] = tuple(each.listed() for each in self.definitions(kind).values())
        return self._listed_beside[kind]

    def servers_of(self, kind: Kind) -> Collection[str]:
        """The servers whose prompts, resources or templates the profile shows, in the configuration's order."""
        shows = self._profile.prompts if kind is Kind.PROMPT else self._profile.resources
        return self._drawn_from if shows else ()

    @cached_property
    def templates(self) -> tuple[Template, ...]:
        """The templates that are shown as their servers wrote them."""
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
        """Every tool as `tools/list` gives it."""
        lists = (self._listing_of(server, tools) for server, tools in self._listed.items())
        return tuple(chain.from_iterable(lists))

    @cached_property
    def listing_bytes(self) -> int:
        """The total length of the listing in bytes."""
        return sum(map(len, self.listing))

    @cached_property
    def is_everything(self) -> bool:
        """Whether every tool of every server is offered."""
        servers = self._catalog.servers.values()
        return all(not entry.tools or self._listed.get(entry.name) is entry.tools for entry in servers)

    @cached_property
    def categories(self) -> tuple[str, ...]:
        """The categories that the profile may use, in the configuration's order."""
        allowed = self._profile.categories
        return tuple(name for name in self._catalog.categories if allowed is None or name in allowed)

    @cached_property
    def core(self) -> tuple[Offered, ...]:
        """The profile's core tools that are known, in its order."""
        found = (self.find(name) for name in self._profile.core_tools or ())
        return tuple(dict.fromkeys(offered for offered in found if offered is not None))

    def _offered(self, key: ToolKey) -> Offered:
        server, name = key
        tool = self._listed[server][name]
        category, description = self.rules.whole.get(server), tool.description
        if not self._catalog.chosen and (category is None or self.rules.has_texts):
            category, member = self.rules.place(key)
            description = self.rules.describe(tool, member)
        given = self._catalog.names.given.get(key, name)
        asks = self.rules.permission(key) is Permission.ASK
        form = self._profile.schemas
        return Offered(tool=tool, name=given, category=category, description=description, asks=asks, form=form)

    def _still_offered(self, before: Offer) -> dict[ToolKey, Offered]:
        """The offered tools of `before` that are surely still right."""
        if before._catalog.config is not self._catalog.config:
            return {}
        names, listed = self._catalog.names, self._listed
        alike = listed.keys() & self.rules.whole.keys() & before.rules.whole.keys()
        return {
            key: offered
            for key, offered in before.tools.made.items()
            if key[0] in alike
            and listed[key[0]].get(key[1]) is offered.tool
            and names.name_of(key) == offered.name
        }

    def _listing_of(self, server: str, tools: Mapping[str, Tool]) -> Iterator[bytes]:
        """The listing of one server: nearly always the bytes that it sent."""
        given = self._catalog.names.given
        untold = bool(self._catalog.chosen) or (server in self.rules.whole and not self.rules.has_texts)
        plain = untold and self._profile.schemas is SchemaForm.ORIGINAL
        return (
            tool.raw if plain and given.get((server, name), name) == name else self.tools[server, name].listed()
            for name, tool in tools.items()
        )


class Offers:
    """The offers of all profiles, each made once per change of the tools."""

    def __init__(self) -> None:
        self.choices = Choices()
        """The catalogs of clients that have chosen servers, or are not to see some."""
        self._made: dict[tuple[str, Collection[str]], tuple[Catalog, Profile, Offer]] = {}

    def of(self, catalog: Catalog, profile: Profile) -> Offer:
        """The present offer of a profile; the same object as long as nothing in it changes.

        Args:
            catalog: the present catalog, or what a client sees of it (`choices`).
            profile: the profile.
        """
        place = profile.name, catalog.chosen or catalog.elsewhere
        made = self._made.get(place)
        if made is not None and _same_lists(made[0], catalog) and made[1] is profile:
            return made[2]
        offer = Offer(catalog, profile, made[2] if made is not None and made[1] is profile else None)
        keep_latest(self._made, place, (catalog, profile, offer), MAX_OFFERS)
        return offer


class _All(Sequence["Offered"]):
    """The values of a mapping in its order; counting them makes none."""

    __slots__ = ("_places", "_tools")

    def __init__(self, tools: Lazily[ToolKey, Offered], places: range | None = None) -> None:
        self._tools = tools
        self._places = range(len(tools)) if places is None else places

    @overload
    def __getitem__(self, place: int) -> Offered: ...
    @overload
    def __getitem__(self, place: slice) -> _All: ...
    def __getitem__(self, place: int | slice) -> Offered | _All:
        if isinstance(place, slice):
            return _All(self._tools, self._places[place])
        return tuple(self._tools.values())[self._places[place]]

    def __iter__(self) -> Iterator[Offered]:
        return islice(self._tools.values(), self._places.start, self._places.stop)

    def __len__(self) -> int:
        return len(self._places)


def _same_lists(one: Catalog, other: Catalog) -> bool:
    return one is other or (
        one.categories is other.categories and one.naming is other.naming and one.lists is other.lists
    )
