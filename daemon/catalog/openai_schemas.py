"""Tools' input schemas as OpenAI's tool format takes them, for profiles with `"schemas": "openai"`.

Each rule replaces a refused keyword with one that says nearly the same, or leaves it out: then the schema
allows more, and the server judges as ever. Output schemas stay, because clients check results with them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from daemon.catalog.definitions import SCHEMA
from daemon.config.model import SchemaForm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.model import Tool

MAX_BYTES = 32 * 1024
"""Bytes of a schema that is converted: four times the largest of 397 real ones. Options within options take
time that grows with their depth times their length."""

KEPT = 2048
"""Converted schemas that are cached: more than the 1,519 tools of 46 real servers."""

_OF_ANY = frozenset({"not", "if", "then", "else", "dependencies", "dependentRequired", "dependentSchemas"})
_OF_OBJECTS = frozenset(f"{name}Properties" for name in ("pattern", "min", "max", "unevaluated"))
_OF_ARRAYS = frozenset({"contains", "minContains", "maxContains", "uniqueItems", "unevaluatedItems"})
REFUSED = _OF_ANY | _OF_OBJECTS | _OF_ARRAYS | {"propertyNames"}
"""Keywords that are left out: each only narrows what its neighbours allow."""

FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
"""Values of `format` that are taken."""

_OF_TYPE = {"array": ("items",), "object": ("properties", "required", "additionalProperties")}
"""Keywords that go with a type where a list of types becomes options."""

Object = dict[str, Any]


def shown_parts(tool: Tool, form: SchemaForm) -> Mapping[str, bytes]:
    """The members of a tool's definition as a profile shows them; `tool.parts` itself if nothing differs."""
    schema = tool.parts.get(SCHEMA, b"")
    shown = openai_schema(schema) if form is SchemaForm.OPENAI else schema
    return tool.parts if shown is schema else {**tool.parts, SCHEMA: shown}


def shown_meta_tool(raw: bytes, form: SchemaForm) -> bytes:
    """The definition of one of mcpd's own tools, raw JSON, as a profile shows it."""
    if form is SchemaForm.ORIGINAL:
        return raw
    members = msgspec.json.decode(raw, type=dict[str, Raw])
    return msgspec.json.encode({**members, SCHEMA: Raw(openai_schema(bytes(members[SCHEMA])))})


@lru_cache(maxsize=KEPT)
def openai_schema(raw: bytes) -> bytes:
    """A schema without what OpenAI's tool format refuses; the same bytes if it holds nothing of that.

    Args:
        raw: the schema, raw JSON. One that is too long, too deep or malformed comes back as it is.
    """
    try:
        schema = msgspec.json.decode(raw) if len(raw) <= MAX_BYTES else None
        made = _root(_converted(schema)) if isinstance(schema, dict) else schema
        return raw if made == schema else msgspec.json.encode(made)
    except (msgspec.MsgspecError, UnicodeError, OverflowError, RecursionError, TypeError, AttributeError):
        return raw


def _converted(schema: object) -> Object:
    """A schema after all rules, those within it first; `true` and `false` have no other form than `{}`."""
    if not isinstance(schema, dict):
        return {}
    node = {key: _within(key, value) for key, value in schema.items() if key not in REFUSED}
    if "patternProperties" in schema and node.get("additionalProperties") is False:
        del node["additionalProperties"]
    for rule in (_joined, _listed_items, _typed, _whole_numbers, _valued, _chosen, _completed):
        node = rule(node)
    return node


def _within(key: str, value: object) -> object:
    if key in {"properties", "$defs", "definitions"} and isinstance(value, dict):
        return {name: _converted(each) for name, each in value.items()}
    if key in {"anyOf", "oneOf", "allOf", "prefixItems", "items"} and isinstance(value, list):
        return [_converted(each) for each in value]
    is_schema = key == "items" or (key == "additionalProperties" and isinstance(value, dict))
    return _converted(value) if is_schema else value


def _merged(node: Object, part: Object) -> Object:
    """Two schemas for one value as one; what `node` says counts more."""
    merged = {**part, **node}
    if "properties" in part and "properties" in node:
        merged["properties"] = {**part["properties"], **node["properties"]}
    if "required" in part and "required" in node:
        merged["required"] = list(dict.fromkeys([*part["required"], *node["required"]]))
    return merged


def _joined(node: Object) -> Object:
    """`allOf`: one schema; `oneOf`: `anyOf`."""
    for part in node.pop("allOf", ()):
        node = _merged(node, part)
    options = node.pop("oneOf", None)
    return node if options is None else {"anyOf": options, **node}


def _listed_items(node: Object) -> Object:
    """A schema for each place of an array: one for all places."""
    rest = node.get("items")
    if "prefixItems" not in node and not isinstance(rest, list):
        return node
    places = [*node.pop("prefixItems", ()), *(rest if isinstance(rest, list) else [rest] if rest else ())]
    return {**node, "items": _chosen({"anyOf": places})}


def _typed(node: Object) -> Object:
    """A list of types: the one besides null, or an option for each."""
    if not isinstance(types := node.get("type"), list):
        return node
    names = [each for each in dict.fromkeys(map(str, types)) if each != "null"] or ["null"]
    if len(names) == 1:
        return {**node, "type": names[0]}
    options, moved = [], {"type"}
    for name in names:
        own = {key: node[key] for key in _OF_TYPE.get(name, ()) if key in node}
        options.append(_completed(_whole_numbers({"type": name, **own})))
        moved |= own.keys()
    return {"anyOf": options, **{key: value for key, value in node.items() if key not in moved}}


def _whole_numbers(node: Object) -> Object:
    """`integer`: a `number` that is a multiple of 1; so are enumerated integers without a type."""
    values = node.get("enum")
    counted = "type" not in node and bool(values) and all(type(each) is int for each in values or ())
    return {"multipleOf": 1, **node, "type": "number"} if counted or node.get("type") == "integer" else node


def _valued(node: Object) -> Object:
    """Null among the values or as the default, and an unknown format: left out."""
    if isinstance(values := node.get("enum"), list):
        node = {**node, "enum": [each for each in values if each is not None] or values}
    if node.get("default", ...) is None:
        del node["default"]
    if "format" in node and node["format"] not in FORMATS:
        del node["format"]
    return node


def _chosen(node: Object) -> Object:
    """Options: without null, each once, `number` for both kinds of numbers; the only one is joined."""
    kept: dict[bytes, Object] = {}
    for each in node.pop("anyOf", ()):
        if each.get("type") != "null" and each.get("const", ...) is not None:
            wide = {key: value for key, value in each.items() if (key, value) != ("multipleOf", 1)}
            same = kept.setdefault(msgspec.json.encode(wide, order="sorted"), each)
            same.pop("multipleOf", None) if same != each else None
    options = list(kept.values())
    if len(options) == 1:
        return _merged(node, options[0])
    return {**node, "anyOf": options} if options else node


def _completed(node: Object) -> Object:
    """An array without `items`: one of anything."""
    return {**node, "items": {}} if node.get("type") == "array" and "items" not in node else node


def _root(node: Object) -> Object:
    """The top has properties, and no options or values: the properties of all options stand side by side."""
    node.pop("enum", None)
    joined: Object = {}
    for option in node.pop("anyOf", ()):
        joined |= option.get("properties", {})
    return {**node, "properties": {**joined, **node.get("properties", {})}}
