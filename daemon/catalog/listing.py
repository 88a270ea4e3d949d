"""Reads the bytes of `tools/list` into tools: a bad tool is left out, and never costs the whole list.

Real servers send schemas without `"type": "object"`, duplicate names and more, and the SDKs refuse the whole
list for one of them. Here each tool is read on its own. A schema that lacks only its type is completed, and
what cannot be used is quarantined by name with the reason, for `mcpd status` to show.

A list is read again and again, and hardly ever differs. A tool of the same server with the same bytes is
therefore the same object for as long as anything refers to it: nothing is decoded or hashed twice, and whatever
was derived from it can be checked by identity.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import msgspec
from msgspec import Raw

from daemon.catalog.definitions import SCHEMA, completed, hashes, lacks_type
from daemon.config.names import TOOL_BYTES
from daemon.model import Tool

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_TOOL_BYTES = 256 * 1024
"""Longest definition of a tool accepted; the longest of 1,519 real ones has some 100 kB (23,459 tokens). A
request for one tool is answered with all of it: this bounds that answer, as `answerTokens` bounds others."""

MAX_TOOLS = 10_000
"""Most tools accepted from one server; the largest real one lists a few hundred."""

MAX_DEPTH = 400
"""Deepest nesting of a definition; real ones reach 23. It is decoded again on each look into it, from stacks of
any depth, and the interpreter's limit applies to both together."""


class ListPage(msgspec.Struct):
    """The result of one `tools/list` request, decoded as far as its tools (MCP, pagination)."""

    tools: list[Raw]
    nextCursor: str | None = None  # noqa: N815 - the wire's name


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


_decode_page = msgspec.json.Decoder(ListPage).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_name = msgspec.json.Decoder(str).decode
_decode_text = msgspec.json.Decoder(str | None).decode
_held: WeakValueDictionary[tuple[str, bytes], Tool] = WeakValueDictionary()
"""The tools that something refers to, by server and bytes."""

_TEXT_OR_BRACKET = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[][{}]', re.DOTALL)
_DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def read_page(result: bytes) -> ListPage:
    """Split a page into its raw tools.

    Raises:
        ValueError: the result is not a page of tools.
    """
    try:
        return _decode_page(result)
    except _DECODE_ERRORS as error:
        raise ValueError(f"tools/list answered something else: {error}") from None


def read_tools(server: str, raws: Iterable[Raw]) -> tuple[tuple[Tool, ...], dict[str, str]]:
    """Read tools one by one. Returns the usable ones, in order, and the reasons of the quarantined by name."""
    tools: dict[str, Tool] = {}
    quarantined: dict[str, str] = {}
    for position, raw in enumerate(raws):
        try:
            if position >= MAX_TOOLS:
                raise _Unusable("(further tools)", f"more than {MAX_TOOLS} tools")
            tool = _read_tool(server, bytes(raw), position)
            if tool.name in tools:
                raise _Unusable(tool.name, "listed twice; the first one counts")
        except _Unusable as fault:
            quarantined[fault.name] = fault.reason
        else:
            tools[tool.name] = tool
    return tuple(tools.values()), quarantined


def _read_tool(server: str, raw: bytes, position: int) -> Tool:
    known = _held.get((server, raw))
    if known is None:
        known = _held[server, raw] = _read_new_tool(server, raw, position)
    return known


def _read_new_tool(server: str, raw: bytes, position: int) -> Tool:
    try:
        members = _decode_members(raw)
    except _DECODE_ERRORS as error:
        raise _Unusable(f"(tool {position + 1})", f"not an object: {error}") from None
    name = _read_name(members, position)
    _require_fitting(name, raw)
    if _is_too_deep(raw):
        raise _Unusable(name, "nested too deeply")
    try:
        raw.decode()
        description = _decode_text(members.get("description", b"null")) or ""
        definition = msgspec.json.decode(raw)
        if lacking := lacks_type(definition):
            raw = completed(raw)
            _require_fitting(name, raw)
            definition[SCHEMA]["type"] = "object"
        digest, content = hashes(definition)
    except UnicodeDecodeError:
        raise _Unusable(name, "not valid UTF-8") from None
    except RecursionError:
        raise _Unusable(name, "nested too deeply") from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise _Unusable(name, str(error)) from None
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


def _require_fitting(name: str, raw: bytes) -> None:
    if len(raw) > MAX_TOOL_BYTES:
        raise _Unusable(name, f"its definition has {len(raw)} bytes, the limit is {MAX_TOOL_BYTES}")


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


def _read_name(members: dict[str, Raw], position: int) -> str:
    anonymous = f"(tool {position + 1})"
    if "name" not in members:
        raise _Unusable(anonymous, "has no name")
    try:
        name = _decode_name(members["name"])
    except _DECODE_ERRORS:
        raise _Unusable(anonymous, "its name is no string") from None
    if not name or not name.isprintable() or len(name.encode()) > TOOL_BYTES:
        shown = ascii(name[:TOOL_BYTES])
        raise _Unusable(shown, f"a name has 1 to {TOOL_BYTES} printable bytes")
    return name
