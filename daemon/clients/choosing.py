"""Which servers a client may choose to see as themselves, by name: those that its profile shows something of.

Only the configuration is asked. What of such a server the profile restricts stays restricted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.config.names import read_reference
from daemon.surfaces.answers import choices, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daemon.config.model import Category, Config, Profile

MAX_CHOSEN = 64
"""Servers that one client may choose: more than an agent has entries."""


def read_choice(said: object) -> tuple[str, ...] | None:
    """The servers that a hello names, each once; none if it has no such member, None if that cannot be read."""
    if said is None:
        return ()
    if not isinstance(said, list) or not 1 <= len(said) <= MAX_CHOSEN:
        return None
    names = [each for each in said if isinstance(each, str) and each]
    return tuple(dict.fromkeys(names)) if len(names) == len(said) else None


def fault_of_choice(config: Config, profile: Profile, servers: tuple[str, ...] | None) -> str:
    """Why a client of a profile may not see these servers as themselves; empty if it may.

    A server that is not configured denies a client nothing of the others: a reload may bring it back.

    Args:
        config: the configuration.
        profile: the client's.
        servers: as `read_choice` has read them.
    """
    if servers is None:
        return f"`servers` is not a list of 1 to {MAX_CHOSEN} names of servers"
    if not servers:
        return ""
    shown = [name for name in config.mcp_servers if _shows(config, profile, name)]
    present = [name for name in servers if name in config.mcp_servers]
    if not present:
        name = servers[0]
        return f"there is no server {quoted(name)} in mcpd's configuration. {choices(shown, name)}"
    for name in present:
        if name not in shown:
            what = f"profile {quoted(profile.name)} shows nothing of server {quoted(name)}"
            return f"{what}: none of its categories draws from that. {choices(shown, name)}"
    return ""


def _shows(config: Config, profile: Profile, server: str) -> bool:
    """Whether a profile shows something of a server, or may."""
    optional = profile.included_optional_tools
    if profile.categories is None or _names(config, optional, server):
        return True
    if any(read_reference(each, config.mcp_servers).server is None for each in optional):
        # A bare name means every server's tool of that name.
        return True
    if not config.categories:
        # Then each server is a category.
        return server in profile.categories
    drawn = (config.categories[name] for name in profile.categories if name in config.categories)
    return any(_draws_from(config, category, server) for category in drawn)


def _draws_from(config: Config, category: Category, server: str) -> bool:
    tools = category.tools
    if category.server == server or _names(config, (*tools.include_names, *tools.overrides), server):
        return True
    is_open = not tools.include_names or bool(tools.include_patterns)
    return category.server is None and is_open


def _names(config: Config, tools: Iterable[str], server: str) -> bool:
    """Whether one of these names of tools names this server."""
    return any(read_reference(each, config.mcp_servers).server == server for each in tools)
