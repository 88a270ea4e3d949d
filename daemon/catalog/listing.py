"""Reads the bytes of a server's list: a bad definition is left out, and never costs the whole list.

Real servers send schemas without `"type": "object"`, duplicate names and more, and the SDKs refuse the whole
list for one of them. Here each one is read on its own. A schema that lacks only its type is completed, and
what cannot be used is quarantined by name with the reason, for `mcpd status` to show.

A list is read again and again, and hardly ever differs. What has the same bytes in the same server's list is
therefore the same object for as long as anything refers to it: nothing is decoded or hashed twice, and whatever
was derived from it can be checked by identity.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal, overload
from weakref import WeakValueDictionary

import msgspec
from msgspec import Raw

from daemon.catalog.definitions import SCHEMA, completed, hashes, lacks_type
from daemon.catalog.kinds import LISTS
from daemon.config.names import TOOL_BYTES
from daemon.model import Definition, Kind, Tool

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_DEFINITION_BYTES = 256 * 1024
"""Longest definition accepted; the longest of 1,519 real ones has some 100 kB (23,459 tokens). A
request for one tool is answered with all of it: this bounds that answer, as `answerTokens` bounds others."""

MAX_LISTED = 10_000
"""Most definitions of each kind accepted from one server; the largest real one lists a few hundred tools."""

URI_BYTES = 4096
"""Longest URI or template in bytes; real ones have some hundred."""

MAX_DEPTH = 400
"""Deepest nesting of a definition; real ones reach 23. It is decoded again on each look into it, from stacks of
any depth, and the interpreter's limit applies to both together."""


MAX_COMMAS = 1_000_000
"""Commas in one page of a list. There is one between any two definitions, and some in each; a page with as many
as its bytes allow would be seven million objects, which take a second of the loop's and half a gigabyte."""


class ListPage(msgspec.Struct, frozen=True):
    """The result of one request for a list, decoded as far as what it lists (MCP, pagination)."""

    definitions: list[Raw]
    """What it lists."""
    next_cursor: str | None
    """What to ask for the next page with; None for the last one."""


class Parts(Mapping[str, bytes]):
    """The raw top-level members of a JSON object, decoded on each access: most are never asked for."""

    __slots__ = ("_raw",)

    def __init__(self, raw: bytes) -> None:
        """Take the bytes of an object that is known to decode."""
        self._raw = raw

    def __getitem__(self, key: str) -> bytes:
        return bytes(_decode_members(self._raw)[key])

    def __iter__(self) -> Iterator[str]:
        return iter(_decode_members(self._raw))

    def __len__(self) -> int:
        return len(_decode_members(self._raw))


class _Unusable(Exception):
    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name
        self.reason = reason


_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_raws = msgspec.json.Decoder(list[Raw]).decode
_decode_name = msgspec.json.Decoder(str).decode
_decode_text = msgspec.json.Decoder(str | None).decode

_TEXT_OR_BRACKET = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[][{}]', re.DOTALL)
_DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def read_page(kind: Kind, result: bytes) -> ListPage:
    """Split a page into its raw definitions.

    Raises:
        ValueError: the result is not a page of this kind.
    """
    form = LISTS[kind]
    try:
        members = _decode_members(result)
        if form.member not in members:
            raise ValueError(f"{form.method} answered something else: it has no {form.member}")
        cursor = _decode_text(members.get("nextCursor", b"null"))
        if result.count(b",") > MAX_COMMAS:
            raise ValueError(f"{form.method} answered more than can be a list: it has over {MAX_COMMAS} commas")
        # Of what nobody takes, one is enough to say so.
        return ListPage(_decode_raws(members[form.member])[: MAX_LISTED + 1], cursor)
    except _DECODE_ERRORS as error:
        raise ValueError(f"{form.method} answered something else: {error}") from None


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
    """Read a list one by one: usable definitions in order, and the reasons of the quarantined by name."""
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
"""The definitions that something refers to, by kind, server and bytes."""


def _one(kind: Kind, server: str, raw: bytes, position: int) -> Definition:
    if (known := _held.get((kind, server, raw))) is not None:
        return known
    name = _read_name(kind, raw, position)
    try:
        _require_fitting(raw)
        if _is_too_deep(raw):
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
        members = _decode_members(raw)
    except _DECODE_ERRORS as error:
        raise _Unusable(anonymous, f"not an object: {error}") from None
    if key not in members:
        raise _Unusable(anonymous, f"has no {key}")
    try:
        name = _decode_name(members[key])
    except _DECODE_ERRORS:
        raise _Unusable(anonymous, f"its {key} is no string") from None
    longest = TOOL_BYTES if key == "name" else URI_BYTES
    if not name or not name.isprintable() or len(name.encode()) > longest:
        raise _Unusable(ascii(name[:TOOL_BYTES]), f"a {key} has 1 to {longest} printable bytes")
    return name


def _new_tool(server: str, name: str, raw: bytes) -> Tool:
    description = _decode_text(_decode_members(raw).get("description", b"null")) or ""
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
    )


def _new_definition(kind: Kind, server: str, name: str, raw: bytes) -> Definition:
    definition = msgspec.json.decode(raw)
    # Clients refuse a whole list for one of these.
    if not isinstance(definition.get("name"), str):
        raise ValueError("has no name, which MCP requires")
    arguments = definition.get("arguments") if kind is Kind.PROMPT else None
    if arguments is not None and not _are_named(arguments):
        raise ValueError("its arguments are no list of objects with a name")
    digest, content = hashes(definition)
    return Definition(kind=kind, server=server, name=name, raw=raw, schema_hash=digest, content_hash=content)


def _are_named(arguments: object) -> bool:
    return isinstance(arguments, list) and all(
        isinstance(each, dict) and isinstance(each.get("name"), str) for each in arguments
    )


def _require_fitting(raw: bytes) -> None:
    if len(raw) > MAX_DEFINITION_BYTES:
        raise ValueError(f"its definition has {len(raw)} bytes, the limit is {MAX_DEFINITION_BYTES}")


def _is_too_deep(raw: bytes) -> bool:
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return False
    depth = 0
    for found in _TEXT_OR_BRACKET.finditer(raw):
        first = found[0][:1]
        depth += (first in b"[{") - (first in b"]}")
        if depth > MAX_DEPTH:
            return True
    return False
