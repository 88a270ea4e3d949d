"""Definitions: hashes, schemas, marked arguments, OpenAI's form, and how one list of a server follows another.

How lists follow each other (what stayed, since when, and what was renamed) depends only on names, bytes and
hashes, which prompts, resources and templates have as tools do.

MCP requires `"type": "object"` in a schema of arguments, and clients refuse a whole list for a tool without it.
Servers leave it out all the same, most of all those built with a version of a library that their authors did
not test. Arguments are an object whatever else the schema says, so adding the type does not change its meaning.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections import Counter
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from daemon.config.config_model import SchemaForm

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from daemon.config.config_model import Server
    from daemon.model import Definition, Tool

    Marks = Mapping[tuple[str, ...], str]
    """The suffix of its header by the path of each marked argument."""

MARK = "x-mcp-header"
"""The annotation of an argument that is repeated in the header `Mcp-Param-<value>`."""

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, 5.6.2
_PLAIN = re.compile(r"(?!=\?base64\?.*\?=\Z)(?! )[\x20-\x7e]*(?<! )")


def marks_in(schema: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path of each marked argument and the suffix of its header.

    Only arguments reached through `properties` alone can be marked. The server ignores all headers of a tool
    that has a mark elsewhere, or an invalid one, so sending the valid ones does no harm.
    """
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for name, argument in properties.items() if isinstance(properties, dict) else ():
        mark = argument.get(MARK) if isinstance(argument, dict) else None
        if isinstance(mark, str) and _TOKEN.fullmatch(mark):
            yield (*path, name), mark
        yield from marks_in(argument, (*path, name))


def marked_headers(marks: Marks, arguments: Raw) -> dict[str, str]:
    """The headers that repeat marked arguments, by name; an argument without a value has none."""
    try:
        given = msgspec.json.decode(arguments)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    headers = {}
    for path, suffix in marks.items():
        value: Any = given
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, bool):
            value = "true" if value else "false"
        if isinstance(value, str | int | float):
            # A number of thousands of digits cannot be converted (`sys.int_info`) and gets no header.
            with suppress(ValueError):
                headers[f"mcp-param-{suffix}"] = encoded(str(value))
    return headers


def encoded(value: str) -> str:
    """Encode a header's value: visible ASCII as it is, the rest as base64 in the specification's brackets."""
    return value if _PLAIN.fullmatch(value) else f"=?base64?{b64encode(value.encode()).decode()}?="


def canonical(value: object) -> bytes:
    """JSON with sorted keys, no white space and UTF-8 unescaped, in the spirit of RFC 8785.

    Raises:
        RecursionError: the value is nested deeper than the interpreter follows.
    """
    return _encode(value)


_encode = msgspec.json.Encoder(order="sorted").encode


def hashes(members: Mapping[str, object]) -> tuple[str, str]:
    """The `schema_hash` and the `content_hash` of a definition.

    Args:
        members: its decoded definition. All of it counts, because a client may depend on any part.

    Returns:
        Hex SHA-256 of its canonical JSON (design.md §6); and the same without the name, which does not change
        when it is renamed.

    Raises:
        RecursionError: a member is nested too deeply.
    """
    contents = {name: value for name, value in members.items() if name != "name"}
    return _digest(members), _digest(contents)


def _digest(value: object) -> str:
    return hashlib.sha256(canonical(value)).hexdigest()


def tools_digest(hashes: Iterable[str]) -> str:
    """Hex SHA-256 of a server's tools, in any order: identifies what a summary of the server describes."""
    return hashlib.sha256("\n".join(sorted(hashes)).encode()).hexdigest()


def fingerprint(server: Server) -> str:
    """Hex SHA-256 of what decides which server answers: configurations with equal ones share what was learned.

    Timeouts, limits, descriptions and the like do not count. Empty while the entry is faulty: which server will
    answer once the entry is mended is unknown, so what was learned of the last one stays until then.
    """
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
"""The time since which something unknown holds: whatever a client was shown may have been different."""

