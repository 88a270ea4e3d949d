"""Definitions: hashes, schemas, header marks, OpenAI's form, and the comparison of successive lists.

MCP requires `"type": "object"` in the schema of a tool's arguments. Many servers omit it, and clients then
refuse the whole list, so mcpd adds it; the meaning stays the same.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from math import inf
from typing import Any

import msgspec
from msgspec import Raw

from daemon.config.config_model import SchemaForm, Server
from daemon.model import Definition, Tool
from daemon.protocol import decode_members, decoded

Marks = Mapping[tuple[str, ...], str]
"""Suffixes of headers, by the path of the argument that is marked."""

MARK = "x-mcp-header"
"""Marks an argument that clients repeat in the header `Mcp-Param-<value>`."""

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, 5.6.2
_PLAIN = re.compile(r"(?!=\?base64\?.*\?=\Z)(?! )[\x20-\x7e]*(?<! )")


def marks_in(schema: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path of each marked argument and its header's suffix; looks into `properties` only."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for name, argument in properties.items() if isinstance(properties, dict) else ():
        mark = argument.get(MARK) if isinstance(argument, dict) else None
        if isinstance(mark, str) and _TOKEN.fullmatch(mark):
            yield (*path, name), mark
        yield from marks_in(argument, (*path, name))


def marked_headers(marks: Marks, arguments: Raw) -> dict[str, str]:
    """The headers for those marked arguments that have values."""
    given = decoded(msgspec.json.decode, arguments)
    headers = {}
    for path, suffix in marks.items():
        value: Any = given
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, bool):
            value = "true" if value else "false"
        if isinstance(value, str | int | float):
            # Numbers of thousands of digits cannot be converted (`sys.int_info`) and get no header.
            with suppress(ValueError):
                headers[f"mcp-param-{suffix}"] = encoded(str(value))
    return headers


def encoded(value: str) -> str:
    """Encode a header's value: visible ASCII as it is, else base64 in the specification's brackets."""
    return value if _PLAIN.fullmatch(value) else f"=?base64?{b64encode(value.encode()).decode()}?="


canonical = msgspec.json.Encoder(order="sorted").encode
"""JSON with sorted keys and no white space, close to RFC 8785; deep nesting raises `RecursionError`."""


def hashes(members: Mapping[str, object]) -> tuple[str, str]:
    """Hash a definition (SHA-256 of canonical JSON): `schema_hash` with its name, `content_hash` without."""
    contents = {name: value for name, value in members.items() if name != "name"}
    return _digest(members), _digest(contents)


def _digest(value: object) -> str:
    return hashlib.sha256(canonical(value)).hexdigest()


def tools_digest(hashes: Iterable[str]) -> str:
    """Identify a set of tools (hex SHA-256), as the key of the server's summary."""
    return hashlib.sha256("\n".join(sorted(hashes)).encode()).hexdigest()


def fingerprint(server: Server) -> str:
    """Identify the server that a configuration means (hex SHA-256); empty while the entry is faulty."""
    if server.faults:
        return ""
    decisive = {
        "type": str(server.type),
        "command": server.command,
        "args": list(server.args),
        "env": dict(server.env),
        "cwd": server.cwd,
        "url": server.url,
        "headers": dict(server.headers),
    }
    return _digest(decisive)


NEVER = inf
"""The time of a form of unknown age: such a form counts as newer than anything that a client has seen."""

MAX_RENAMED = 1000
"""Renames kept per server, the latest: a server may invent names without end."""


def say_the_same(one: Mapping[str, Definition], other: Mapping[str, Definition]) -> bool:
    """Whether two lists are equal byte for byte, in any order. Equal lists are usually one object."""
    return one.keys() == other.keys() and all(
        each is (same := other[name]) or each.raw == same.raw for name, each in one.items()
    )


def mean_the_same(one: Mapping[str, Definition], other: Mapping[str, Definition]) -> bool:
    """Whether two lists hold definitions of equal meaning, in any order."""
    return one.keys() == other.keys() and all(_alike(each, other[name]) for name, each in one.items())


def since_when(
    listed: Mapping[str, Definition], before: Mapping[str, Definition], since: Mapping[str, float], now: float
) -> Mapping[str, float]:
    """When each definition got its present form, in epoch seconds; `now` for a new or changed definition."""
    if listed is before:
        return since
    return {
        name: since.get(name, now) if (was := before.get(name)) is not None and _alike(was, each) else now
        for name, each in listed.items()
    }


