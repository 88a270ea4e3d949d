"""Decides by a profile's rules if calls of a tool are allowed, asked about or denied. The first match wins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING

from daemon.config.config_model import Annotations, Permission, PermissionRule, Profile
from daemon.config.names import matches
from daemon.config.validate import server_in
from daemon.protocol import decode_object, decoded

if TYPE_CHECKING:
    from daemon.catalog.entry import ServerEntry
    from daemon.model import Tool

KEPT = 4096
"""Cached annotations: the tools of a server have few different ones."""


def annotations_of(tool: Tool) -> Annotations:
    """A tool's annotations, with MCP's defaults for missing ones."""
    return _annotations(tool.parts.get("annotations", b"{}"))


@lru_cache(maxsize=KEPT)
def _annotations(raw: bytes) -> Annotations:
    members = decoded(decode_object, raw) or {}
    read_only = members.get("readOnlyHint") is True
    return Annotations(
        read_only=read_only,
        destructive=not read_only and members.get("destructiveHint") is not False,
        idempotent=members.get("idempotentHint") is True,
        open_world=members.get("openWorldHint") is not False,
    )


def fits(rule: PermissionRule, tool: Tool) -> bool:
    """Whether a rule matches a tool."""
    if rule.match is not None and not matches(rule.match, tool.server, tool.name):
        return False
    if rule.annotations is None:
        return True
    return rule.annotations.wanted.items() <= annotations_of(tool).wanted.items()


def rule_for(rules: Sequence[PermissionRule], tool: Tool) -> PermissionRule | None:
    """The first matching rule."""
    return next((rule for rule in rules if fits(rule, tool)), None)


def described(rule: PermissionRule) -> str:
    """Describe the tools that a rule is for: `git/push_*, destructive: true`."""
    wanted = {} if rule.annotations is None else rule.annotations.wanted
    about = [f"{name.replace('_', '-')}: {str(value).lower()}" for name, value in wanted.items()]
    return ", ".join(([] if rule.match is None else [rule.match]) + about) or "all tools"


def ruled(profile: Profile, tool: Tool | None) -> str:
    """Describe the rule of a profile that matches a tool, for records; empty without one."""
    rule = None if tool is None else rule_for(profile.permissions, tool)
    return "" if rule is None else f"{profile.name}: {described(rule)}: {rule.then}"


def permission_of(rules: Sequence[PermissionRule], tool: Tool) -> Permission:
    """The decision of the first matching rule."""
    rule = rule_for(rules, tool)
    return Permission.ALLOW if rule is None else rule.then


def permission_of_name(rules: Sequence[PermissionRule], server: str, name: str) -> Permission | None:
    """The decision on a tool by its name alone; None if the decision depends on more."""
    for rule in rules:
        if rule.match is None or matches(rule.match, server, name):
            return rule.then if rule.annotations is None else None
    return Permission.ALLOW


class Permissions:
    """A profile's decisions, made once per list of tools."""

    def __init__(self, rules: Sequence[PermissionRule]) -> None:
        self.rules = tuple(rules)
        self.hides = any(rule.then is Permission.DENY for rule in rules)
        self._known: dict[str, tuple[Mapping[str, Tool], Mapping[str, Permission]]] = {}

    def among(self, server: str, tools: Mapping[str, Tool]) -> Mapping[str, Permission]:
        """The decision on each tool in a server's list."""
        known = self._known.get(server)
        if known is None or known[0] is not tools:
            found = {name: permission_of(self.rules, tool) for name, tool in tools.items()}
            known = self._known[server] = tools, found
        return known[1]

    def of(self, server: str, name: str, tools: Mapping[str, Tool] | None) -> Permission | None:
        """The decision on a tool; None if it depends on the definition and `tools` is None."""
        if not self.rules:
            return Permission.ALLOW
        found = None if tools is None else self.among(server, tools).get(name)
        return permission_of_name(self.rules, server, name) if found is None else found


def pointless(rules: Sequence[PermissionRule], servers: Mapping[str, ServerEntry]) -> Iterator[tuple[str, str]]:
    """The patterns that certainly match no tool, each with the reason."""
    for pattern in dict.fromkeys(rule.match for rule in rules if rule.match is not None):
        named = server_in(pattern, servers)
        about = [entry for name, entry in servers.items() if named is None or fnmatchcase(name, named)]
        if not about:
            yield pattern, f"there is no server {named}"
        elif not any(entry.tools is None or _has(entry, pattern) for entry in about):
            listing = about[0].name if len(about) == 1 else "no server"
            yield pattern, f"{listing} lists {'no such tool' if len(about) == 1 else 'such a tool'}"


def _has(entry: ServerEntry, pattern: str) -> bool:
    return any(matches(pattern, entry.name, name) for name in entry.tools or ())
