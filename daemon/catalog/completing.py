"""Schemas of arguments that lack only what goes without saying: `"type": "object"`.

MCP requires it, since arguments are an object whatever else a schema says of them; clients refuse a whole list
for a tool without it. Servers leave it out all the same, those that are built with a version of a library that
its authors did not try above all. To add it changes nothing of what a schema means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA = "inputSchema"

TYPE = b'"type":"object"'

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


def lacks_type(definition: Mapping[str, Any]) -> bool:
    """Whether a tool's schema of arguments says nothing of their type.

    Raises:
        ValueError: there is no such schema, or it is one of something that is no object.
    """
    if SCHEMA not in definition:
        raise ValueError("has no inputSchema")
    schema = definition[SCHEMA]
    if not isinstance(schema, dict):
        raise ValueError("its inputSchema is no object")
    if "type" in schema and schema["type"] != "object":
        raise ValueError('its inputSchema has another "type" than "object", which MCP requires')
    return "type" not in schema


def completed(raw: bytes) -> bytes:
    """A definition with the type in its schema of arguments, before all else that this says.

    Args:
        raw: a definition whose schema `lacks_type`; what its other members hold stays, byte for byte.
    """
    members = _decode_members(raw)
    said = bytes(members[SCHEMA])[1:].lstrip()
    separator = b"" if said == b"}" else b","
    return msgspec.json.encode({**members, SCHEMA: Raw(b"{" + TYPE + separator + said)})
