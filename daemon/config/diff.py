"""The least that has to be done to get from one configuration to another.

A server is touched only if what its actor was built with differs. What the daemon itself was built with (its
sockets, its store, its bounds) needs a restart: such a change is reported, and the old value stays in force.

`same` tells whether two configurations are equal and in the same order everywhere. Equality alone is not
enough: servers, categories and profiles are shown in the order of the file, but mappings compare without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from daemon.config.model import Config, Server

FIXED = ("listen", "state", "limits", "search")
"""Keys that the running daemon was built with: changing them needs a restart."""

APPLIED = ("autostart", "categories", "idle", "lazy", "metrics", "profiles", "summaries", "watch")
"""Keys other than `mcpServers` that are read from the catalog on each use, so that changes apply at once."""


@attrs.frozen(kw_only=True)
class Plan:
    """What to do: names of servers in the order of the new configuration (`removed`: of the old one).

    Each server of either configuration is in exactly one of the first seven fields.
    """

    added: tuple[str, ...] = ()
    """New servers, to be started unless the configuration disables them."""
    removed: tuple[str, ...] = ()
    """Servers to stop and forget."""
    enabled: tuple[str, ...] = ()
    """Servers that the configuration enables again: to be started."""
    disabled: tuple[str, ...] = ()
    """Servers that the configuration now disables: to be stopped."""
    restarted: tuple[str, ...] = ()
    """Servers to restart with their new configuration."""
    changed: tuple[str, ...] = ()
    """Servers of which only the description changed: they keep running."""
    kept: tuple[str, ...] = ()
    """Servers that the change does not affect."""
    sections: tuple[str, ...] = ()
    """Keys other than `mcpServers` that changed and take effect at once."""
    needs_restart_of_daemon: tuple[str, ...] = ()
    """Keys that changed and take effect only when the daemon is restarted."""


def plan(old: Config, new: Config) -> Plan:
    """What to do to get from the configuration in force to a new one."""
    told: dict[str, list[str]] = {}
    for name, server in new.mcp_servers.items():
        told.setdefault(_what_became(old.mcp_servers.get(name), server), []).append(name)
    return Plan(
        removed=tuple(name for name in old.mcp_servers if name not in new.mcp_servers),
        sections=_different(old, new, APPLIED),
        needs_restart_of_daemon=_different(old, new, FIXED),
        **{what: tuple(names) for what, names in told.items()},
    )


def in_force(old: Config, new: Config) -> Config:
    """The configuration once the plan is applied: the new one with the old one's `FIXED` keys."""
    return attrs.evolve(new, **{key: getattr(old, key) for key in FIXED})


def _what_became(old: Server | None, new: Server) -> str:
    """The field of `Plan` that a server of the new configuration belongs to."""
    if old is None:
        return "added"
    if old.enabled != new.enabled:
        return "enabled" if new.enabled else "disabled"
    if new.enabled and _built_with(old) != _built_with(new):
        return "restarted"
    return "kept" if old == new else "changed"


def _built_with(server: Server) -> Server:
    """The server without what its actor does not depend on; a new key counts unless it is excluded here."""
    return attrs.evolve(server, title="", description="", substituted=frozenset(), credentials=frozenset())


def _different(old: Config, new: Config, keys: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(key for key in keys if getattr(old, key) != getattr(new, key))


def same(one: object, other: object) -> bool:
    """Whether two configurations, or parts of them, have the same values in the same order."""
    if one is other:
        return True
    kind = type(one)
    if kind is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(item, other[key]) for key, item in one.items())
    if attrs.has(kind):
        names = [field.name for field in attrs.fields(kind)]
        return all(same(getattr(one, name), getattr(other, name)) for name in names)
    return one == other