def known_for_longer(
    listed: Mapping[str, Definition],
    since: Mapping[str, float],
    remembered: Mapping[str, Definition],
    at: Mapping[str, float],
) -> dict[str, float]:
    """The stored times that are earlier than the known ones, for definitions whose form is the same."""
    return {
        name: at[name]
        for name, each in listed.items()
        if (was := remembered.get(name)) is not None
        and _alike(was, each)
        and at.get(name, NEVER) < since.get(name, NEVER)
    }


def renames(
    before: Mapping[str, Definition], listed: Mapping[str, Definition], earlier: Mapping[str, str]
) -> dict[str, str]:
    """The present renames by old name: a removed and an added definition that differ only in name."""
    gone = [name for name in before if name not in listed]
    new = [name for name in listed if name not in before]
    now: dict[str, str] = {}
    if gone and new:
        went, came = _by_content(before, gone), _by_content(listed, new)
        now = {went[content]: came[content] for content in went if content in came}
    # An earlier renamed definition may have been renamed again, be back, or be gone.
    followed = {old: now.get(new, new) for old, new in earlier.items() if old not in now}
    merged = {old: new for old, new in {**followed, **now}.items() if old not in listed and new in listed}
    return dict(islice(merged.items(), max(0, len(merged) - MAX_RENAMED), None))


def _by_content(listed: Mapping[str, Definition], names: Iterable[str]) -> dict[str, str]:
    """Names by content hash, without contents that several names share: their renames are ambiguous."""
    shared = Counter([each.content_hash for each in listed.values()])
    return {listed[name].content_hash: name for name in names if shared[listed[name].content_hash] == 1}


def _alike(one: Definition, other: Definition) -> bool:
    return one is other or one.schema_hash == other.schema_hash


KEPT = 4096
"""Cached compact schemas: as many as eighty large servers have."""

_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose members are named schemas, which stay even if empty."""

_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SCHEMAS = frozenset(
    {"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"}
)

_IDLE_WHEN_EMPTY = frozenset({"title", "description", "$comment", "required", "examples", *_MAPS})
"""Keywords that have no meaning when empty; other keywords, such as `items`, may have one."""


@lru_cache(maxsize=KEPT)
def compact(schema: bytes) -> bytes:
    """A schema without white space, `$schema`, nulls and empty fields; it means the same; non-objects stay."""
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


def lacks_type(definition: Mapping[str, Any]) -> bool:
    """Whether a tool's argument schema lacks its type. Raises `ValueError`."""
    if SCHEMA not in definition:
        raise ValueError("has no inputSchema")
    schema = definition[SCHEMA]
    if not isinstance(schema, dict):
        raise ValueError("its inputSchema is not an object")
    if "type" in schema and schema["type"] != "object":
        raise ValueError('the "type" of its inputSchema is not "object", which MCP requires')
    return "type" not in schema


def completed(raw: bytes) -> bytes:
    """Add the missing type to a definition's argument schema; all other bytes stay."""
    members = decode_members(raw)
    rest = bytes(members[SCHEMA])[1:].lstrip()
    separator = b"" if rest == b"}" else b","
    return msgspec.json.encode({**members, SCHEMA: Raw(b"{" + TYPE + separator + rest)})


MAX_BYTES = 32 * 1024
"""Bytes of a converted schema: four times the largest of 397. Nested options cost depth times length."""

KEPT_OPENAI = 2048
"""Cached converted schemas: more than the 1,519 tools of 46 real servers."""

_OF_ANY = frozenset({"not", "if", "then", "else", "dependencies", "dependentRequired", "dependentSchemas"})
_OF_OBJECTS = frozenset(f"{name}Properties" for name in ("pattern", "min", "max", "unevaluated"))
_OF_ARRAYS = frozenset({"contains", "minContains", "maxContains", "uniqueItems", "unevaluatedItems"})
REFUSED = _OF_ANY | _OF_OBJECTS | _OF_ARRAYS | {"propertyNames"}
"""Keywords that are dropped for OpenAI; each only restricts its neighbours."""

FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
"""Values of `format` that OpenAI accepts."""

_OF_TYPE = {"array": ("items",), "object": ("properties", "required", "additionalProperties")}
"""Keywords that stay with a type when a list of types becomes several options."""

