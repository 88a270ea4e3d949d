"""Schemas as a model needs them: without what says nothing.

Schemas of arguments that lack only what goes without saying: `"type": "object"`.

MCP requires it, since arguments are an object whatever else a schema says of them; clients refuse a whole list
for a tool without it. Servers leave it out all the same, those that are built with a version of a library that
its authors did not try above all. To add it changes nothing of what a schema means.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

if TYPE_CHECKING:
    from collections.abc import Mapping

KEPT = 4096
"""Schemas that are kept in their short form: all those of eighty large servers."""

_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose members are schemas by names of the author's: none of those may go, also not an empty one."""

_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SCHEMAS = frozenset(
    {"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"}
)

_IDLE_WHEN_EMPTY = frozenset({"title", "description", "$comment", "required", "examples", *_MAPS})
"""Keywords that say nothing when they are empty; of others, such as `items`, even {} may matter."""


@lru_cache(maxsize=KEPT)
def compact(schema: bytes) -> bytes:
    """A schema without white space, `$schema`, nulls and empty fields. It means the same.

    Args:
        schema: raw JSON; what is no object, or nested deeper than the interpreter follows, comes back as it is.
    """
    try:
        decoded = msgspec.json.decode(schema)
        return msgspec.json.encode(_of_schema(decoded)) if isinstance(decoded, dict) else schema
    except RecursionError:
        return schema


def _of_schema(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    return {key: _of_keyword(key, value) for key, value in schema.items() if not _says_nothing(key, value)}


def _says_nothing(key: str, value: Any) -> bool:
    if key == "$schema" or (value is None and key != "const"):
        return True
    return key in _IDLE_WHEN_EMPTY and value in ("", [], {})


def _of_keyword(key: str, value: Any) -> Any:
    if key in _MAPS and isinstance(value, dict):
        return {name: _of_schema(schema) for name, schema in value.items()}
    if key in _LISTS and isinstance(value, list):
        return [_of_schema(schema) for schema in value]
    return _of_schema(value) if key in _SCHEMAS else value


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
