"""How long a validation may take, told beforehand: once begun it holds the event loop and cannot be stopped.

A schema of a few hundred bytes can make a validator try the same small value a million times: options that
refer to each other twice (the "billion laughs"), or a recursive option that is offered twice on each level. So
visits are counted before they are made: how often one value can be looked at, times the values there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from daemon.arguments.pointers import target

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TOO_MUCH = 10**9
"""Stands for every larger number of visits, and for what cannot be counted."""

MAX_COUNTED = 10_000
"""Places of a schema, each at each depth, that are counted: 10 ms of work, and 30 times a large real schema."""

PATTERN_VISITS = 10
"""Visits that a pattern is worth: linear time, but up to 3 µs a character for a pattern made to be slow."""

CHARACTERS_A_VALUE = 4
"""Characters of a string that count as one more value, since a pattern goes through all of them."""

MAX_DEPTH = 32
"""Levels of a value: more are not counted."""

_UNKNOWN = {"$id": ""}
"""Stands for what a reference leads to if we cannot follow it, such as an anchor: nothing is known of it."""

_HERE_EACH = ("anyOf", "oneOf", "allOf")
_HERE_ONE = ("not", "if", "then", "else")
_MEMBERS_ONE = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_ITEMS_ONE = ("additionalItems", "unevaluatedItems", "contains")


class Extent(NamedTuple):
    """How much a decoded JSON value is."""

    depth: int
    """Levels below it."""
    values: int
    """Values in it, itself among them."""
    characters: int
    """Characters of its strings."""


def extent(value: object) -> Extent:
    """Measure a value, level by level."""
    depth, values, characters, level = -1, 0, 0, [value]
    while level:
        depth += 1
        values += len(level)
        inner: list[object] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
            elif isinstance(each, str):
                characters += len(each)
        level = inner
    return Extent(depth, values, characters)


class Work:
    """Counts the visits that a schema causes."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._by_depth: dict[int, int] = {}

    def of(self, value: object) -> int:
        """The most visits that validating a value can take; `TOO_MUCH` if they cannot be counted."""
        size = extent(value)
        return self._visits(size.depth, size.values + size.characters // CHARACTERS_A_VALUE)

    def of_telling(self, value: object) -> int:
        """As `of`, for telling what is wrong with a value: how long its strings are matters little there."""
        size = extent(value)
        return self._visits(size.depth, size.values)

    def _visits(self, depth: int, values: int) -> int:
        if depth > MAX_DEPTH:
            return TOO_MUCH
        if depth not in self._by_depth:
            self._by_depth[depth] = _visits(self._root, depth)
        return min(TOO_MUCH, self._by_depth[depth] * values)


def _visits(root: dict[str, Any], depth: int) -> int:
    try:
        return _Count(root).at(root, depth)
    except (RecursionError, TypeError, AttributeError):
        # Nested too deeply to be followed, or `$defs` of a dialect that does not look into them.
        return TOO_MUCH


class _Count:
    """One count: for values of one depth."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._known: dict[tuple[int, int], int] = {}

    def at(self, schema: object, depth: int) -> int:
        """Visits for a value with `depth` levels below it, along the most expensive way down."""
        if not isinstance(schema, dict):
            return 1
        if schema is not self._root and ("$id" in schema or isinstance(schema.get("id"), str)):
            # A document of its own: references in it lead elsewhere than we would look.
            return TOO_MUCH
        place = (id(schema), depth)
        if place in self._known:
            return self._known[place]
        if len(self._known) >= MAX_COUNTED:
            return TOO_MUCH
        # What comes back to itself without a step down would never end.
        self._known[place] = TOO_MUCH
        below = max(self._members(schema, depth - 1), self._items(schema, depth - 1)) if depth else 0
        found = _own(schema) + below + sum(self.at(each, depth) for each in self._here(schema))
        self._known[place] = min(found, TOO_MUCH)
        return self._known[place]

    def _here(self, schema: dict[str, Any]) -> Iterator[object]:
        """The schemas that apply to the same value."""
        for key in ("$ref", "$dynamicRef", "$recursiveRef"):
            if key in schema:
                found = target(self._root, schema[key])
                yield _UNKNOWN if found is None else found
        for key in _HERE_EACH:
            yield from schema.get(key, ())
        yield from (schema[key] for key in _HERE_ONE if key in schema)
        for key in ("dependentSchemas", "dependencies"):
            yield from schema.get(key, {}).values()

    def _members(self, schema: dict[str, Any], depth: int) -> int:
        named = self._dearest(schema.get("properties", {}).values(), depth)
        matching = sum(self.at(each, depth) for each in schema.get("patternProperties", {}).values())
        return named + matching + self._each(schema, _MEMBERS_ONE, depth)

    def _items(self, schema: dict[str, Any], depth: int) -> int:
        items = schema.get("items", [])
        rest = self._dearest(items, depth) if isinstance(items, list) else self.at(items, depth)
        first = self._dearest(schema.get("prefixItems", ()), depth)
        return rest + first + self._each(schema, _ITEMS_ONE, depth)

    def _dearest(self, schemas: Iterable[object], depth: int) -> int:
        return max((self.at(each, depth) for each in schemas), default=0)

    def _each(self, schema: dict[str, Any], keys: Iterable[str], depth: int) -> int:
        return sum(self.at(schema[key], depth) for key in keys if key in schema)


def _own(schema: dict[str, Any]) -> int:
    """Visits of a schema's own keywords."""
    patterns = ("pattern" in schema) + len(schema.get("patternProperties", ()))
    return 1 + len(schema.get("enum", ())) + len(schema.get("required", ())) + PATTERN_VISITS * patterns
