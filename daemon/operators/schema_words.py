"""Describes the JSON schema of a tool's arguments in words, for the command line and the console."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from daemon.config.jsonc import followed
from daemon.kit.wording import some

MAX_DEPTH = 5
"""Most levels of objects that are described: a schema may contain itself."""

MAX_LINES = 400
"""Most members that are described: nobody reads further, and a schema may contain itself on each level."""

MAX_VALUES = 30
"""Most values of an enumeration that are named."""

MAX_OPTIONS = 8
"""Most alternatives that are described: each may hold as many again, on each level."""

MAX_LOOKS = 5000
"""Most parts of a schema that are read, in some milliseconds: each alternative may repeat the whole."""

MAX_VALUE = 120
"""Most characters of a quoted value, such as a default."""


TYPES = {
    "string": "text",
    "number": "number",
    "integer": "whole number",
    "boolean": "true or false",
    "null": "null",
    "object": "object",
    "array": "list",
}

FORMATS = {
    "email": "e-mail address",
    "uri": "URI",
    "date": "date (2026-11-23)",
    "date-time": "date and time (2026-11-23T14:30:00Z)",
    "uuid": "UUID",
}


class Argument(NamedTuple):
    """One member of an object, in words."""

    depth: int
    """0 for a tool's argument, 1 for a member of an argument, and so on."""
    name: str
    kind: str
    """The accepted values, in words."""
    required: bool
    about: str
    """The server's description, or empty."""


def arguments_of(schema: object) -> list[Argument]:
    """The members of an object's schema, required ones first, each followed by its own members."""
    lines: list[Argument] = []
    for line in _members(schema, _Root(schema), 0, 0):
        if len(lines) == MAX_LINES:
            break
        lines.append(line)
    return lines


def sole_type(schema: Mapping[str, Any]) -> str:
    """The schema's only type besides null, as Python's `Optional[str]` has; empty if there are several."""
    written = schema.get("anyOf", schema.get("type"))
    found = written if isinstance(written, list) else [written]
    kinds = [each.get("type") if isinstance(each, dict) else each for each in found]
    named = [each for each in kinds if each != "null"]
    return named[0] if len(named) == 1 and isinstance(named[0], str) else ""


class _Root:
    def __init__(self, schema: object) -> None:
        self._schema = schema
        self._left = MAX_LOOKS

    def follow(self, schema: object) -> object:
        self._left -= 1
        return True if self._left < 0 else followed(self._schema, schema)


def _words(schema: object, root: _Root, depth: int) -> str:
    """Describes the values that a schema accepts, at a depth below the argument."""
    schema = root.follow(schema)
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return "anything"
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list):
        return _one_of(values)
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            return _options(schema[key], root, depth)
    kinds = schema.get("type")
    if isinstance(kinds, list):
        words = [_typed({**schema, "type": kind}, root, depth) for kind in kinds]
        return " or ".join(dict.fromkeys(words)) or "anything"
    return _typed(schema, root, depth)


def _members(schema: object, root: _Root, depth: int, level: int) -> Iterator[Argument]:
    """The members of an object at a depth; an alternative's members are one level deeper."""
    schema = root.follow(schema)
    if not isinstance(schema, dict) or level > MAX_DEPTH:
        return
    properties, required = schema.get("properties"), schema.get("required")
    if isinstance(properties, dict):
        needed = set(map(str, required)) if isinstance(required, list) else set()
        for name in sorted(properties, key=lambda name: name not in needed):
            yield _argument(name, properties[name], root, depth, required=name in needed)
            yield from _inner(properties[name], root, depth + 1, level + 1)
    for key in ("allOf", "anyOf", "oneOf"):
        options = schema.get(key)
        for option in options[:MAX_OPTIONS] if isinstance(options, list) else ():
            yield from _members(option, root, depth, level + 1)


def _argument(name: str, schema: object, root: _Root, depth: int, *, required: bool) -> Argument:
    found = root.follow(schema)
    members = found if isinstance(found, dict) else {}
    about = members.get("description")
    kind = _words(schema, root, depth)
    if "default" in members:
        kind += f"; default {_value(members['default'])}"
    return Argument(depth, name, kind, required, " ".join(about.split()) if isinstance(about, str) else "")


def _inner(schema: object, root: _Root, depth: int, level: int) -> Iterator[Argument]:
    """The members of an argument that is an object, or a list of objects."""
    yield from _members(schema, root, depth, level)
    found = root.follow(schema)
    items = found.get("items") if isinstance(found, dict) else None
    if isinstance(items, dict):
        yield from _members(items, root, depth, level)


def _typed(schema: dict[str, Any], root: _Root, depth: int) -> str:
    kind = schema.get("type")
    if kind is None:
        kind = "object" if "properties" in schema else "array" if "items" in schema else None
    match kind:
        case "string":
            spelt = f", spelt like {schema['pattern']}" if isinstance(schema.get("pattern"), str) else ""
            bounds = _bounds(schema, "minLength", "maxLength", " characters")
            return FORMATS.get(str(schema.get("format")), "text") + bounds + spelt
        case "number" | "integer":
            over = _bounds(schema, "minimum", "maximum") + _exclusive(schema)
            step = schema.get("multipleOf")
            return TYPES[kind] + over + (f", a multiple of {step}" if step else "")
        case "array":
            items = _words(schema.get("items", True), root, depth + 1)
            words = "objects" if items == "object" else items
            return f"list of {words}{_bounds(schema, 'minItems', 'maxItems', ' of them')}"
        case "object":
            values = schema.get("additionalProperties")
            words = (
                f", each value: {_words(values, root, depth + 1)}"
                if isinstance(values, dict) and values
                else ""
            )
            return f"object{words}"
    if kind is None and isinstance(schema.get("allOf"), list) and schema["allOf"]:
        return _words(schema["allOf"][0], root, depth + 1)
    return TYPES.get(str(kind), "anything")


def _options(options: list[Any], root: _Root, depth: int) -> str:
    if all(isinstance(option, dict) and "const" in option for option in options):
        return _one_of([option["const"] for option in options])
    words = dict.fromkeys(_words(option, root, depth + 2) for option in options[:MAX_OPTIONS])
    return " or ".join([*words, "…"] if len(options) > MAX_OPTIONS else words)


def _one_of(values: list[Any]) -> str:
    named = some([_value(value) for value in values], MAX_VALUES)
    return f"one of {named}" if len(values) != 1 else f"always {named}"


def _bounds(schema: dict[str, Any], least: str, most: str, unit: str = "") -> str:
    low = schema.get(least)
    return between(None if low == 0 and unit else low, schema.get(most), unit)


def between(least: float | None, most: float | None, unit: str = "") -> str:
    """Bounds as they follow a noun: `, at least 3 characters`."""
    if least is None:
        return "" if most is None else f", at most {most}{unit}"
    return f", at least {least}{unit}" if most is None else f", {least} to {most}{unit}"


def _exclusive(schema: dict[str, Any]) -> str:
    over, under = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    bounds = [] if over is None or isinstance(over, bool) else [f", more than {over}"]
    return "".join([*bounds, *([] if under is None or isinstance(under, bool) else [f", less than {under}"])])


def _value(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}…"
