"""How tools are described, on every surface alike: schemas and what cannot be used now (design.md §6).

A description never repeats what nobody asked for: schemas come without white space and empty fields, and where
they do not fit one answer there is a line for each tool, and how to ask for the schemas of some.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import msgspec
from msgspec import Raw

from daemon.catalog.definitions import compact
from daemon.errors import InvalidArguments, SchemaFetchError
from daemon.safety.legible import legible_schema
from daemon.states import COMING, ServerState
from daemon.surfaces.answers import (
    MEMBER_BYTES,
    fitting,
    lines_within,
    names_within,
    share_of,
    size_of,
    unavailable_entry,
)
from daemon.surfaces.base import ALWAYS_LOAD
from daemon.surfaces.summing import tool_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from daemon.catalog.snapshot import ServerEntry
    from daemon.model import Tool
    from daemon.surfaces.base import View

HASH_DIGITS = 12
"""Of a tool's hash, that a model is shown: 48 bits tell two definitions of one tool apart, and 64 digits cost
as much as a short description."""

MAY_LIST = COMING | {ServerState.STOPPED, ServerState.READY, ServerState.DORMANT}
"""States in which waiting for a first list makes sense."""

_SCHEMAS = ("inputSchema", "outputSchema")
_EMPTY = frozenset({b"null", b"{}", b"[]", b'""'})
_ANNOTATIONS = msgspec.json.Decoder(dict[str, Any])


Described = tuple[str, "Tool", str]
"""A tool under the name to call it by, with what is said of it."""


@attrs.frozen(kw_only=True)
class Page:
    """As much of a description as fits one answer."""

    tools: Mapping[str, object]
    """What is said of tools, by the names to call them by."""
    end: int
    """Where among all of them these end."""
    left: int
    """How many tools come after these."""
    whole: bool = True
    """Whether these are definitions; otherwise a line each."""


def meta_tool(
    name: str,
    title: str,
    description: str,
    properties: Mapping[str, object],
    required: Sequence[str] = (),
    *,
    reads_only: bool = True,
) -> bytes:
    """The definition of a tool of our own, as it is listed.

    Its schema is never closed: what a model adds we can often make sense of, and a client that checks would
    turn it away.

    Args:
        name: the tool's.
        title: what a person is shown.
        description: what a model is told.
        properties: the schemas of its arguments.
        required: those that must be given.
        reads_only: whether it changes nothing and reaches nothing beyond this machine.
    """
    reading = {"readOnlyHint": True, "openWorldHint": False} if reads_only else {}
    return msgspec.json.encode(
        {
            "name": name,
            "description": description,
            "inputSchema": {
                "type": "object",
                "properties": properties,
                **({"required": required} if required else {}),
            },
            "annotations": {"title": title, **reading},
            "_meta": ALWAYS_LOAD,
        }
    )


def definition(tool: Tool, description: str) -> dict[str, object]:
    """What a model is told of a tool: `{description, inputSchema, outputSchema?, annotations?, schemaHash}`."""
    schemas = {
        key: Raw(legible_schema(compact(tool.parts[key])))
        for key in _SCHEMAS
        if key in tool.parts and tool.parts[key] not in _EMPTY
    }
    annotations = _annotations(tool.parts.get("annotations", b"{}"))
    return {
        "description": description,
        **schemas,
        **({"annotations": annotations} if annotations else {}),
        "schemaHash": tool.schema_hash[:HASH_DIGITS],
    }


def _annotations(raw: bytes) -> Raw | None:
    """A tool's annotations without those that say nothing; None if none is left."""
    try:
        said = {
            key: value for key, value in _ANNOTATIONS.decode(raw).items() if value not in (None, "", {}, [])
        }
    except (msgspec.MsgspecError, RecursionError):
        return None
    return Raw(legible_schema(msgspec.json.encode(said))) if said else None


def paged(tools: Sequence[Described], room: int, start: int = 0) -> Page:
    """The definitions of tools, as many as fit so many bytes, at least one: it could not be called otherwise.

    Args:
        tools: all of them.
        room: bytes.
        start: how many to leave out.
    """
    defined = ((name, definition(tool, description)) for name, tool, description in tools[start:])
    return _page(fitting(defined, room), start, len(tools))


def outlined(view: View, tools: Sequence[Described], room: int, start: int = 0) -> Page:
    """The names of tools with a line each, as many as fit so many bytes."""

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
    """Where a cursor points to.

    Raises:
        InvalidArguments: nobody gave it out.
    """
    if cursor is None:
        return 0
    if cursor.isascii() and cursor.isdigit() and len(cursor) <= len(str(count)) and int(cursor) <= count:
        return int(cursor)
    raise InvalidArguments(
        f"{cursor[:20]!r} is no cursor. Leave it out to begin at the first tool, or use the one in meta.next of"
        " the last answer."
    )


def unlisted(entries: Iterable[ServerEntry]) -> tuple[str, ...]:
    """The servers whose tools are unknown and may be known in a moment; asking wakes those that sleep."""
    return tuple(
        entry.name
        for entry in entries
        if entry.tools is None and not entry.listing_error and entry.status.state in MAY_LIST
    )


def unlisted_of(view: View, names: Iterable[str]) -> tuple[str, ...]:
    """Those servers worth waiting for that may have tools of these names."""
    catalog = view.catalog
    keys = [catalog.names.key_of(name, catalog.servers) for name in names]
    servers = {key[0] for key in keys if key is not None}
    return unlisted(entry for entry in view.servers.values() if entry.name in servers or None in keys)


def starting(entries: Iterable[ServerEntry]) -> tuple[str, ...]:
    """The servers on their way to a first list; nobody is woken for it."""
    return tuple(entry.name for entry in entries if entry.awaited)


def require_lists(entries: Iterable[ServerEntry]) -> None:
    """Refuse to describe servers that are up and do not say what they have.

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
    """The members of `meta` that name what cannot be called now, left out where there is nothing.

    Where they are too many for one answer the first ones are named and the others counted.

    Args:
        view: the moment.
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