Object = dict[str, Any]


def shown_parts(tool: Tool, form: SchemaForm, *, cut: bool = False) -> Mapping[str, bytes]:
    """A tool's members in the profile's schema form; `cut`: no output schema. `tool.parts` if unchanged."""
    schema, parts = tool.parts.get(SCHEMA, b""), tool.parts
    if cut:
        parts = {key: value for key, value in parts.items() if key != "outputSchema"}
    shown = openai_schema(schema) if form is SchemaForm.OPENAI else schema
    return parts if shown is schema else {**parts, SCHEMA: shown}


def shown_meta_tool(raw: bytes, form: SchemaForm) -> bytes:
    """A meta-tool's raw definition, with its schema in the profile's form."""
    if form is SchemaForm.ORIGINAL:
        return raw
    members = msgspec.json.decode(raw, type=dict[str, Raw])
    return msgspec.json.encode({**members, SCHEMA: Raw(openai_schema(bytes(members[SCHEMA])))})


@lru_cache(maxsize=KEPT_OPENAI)
def openai_schema(raw: bytes) -> bytes:
    """A schema without keywords that OpenAI refuses; the same bytes if it has none or cannot be converted."""
    try:
        schema = msgspec.json.decode(raw) if len(raw) <= MAX_BYTES else None
        made = _root(_converted(schema)) if isinstance(schema, dict) else schema
        return raw if made == schema else msgspec.json.encode(made)
    except (msgspec.MsgspecError, UnicodeError, OverflowError, RecursionError, TypeError, AttributeError):
        return raw


def _converted(schema: object) -> Object:
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


def merged(node: Object, part: Object) -> Object:
    """Merge `part`, which values must fit as well, into the schema `node`, whose members take precedence."""
    both = {**part, **node}
    for key in ("properties", "required"):
        match part.get(key), node.get(key):
            case dict(theirs), dict(ours):
                both[key] = {**theirs, **ours}
            case list(theirs), list(ours):
                both[key] = list(dict.fromkeys(each for each in [*theirs, *ours] if isinstance(each, str)))
    return both


def _joined(node: Object) -> Object:
    for part in node.pop("allOf", ()):
        node = merged(node, part)
    options = node.pop("oneOf", None)
    return node if options is None else {"anyOf": options, **node}


def _listed_items(node: Object) -> Object:
    rest = node.get("items")
    if "prefixItems" not in node and not isinstance(rest, list):
        return node
    places = [*node.pop("prefixItems", ()), *(rest if isinstance(rest, list) else [rest] if rest else ())]
    return {**node, "items": _chosen({"anyOf": places})}


def _typed(node: Object) -> Object:
    """Replace a list of types by the one type that is not null, or by an option for each type."""
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
    values = node.get("enum")
    counted = "type" not in node and bool(values) and all(type(each) is int for each in values or ())
    return {"multipleOf": 1, **node, "type": "number"} if counted or node.get("type") == "integer" else node


def _valued(node: Object) -> Object:
    """Drop null from values and default, and unknown formats."""
    if isinstance(values := node.get("enum"), list):
        node = {**node, "enum": [each for each in values if each is not None] or values}
    if node.get("default", ...) is None:
        del node["default"]
    if "format" in node and node["format"] not in FORMATS:
        del node["format"]
    return node


def _chosen(node: Object) -> Object:
    """Drop null and repeated options; merge a single one."""
    kept: dict[bytes, Object] = {}
    for each in node.pop("anyOf", ()):
        if each.get("type") != "null" and each.get("const", ...) is not None:
            wide = {key: value for key, value in each.items() if (key, value) != ("multipleOf", 1)}
            same = kept.setdefault(msgspec.json.encode(wide, order="sorted"), each)
            same.pop("multipleOf", None) if same != each else None
    options = list(kept.values())
    if len(options) == 1:
        return merged(node, options[0])
    return {**node, "anyOf": options} if options else node


def _completed(node: Object) -> Object:
    return {**node, "items": {}} if node.get("type") == "array" and "items" not in node else node


def _root(node: Object) -> Object:
    """Merge the options' properties into the root, which may have properties only."""
    node.pop("enum", None)
    joined: Object = {}
    for option in node.pop("anyOf", ()):
        joined |= option.get("properties", {})
    return {**node, "properties": {**joined, **node.get("properties", {})}}
