"""Definitions of tools with the noise of real servers, and their forms that accept less or more."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from random import Random
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

Json = Any
Render = Callable[[Random], Any]
"""A text or number, with other noise for another generator."""

WORDS = ("read", "write", "issue", "project", "files", "status", "summary", "assignee", "created", "labels")
LINES = ("data source", "big table", "search index", "read-only replica", "status & labels")

ORDERS: dict[str, tuple[tuple[str, ...], Callable[[list[str]], str]]] = {
    "a Python set": (WORDS, lambda items: "{" + ", ".join(map(repr, items)) + "}"),
    "a Python list of lines": (LINES, str),
    "words with commas": (WORDS, ", ".join),
    "words with commas alone": (WORDS, ",".join),
    "words and a last one": (WORDS, lambda items: f"{', '.join(items[:-1])} and {items[-1]}"),
    "words with bars": (WORDS, " | ".join),
    "lines in brackets": (LINES, lambda items: f"({', '.join(items)})"),
    "JSON": (LINES, json.dumps),
    "quoted lines": (LINES, lambda items: " or ".join(f'"{each}"' for each in items)),
    "marked words": (WORDS, lambda items: ", ".join(f"`{each}`" for each in items)),
    "bullets": (LINES, lambda items: "\n" + "\n".join(f"- {each}" for each in items) + "\n"),
    "indented bullets": (LINES, lambda items: "\n" + "\n".join(f"  * {each}: it" for each in items) + "\n"),
}


def shuffled(rng: Random, items: list[Any]) -> list[Any]:
    return rng.sample(items, len(items))


def _moment(form: str) -> Render:
    begun = datetime(2024, 1, 1, tzinfo=UTC)
    return lambda rng: (begun + timedelta(seconds=rng.randrange(100_000_000))).strftime(form)


VALUES: dict[str, Render] = {
    "count": lambda rng: str(rng.randrange(10**9)),
    "large count": lambda rng: f"{rng.randrange(10**12):,}",
    "fraction": lambda rng: f"{rng.random():.4f}",
    "version": lambda rng: (
        f"v{rng.randrange(20)}.{rng.randrange(99)}.{rng.randrange(9)}-beta.{rng.randrange(40)}"
    ),
    "identifier": lambda rng: f"{rng.getrandbits(128):032x}",
    "UUID": lambda rng: str(UUID(int=rng.getrandbits(128))),
    "address": lambda rng: f"<function run at 0x7f{rng.getrandbits(40):010x}>",
    "ordinal": lambda rng: rng.choice(["1st", "2nd", "3rd", "24th"]),
    "weekday": _moment("%A"),
    "date": _moment("%Y-%m-%d"),
    "time": _moment("%H:%M:%S"),
    "half day": _moment("%I:%M %p"),
    "RFC 3339": _moment("%Y-%m-%dT%H:%M:%S.%fZ"),
    "RFC 2822": _moment("%a, %d %b %Y %H:%M:%S +0000"),
    "American": _moment("%b %d, %Y"),
    "long American": _moment("%A, %B %d, %Y"),
    "British": _moment("%d %B %Y"),
    "month": _moment("%B %Y"),
    "log": _moment("%d/%b/%Y:%H:%M:%S"),
    "C": _moment("%a %b %e %H:%M:%S %Y"),
}

PHRASES = (
    "Creates an",
    "Returns",
    "Never deletes",
    "tools and files",
    "as of",
    "of the user",
    "one of",
    "default:",
)
SPACES = (" ", "  ", "\n", "\r\n", " \n\n  ", "\t", "\xa0")


def _spaced(words: list[str], rng: Random) -> str:
    return rng.choice(SPACES).join(words)


def _ordered(form: Callable[[list[str]], str], items: list[str], rng: Random) -> str:
    return form(shuffled(rng, items))


@st.composite
def texts(draw: st.DrawFn) -> Render:
    """Texts of phrases, lists in any order, and values that vary."""
    parts: list[Render] = []
    for sort in draw(st.lists(st.sampled_from(["phrase", "order", "value"]), min_size=1, max_size=6)):
        if sort == "phrase":
            words = draw(st.sampled_from(PHRASES)).split()
            parts.append(partial(_spaced, words))
        elif sort == "order":
            among, form = ORDERS[draw(st.sampled_from(sorted(ORDERS)))]
            items = draw(st.lists(st.sampled_from(among), min_size=2, max_size=5, unique=True))
            parts.append(partial(_ordered, form, items))
        else:
            parts.append(VALUES[draw(st.sampled_from(sorted(VALUES)))])
    return lambda rng: rng.choice(SPACES).join(part(rng) for part in parts)


def _some(given: Json, /, **optional: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """Dictionaries with all of one and some of the other."""
    both = st.fixed_dictionaries({}, optional=optional)
    return both.map(lambda more: {**given, **more})


def _unique(among: tuple[str, ...], least: int = 2) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(among), min_size=least, max_size=5, unique=True)


SIMPLE: dict[str, st.SearchStrategy[Json]] = {
    "text": _some(
        {"type": "string"},
        default=texts(),
        minLength=st.integers(1, 9),
        maxLength=st.integers(10, 99),
        pattern=st.sampled_from(["^[a-z]+$", r"^\d{4}$"]),
        format=st.sampled_from(["uri", "date-time"]),
    ),
    "number": _some(
        {"type": "number"},
        default=st.just(lambda rng: rng.randrange(50)),
        minimum=st.integers(0, 9),
        maximum=st.integers(50, 99),
        exclusiveMaximum=st.integers(100, 200),
    ),
    "whole number": st.just({"type": "integer"}),
    "flag": st.booleans().map(lambda value: {"type": "boolean", "default": value}),
    "choice": _unique(WORDS).map(lambda values: {"type": "string", "enum": values}),
    "constant": st.sampled_from(WORDS).map(lambda value: {"const": value}),
    "reference": st.just({"$ref": "#/$defs/Place"}),
}

# No option has a part of another: nobody cares whether that part accepts more.
SCHEMAS: dict[str, st.SearchStrategy[Json]] = {
    **SIMPLE,
    "optional": st.one_of(*SIMPLE.values()).map(
        lambda each: {"anyOf": [each, {"type": "null"}], "default": None}
    ),
    "union": _unique(("string", "boolean", "null")).map(lambda types: {"type": types}),
}


@st.composite
def schemas(draw: st.DrawFn, depth: int = 2) -> Json:
    """Schemas as pydantic, zod and people write them, with texts as functions."""
    sort = draw(st.sampled_from([*SCHEMAS, *(["object", "list", "all"] if depth else [])]))
    if sort in SCHEMAS:
        made = draw(SCHEMAS[sort])
    elif sort == "list":
        made = {"type": "array", "items": draw(schemas(depth - 1)), "maxItems": 9, "uniqueItems": True}
    elif sort == "all":
        made = {"allOf": [draw(schemas(depth - 1))]}
    else:
        made = draw(objects(depth - 1))
    return {**made, **draw(_some({}, description=texts(), title=st.sampled_from(["Max Results", "Path"])))}


@st.composite
def objects(draw: st.DrawFn, depth: int) -> Json:
    """Schemas of objects, with names that are keywords, too."""
    names = st.sampled_from(["path", "query", "limit", "title", "enum", "required", "properties", "argument x"])
    properties = draw(st.dictionaries(names, schemas(depth), max_size=4))
    made = {"type": "object", "properties": properties}
    if properties:
        made |= draw(_some({}, required=_unique(tuple(properties), 1)))
    return {**made, **draw(_some({}, additionalProperties=st.booleans() | schemas(0)))}


@st.composite
def tools(draw: st.DrawFn) -> Json:
    """Definitions of tools, with texts as functions."""
    place = {"type": "string", "enum": ["here", "there"], "description": draw(texts())}
    made = {
        "name": "search",
        "description": draw(texts()),
        "inputSchema": {**draw(objects(2)), "$defs": {"Place": place}},
    }
    annotations = {"readOnlyHint": True, "title": "Search", "lastModified": VALUES["RFC 3339"]}
    return draw(
        _some(
            made,
            title=st.just("Search"),
            annotations=st.just(annotations),
            outputSchema=objects(1),
            _meta=st.just({"ui": {"resourceUri": "ui://search/page"}, "built": VALUES["count"]}),
            icons=st.just([{"src": "https://example.org/a.png", "sizes": ["48x48"]}]),
        )
    )


UNORDERED = {"required", "enum", "type", "anyOf", "allOf", "sizes", "icons"}
EMPTY: Json = {
    "title": None,
    "description": "",
    "examples": [],
    "$comment": None,
    "default": None,
    "$schema": None,
}


def noisy(template: Json, rng: Random, *, key: str = "", are_names: bool = False) -> Json:
    """JSON with the texts of its functions, in another order, and with empty members."""
    if callable(template):
        return template(rng)
    if isinstance(template, list):
        items = [noisy(each, rng, key=key) for each in template]
        return shuffled(rng, items) if key in UNORDERED else items
    if not isinstance(template, dict):
        return template
    members = {
        name: noisy(
            template[name],
            rng,
            key="" if are_names else name,
            are_names=not are_names and name in {"properties", "$defs"},
        )
        for name in shuffled(rng, list(template))
    }
    if are_names or rng.random() < 0.7:
        return members
    return {**{name: value for name, value in EMPTY.items() if rng.random() < 0.5}, **members}


def encoded(definition: Json, rng: Random) -> bytes:
    """The definition as one of several programs writes it."""
    return json.dumps(definition, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 2])).encode()


# --- forms that accept less, and more ------------------------------------------------------------------


def without(schema: Json, key: str) -> Json:
    return {name: value for name, value in schema.items() if name != key}


def _changed_by(key: str, number: int) -> Callable[[Json], list[Json]]:
    return lambda node: [{**node, key: node[key] + number}]


def _without_options(node: Json) -> list[Json]:
    option = {name: value for name, value in node["anyOf"][0].items() if value not in (None, "")}
    return [] if option.keys() & node.keys() else [{**without(node, "anyOf"), **option}]


def _less_of_an_object(node: Json) -> list[Json]:
    required, properties = node.get("required", []), node["properties"]
    made = [{**node, "additionalProperties": False}] if node.get("additionalProperties", True) is True else []
    for name, schema in properties.items():
        left = {"required": [each for each in required if each != name]} if required else {}
        made.append({**node, "properties": without(properties, name), **left})
        if name not in required:
            needed = {**properties, name: without(schema, "default")}
            made.append({**node, "properties": needed, "required": [*required, name]})
    return made


def _less_of_a_type(node: Json) -> list[Json]:
    match node["type"]:
        case "string":
            return [{"minLength": 1, "maxLength": 5, "format": "email", **node}]
        case "number":
            return [{"minimum": 1, **node}, {**node, "type": "integer"}]
        case [_, *less] if less:
            return [{**node, "type": less}]
    return []


Mutants = dict[str, Callable[[Json], list[Json]]]

NARROWER: Mutants = {
    "type": _less_of_a_type,
    "enum": lambda node: [
        {**node, "enum": node["enum"][1:]},
        {**without(node, "enum"), "const": node["enum"][0]},
    ],
    "anyOf": lambda node: [{**node, "anyOf": node["anyOf"][:1]}, *_without_options(node)],
    "properties": _less_of_an_object,
    **{key: _changed_by(key, -1) for key in ("maximum", "exclusiveMaximum", "maxLength", "maxItems")},
    **{key: _changed_by(key, +1) for key in ("minimum", "minLength")},
}
"""Forms of a schema that accept less in words that it has, by a keyword of the schema."""


def _more_of_an_object(node: Json) -> list[Json]:
    required, properties = node.get("required", []), node["properties"]
    made = [{**node, "required": [each for each in required if each != name]} for name in required]
    for name in {"new", "description", "const"} - properties.keys():
        made.append({**node, "properties": {**properties, name: {}}})
        made.append({**made[-1], "required": [*required, name]})
    return made


def _more_of_a_type(node: Json) -> list[Json]:
    types = node["type"] if isinstance(node["type"], list) else [node["type"]]
    other = next(each for each in ("string", "array") if each not in types)
    made = [{**node, "type": [*types, other]}]
    return [*made, {**node, "type": "number"}] if "integer" in types else made


def _opened(node: Json) -> list[Json]:
    if node["additionalProperties"] is True:
        return []
    opened: list[Json] = [True, {}]
    return [without(node, "additionalProperties"), *({**node, "additionalProperties": more} for more in opened)]


def _said_otherwise(key: str) -> Callable[[Json], list[Json]]:
    return lambda node: [{**node, key: f"{node[key]} deletes"}] if isinstance(node[key], str) else []


def _freed(key: str, number: int) -> Callable[[Json], list[Json]]:
    return lambda node: [without(node, key), *_changed_by(key, number)(node)]


def _dropped_or(key: str, value: Json) -> Callable[[Json], list[Json]]:
    return lambda node: [without(node, key), {**node, key: value}]


WIDER: Mutants = {
    "type": _more_of_a_type,
    "enum": lambda node: [
        without(node, "enum"),
        *({**node, "enum": [*values, "shell"]} for values in (node["enum"], node["enum"][1:])),
    ],
    "const": lambda node: [
        without(node, "const"),
        {**node, "const": "shell"},
        {**without(node, "const"), "enum": [node["const"], "shell"]},
    ],
    "anyOf": lambda node: [without(node, "anyOf"), {**node, "anyOf": [*node["anyOf"], {"type": "object"}]}],
    "allOf": lambda node: [without(node, "allOf")],
    "properties": _more_of_an_object,
    "additionalProperties": _opened,
    "default": lambda node: [
        *_said_otherwise("default")(node),
        *([{**node, "default": not node["default"]}] if isinstance(node["default"], bool) else []),
    ],
    "description": lambda node: [without(node, "description"), *_said_otherwise("description")(node)],
    "title": lambda node: [without(node, "title"), *_said_otherwise("title")(node)],
    "items": _dropped_or("items", {}),
    "pattern": _dropped_or("pattern", ".*"),
    "format": _dropped_or("format", "hostname"),
    "uniqueItems": _dropped_or("uniqueItems", False),
    "$ref": lambda node: [without(node, "$ref")],
    **{key: _freed(key, +1) for key in ("maximum", "exclusiveMaximum", "maxLength", "maxItems")},
    **{key: _freed(key, -1) for key in ("minimum", "minLength")},
}
"""Forms of a schema that accept more, or say something else, by a keyword of the schema."""


def _nodes(schema: Json) -> Iterator[Json]:
    """Each schema in one, itself first."""
    if isinstance(schema, dict):
        yield schema
        for key in ("properties", "$defs"):
            for each in schema.get(key, {}).values():
                yield from _nodes(each)
        for each in (schema.get("items"), schema.get("additionalProperties")):
            yield from _nodes(each)
        for key in ("anyOf", "allOf"):
            for each in schema.get(key, ()):
                yield from _nodes(each)


def mutants(definition: Json, by: Mutants) -> Iterator[Json]:
    """Copies of a definition, each with one schema of its arguments in another form."""
    whole = json.dumps(definition)
    for index, node in enumerate(_nodes(definition["inputSchema"])):
        for key, forms in by.items():
            for form in forms(node) if node.get(key) not in (None, "", []) else ():
                made = json.loads(whole)
                target = next(islice(_nodes(made["inputSchema"]), index, None))
                target.clear()
                target.update(form)
                yield made
