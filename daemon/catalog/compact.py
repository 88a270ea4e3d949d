"""Schemas as a model needs them: without what says nothing."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

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
