"""From one configuration to another: what has to be done, as little of it as possible.

A server is touched only if what its actor was built with is other now. What the daemon itself was built with
(its sockets, its store, its bounds) needs a new start: such a change is named, and the old value stays in
force.

Whether two configurations are one and the same: equal, and in the same order everywhere.

Equality alone does not tell: servers, categories and profiles are shown in the order in which the file has
them, and a mapping equals another one in a different order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from daemon.config.model import Config, Server

FIXED = ("listen", "state", "limits", "search")
"""Keys of the configuration that the running daemon was built with."""

APPLIED = ("categories", "lazy", "metrics", "profiles", "summaries", "watch")
"""Keys besides `mcpServers` that are read from the catalog each time, and so count at once."""


@attrs.frozen(kw_only=True)
class Plan:
    """What to do, by names of servers in the order of the new configuration (`removed`: of the old one).

    Each server of either configuration stands in exactly one of the first seven.
    """

    added: tuple[str, ...] = ()
    """New ones, to be started unless the configuration switches them off."""
    removed: tuple[str, ...] = ()
    """To be stopped and forgotten."""
    enabled: tuple[str, ...] = ()
    """The configuration switches them on again: to be started."""
    disabled: tuple[str, ...] = ()
    """The configuration switches them off now: to be stopped."""
    restarted: tuple[str, ...] = ()
    """To be restarted, with their new configuration."""
    changed: tuple[str, ...] = ()
    """Only their description changed: they keep running."""
    kept: tuple[str, ...] = ()
    """Servers that the change does not concern."""
    sections: tuple[str, ...] = ()
    """Keys other than `mcpServers` that changed and take effect at once."""
    needs_restart_of_daemon: tuple[str, ...] = ()
    """Keys that changed and take effect only when the daemon is restarted."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be done; what waits for a new start of the daemon is nothing."""
        servers = (self.added, self.removed, self.enabled, self.disabled, self.restarted, self.changed)
        return not any((*servers, self.sections))


def plan(old: Config, new: Config) -> Plan:
    """What leads from the configuration in force to one that was read."""
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
    """What counts once the plan is applied: the new configuration with the old one's `FIXED` keys."""
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
    """The server without what its actor does not depend on; a key of tomorrow counts until it is named here."""
    return attrs.evolve(server, description="", substituted=frozenset(), credentials=frozenset())


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
