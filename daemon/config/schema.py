"""Generates the configuration's JSON Schema; its descriptions are the docstrings of the model's fields."""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import attrs

from daemon.config import client_keys
from daemon.config.config_model import DEFAULT_SURFACE, NOT_WRITTEN, Config, Server, TransportType
from daemon.config.names import TITLE_LENGTH
from daemon.config.translation import LOCAL, REMOTE
from daemon.config.tuning import OrText, Rule
from daemon.kit.wording import camel

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_PRIMITIVES = {str: "string", bool: "boolean", int: "integer", float: "number", NoneType: "null"}

_KEYS = {
    "mcp_servers": {"minLength": 1},
    "categories": {"minLength": 1, "maxLength": TITLE_LENGTH},
    "profiles": {"minLength": 1, "maxLength": TITLE_LENGTH},
}

Schema = dict[str, Any]


def json_schema(surfaces: Sequence[str]) -> Schema:
    """The schema, without rules between entries; `surfaces` are those that a profile may name."""
    definitions: Schema = {}
    root = _object(Config, definitions)
    definitions["Profile"]["properties"]["surface"] |= {"enum": [DEFAULT_SURFACE, *surfaces]}
    _take_clients_words(root["properties"], definitions["Server"]["properties"])
    pointer = {"type": "string", "description": "Where this schema is, for editors."}
    root["properties"] = {"$schema": pointer, **root["properties"]}
    return {
        "$schema": DIALECT,
        **root,
        "title": "mcpd configuration",
        "$defs": dict(sorted(definitions.items())),
    }


def render(surfaces: Sequence[str]) -> str:
    """The text of `config/mcpd.schema.json`."""
    return json.dumps(json_schema(surfaces), indent=2, ensure_ascii=False) + "\n"


def _take_clients_words(config: Schema, server: Schema) -> None:
    """Accept the keys of other clients that mcpd understands, so that editors do not mark them."""
    config |= {key: {"description": "Understood as `mcpServers`."} for key in client_keys.table().sections}
    for key, said in client_keys.top_level_keys().items():
        config[key] = {"description": f"{said[0].upper()}{said[1:]}."}
    server["auth"]["anyOf"] += [{"type": "string"}, {"type": "object", "not": {"required": ["type"]}}]
    server |= {
        key: {"description": meant.sentence}
        for meant in client_keys.table().server
        for key in meant.keys
        if key not in server
    }
    words = {"type": ["string", "number", "boolean"]}
    server["command"]["type"] = ["string", "array", "object", "null"]
    server["args"]["items"] = words
    for key in ("env", "headers"):
        server[key]["additionalProperties"] = words
    server["type"]["enum"] += [LOCAL, REMOTE]


def _object(cls: type, definitions: Schema) -> Schema:
    hints = get_type_hints(cls, include_extras=True)
    descriptions = _docstrings(cls)
    properties, required = {}, []
    for field in attrs.fields(cls):
        if not field.metadata.get("in_file", True):
            continue
        key = camel(field.name)
        properties[key] = {**_of(hints[field.name], definitions), "description": descriptions[field.name]}
        if cls is Config and field.name in _KEYS:
            properties[key]["propertyNames"] = _KEYS[field.name]
        if field.default is attrs.NOTHING:
            required.append(key)
        elif (cls, key) != (Server, "type"):  # it is inferred from other keys
            properties[key] |= _default(field.default)
    schema: Schema = {"title": cls.__name__, "description": inspect.getdoc(cls), "type": "object"}
    schema |= {"properties": properties, "additionalProperties": False}
    return schema | ({"required": required} if required else {})


def _of(kind: Any, definitions: Schema) -> Schema:
    origin, arguments = get_origin(kind), get_args(kind)
    if hasattr(kind, "__metadata__"):
        schema = _bounded(_of(kind.__origin__, definitions), kind.__metadata__)
    elif origin in {Union, UnionType}:
        schema = _either([_of(argument, definitions) for argument in arguments])
    elif origin is tuple:
        schema = {"type": "array", "items": _of(arguments[0], definitions)}
    elif origin is Mapping:
        schema = {"type": "object", "additionalProperties": _of(arguments[1], definitions)}
    elif attrs.has(kind):
        schema = _reference(kind, definitions)
    elif issubclass(kind, StrEnum):
        spellings = client_keys.table().types if kind is TransportType else ()
        schema = {"enum": [*(member.value for member in kind if member not in NOT_WRITTEN), *spellings]}
    else:
        schema = {"type": _PRIMITIVES[kind]}
    return schema


def _either(schemas: list[Schema]) -> Schema:
    """The schema of a union: one list of types where possible, which editors show better."""
    *first, last = schemas
    if len(first) == 1 and "type" in first[0] and last == {"type": "null"}:
        return first[0] | {"type": [first[0]["type"], "null"]}
    return {"anyOf": [each for schema in schemas for each in schema.get("anyOf", [schema])]}


def _reference(cls: type, definitions: Schema) -> Schema:
    if cls.__name__ not in definitions:
        definitions[cls.__name__] = {}  # a place to stop at, should a class ever hold itself
        definitions[cls.__name__] = _object(cls, definitions)
    return {"$ref": f"#/$defs/{cls.__name__}"}


def _bounded(schema: Schema, bounds: tuple[Any, ...]) -> Schema:
    for bound in bounds:
        match bound:
            case Rule(schema=said):
                schema |= said
            case OrText(pattern=pattern):
                schema = {"anyOf": [schema, {"type": "string", "pattern": f"^(?:{pattern})$"}]}
    return schema


def _default(value: Any) -> Schema:
    if isinstance(value, attrs.Factory):  # type: ignore[arg-type]  # at run time it is the class
        return {}
    return {"default": list(value) if isinstance(value, tuple) else value}


def _docstrings(cls: type) -> dict[str, str]:
    tree = ast.parse(inspect.getsource(sys.modules[cls.__module__]))
    (body,) = (node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == cls.__name__)
    return {
        field.target.id: inspect.cleandoc(line.value.value)
        for field, line in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(line, ast.Expr)
        and isinstance(line.value, ast.Constant)
        and isinstance(line.value.value, str)
    }
