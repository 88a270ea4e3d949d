"""Which tools a profile allows, in which category each is shown, and by which description.

A tool is allowed unless it is switched off in every category that holds it, or excluded by the profile. A
profile that names categories allows their tools only; otherwise a tool in no category is allowed, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.catalog.permissions import Permissions
from daemon.config.names import read_reference, read_shown
from daemon.config.permission import Permission

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from daemon.catalog.categories import Member, ToolCategory
    from daemon.catalog.snapshot import Catalog
    from daemon.config.model import Profile
    from daemon.model import Tool, ToolKey


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
