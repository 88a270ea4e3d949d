"""What a configuration leaves unsaid, or says in one place and takes back in another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.config.names import read_reference
from daemon.config.patterns import matches
from daemon.config.trail import ROOT, below
from daemon.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from daemon.config.model import Category, Config
    from daemon.model import ToolKey


def oversights(config: Config) -> list[Fault]:
    """Everything of the kind, each at its place in the file."""
    return [*_undescribed(config), *_still_offered(config)]


def _undescribed(config: Config) -> Iterator[Fault]:
    """Servers of which a model is told no more than can be drawn from what they say and list themselves."""
    described = {category.server for category in config.categories.values() if category.description}
    for name, server in config.mcp_servers.items():
        if server.enabled and not server.description and name not in described:
            yield Fault(
                path=below(below(ROOT, "mcpServers"), name),
                message="this server has no 'description': a model that looks for something is shown the first"
                " sentence that the server says of itself, else the names of its tools, and before the first"
                " start its name alone. Say in a sentence what it is good for",
            )


def _still_offered(config: Config) -> Iterator[Fault]:
    """Tools that one category switches off and another has."""
    servers = config.mcp_servers
    for category in config.categories.values():
        here = below(below(below(below(ROOT, "categories"), category.name), "tools"), "overrides")
        for name, override in category.tools.overrides.items():
            if override.enabled:
                continue
            key = _key(name, category, servers)
            server = servers.get(key[0])
            if server is not None and not server.enabled:
                continue
            others = [other.name for other in config.categories.values() if _offers(other, key, servers)]
            if others:
                yield Fault(
                    path=below(below(here, name), "enabled"),
                    message=f"this switches the tool off in this category only: {_listed(others)} still"
                    f" {'has' if len(others) == 1 else 'have'} it. If nobody is to call it, switch it off"
                    " there, too",
                )


def _key(name: str, category: Category, servers: Mapping[str, object]) -> ToolKey:
    reference = read_reference(name, servers)
    return reference.server or category.server or "", reference.tool


def _offers(category: Category, key: ToolKey, servers: Mapping[str, object]) -> bool:
    """Whether a category would have a tool, switched on, if its server listed it."""
    tools = category.tools
    off = (name for name, override in tools.overrides.items() if not override.enabled)
    if any(_key(name, category, servers) == key for name in off):
        return False
    if any(matches(pattern, *key) for pattern in tools.exclude_patterns):
        return False
    if any(_key(name, category, servers) == key for name in tools.include_names):
        return True
    is_drawn_from = category.server in {None, key[0]}
    if tools.include_patterns:
        return is_drawn_from and any(matches(pattern, *key) for pattern in tools.include_patterns)
    return is_drawn_from and not tools.include_names


def _listed(names: list[str]) -> str:
    quoted = [f"'{name}'" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
