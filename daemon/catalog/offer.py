"""What a profile offers: every tool that it lets through, once, under the one name that a client calls it by.

Categories group tools and may show one in several places; a flat surface shows each once. A tool is offered
unless it is switched off: in every category that holds it, or by the profile. A profile that names categories
offers their tools only; otherwise a tool in no category is offered, too.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import attrs
import msgspec
from msgspec import Raw

from daemon.catalog.category_registry import CategoryRegistry
from daemon.config.names import read_reference

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from daemon.catalog.categories import Member
    from daemon.catalog.snapshot import Catalog
    from daemon.config.model import Profile
    from daemon.model import Tool, ToolKey

MAX_OFFERS = 64
"""Profiles whose offer is kept ready: more than a configuration has."""


@attrs.frozen(kw_only=True, eq=False)
class Offered:
    """One tool as a profile shows it."""

    tool: Tool = attrs.field(repr=False)
    """The tool as its server described it."""
    name: str
    """What a client calls it."""
    category: str | None
    """The first category that holds it, of those that the profile may use."""
    description: str
    """The profile's text for it, else the category's, else the server's."""

    @property
    def key(self) -> ToolKey:
        """Which tool it is."""
        return self.tool.server, self.tool.name

    def listed(self, name: str | None = None) -> bytes:
        """The tool object of `tools/list`: the server's own bytes, unless something is said differently here.

        Args:
            name: what to call it; None is its name.
        """
        name = self.name if name is None else name
        if name == self.tool.name and self.description == self.tool.description:
            return self.tool.raw
        members: dict[str, object] = {key: Raw(value) for key, value in self.tool.parts.items()}
        return msgspec.json.encode({**members, "name": name, "description": self.description})


class Offer:
    """All that one profile offers at one moment. Never changes."""

    def __init__(self, catalog: Catalog, profile: Profile) -> None:
        """Sort out what the profile lets through."""
        self._catalog = catalog
        self._profile = profile
        self._places = _places(catalog, profile)
        self._excluded = _Named(profile.excluded_tools, catalog)
        self._optional = _Named(profile.included_optional_tools, catalog)
        self._texts = {
            key: text
            for name, text in profile.tool_description_overrides.items()
            for key in _Named((name,), catalog).among(_all_keys(catalog))
        }
        self.tools: Mapping[ToolKey, Offered] = {
            key: self._offered(key, tool) for key, tool in _all_tools(catalog) if self.allows(key)
        }
        """Tools in the order of the configuration's servers, and of each server's list."""

    def allows(self, key: ToolKey) -> bool:
        """Whether the profile lets a tool through, listed or not; an operator's word counts more."""
        if key in self._excluded or key in self._catalog.switched:
            return False
        if key in self._optional:
            return True
        return key not in self._catalog.off and (self._profile.categories is None or key in self._places)

    def shows(self, member: Member) -> bool:
        """Whether a category's tool is shown in that category."""
        key = (member.server, member.tool)
        if key in self._excluded or key in self._catalog.switched:
            return False
        return member.enabled or key in self._optional

    def describe(self, tool: Tool, member: Member | None) -> str:
        """What is said of a tool: the profile's text, else that of its category, else the server's."""
        text = self._texts.get((tool.server, tool.name), None if member is None else member.description)
        return tool.description if text is None else text

    def find(self, name: str) -> Offered | None:
        """The offered tool that a name means, in any spelling."""
        key = self._catalog.names.key_of(name, self._catalog.servers)
        return None if key is None else self.tools.get(key)

    @cached_property
    def all(self) -> tuple[Offered, ...]:
        """Every tool, in order."""
        return tuple(self.tools.values())

    @cached_property
    def listing(self) -> tuple[bytes, ...]:
        """Every tool as `tools/list` gives it."""
        return tuple(offered.listed() for offered in self.tools.values())

    @cached_property
    def listing_bytes(self) -> int:
        """How long the listing is."""
        return sum(map(len, self.listing))

    @cached_property
    def registry(self) -> CategoryRegistry:
        """The categories of the offered tools."""
        allowed = self._profile.categories
        names = [name for name in self._catalog.categories if allowed is None or name in allowed]
        filed = {each.name: each.category for each in self.tools.values() if each.category is not None}
        return CategoryRegistry.of(names, filed)

    @cached_property
    def core(self) -> tuple[Offered, ...]:
        """The profile's core tools that are known, in its order."""
        found = (self.find(name) for name in self._profile.core_tools)
        return tuple(dict.fromkeys(offered for offered in found if offered is not None))

    def _offered(self, key: ToolKey, tool: Tool) -> Offered:
        category, member = self._places.get(key, (None, None))
        return Offered(
            tool=tool,
            name=self._catalog.names.name_of(key),
            category=category,
            description=self.describe(tool, member),
        )


class Offers:
    """The offers of all profiles, made once per change of the tools."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[Catalog, Profile, Offer]] = {}

    def of(self, catalog: Catalog, profile: Profile) -> Offer:
        """What a profile offers now; the same object as long as no tool changed."""
        made = self._made.get(profile.name)
        if made is not None and _same_tools(made[0], catalog) and made[1] is profile:
            return made[2]
        offer = Offer(catalog, profile)
        if len(self._made) >= MAX_OFFERS:
            self._made.clear()
        self._made[profile.name] = (catalog, profile, offer)
        return offer


class _Named:
    """The tools that a list of names in a profile means; a bare name means every server's tool of that name."""

    def __init__(self, names: Iterable[str], catalog: Catalog) -> None:
        references = [read_reference(name, catalog.servers) for name in names]
        self._bare = frozenset(each.tool for each in references if each.server is None)
        # A bare name may also be a qualified one as clients are shown it: `server__tool`.
        shown = [read_reference(f"mcp__{name}", catalog.servers) for name in self._bare]
        self._full = frozenset(
            (each.server, each.tool)
            for each in (*references, *(each for each in shown if each.server in catalog.servers))
            if each.server is not None
        )

    def __contains__(self, key: ToolKey) -> bool:
        return key[1] in self._bare or key in self._full

    def among(self, keys: Iterable[ToolKey]) -> Iterator[ToolKey]:
        return (key for key in keys if key in self)


def _same_tools(one: Catalog, other: Catalog) -> bool:
    return one is other or (one.categories is other.categories and one.names is other.names)


def _all_tools(catalog: Catalog) -> Iterator[tuple[ToolKey, Tool]]:
    for entry in catalog.servers.values():
        for tool in ({} if entry.disabled else entry.tools or {}).values():
            yield (entry.name, tool.name), tool


def _all_keys(catalog: Catalog) -> Iterator[ToolKey]:
    return (key for key, _ in _all_tools(catalog))


def _places(catalog: Catalog, profile: Profile) -> dict[ToolKey, tuple[str, Member]]:
    """Where each tool is offered: the first category of the profile's that holds it, switched on."""
    places: dict[ToolKey, tuple[str, Member]] = {}
    for category in catalog.categories.values():
        if profile.categories is None or category.name in profile.categories:
            for member in category.members.values():
                if member.enabled:
                    places.setdefault((member.server, member.tool), (category.name, member))
    return places
