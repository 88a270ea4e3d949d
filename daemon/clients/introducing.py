"""What a client is told, in the handshake of both eras, of whom it is connected to.

That is mcpd, unless the client has chosen to see a single server as itself: then it is told what that server
has said in its own handshake, as far as mcpd passes on what that declares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from daemon.catalog.introduction import read_introduction
from daemon.clients.tasks import offers_tasks
from daemon.protocol import (
    HANDSHAKE_VERSIONS,
    IDENTITY,
    LIST_TTL_MS,
    MODERN_VERSION,
    SERVER_INFO_KEY,
    TASKS,
)
from daemon.safety.escape import legible
from daemon.safety.legible import legible_json
from daemon.surfaces.describing import may_list
from daemon.surfaces.full import down_lines
from daemon.surfaces.summing import server_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.catalog.entry import ServerEntry
    from daemon.catalog.introduction import Introduction
    from daemon.clients.client import Selection
    from daemon.config.model import Profile
    from daemon.surfaces.base import View

TITLE = "mcpd, the init system for MCP servers"

_encode = msgspec.json.encode


def capabilities(*, prompts: bool = True, resources: bool = True) -> dict[str, dict[str, bool]]:
    """The capabilities that mcpd declares to clients.

    Args:
        prompts: whether the client's profile offers prompts.
        resources: whether it offers resources.
    """
    declared: dict[str, dict[str, bool]] = {"tools": {"listChanged": True}}
    if prompts:
        declared["prompts"] = {"listChanged": True}
    if resources:
        declared["resources"] = {"subscribe": True, "listChanged": True}
    if prompts or resources:
        declared["completions"] = {}
    return {**declared, "logging": {}}


def declared_to(selection: Selection, servers: Mapping[str, ServerEntry]) -> dict[str, object]:
    """The capabilities that a client is told of: its profile may offer no prompts, or no resources.

    Of a single server, those that it declares itself; that a list may change is always said, since an operator
    or a new version may change any.

    Args:
        selection: what the client gets.
        servers: all servers.
    """
    ours = capabilities(prompts=selection.profile.prompts, resources=selection.profile.resources)
    said = _introduction(selection, servers)
    if said is None:
        return {**ours}
    theirs = {name: own for name, own in said.capabilities.items() if isinstance(own, dict)}
    changing = {"listChanged": True}
    return {
        name: {**theirs[name], **{key: value for key, value in members.items() if key in changing}}
        for name, members in ours.items()
        if name in theirs
    }


def in_handshake(selection: Selection, view: View, servers: Mapping[str, ServerEntry]) -> dict[str, object]:
    """The capabilities that `initialize` answers with: these, and tasks, which only that era has."""
    said, declared = _introduction(selection, servers), declared_to(selection, servers)
    if said is None:
        return {**declared, "tasks": TASKS} if offers_tasks(view) else declared
    return {**declared, "tasks": said.capabilities["tasks"]} if "tasks" in said.capabilities else declared


def instructions_for(selection: Selection, view: View) -> str | None:
    """The instructions for models; None where a single server gives none."""
    if selection.servers:
        said = _introduction(selection, view.catalog.servers)
        absent = any(entry.disabled for entry in view.catalog.servers.values())
        if said is None or absent:
            return selection.surface.instructions(view)
        own = None if said.instructions is None else legible(said.instructions)
        return "\n\n".join(filter(None, (down_lines(view), own))) or own
    profile: Profile = selection.profile
    text = profile.instructions or "\n\n".join(
        filter(None, (selection.surface.instructions(view), server_lines(view)))
    )
    return f"{text}\n{profile.prompt}" if profile.prompt else text


def info_for(selection: Selection, servers: Mapping[str, ServerEntry]) -> object:
    """The `serverInfo` of a single server, as that wrote it; None where it is mcpd's own."""
    said = _introduction(selection, servers)
    return None if said is None or said.info is None else msgspec.Raw(legible_json(bytes(said.info)))


def not_introduced(selection: Selection, servers: Mapping[str, ServerEntry]) -> tuple[str, ...]:
    """The chosen servers that have never been up, as far as is known, and may be in a moment."""
    entries = (servers[name] for name in selection.servers if name in servers)
    return tuple(
        entry.name
        for entry in entries
        if not entry.introduction and not entry.disabled and may_list(entry.status)
    )


def initialize_result(
    wanted: object, instructions: str | None, declared: Mapping[str, object], info: object = None
) -> bytes:
    """The answer to `initialize`: the client's version if we speak it, else our newest.

    Args:
        wanted: the version that the client has asked for.
        instructions: for models; None leaves them out.
        declared: what can be done for this client (`declared_to`).
        info: who is introduced; None: mcpd.
    """
    version = wanted if wanted in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
    return _encode(
        {
            "protocolVersion": version,
            "capabilities": declared,
            "serverInfo": {**IDENTITY, "title": TITLE} if info is None else info,
            **_if_said(instructions),
        }
    )


def discover_result(instructions: str | None, declared: Mapping[str, object], info: object = None) -> bytes:
    """The answer to `server/discover`; its arguments are those of `initialize_result`."""
    return _encode(
        {
            "resultType": "complete",
            "supportedVersions": [*HANDSHAKE_VERSIONS, MODERN_VERSION],
            "capabilities": declared,
            **_if_said(instructions),
            "ttlMs": LIST_TTL_MS,
            "cacheScope": "private",
            "_meta": {SERVER_INFO_KEY: IDENTITY if info is None else info},
        }
    )


def _if_said(instructions: str | None) -> dict[str, object]:
    return {} if instructions is None else {"instructions": instructions}


def _introduction(selection: Selection, servers: Mapping[str, ServerEntry]) -> Introduction | None:
    """What the only server has said that a client has chosen; None for others, and while it is not known."""
    entry = servers.get(selection.servers[0]) if len(selection.servers) == 1 else None
    return None if entry is None or not entry.introduction else read_introduction(entry.introduction)
