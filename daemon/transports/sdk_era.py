"""What each era wants on every request over HTTP: members of `_meta`, and headers that repeat the body.

The headers let a proxy route without reading bodies, and a modern server refuses a request whose headers and
body disagree (-32020). The arguments that a tool's schema marks with `x-mcp-header` are among them, so listed
schemas are looked through for the mark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    X_MCP_HEADER_KEY,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)

from daemon.errors import InvalidArguments
from daemon.model import Era
from daemon.transports.raw import envelope_meta

if TYPE_CHECKING:
    from daemon.ports import CallToSend

_MARK = X_MCP_HEADER_KEY.encode()
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class Dialect:
    """The era and version spoken with one server."""

    def __init__(self) -> None:
        self.modern = False
        self._version = ""
        self._meta: dict[str, object] = {}
        self._mirrored: dict[str, dict[tuple[str, ...], str]] = {}

    def adopt(self, era: Era, version: str) -> None:
        """Speak this from now on."""
        self.modern = era is Era.MODERN
        self._version = version
        self._meta = envelope_meta(era, version)

    def stamp(self, params: dict[str, Any]) -> dict[str, Any]:
        """The params of a request, with the era's envelope."""
        return {**params, "_meta": {**params.get("_meta", {}), **self._meta}} if self._meta else params

    def headers(self, method: str, params: dict[str, Any]) -> dict[str, str]:
        """The headers of a message. `initialize` has none: the version is what it asks about."""
        if not self._version or method == "initialize":
            return {}
        headers = {MCP_PROTOCOL_VERSION_HEADER: self._version}
        if self.modern:
            headers[MCP_METHOD_HEADER] = method
            name = params.get(NAME_BEARING_METHODS.get(method, ""))
            if isinstance(name, str):
                headers[MCP_NAME_HEADER] = encode_header_value(name)
                headers |= mcp_param_headers(self._mirrored.get(name, {}), params.get("arguments", {}))
        return headers

    def learn(self, listing: dict[str, Any], raw: bytes) -> None:
        """Remember which arguments of which tools are repeated in headers; `raw` is the same as JSON."""
        if not self.modern or _MARK not in raw:
            return
        for tool in listing.get("tools", ()):
            if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                schema = tool.get("inputSchema")
                valid = find_invalid_x_mcp_header(schema) is None
                self._mirrored[tool["name"]] = x_mcp_header_map(schema) if valid else {}


def call_params(call: CallToSend, key: int) -> dict[str, Any]:
    """The params of a tool call as the SDK wants them: decoded.

    Raises:
        InvalidArguments: the arguments are no JSON object.
    """
    try:
        params = _decode_object(b"{%b}" % b"".join(call.params))
        meta: dict[str, Any] = {name: msgspec.json.decode(value) for name, value in call.meta.items()}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArguments(f"the arguments are no usable JSON object: {error}") from None
    if not isinstance(params.get("arguments", {}), dict):
        raise InvalidArguments("the arguments are no usable JSON object")
    if call.wants_progress:
        meta["progressToken"] = key
    return {**params, "_meta": meta} if meta else params
