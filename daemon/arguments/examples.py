"""A value that fits a schema, made up: what an error shows to a model that got it wrong."""

from __future__ import annotations

from typing import Any

from daemon.arguments.pointers import resolve

MAX_DEPTH = 6
"""Levels of an example: a schema may hold itself."""

MAX_ITEMS = 3
"""Elements of an array in an example, if the schema wants more than none."""

MAX_TEXT = 64
"""Characters of a string in an example, if the schema wants a long one."""

Object = dict[str, Any]


def example_of(schema: object) -> object:
    """A value that fits, as far as a glance at each keyword can tell; the validator has the last word."""
    return _Maker(schema).make(schema, 0)


class _Maker:
    def __init__(self, root: object) -> None:
        self._root = root

    def make(self, schema: object, depth: int) -> object:
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            return {} if depth == 0 else None
        for key in ("const", "default"):
            if schema.get(key) is not None:
                return schema[key]
        for key in ("enum", "examples"):
            if isinstance(schema.get(key), list) and schema[key]:
                return schema[key][0]
        if "$ref" in schema:
            return self.make(resolve(self._root, schema["$ref"]), depth + 1)
        merged = self._merged(schema)
        for key in ("anyOf", "oneOf"):
            if isinstance(merged.get(key), list) and merged[key] and "properties" not in merged:
                return self.make(_first_useful(merged[key]), depth + 1)
        return self._of_type(merged, depth)

    def _merged(self, schema: Object) -> Object:
        """A schema together with the parts of its `allOf`."""
        parts = schema.get("allOf")
        if not isinstance(parts, list):
            return schema
        merged = {key: value for key, value in schema.items() if key != "allOf"}
        for part in parts:
            resolved = resolve(self._root, part["$ref"]) if isinstance(part, dict) and "$ref" in part else part
            if isinstance(resolved, dict):
                merged["properties"] = {**merged.get("properties", {}), **resolved.get("properties", {})}
                merged["required"] = [*merged.get("required", []), *resolved.get("required", [])]
                merged = {**resolved, **merged}
        return merged

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
        properties = schema.get("properties")
        required = schema.get("required")
        if not isinstance(properties, dict) or not isinstance(required, list):
            return {}
        return {key: self.make(properties.get(key, {}), depth + 1) for key in required if isinstance(key, str)}

    def _array(self, schema: Object, depth: int) -> list[object]:
        least = schema.get("minItems", 0)
        count = min(least, MAX_ITEMS) if isinstance(least, int) else 0
        return [
            self.make(schema.get("items", {}), depth + 1) for _ in range(max(count, int("items" in schema)))
        ]


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
        if isinstance(bound, int | float) and not isinstance(bound, bool) and abs(bound) < 2**53 - 1:
            return bound + step
    return 1


def _string(schema: Object) -> str:
    least = schema.get("minLength", 0)
    text = {"uri": "https://example.com", "date": "2026-01-31", "date-time": "2026-01-31T12:00:00Z"}.get(
        str(schema.get("format")), "text"
    )
    return text.ljust(min(least, MAX_TEXT), "x") if isinstance(least, int) else text
