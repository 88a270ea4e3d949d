"""How tools are described on all surfaces: their schemas, and what cannot be used now (design.md §6).

Descriptions are kept short: schemas come without white space and empty fields, and if they do not fit into one
answer there is a line for each tool, and how to ask for the schemas of some.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from daemon.catalog.definitions import compact, shown_parts
from daemon.errors import InvalidArguments, SchemaFetchError
from daemon.model import Kind
from daemon.safety.legible import legible_schema
from daemon.states import ServerState
from daemon.surfaces.answers import (
    MEMBER_BYTES,
    fitting,
    lines_within,
    names_within,
    share_of,
    size_of,
    unavailable_entry,
)
from daemon.surfaces.summing import tool_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from daemon.catalog.snapshot import ServerEntry
    from daemon.facts import ServerStatus
    from daemon.model import Tool
    from daemon.surfaces.base import View

HASH_DIGITS = 12
"""Hex digits of a tool's hash that a model is shown: 48 bits tell two definitions of one tool apart, and 64
digits would cost as much as a short description."""

_SCHEMAS = ("inputSchema", "outputSchema")
_EMPTY = frozenset({b"null", b"{}", b"[]", b'""'})
_ANNOTATIONS = msgspec.json.Decoder(dict[str, Any])


Described = tuple[str, "Tool", str]
"""The name to call a tool by, the tool, and its description."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """The tools of a description that fit into one answer."""

    tools: Mapping[str, object]
    """The definitions or lines of the tools, by the names to call them by."""
    end: int
    """The position among all tools at which this page ends."""
    left: int
    """How many tools come after this page."""
    whole: bool = True
    """Whether the page holds definitions; otherwise one line for each tool."""


def definition(view: View, tool: Tool, description: str) -> dict[str, object]:
    """A tool for a model: `{description, inputSchema, outputSchema?, annotations?, schemaHash}`."""
    parts = shown_parts(tool, view.profile.schemas)
    schemas = {
        key: Raw(legible_schema(compact(parts[key])))
        for key in _SCHEMAS
        if key in parts and parts[key] not in _EMPTY
    }
    annotations = _annotations(tool.parts.get("annotations", b"{}"))
    return {
        "description": description,
        **schemas,
        **({"annotations": annotations} if annotations else {}),
        "schemaHash": tool.schema_hash[:HASH_DIGITS],
    }


def _annotations(raw: bytes) -> Raw | None:
    """A tool's annotations without empty ones; None if none is left."""
    try:
        said = {
            key: value for key, value in _ANNOTATIONS.decode(raw).items() if value not in (None, "", {}, [])
        }
    except (msgspec.MsgspecError, RecursionError):
        return None
    return Raw(legible_schema(msgspec.json.encode(said))) if said else None


def paged(view: View, tools: Sequence[Described], room: int, start: int = 0) -> Page:
    """The definitions of as many tools as fit; at least one, which could not be called otherwise.

    Args:
        view: the view of the session.
        tools: all tools.
        room: bytes for the definitions.
        start: how many tools to skip.
    """
    defined = ((name, definition(view, tool, description)) for name, tool, description in tools[start:])
    return _page(fitting(defined, room), start, len(tools))


def outlined(view: View, tools: Sequence[Described], room: int, start: int = 0) -> Page:
    """A line for each of as many tools as fit into `room` bytes, from `start` on."""

    def line(number: int) -> str:
        _name, tool, description = tools[start + number]
        return tool_line(view.catalog.servers[tool.server], tool, description)

    names = [name for name, _tool, _description in tools[start:]]
    lines = lines_within(names, line, room, size_of({"description": ""}) + MEMBER_BYTES)
    return _page({name: {"description": said} for name, said in lines.items()}, start, len(tools), whole=False)


def _page(tools: Mapping[str, object], start: int, count: int, *, whole: bool = True) -> Page:
    end = start + len(tools)
    return Page(tools=tools, end=end, left=count - end, whole=whole)


def position(cursor: str | None, count: int) -> int:
    """The position that a cursor stands for.

    Raises:
        InvalidArguments: the cursor was never given out.
    """
    if cursor is None:
        return 0
    if cursor.isascii() and cursor.isdigit() and len(cursor) <= len(str(count)) and int(cursor) <= count:
        return int(cursor)
    raise InvalidArguments(
        f"{cursor[:20]!r} is no cursor. Leave it out to begin at the first tool, or use the one in meta.next of"
        " the last answer."
    )


def unlisted(entries: Iterable[ServerEntry], kinds: tuple[Kind, ...] = (Kind.TOOL,)) -> tuple[str, ...]:
    """The servers whose lists are unknown and may be known in a moment; waiting wakes dormant ones.

    Args:
        entries: the servers.
        kinds: which lists.
    """
    return tuple(
        entry.name
        for entry in entries
        if may_list(entry.status) and not all(has_listed(entry, kind) for kind in kinds)
    )


def may_list(status: ServerStatus) -> bool:
    """Whether waiting for a first list makes sense; waiting wakes a dormant server."""
    if status.of_instance and status.state is not ServerState.DISABLED:
        return True
    return status.is_unsettled or status.state in {ServerState.READY, ServerState.DORMANT}


def has_listed(entry: ServerEntry, kind: Kind) -> bool:
    """Whether a server has listed this, now or in an earlier run of the daemon, or has failed to."""
    if kind is Kind.TOOL:
        return entry.tools is not None or bool(entry.listing_error)
    return kind in entry.lists


def unlisted_of(view: View, names: Iterable[str]) -> tuple[str, ...]:
    """The servers worth waiting for that may have tools of these names."""
    catalog = view.catalog
    keys = [catalog.names.key_of(name, catalog.servers) for name in names]
    servers = {key[0] for key in keys if key is not None}
    return unlisted(entry for entry in view.servers.values() if entry.name in servers or None in keys)


def starting(entries: Iterable[ServerEntry]) -> tuple[str, ...]:
    """The servers that are about to list their tools for the first time; none is woken."""
    return tuple(entry.name for entry in entries if entry.awaited)


def require_lists(entries: Iterable[ServerEntry]) -> None:
    """Refuse to describe servers that are up and have never listed their tools.

    Raises:
        SchemaFetchError: one of them does not list its tools, and never has.
    """
    for entry in entries:
        if entry.tools is None and entry.listing_error and entry.available:
            raise SchemaFetchError(
                f"server {entry.name} does not list its tools: {entry.listing_error}. It is asked again"
                f" regularly; `mcpd restart {entry.name}` starts it afresh.",
                server=entry.name,
            )


def unavailable(view: View, entries: Iterable[ServerEntry], names: Iterable[str]) -> dict[str, object]:
    """The members of `meta` that name what cannot be called now, without empty ones.

    If there are too many for one answer, the first ones are named and the others counted.

    Args:
        view: the view of the session.
        entries: the servers concerned.
        names: the tools that cannot be called.
    """
    meta: dict[str, object] = {}
    room = share_of(view)
    absent = list(dict.fromkeys(names))
    named = names_within(absent, room)
    down = [entry for entry in entries if not entry.usable]
    told = fitting(((entry.name, unavailable_entry(entry, view.now())) for entry in down), room)
    if named:
        meta["unavailableTools"] = named
    if len(named) < len(absent):
        meta["unavailableToolsLeft"] = len(absent) - len(named)
    if told:
        meta["unavailableServers"] = told
    if len(told) < len(down):
        meta["unavailableServersLeft"] = len(down) - len(told)
    return meta
