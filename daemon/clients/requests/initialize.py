"""Answers the handshakes of both eras, `ping`, and a bridge's hello."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import trio
from msgspec import UNSET, Raw

from daemon import protocol
from daemon.catalog.entry import ServerEntry
from daemon.catalog.extensions import Introduction, bounded, may_extend, passed_on, read_introduction
from daemon.clients.client import Selection
from daemon.clients.client_tasks import offers_tasks
from daemon.clients.connection import ClientConnection
from daemon.clients.requests.tools import answer_after, patience_of
from daemon.clients.server_requests import NOTHING
from daemon.clients.waits import wait_known
from daemon.config.config_model import Profile
from daemon.protocol import HANDSHAKE_VERSIONS, IDENTITY, LIST_TTL_MS, MODERN_VERSION, SERVER_INFO_KEY, TASKS
from daemon.safety.escape import legible
from daemon.safety.legible import legible_json
from daemon.surfaces.describing import may_list
from daemon.surfaces.full import down_lines
from daemon.surfaces.summing import server_lines
from daemon.surfaces.surface import AwaitListing, View

TITLE = "mcpd, the init system for MCP servers"

_encode = msgspec.json.encode


def capabilities(*, prompts: bool = True, resources: bool = True) -> dict[str, dict[str, bool]]:
    """The capabilities that mcpd declares, with or without prompts and resources."""
    declared: dict[str, dict[str, bool]] = {"tools": {"listChanged": True}}
    if prompts:
        declared["prompts"] = {"listChanged": True}
    if resources:
        declared["resources"] = {"subscribe": True, "listChanged": True}
    if prompts or resources:
        declared["completions"] = {}
    return {**declared, "logging": {}}


CHANGING = frozenset({"tools", "prompts", "resources"})
"""Capabilities whose lists may always change: an operator or a new version may change any list."""


def declared_to(selection: Selection, servers: Mapping[str, ServerEntry]) -> dict[str, Any]:
    """The capabilities that the client's profile allows, or those of the only server that it has chosen."""
    ours = capabilities(prompts=selection.profile.prompts, resources=selection.profile.resources)
    single = _introduction(selection, servers)
    if single is None:
        return {**ours}
    hidden = capabilities().keys() - ours.keys()
    theirs: dict[str, object] = {
        name: {**own, "listChanged": True} if name in CHANGING else own
        for name, own in single.capabilities.items()
        if isinstance(own, dict) and name not in hidden
    }
    return passed_on(theirs, alone=True, modern=single.modern)


def declared_in(
    selection: Selection, view: View, servers: Mapping[str, ServerEntry], *, modern: bool
) -> dict[str, object]:
    """The capabilities in the answer to a handshake; `tasks` is a capability in the handshake era only."""
    single, declared = _introduction(selection, servers), declared_to(selection, servers)
    if single is None:
        introductions = (each.said.introduction for each in view.servers.values())
        kept = (read_introduction(each) for each in introductions if may_extend(each))
        told = (passed_on(each.capabilities, alone=False, modern=each.modern) for each in kept if each)
        # Of two values, the first server's wins.
        if extensions := dict(ChainMap(*(each.get("extensions", {}) for each in told))):
            declared["extensions"] = extensions
        if offers_tasks(view):
            declared["tasks"] = TASKS
    if modern:
        declared.pop("tasks", None)
    return passed_on(declared, alone=True, modern=modern)


def instructions_for(selection: Selection, view: View) -> str | None:
    """The instructions for models; None if a client's only server has none."""
    if selection.servers:
        single = _introduction(selection, view.catalog.servers)
        absent = any(entry.disabled for entry in view.catalog.servers.values())
        if single is None or absent:
            return selection.surface.instructions(view)
        own = None if single.instructions is None else legible(single.instructions)
        return "\n\n".join(filter(None, (down_lines(view), own))) or own
    profile: Profile = selection.profile
    text = profile.instructions or "\n\n".join(
        filter(None, (selection.surface.instructions(view), server_lines(view)))
    )
    return f"{text}\n{profile.prompt}" if profile.prompt else text


def not_introduced(selection: Selection, servers: Mapping[str, ServerEntry]) -> tuple[str, ...]:
    """The chosen servers that mcpd has never seen up, but which may soon be."""
    entries = (servers[name] for name in selection.servers if name in servers)
    return tuple(
        entry.name
        for entry in entries
        if not entry.said.introduction and not entry.disabled and may_list(entry.status)
    )


VERSION, VERSIONS = "protocolVersion", "supportedVersions"
"""The members that name revisions: `VERSION` in results of the handshake era, `VERSIONS` in modern ones."""


def introduction(
    selection: Selection, view: View, servers: Mapping[str, ServerEntry], *, modern: bool
) -> dict[str, Any]:
    """The members of a handshake's result about mcpd, or about the only server that a client has chosen."""
    single, version = _introduction(selection, servers), VERSIONS if modern else VERSION
    members: dict[str, Any] = {} if single is None or version not in single.others else {**single.others}
    members["capabilities"] = declared_in(selection, view, servers, modern=modern)
    if (instructions := instructions_for(selection, view)) is not None:
        members["instructions"] = instructions
    if single is not None and single.info is not UNSET:
        members["serverInfo"] = Raw(legible_json(bytes(single.info)))
    return members


def initialize_result(wanted: object, members: Mapping[str, Any]) -> bytes:
    """The answer to `initialize` from an introduction, in the client's version or the server's if older."""
    newest = _decoded(members.get(VERSION))
    newest = newest if newest in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
    spoken = HANDSHAKE_VERSIONS[: HANDSHAKE_VERSIONS.index(newest) + 1]
    info = {**IDENTITY, "title": TITLE}
    return _encode({"serverInfo": info, **members, VERSION: wanted if wanted in spoken else newest})


