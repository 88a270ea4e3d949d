"""Made-up values that fit a schema: an error shows them to a model that got its arguments wrong."""

from __future__ import annotations

from math import ceil, floor
from typing import Any

from daemon.surfaces.arguments.pointers import resolve

MAX_DEPTH = 6
"""Levels of an example, references and options among them: a schema may hold itself."""

MAX_VALUES = 200
"""Values in an example: a schema may want itself many times on each level."""

MAX_ITEMS = 3
"""Elements of an array in an example, if the schema wants more than none."""

MAX_TEXT = 64
"""Characters of a string in an example, if the schema wants a long one."""

LARGE = 2**53 - 1
"""Bounds beyond this only mean "any integer" and make no good example."""

Object = dict[str, Any]


def example_of(schema: object) -> object:
    """A value that fits a schema as far as its keywords are understood here; the validator decides."""
    return _Maker(schema).make(schema, 0)


class _Maker:
    def __init__(self, root: object) -> None:
        self._root = root
        self._left = MAX_VALUES

    def make(self, schema: object, depth: int) -> object:
        self._left -= 1
        if not isinstance(schema, dict) or depth > MAX_DEPTH or self._left < 0:
            return {} if depth == 0 else None
        for key in ("const", "default"):
            if schema.get(key) is not None:
                return schema[key]
        for key in ("enum", "examples"):
            if isinstance(schema.get(key), list) and schema[key]:
                return schema[key][0]
        merged = self._merged(schema)
        if merged is not schema:
            return self.make(merged, depth + 1 if "$ref" in schema else depth)
        return self._of_type(schema, depth)

    def _merged(self, schema: Object) -> Object:
        """A schema merged with what it refers to, the parts of its `allOf` and the first of its options."""
        parts = [resolve(self._root, schema["$ref"])] if "$ref" in schema else []
        if isinstance(schema.get("allOf"), list):
            parts += schema["allOf"]
        for key in ("anyOf", "oneOf"):
            if isinstance(schema.get(key), list) and schema[key]:
                parts.append(_first_useful(schema[key]))
        merged = {key: value for key, value in schema.items() if key not in _JOINED}
        for part in parts:
            if isinstance(part, dict):
                merged = {**part, **merged, **_members(part, merged)}
        return merged if parts else schema

    def _of_type(self, schema: Object, depth: int) -> object:
        match _type_of(schema):
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "integer" | "number":
                return _number(schema)
            case "boolean":
                return False
            case "null":
                return None
            case _:
                return _string(schema)

    def _object(self, schema: Object, depth: int) -> Object:
        properties, required = schema.get("properties", {}), schema.get("required")
        if not isinstance(properties, dict) or not isinstance(required, list):
            return {}
        return {key: self.make(properties.get(key, {}), depth + 1) for key in required if isinstance(key, str)}

    def _array(self, schema: Object, depth: int) -> list[object]:
        least = schema.get("minItems", 0)
        count = min(least, MAX_ITEMS) if isinstance(least, int) else 0
        return [
            self.make(schema.get("items", {}), depth + 1) for _ in range(max(count, int("items" in schema)))
        ]


_JOINED = frozenset({"$ref", "allOf", "anyOf", "oneOf"})


def _members(part: Object, schema: Object) -> Object:
    """The properties and the required members of two schemas together."""
    joined: Object = {}
    for key, empty in (("properties", {}), ("required", [])):
        ours, theirs = schema.get(key, empty), part.get(key, empty)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            joined[key] = {**theirs, **ours}
        elif isinstance(ours, list) and isinstance(theirs, list):
            joined[key] = [*theirs, *ours]
    return {key: value for key, value in joined.items() if value}


def _first_useful(options: list[Any]) -> object:
    """The first option that is not null: an example shows how to say something."""
    return next(
        (each for each in options if not (isinstance(each, dict) and each.get("type") == "null")), options[0]
    )


def _type_of(schema: Object) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), "null")
    if isinstance(kind, str):
        return kind
    return "object" if "properties" in schema else "array" if "items" in schema else "string"


def _number(schema: Object) -> int | float:
    for key, step in (("minimum", 0), ("exclusiveMinimum", 1), ("maximum", 0), ("exclusiveMaximum", -1)):
        bound = schema.get(key)
        if isinstance(bound, int | float) and not isinstance(bound, bool) and abs(bound) < LARGE:
            exact = _type_of(schema) == "number"
            return (bound if exact else _whole(bound, key)) + step
    return 1


def _whole(bound: float, key: str) -> int:
    """The integer nearest to a bound and within it; the caller steps away from exclusive ones."""
    up = key in {"minimum", "exclusiveMaximum"}
    return ceil(bound) if up else floor(bound)


_SAMPLES = {"uri": "https://example.com", "date": "2026-01-31", "date-time": "2026-01-31T12:00:00Z"}


def _string(schema: Object) -> str:
    text = _SAMPLES.get(str(schema.get("format")), "text")
    least, most = schema.get("minLength"), schema.get("maxLength")
    text = text[:most] if isinstance(most, int) and most >= 0 else text
    return text.ljust(max(0, min(least, MAX_TEXT)), "x") if isinstance(least, int) else text
