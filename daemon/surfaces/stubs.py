"""Python stubs of tools for models that write scripts; a server's words are literals or one-line comments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from daemon.config.jsonc import resolve
from daemon.protocol import decoded
from daemon.safety.escape import json_line, legible
from daemon.surfaces.answers import MAX_LINE, one_line
from daemon.surfaces.summing import first_sentence

if TYPE_CHECKING:
    from daemon.catalog.tool_results import Shape
    from daemon.model import Tool

MAX_DEPTH, MAX_MEMBERS, MAX_OPTIONS, MAX_PARTS = 4, 40, 20, 150
"""Levels of a type, since a schema may contain itself; members of an object; alternatives; parts read."""

MAX_VALUE, MAX_NAME = 40, 128
"""Characters of a value, which otherwise is its type, and of a member's name, which otherwise is left out."""

MAX_CALL, MAX_ABOUT, NEW_WORDS = 88, 60, 3
"""Characters of the longest call on one line, and of the longest description of an argument that is worth its
tokens; the fewest of its words that neither the argument's name nor the tool's description says."""

_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_SCHEMAS, _CHOICES = ("inputSchema", "outputSchema"), ("anyOf", "oneOf")
_UNTYPED = frozenset({"required", "not", "title", "description"})
"""Keywords of an alternative that do not tell its type."""

Schema = dict[str, Any]


def stub(name: str, tool: Tool, description: str, observed: Shape | None) -> str:
    """A tool as Python: a comment, `result = await call(NAME, {…})` and, if known, `result: TYPE`."""
    schema, output = (decoded(msgspec.json.decode, tool.parts.get(key, b"{}")) for key in _SCHEMAS)
    start, known = f"result = await call({json_line(name)}, {{", f"{name} {description}".lower()
    lines = [f"    {each}" for each in _Types(schema).arguments(known)]
    whole = start + " ".join(map(str.strip, lines)).removesuffix(",") + "})"
    lines = [whole] if len(whole) <= MAX_CALL and "#" not in whole else [start, *lines, "})"]
    if isinstance(output, dict) and output:
        lines.append(f"result: {_Types(output).of(output)}")
    elif observed is not None:
        lines.append(f"result: {observed.python}  # observed")
    return "\n".join(filter(None, [_comment(first_sentence(description)), *lines]))


class _Types:
    def __init__(self, root: object) -> None:
        self._root, self._left = root, MAX_PARTS

    def arguments(self, known: str) -> list[str]:
        """A line for each argument, required ones first, with comments that say more than is known."""
        whole, told = self._whole(self._root), dict[bool, list[str]]({True: [], False: []})
        for name, each in _members(whole).items():
            text = str(each.get("description", "")) if isinstance(each, dict) else ""
            new = [word for word in text.lower().split() if word.strip(".,()") not in f"{known} {name.lower()}"]
            about = _comment(text) if len(new) >= NEW_WORDS and len(text) <= MAX_ABOUT else ""
            line = f"{json_line(name)}: {self.of(each, (), MAX_DEPTH - 1)},{about and '  '}{about}"
            told[name in _list(whole, "required")].append(line)
        return told[True] + ["# optional:"] * bool(told[False]) + told[False]

    def of(self, schema: object, seen: tuple[object, ...] = (), depth: int = MAX_DEPTH) -> str:
        if self._left <= 0:
            return "Any"
        if isinstance(schema, dict) and "$ref" in schema:
            depth, seen = (0 if schema["$ref"] in seen else depth), (*seen, schema["$ref"])
        whole = self._whole(schema)
        rest = {key: value for key, value in whole.items() if key not in _CHOICES}
        options = [each for key in _CHOICES for each in _list(whole, key) if isinstance(each, dict)]
        options = [_merged(rest, each) for each in options if each.keys() - _UNTYPED]
        values = [whole["const"]] if "const" in whole else _list(whole, "enum")
        self._left -= 1 + len(values[:MAX_OPTIONS])
        types = _list(whole, "type") or [whole.get("type")]
        kinds = [self.of(each, seen, depth) for each in options[:MAX_OPTIONS]]
        kinds = kinds or [_value(each) for each in values[:MAX_OPTIONS]]
        kinds = kinds or [self._typed(whole, each, seen, depth) for each in types[:MAX_OPTIONS]]
        kinds += ["..."] * (max(len(options), len(values)) > MAX_OPTIONS) + ["None"] * bool(
            whole.get("nullable")
        )
        return "Any" if "Any" in kinds else " | ".join(dict.fromkeys(kinds))

    def _whole(self, schema: object) -> Schema:
        """A schema with the target of its reference, and with those that it has to fit as well."""
        whole = schema if isinstance(schema, dict) else {}
        for part in ({"$ref": whole.get("$ref")}, *_list(whole, "allOf")[:MAX_OPTIONS]):
            found = resolve(self._root, part["$ref"]) if isinstance(part, dict) and "$ref" in part else part
            whole = _merged(whole, found) if isinstance(found, dict) else whole
        return {key: value for key, value in whole.items() if key not in {"$ref", "allOf"}}

    def _typed(self, schema: Schema, kind: object, seen: tuple[object, ...], depth: int) -> str:
        if kind == "array" or (kind is None and "items" in schema):
            items = _list(schema, "prefixItems") or _list(schema, "items") or [schema.get("items")]
            inner = [self.of(each, seen, depth - 1) for each in items[:MAX_OPTIONS] if depth > 0]
            return f"[{', '.join(inner)}]" if inner and inner != ["Any"] else "list"
        if kind != "object" and (kind is not None or not _dict(schema, "properties")):
            return _TYPES.get(str(kind), "Any")
        told, others = list[str](), _dict(schema, "additionalProperties")
        for name, each in _members(schema).items() if depth > 0 else ():
            inside, needed = self.of(each, seen, depth - 1), name in _list(schema, "required")
            told.append(f"{json_line(name)}: {inside if needed else f'NotRequired[{inside}]'}")
        told += [f"str: {self.of(others, seen, depth - 1)}"] if others and depth > 0 else []
        return f"{{{', '.join(told)}}}" if told else "dict"


def _list(schema: Schema, key: str) -> list[Any]:
    return found if isinstance(found := schema.get(key), list) else []


def _dict(schema: Schema, key: str) -> Schema:
    return found if isinstance(found := schema.get(key), dict) else {}


def _members(schema: Schema) -> Schema:
    """The members of an object, `...` for those that are left out."""
    found = _dict(schema, "properties")
    named = [each for each in found.items() if len(each[0]) <= MAX_NAME][:MAX_MEMBERS]
    return dict([*named, ("...", {})] if len(named) < len(found) else named)


def _merged(node: Schema, part: Schema) -> Schema:
    members = {**_dict(part, "properties"), **_dict(node, "properties")}
    required = _list(part, "required") + _list(node, "required")
    return {**part, **node, "properties": members, "required": required}


def _value(value: object) -> str:
    if isinstance(value, list | dict) or len(str(value)) > MAX_VALUE:
        return type(value).__name__
    return json_line(value) if isinstance(value, str) else str(value)


def _comment(text: str) -> str:
    line = one_line(legible(" ".join(text.split())), MAX_LINE)
    return f"# {line}" if line else ""
