"""Python stubs of tools for models that write scripts: a typed call, and the type of its result.

A stub is valid Python, whatever a server says: its words are string literals, or comments on one line.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from daemon.config.jsonc import resolve
from daemon.protocol import decoded
from daemon.safety.escape import json_line, legible
from daemon.surfaces.answers import MAX_LINE, one_line
from daemon.surfaces.summing import first_sentence

if TYPE_CHECKING:
    from daemon.catalog.observed import Shape
    from daemon.model import Tool

MAX_DEPTH, MAX_MEMBERS, MAX_OPTIONS = 4, 40, 20
"""Levels of a type, since a schema may contain itself; members of an object; alternatives of a choice."""

MAX_PARTS = 150
"""Parts of a schema that are read, values among them: a stub of 4 KB."""

MAX_VALUE, MAX_NAME = 40, 128
"""Characters of a value, which otherwise is its type, and of a member's name, which otherwise is left out."""

MAX_NUMBER = 2**63
"""Larger whole numbers are not written: Python refuses those of thousands of digits."""

MAX_ABOUT, NEW_WORDS = 60, 2
"""Characters of the longest description of an argument that is worth its tokens, and the fewest of its words
that neither the argument's name nor the tool's description says."""

MAX_CALL = 88
"""Characters of the longest call on one line."""

REST = "...: ..."
"""The members of an object that are left out."""

_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_CHOICES = ("anyOf", "oneOf")
_UNTYPED = frozenset({"required", "not", "title", "description"})
"""Keywords of an alternative that do not tell its type."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SMALL = frozenset({"a", "an", "and", "as", "for", "from", "if", "in", "is", "of", "on", "or", "the", "to"})

_decode = msgspec.json.Decoder().decode

Schema = dict[str, Any]


def stub(name: str, tool: Tool, description: str, observed: Shape | None) -> str:
    """A tool as Python: a comment, `result = await call(NAME, {…})` and, if known, `result: TYPE`."""
    schema, output = (decoded(_decode, tool.parts.get(key, b"{}")) for key in ("inputSchema", "outputSchema"))
    needed, optional = _Types(schema).arguments(_words(f"{name} {description}"))
    start, lines = f"result = await call({json_line(name)}, {{", [f"    {each}" for each in needed]
    lines += ["    # optional:", *(f"    {each}" for each in optional)] if optional else []
    whole = start + " ".join(map(str.strip, lines)).removesuffix(",") + "})"
    lines = [whole] if len(whole) <= MAX_CALL and "#" not in whole else [start, *lines, "})"]
    if isinstance(output, dict) and output:
        lines.append(f"result: {_Types(output).of(output)}")
    elif observed is not None:
        lines.append(f"result: {observed.python}  # observed")
    return "\n".join(filter(None, [_comment(first_sentence(description)), *lines]))


class _Types:
    """The types of one schema."""

    def __init__(self, root: object) -> None:
        self._root, self._left = root, MAX_PARTS

    def arguments(self, known: set[str]) -> tuple[list[str], list[str]]:
        """The lines of the required and of the optional arguments, with comments on what is not `known`."""
        whole, told = self._whole(self._root), dict[bool, list[str]]({True: [], False: []})
        for name, each in _members(whole).items():
            text = each.get("description") if isinstance(each, dict) else None
            text = text if isinstance(text, str) and len(text) <= MAX_ABOUT else ""
            about = _comment(text) if len(_words(text) - known - _words(name)) >= NEW_WORDS else ""
            line = f"{json_line(name)}: {self.of(each, (), MAX_DEPTH - 1)},{about and '  '}{about}"
            told[name in _list(whole, "required")].append(line)
        left = len(_members(whole)) < len(_dict(whole, "properties"))
        return told[True], told[False] + [f"{REST},"] * left

    def of(self, schema: object, seen: tuple[object, ...] = (), depth: int = MAX_DEPTH) -> str:
        """The type of a schema; `seen` are the references on the way to it."""
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
        kinds += ["..."] * (max(len(options), len(values)) > MAX_OPTIONS)
        kinds += ["None"] * (whole.get("nullable") is True)
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
        if kind != "object" and (kind is not None or "properties" not in schema):
            return _TYPES.get(str(kind), "Any")
        told, members, others = list[str](), _members(schema), _dict(schema, "additionalProperties")
        for name, each in members.items() if depth > 0 else ():
            inside = self.of(each, seen, depth - 1)
            needed = name in _list(schema, "required")
            told.append(f"{json_line(name)}: {inside if needed else f'NotRequired[{inside}]'}")
        told += [f"str: {self.of(others, seen, depth - 1)}"] if others and depth > 0 else []
        told += [REST] * (len(members) < len(_dict(schema, "properties")))
        return f"{{{', '.join(told)}}}" if told else "dict"


def _list(schema: Schema, key: str) -> list[Any]:
    return found if isinstance(found := schema.get(key), list) else []


def _dict(schema: Schema, key: str) -> Schema:
    return found if isinstance(found := schema.get(key), dict) else {}


def _members(schema: Schema) -> Schema:
    named = ((name, each) for name, each in _dict(schema, "properties").items() if len(name) <= MAX_NAME)
    return dict(islice(named, MAX_MEMBERS))


def _merged(node: Schema, part: Schema) -> Schema:
    """Two schemas for one value as one; `node` wins."""
    both = {"properties": {**_dict(part, "properties"), **_dict(node, "properties")}}
    needed = {"required": [*_list(part, "required"), *_list(node, "required")]}
    return {**part, **node, **(both if both["properties"] else {}), **needed}


def _value(value: object) -> str:
    """A value in Python's words, or its type if it is long."""
    if value is None or isinstance(value, bool):
        return str(value)
    short = isinstance(value, str | float) or (isinstance(value, int) and abs(value) < MAX_NUMBER)
    return json_line(value) if short and len(str(value)) <= MAX_VALUE else type(value).__name__


def _words(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text)} - _SMALL


def _comment(text: str) -> str:
    """A text as a comment on one line, without hidden characters; empty without a text."""
    line = one_line(legible(" ".join(text.split())), MAX_LINE)
    return f"# {line}" if line else ""