def discover_result(members: Mapping[str, Any]) -> bytes:
    """The answer to `server/discover` from an introduction, with versions that mcpd and the server speak."""
    ours = (*HANDSHAKE_VERSIONS, MODERN_VERSION)
    theirs, own = _decoded(members.get(VERSIONS)), _decoded(members.get("_meta"))
    info = members.get("serverInfo", IDENTITY)
    return _encode(
        {
            **{key: value for key, value in members.items() if key != "serverInfo"},
            "resultType": "complete",
            VERSIONS: [each for each in theirs if each in ours] if isinstance(theirs, list) else ours,
            "ttlMs": LIST_TTL_MS,
            "cacheScope": "private",
            "_meta": {**(own if isinstance(own, dict) else {}), SERVER_INFO_KEY: info},
        }
    )


def _decoded(raw: Raw | None) -> object:
    return None if raw is None else msgspec.json.decode(raw)


def _introduction(selection: Selection, servers: Mapping[str, ServerEntry]) -> Introduction | None:
    entry = servers.get(selection.only)
    return None if entry is None else read_introduction(entry.said.introduction)


_NOBODY = Raw(b"{}")
"""Replaces a missing `clientInfo` where the connection's previous request may have been another client's."""


def initialize(connection: ClientConnection, request_id: bytes, params: Raw | None) -> None:
    """Answer `initialize` (MCP 2024-11-05 to 2025-11-25). Raises MsgspecError if the params are malformed."""
    fields = protocol.decode_initialize(params or b"{}")
    connection.name_client(fields.clientInfo)
    if fields.capabilities is not UNSET:
        _declare(connection, fields.capabilities)
        connection.calls.server_requests.capabilities = connection.client.capabilities

    def answer() -> None:
        result = initialize_result(fields.protocolVersion, _introduction_to(connection, modern=False))
        connection.client.protocol = msgspec.json.decode(result)["protocolVersion"]
        connection.lists.handshaken = True
        connection.peer.answer(request_id, result)

    _when_introduced(connection, request_id, answer)


def discover(connection: ClientConnection, request_id: bytes, _params: Raw | None) -> None:
    """Answer `server/discover` (MCP 2026-07-28)."""

    def answer() -> None:
        connection.peer.answer(request_id, discover_result(_introduction_to(connection, modern=True)))

    _when_introduced(connection, request_id, answer)


def _introduction_to(connection: ClientConnection, *, modern: bool) -> dict[str, Any]:
    view, servers = connection.attachments.own.view(), connection.context.catalog.value.servers
    return introduction(connection.selection, view, servers, modern=modern)


def declared(connection: ClientConnection) -> dict[str, Any]:
    """The capabilities declared to this client (`declared_to`)."""
    return declared_to(connection.selection, connection.context.catalog.value.servers)


def ping(connection: ClientConnection, request_id: bytes, _params: Raw | None) -> None:
    """Answer `ping`."""
    connection.peer.answer(request_id, b"{}")


def accept_version(connection: ClientConnection, request_id: bytes, meta: Mapping[str, Raw]) -> bool:
    """Read a 2026-07-28 envelope; False if its version was refused. Raises MsgspecError if malformed."""
    version = msgspec.json.decode(meta[protocol.VERSION_KEY])
    if version != protocol.MODERN_VERSION:
        connection.peer.refuse(request_id, *protocol.unsupported(version))
        return False
    connection.client.protocol = version
    # A client may declare others with each request, and behind a balancer clients share a connection.
    if (capabilities := meta.get(protocol.CAPABILITIES_KEY, NOTHING)) != connection.client.capabilities:
        _declare(connection, capabilities)
    info = meta.get(protocol.CLIENT_INFO_KEY)
    if info is None and connection.info and not connection.client.principal.keeps:
        info = _NOBODY
    if info is not None and bytes(info) != connection.info:
        connection.info = bytes(info)
        connection.name_client(msgspec.json.decode(info))
    return True


def _declare(connection: ClientConnection, capabilities: Raw) -> None:
    client, (usable, dropped) = connection.client, bounded(capabilities)
    if dropped:
        # Each request repeats it, and over HTTP may be the first of its connection.
        level = "WARNING" if client.principal.keeps and client.capabilities is NOTHING else "DEBUG"
        connection.client_log.log(level, "mcpd drops these of the client's capabilities: {}", dropped)
    if usable != client.capabilities:
        client.capabilities = usable.copy()


def hello(connection: ClientConnection, wishes: dict[str, object]) -> None:
    """Take a bridge's hello, the first message of its connection (`protocol.HELLO`)."""
    connection.client.wish(wishes)
    connection.client.workspace.take_hello(wishes)
    if fault := connection.attachments.take_hello(wishes):
        connection.client_log.warning("mcpd cannot store the tools that this client loads: {}", fault)
    if moved := connection.context.moves.get(connection.attachments.key or ""):
        connection.move(moved)
    if denied := connection.selection.denied:
        connection.client_log.warning("{}", denied)


def _when_introduced(connection: ClientConnection, request_id: bytes, answer: Callable[[], None]) -> None:
    context, attachments = connection.context, connection.attachments
    servers = not_introduced(connection.selection, context.catalog.value.servers)

    async def known() -> None:
        # A session that must be recalled is waited for by its first request.
        session = attachments.present(attachments.key_of({})) or attachments.own
        with trio.move_on_after(patience_of(connection.client.info)):
            await wait_known(context, AwaitListing(servers=servers, chosen=True), session, request_id)
            await context.settled()

    if servers:
        answer_after(connection, request_id, "a handshake", known, answer)
    else:
        answer()