MAX_RENAMED = 1000
"""Most renames remembered of one server, the latest: a bound for one that keeps inventing names."""


def say_the_same(one: Mapping[str, Definition], other: Mapping[str, Definition]) -> bool:
    """Whether two lists are the same byte for byte, in any order. Equal ones are nearly always one object."""
    return one.keys() == other.keys() and all(
        each is (same := other[name]) or each.raw == same.raw for name, each in one.items()
    )


def mean_the_same(one: Mapping[str, Definition], other: Mapping[str, Definition]) -> bool:
    """Whether the definitions in two lists mean the same, in any order."""
    return one.keys() == other.keys() and all(_alike(each, other[name]) for name, each in one.items())


def since_when(
    listed: Mapping[str, Definition], before: Mapping[str, Definition], since: Mapping[str, float], now: float
) -> Mapping[str, float]:
    """When each definition took its present form, in seconds since the epoch.

    Args:
        listed: the definitions now.
        before: the definitions before.
        since: when those before took their form; what it lacks counts from now.
        now: seconds since the epoch.
    """
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
    """When definitions took their form, for those that the store knows to have had it for longer.

    Args:
        listed: the definitions now.
        since: when they took their form, as far as is known without the store.
        remembered: the definitions in the store.
        at: since when the store has known them in this form.
    """
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
    """The renames that hold now: a definition went, and exactly one came that differs only in its name.

    Args:
        before: the definitions before.
        listed: the definitions now.
        earlier: the renames so far, new names by old ones.
    """
    gone = [name for name in before if name not in listed]
    new = [name for name in listed if name not in before]
    now: dict[str, str] = {}
    if gone and new:
        went, came = _by_content(before, gone), _by_content(listed, new)
        now = {went[content]: came[content] for content in went if content in came}
    # What was renamed earlier may have been renamed again, be back, or be gone for good.
    followed = {old: now.get(new, new) for old, new in earlier.items() if old not in now}
    merged = {old: new for old, new in {**followed, **now}.items() if old not in listed and new in listed}
    return dict(islice(merged.items(), max(0, len(merged) - MAX_RENAMED), None))


def _by_content(listed: Mapping[str, Definition], names: Iterable[str]) -> dict[str, str]:
    """Names by content hash, without contents that several share: it would be unclear which became which."""
    shared = Counter(each.content_hash for each in listed.values())
    return {listed[name].content_hash: name for name in names if shared[listed[name].content_hash] == 1}


def _alike(one: Definition, other: Definition) -> bool:
    return one is other or one.schema_hash == other.schema_hash


KEPT = 4096
"""Schemas cached in their compact form: all those of eighty large servers."""

_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose members are schemas under names that the author chose: none may be dropped, even if empty."""

_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SCHEMAS = frozenset(
    {"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"}
)

_IDLE_WHEN_EMPTY = frozenset({"title", "description", "$comment", "required", "examples", *_MAPS})
"""Keywords that mean nothing when empty; for others, such as `items`, even {} may matter."""


@lru_cache(maxsize=KEPT)
def compact(schema: bytes) -> bytes:
    """A schema of the same meaning without white space, `$schema`, nulls and empty fields.

    Args:
        schema: raw JSON; anything but an object, or too deeply nested, comes back as it is.
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
    """Whether a tool's schema of arguments lacks its type.

    Raises:
        ValueError: there is no such schema, or its type is not `object`.
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
    """A definition with the type added at the start of its schema of arguments.

    Args:
        raw: a definition whose schema `lacks_type`; its other members stay byte for byte.
    """
    members = _decode_members(raw)
    said = bytes(members[SCHEMA])[1:].lstrip()
    separator = b"" if said == b"}" else b","
    return msgspec.json.encode({**members, SCHEMA: Raw(b"{" + TYPE + separator + said)})


MAX_BYTES = 32 * 1024
"""Bytes of a schema that is converted: four times the largest of 397 real ones. Options within options take
time that grows with their depth times their length."""

KEPT_OPENAI = 2048
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


@lru_cache(maxsize=KEPT_OPENAI)
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
