"""What a request of MCP 2026-07-28 has to say of itself twice: in its headers and in its body.

Balancers route by the headers, servers act by the body, so that they must agree.
Source: MCP 2026-07-28, Streamable HTTP, "Standard headers" and "Header validation".
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from daemon import protocol
from daemon.catalog.definitions import MARK, marked_headers, marks_in
from daemon.wire import envelope

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

VERSION_HEADER = "mcp-protocol-version"
METHOD_HEADER = "mcp-method"
NAME_HEADER = "mcp-name"

HEADER_MISMATCH = -32020
"""JSON-RPC code for headers that contradict the body."""

GONE = frozenset({"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"})
"""Methods of earlier revisions that this one has not."""

_ENCODED = re.compile(r"=\?base64\?(.*)\?=")


class _NamedParams(Struct):
    name: str | UnsetType = UNSET
    uri: str | UnsetType = UNSET
    arguments: Raw | UnsetType = UNSET


_decode_named = msgspec.json.Decoder(_NamedParams).decode

NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The methods whose `Mcp-Name` header repeats a member of their params."""


def fault_of(headers: Mapping[str, str], method: str, params: Raw | None) -> tuple[int, str] | None:
    """What is wrong with a request, as code and text of a JSON-RPC error; None if nothing is.

    Whether the version is one that is served is left to the session.
    """
    try:
        meta = protocol.meta_of(params)
        missing = [key for key in (protocol.VERSION_KEY, protocol.CAPABILITIES_KEY) if key not in meta]
        if missing:
            return envelope.INVALID_PARAMS, f"Invalid params: _meta lacks {' and '.join(missing)}"
        version = msgspec.json.decode(meta[protocol.VERSION_KEY])
        named = _decode_named(params or b"{}") if method in NAMED else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return envelope.INVALID_PARAMS, f"Invalid params: {error}"
    for header, said in ((VERSION_HEADER, version), (METHOD_HEADER, method)):
        if headers.get(header) != said:
            return HEADER_MISMATCH, f"Header mismatch: {header} is not what the body says"
    name = UNSET if named is None else getattr(named, NAMED[method])
    if name is not UNSET and _decoded(headers.get(NAME_HEADER)) != name:
        return HEADER_MISMATCH, f"Header mismatch: {NAME_HEADER} is not params.{NAMED[method]}"
    if method in GONE:
        return envelope.METHOD_NOT_FOUND, f"Method not found: {method} ({protocol.MODERN_VERSION} has none)"
    return None


def marked_fault_of(
    headers: Mapping[str, str], definition: Callable[[str], bytes], params: Raw
) -> tuple[int, str] | None:
    """What is wrong with the headers that repeat arguments of a call; None if nothing is.

    Args:
        headers: of the request.
        definition: returns a tool as it is listed, raw, by its name; arguments are decoded only if its schema
            marks some.
        params: of the call, which `fault_of` has read.
    """
    called = _decode_named(params)
    tool = b"" if called.name is UNSET else definition(called.name)
    if MARK.encode() not in tool:
        return None
    marks = dict(marks_in(msgspec.json.decode(tool).get("inputSchema")))
    arguments = called.arguments
    repeated = {} if arguments is UNSET else marked_headers(marks, arguments)
    wanted = {name.lower(): value for name, value in repeated.items()}
    for name in (f"mcp-param-{suffix}".lower() for suffix in marks.values()):
        if _decoded(headers.get(name)) != _decoded(wanted.get(name)):
            return HEADER_MISMATCH, f"Header mismatch: {name} is not the argument that it repeats"
    return None


def _decoded(value: str | None) -> str | None:
    """A header's value; None if there is none, or if it is encoded and that is broken."""
    found = None if value is None else _ENCODED.fullmatch(value)
    if found is None:
        return value
    try:
        raw = base64.b64decode(found[1], validate=True)
        return raw.decode() if base64.b64encode(raw).decode() == found[1] else None
    except (binascii.Error, UnicodeDecodeError):
        return None
