"""Whether a tool that a session has loaded can still be used: the validity gate of seed 002, §8.

One pure function decides, from what is the case now. It is asked at each request, and in bulk when an epoch
rises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from daemon.catalog.loaded import VALID, LoadedStatus, Verdict
from daemon.config.names import spellings

if TYPE_CHECKING:
    from daemon.catalog.loaded import LoadedTool
    from daemon.catalog.snapshot import Catalog
    from daemon.model import ToolKey

_S = LoadedStatus


@attrs.frozen(kw_only=True)
class Standing:
    """What is the case with one tool now."""

    server_configured: bool
    """Whether its server stands in the configuration."""
    server_enabled: bool = True
    """Whether that is switched on."""
    listed: bool = True
    """Whether the server's tools are known: until they are, nothing speaks against one."""
    schema_hash: str | None = None
    """The tool's; None if the server has no such tool."""
    enabled: bool = True
    """Whether the tool is switched on."""
    renamed_to: str | None = None
    """The name of the tool that has its contents now, if it went and exactly one such came."""


def judge(loaded_hash: str, server: str, tool: str, now: Standing) -> Verdict:
    """What became of a tool since a session loaded it.

    Args:
        loaded_hash: its schema hash then.
        server: its server's name, for the reason.
        tool: its name, for the reason.
        now: what is the case.
    """
    gone = now.schema_hash is None
    is_so = (
        (
            not now.server_configured,
            _S.INVALID_DELETED,
            "server {server} is no longer in mcpd's configuration",
        ),
        (not now.server_enabled, _S.INVALID_SERVER_DISABLED, "server {server} is switched off"),
        (not now.listed, _S.VALID, ""),
        (gone and now.renamed_to, _S.INVALID_RENAMED, "server {server} calls it {renamed_to} now"),
        (gone, _S.INVALID_DELETED, "server {server} no longer has it"),
        (not now.enabled, _S.INVALID_DISABLED, "{tool} is switched off"),
        (
            now.schema_hash != loaded_hash,
            _S.INVALID_CHANGED,
            "server {server} has changed it since it was loaded",
        ),
    )
    status, reason = next(((status, reason) for holds, status, reason in is_so if holds), (_S.VALID, ""))
    if status is _S.VALID:
        return VALID
    return Verdict(
        status=status,
        reason=reason.format(server=server, tool=tool, renamed_to=now.renamed_to),
        renamed_to=now.renamed_to if status is _S.INVALID_RENAMED else None,
    )


def standing(catalog: Catalog, key: ToolKey) -> Standing:
    """What is the case with a tool in a catalog, whatever a profile makes of it."""
    server, name = key
    entry = catalog.servers.get(server)
    if entry is None:
        return Standing(server_configured=False)
    tool = None if entry.tools is None else entry.tools.get(name)
    return Standing(
        server_configured=True,
        server_enabled=not entry.disabled,
        listed=entry.tools is not None,
        schema_hash=None if tool is None else tool.schema_hash,
        enabled=key not in catalog.off or _is_wanted(catalog, key),
        renamed_to=entry.renamed.get(name),
    )


def _is_wanted(catalog: Catalog, key: ToolKey) -> bool:
    """Whether some profile includes what the categories switch off: its sessions may have loaded it.

    A profile that does not offer it gives it to nobody, however it is judged. An operator's word counts more.
    """
    server, tool = key
    written = {*spellings(server, tool), f"{server}__{tool}"}
    profiles = catalog.config.profiles.values()
    return key not in catalog.switched and any(
        not written.isdisjoint(profile.included_optional_tools) for profile in profiles
    )


def judge_stored(catalog: Catalog, server: str, tool: str, loaded_hash: str) -> Verdict:
    """`judge` by what a catalog says now, of whatever sessions have loaded it in that form."""
    return judge(loaded_hash, server, tool, standing(catalog, (server, tool)))


def judge_in(catalog: Catalog, loaded: LoadedTool) -> Verdict:
    """`judge` by what a catalog says now, and for renames by what was said of the tool before."""
    now = standing(catalog, loaded.key)
    known = loaded.verdict.renamed_to
    if known is not None and now.renamed_to is None and _has(catalog, loaded.key[0], known):
        now = attrs.evolve(now, renamed_to=known)
    return judge(loaded.schema_hash, *loaded.key, now)


def _has(catalog: Catalog, server: str, tool: str) -> bool:
    entry = catalog.servers.get(server)
    return entry is not None and tool in (entry.tools or {})
