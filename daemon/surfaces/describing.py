"""How tools are described, on every surface alike: schemas and what cannot be used now (design.md §6).

A description never repeats what nobody asked for: schemas come without white space and empty fields, and what
does not fit one answer stays behind a cursor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import msgspec
from msgspec import Raw

from daemon.catalog.compact import compact
from daemon.catalog.legible import legible_schema
from daemon.catalog.snapshot import may_be_about_to_list
from daemon.errors import InvalidArguments, SchemaFetchError
from daemon.states import ServerState
from daemon.surfaces.answers import unavailable_entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from daemon.catalog.snapshot import ServerEntry
    from daemon.model import Tool
    from daemon.surfaces.base import View

PAGE_BYTES = 256 * 1024
"""Schemas in one answer, in bytes: some 64,000 tokens, twenty times the median server. The rest is a call
away."""

FRAME_BYTES = 100
"""What a definition takes besides its name, description and schemas: keys, and the beginning of its hash."""

HASH_DIGITS = 12
"""Of a tool's hash, that a model is shown: 48 bits tell two definitions of one tool apart, and 64 digits cost as
much as a short description."""

MAY_LIST = frozenset({ServerState.STARTING, ServerState.STOPPED, ServerState.READY, ServerState.DORMANT})
"""States in which waiting for a first list makes sense."""

_SCHEMAS = ("inputSchema", "outputSchema")
_EMPTY = frozenset({b"null", b"{}", b"[]", b'""'})
_ANNOTATIONS = msgspec.json.Decoder(dict[str, Any])


@attrs.frozen(kw_only=True)
class Page:
    """As much of a description as fits one answer."""

    tools: dict[str, object]
    """Definitions by the names to call them by."""
    cursor: str | None
    """What to ask with for the rest; None if there is none."""
    left: int
    """How many tools the rest has."""


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


def paged(tools: Sequence[tuple[str, Tool, str]], cursor: str | None) -> Page:
    """The definitions of (name, tool, description) from a cursor on, as many as fit one answer, at least one.

    Raises:
        InvalidArguments: nobody gave out this cursor.
    """
    start = position(cursor, len(tools))
    described: dict[str, object] = {}
    size = 0
    for at in range(start, len(tools)):
        name, tool, description = tools[at]
        told = definition(tool, description)
        schemas = sum(len(value) for value in told.values() if isinstance(value, Raw))
        size += FRAME_BYTES + len(name.encode()) + len(description.encode()) + schemas
        if described and size > PAGE_BYTES:
            return Page(tools=described, cursor=str(at), left=len(tools) - at)
        described[name] = told
    return Page(tools=described, cursor=None, left=0)


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


def starting(entries: Iterable[ServerEntry]) -> tuple[str, ...]:
    """The servers on their way to a first list; nobody is woken for it."""
    return tuple(entry.name for entry in entries if may_be_about_to_list(entry))


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

    Args:
        view: the moment.
        entries: the servers concerned.
        names: the tools that cannot be called.
    """
    meta: dict[str, object] = {}
    absent = list(dict.fromkeys(names))
    down = {entry.name: unavailable_entry(entry, view.now) for entry in entries if not entry.usable}
    if absent:
        meta["unavailableTools"] = absent
    if down:
        meta["unavailableServers"] = down
    return meta


def rest(page: Page, name: str, arguments: Mapping[str, object]) -> dict[str, object]:
    """The members of `meta` that lead to the rest: how many tools, and the exact call; none without a rest.

    Args:
        page: what fitted.
        name: the tool that was called.
        arguments: what it was called with, without a cursor.
    """
    if page.cursor is None:
        return {}
    call = {"name": name, "arguments": {**arguments, "cursor": page.cursor}}
    return {"toolsLeft": page.left, "next": call}
