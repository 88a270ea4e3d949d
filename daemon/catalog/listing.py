"""Reads a server's list. Bad definitions are quarantined (see `mcpd status`); the rest of the list is used.

Equal definitions of one server are one object, which is decoded and hashed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, overload
from weakref import WeakValueDictionary

import msgspec
from msgspec import Raw

from daemon.catalog.definitions import SCHEMA, completed, hashes, lacks_type
from daemon.catalog.kinds import LISTS
from daemon.catalog.naming import META, app_link, are_named, skill_fault
from daemon.config.names import TOOL_BYTES
from daemon.model import Definition, Kind, Tool
from daemon.protocol import UNREADABLE, brackets_of, decode_members, decode_text, depth_of

MAX_DEFINITION_BYTES = 256 * 1024
"""Bytes of a definition; the longest of 1,519 real ones has 100 kB. Limits answers about single tools, too."""

MAX_LISTED = 10_000
"""Definitions of each kind that a server may list; the largest real server lists a few hundred."""

URI_BYTES = 4096
"""Bytes of a URI or template; real ones have some hundred."""

MAX_DEPTH = 400
"""Levels of a definition; real ones have up to 23. mcpd decodes it later on stacks of any depth."""


MAX_COMMAS = 1_000_000
"""Commas in a page. A page of nothing else would become seven million objects: one second, half a gigabyte."""


class ListPage(msgspec.Struct, frozen=True):
    """One page of a list (MCP, pagination)."""

    definitions: list[Raw]
    next_cursor: str | None


class Parts(Mapping[str, bytes]):
    """The raw members of a JSON object, decoded at each access, since most are never read."""

    __slots__ = ("_raw",)

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def __getitem__(self, key: str) -> bytes:
        return bytes(decode_members(self._raw)[key])

    def __iter__(self) -> Iterator[str]:
        return iter(decode_members(self._raw))

    def __len__(self) -> int:
        return len(decode_members(self._raw))


class _Unusable(Exception):
    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name
        self.reason = reason


_decode_raws = msgspec.json.Decoder(list[Raw]).decode
_decode_text = msgspec.json.Decoder(str | None).decode


def read_page(kind: Kind, result: bytes) -> ListPage:
    """Split a page into its raw definitions. Raises `ValueError` if it is no page of this kind."""
    form = LISTS[kind]
    try:
        members = decode_members(result)
        if form.member not in members:
            raise ValueError(f"the answer to {form.method} has no {form.member}")
        cursor = _decode_text(members.get("nextCursor", b"null"))
        if result.count(b",") > MAX_COMMAS:
            raise ValueError(f"the answer to {form.method} is too large for a list: over {MAX_COMMAS} commas")
        # One definition above the limit is enough to report it.
        return ListPage(_decode_raws(members[form.member])[: MAX_LISTED + 1], cursor)
    except UNREADABLE as error:
        raise ValueError(f"cannot read the answer to {form.method}: {error}") from None


@overload
def read_definitions(
    kind: Literal[Kind.TOOL], server: str, raws: Iterable[Raw]
) -> tuple[tuple[Tool, ...], dict[str, str]]: ...
@overload
def read_definitions(
    kind: Kind, server: str, raws: Iterable[Raw]
) -> tuple[tuple[Definition, ...], dict[str, str]]: ...
def read_definitions(
    kind: Kind, server: str, raws: Iterable[Raw]
) -> tuple[tuple[Definition, ...], dict[str, str]]:
    """Read a list: the usable definitions in order, and by name why others are quarantined."""
    usable: dict[str, Definition] = {}
    quarantined: dict[str, str] = {}
    for position, raw in enumerate(raws):
        try:
            if position >= MAX_LISTED:
                raise _Unusable(f"(further {kind}s)", f"more than {MAX_LISTED} {kind}s")
            each = _one(kind, server, bytes(raw), position)
            if each.name in usable:
                raise _Unusable(each.name, "listed twice; the first one counts")
        except _Unusable as fault:
            quarantined[fault.name] = fault.reason
        else:
            usable[each.name] = each
    return tuple(usable.values()), quarantined


_held: WeakValueDictionary[tuple[Kind, str, bytes], Definition] = WeakValueDictionary()
"""The definitions in use, by kind, server and bytes."""


def _one(kind: Kind, server: str, raw: bytes, position: int) -> Definition:
    if (known := _held.get((kind, server, raw))) is not None:
        return known
    name = _read_name(kind, raw, position)
    try:
        _require_fitting(raw)
        if is_nested_deeper(raw, MAX_DEPTH):
            raise ValueError("nested too deeply")
        raw.decode()
        made = _new_tool(server, name, raw) if kind is Kind.TOOL else _new_definition(kind, server, name, raw)
    except UnicodeDecodeError:
        raise _Unusable(name, "not valid UTF-8") from None
    except RecursionError:
        raise _Unusable(name, "nested too deeply") from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise _Unusable(name, str(error)) from None
    _held[kind, server, raw] = made
    return made


def _read_name(kind: Kind, raw: bytes, position: int) -> str:
    anonymous, key = f"({kind} {position + 1})", LISTS[kind].key
    try:
        members = decode_members(raw)
    except UNREADABLE as error:
        raise _Unusable(anonymous, f"not an object: {error}") from None
    if key not in members:
        raise _Unusable(anonymous, f"has no {key}")
    try:
        name = decode_text(members[key])
    except UNREADABLE:
        raise _Unusable(anonymous, f"its {key} is not a string") from None
    longest = TOOL_BYTES if key == "name" else URI_BYTES
    if not name or not name.isprintable() or len(name.encode()) > longest:
        raise _Unusable(ascii(name[:TOOL_BYTES]), f"a {key} must have 1 to {longest} printable bytes")
    return name


def _new_tool(server: str, name: str, raw: bytes) -> Tool:
    description = _decode_text(decode_members(raw).get("description", b"null")) or ""
    definition = msgspec.json.decode(raw)
    if lacking := lacks_type(definition):
        raw = completed(raw)
        _require_fitting(raw)
        definition[SCHEMA]["type"] = "object"
    digest, content = hashes(definition)
    return Tool(
        server=server,
        name=name,
        description=description,
        raw=raw,
        parts=Parts(raw),
        schema_hash=digest,
        content_hash=content,
        completed=lacking,
        app=app_link(definition.get(META)),
    )


def _new_definition(kind: Kind, server: str, name: str, raw: bytes) -> Definition:
    definition = msgspec.json.decode(raw)
    if kind is Kind.SKILL and (fault := skill_fault(definition)):
        raise ValueError(fault)
    # Clients refuse a whole list for one of these.
    if kind is not Kind.SKILL and not isinstance(definition.get("name"), str):
        raise ValueError("has no name, which MCP requires")
    arguments = definition.get("arguments") if kind is Kind.PROMPT else None
    if arguments is not None and not are_named(arguments, "name"):
        raise ValueError("its `arguments` must be a list of objects, each with a name")
    digest, content = hashes(definition)
    return Definition(kind=kind, server=server, name=name, raw=raw, schema_hash=digest, content_hash=content)


def _require_fitting(raw: bytes) -> None:
    if len(raw) > MAX_DEFINITION_BYTES:
        raise ValueError(f"its definition has {len(raw)} bytes, the limit is {MAX_DEFINITION_BYTES}")


def is_nested_deeper(raw: bytes, most: int) -> bool:
    """Whether JSON has more than `most` levels."""
    return raw.count(b"[") + raw.count(b"{") > most and depth_of(brackets_of(raw)) > most
