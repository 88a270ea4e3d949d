"""The HTTP headers that repeat what a message's body says (MCP 2026-07-28, transports, "Standard headers").

They let a proxy route without reading bodies, and a modern server refuses a request whose headers and body
disagree (-32020). The arguments that a tool's schema marks with `x-mcp-header` are among them, so listed
schemas are searched for the mark. The handshake era has the header of the protocol version only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from daemon.catalog.definitions import MARK, encoded, marked_headers, marks_in
from daemon.model import Era

if TYPE_CHECKING:
    from daemon.catalog.definitions import Marks

SESSION_HEADER = "mcp-session-id"

_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The member of `params` that `Mcp-Name` repeats, by method."""


class _Params(Struct):
    name: str = ""
    uri: str = ""
    arguments: Raw | UnsetType = UNSET


_decode_params = msgspec.json.Decoder(_Params).decode
_BAD_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class McpHeaders:
    """The headers of messages to one server, from its era and the tools it has listed."""

    def __init__(self) -> None:
        self.is_modern = False
        self.session = ""
        """The id that the server gave our session; empty if it gave none."""
        self._version = ""
        self._marks: dict[str, Marks] = {}

    def adopt(self, era: Era, version: str) -> None:
        """Use the headers of this era and protocol version from now on."""
        self.is_modern = era is Era.MODERN
        self._version = version

    def of(self, method: str = "", params: Raw | UnsetType = UNSET) -> dict[str, str]:
        """The headers of a message; none for `initialize`, which negotiates the version."""
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
        marked = {} if given.arguments is UNSET or not marks else marked_headers(marks, given.arguments)
        return {"mcp-name": encoded(getattr(given, member)), **marked}

    def learn(self, listing: bytes) -> None:
        """Remember which arguments are repeated in headers; `listing` is the raw result of a `tools/list`."""
        if not self.is_modern or MARK.encode() not in listing:
            return
        try:
            tools = msgspec.json.decode(listing)["tools"]
        except (*_BAD_JSON, KeyError, TypeError):
            return
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                self._marks[tool["name"]] = dict(marks_in(tool.get("inputSchema")))
