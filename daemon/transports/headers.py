"""The HTTP headers that repeat what a message's body says (MCP 2026-07-28, transports, "Standard headers").

They let a proxy route without reading bodies, and a modern server refuses a request whose headers and body
disagree (-32020). The arguments that a tool's schema marks with `x-mcp-header` are among them, so listed
schemas are searched for the mark. Of the handshake era there is the protocol's version alone.
"""

from __future__ import annotations

import re
from base64 import b64encode
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from daemon.model import Era

if TYPE_CHECKING:
    from collections.abc import Mapping

    Marks = Mapping[tuple[str, ...], str]

MARK = "x-mcp-header"
"""The annotation, in a tool's schema, of an argument that is repeated in `Mcp-Param-<value>`."""

SESSION_HEADER = "mcp-session-id"

_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""By method: the member of `params` that `Mcp-Name` repeats."""
_SCALARS = {"string", "integer", "boolean"}
"""The types whose arguments may be marked; a `number` has no one spelling."""
_DATA = {"default", "examples", "const", "enum"}
"""Keywords of JSON Schema whose values are data and no schema."""
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, 5.6.2
_PLAIN = re.compile(r"(?!=\?base64\?.*\?=\Z)(?! )[\x20-\x7e]*(?<! )")


class _Params(Struct):
    name: str = ""
    uri: str = ""
    arguments: Raw | UnsetType = UNSET


class _ListedTool(Struct):
    name: str = ""
    inputSchema: Any = None  # noqa: N815 - the wire's name


_decode_params = msgspec.json.Decoder(_Params).decode
_decode_tool = msgspec.json.Decoder(_ListedTool).decode
_decode_listing = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_raws = msgspec.json.Decoder(list[Raw]).decode
_BAD_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class McpHeaders:
    """The headers of messages to one server, by its era and what it has listed."""

    def __init__(self) -> None:
        self.is_modern = False
        self.session = ""
        """The id that the server gave our session; empty without one."""
        self._version = ""
        self._marks: dict[str, Marks] = {}

    def adopt(self, era: Era, version: str) -> None:
        """Speak this from now on."""
        self.is_modern = era is Era.MODERN
        self._version = version

    def of(self, method: str = "", params: Raw | UnsetType = UNSET) -> dict[str, str]:
        """The headers of a message. `initialize` has none: the version is what it asks about."""
        if not self._version or method == "initialize":
            return {}
        headers = {"mcp-protocol-version": self._version}
        if self.session:
            headers[SESSION_HEADER] = self.session
        if self.is_modern and method:
            headers["mcp-method"] = method
            if method in _NAMED_BY and params is not UNSET:
                headers |= self._named(_NAMED_BY[method], params)
        return headers

    def _named(self, member: str, params: Raw) -> dict[str, str]:
        try:
            given = _decode_params(params)
        except _BAD_JSON:
            return {}
        marks = self._marks.get(given.name, {})
        marked = {} if given.arguments is UNSET or not marks else _marked_values(marks, given.arguments)
        return {"mcp-name": encoded(getattr(given, member)), **marked}

    def learn(self, listing: bytes) -> None:
        """Remember which arguments are repeated in headers; `listing` is the result of a `tools/list`."""
        if not self.is_modern or MARK.encode() not in listing:
            return
        try:
            raws = _decode_raws(_decode_listing(listing)["tools"])
        except (*_BAD_JSON, KeyError):
            return
        for raw in raws:
            try:
                tool = _decode_tool(raw)
            except _BAD_JSON:
                continue
            self._marks[tool.name] = marks_in(tool.inputSchema)


def marks_in(schema: object) -> Marks:
    """The header suffix of each marked argument, by its path; none at all if one mark is invalid.

    Valid is a token, unique whatever its case, on a scalar that only `properties` lead to. A tool with another
    mark is invalid as a whole, and a server checks none of its headers.
    """
    found: dict[tuple[str, ...], str] = {}
    waiting: list[tuple[tuple[str, ...] | None, object]] = [((), schema)]
    while waiting:
        path, node = waiting.pop()
        if isinstance(node, list):
            waiting += [(None, each) for each in node]
        if not isinstance(node, dict):
            continue
        if MARK in node:
            mark, kind = node[MARK], node.get("type")
            is_token = isinstance(mark, str) and _TOKEN.fullmatch(mark) is not None
            if not (path and is_token and isinstance(kind, str) and kind in _SCALARS):
                return {}
            found[path] = mark
        for keyword, value in node.items():
            if keyword == "properties" and isinstance(value, dict):
                waiting += [(None if path is None else (*path, name), each) for name, each in value.items()]
            elif keyword not in _DATA:
                waiting.append((None, value))
    return found if len({mark.lower() for mark in found.values()}) == len(found) else {}


def _marked_values(marks: Marks, arguments: Raw) -> dict[str, str]:
    try:
        given = msgspec.json.decode(arguments)
    except _BAD_JSON:
        return {}
    headers = {}
    for path, suffix in marks.items():
        value: Any = given
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, bool):
            value = "true" if value else "false"
        if isinstance(value, str | int | float):
            # A number of thousands of digits has no text (`sys.int_info`), and then no header.
            with suppress(ValueError):
                headers[f"mcp-param-{suffix}"] = encoded(str(value))
    return headers


def encoded(value: str) -> str:
    """A header's value: as it is if it is visible ASCII, else base64 in the specification's brackets."""
    return value if _PLAIN.fullmatch(value) else f"=?base64?{b64encode(value.encode()).decode()}?="
