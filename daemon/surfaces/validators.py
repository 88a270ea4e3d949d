"""Compiled schemas, one for each schema hash, and how much work a validation can be, known before it begins.

Nothing is ever fetched, regexes run in linear time, and work that would take long is not begun: a schema comes
from a server, which is not trusted. Once begun, a validation holds the event loop and cannot be stopped, and a
schema of a few hundred bytes can make it try the same small value a million times: options that refer to each
other twice (the "billion laughs"), or a recursive option that is offered twice on each level. So visits are
counted before they are made: how often one value can be visited, times the number of values.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from daemon.config.jsonc import target
from daemon.kit.later import later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import jsonschema_rs

    from daemon.model import Tool


if not TYPE_CHECKING:
    jsonschema_rs = later("jsonschema_rs", due=True)


Object = dict[str, Any]

Result = TypeVar("Result")

MAX_COMPILED = 2048
"""Compiled schemas that are kept: more than the 1,519 tools of 46 real servers."""

MAX_PATTERNS = 200
"""Most patterns in a schema that is compiled: a pattern can take 0.3 ms."""

MAX_PATTERN_BYTES = 64 * 1024
"""Bytes of one compiled pattern: larger ones have nested repetitions."""

MAX_WORK = 500_000
"""Most visits of one validation: 10 ms, at 10 to 20 ns for each."""

QUICK_DEPTH = 8
"""Levels of a value that is validated without being measured before: more than the arguments of nearly all
calls have."""

MAX_ERRORS = 50
"""Most errors that are collected, and elements of a long list in which they are looked for."""

MAX_TELLING = 10_000
"""Most visits of one collection of errors, at up to 50 µs each: under options, errors contain errors."""

MAX_NESTING = 32
"""Levels of a large value in which errors are looked for."""

_ABOUT_LENGTH = frozenset({"minItems", "contains", "minContains", "maxItems"})
"""Keywords that a shortened list breaks by being short, or keeps."""

_OPTIONS: dict[str, Any] = {
    "mask": "this",
    "offline": True,
    "validate_formats": False,
}
"""Messages never contain values; `format` is an annotation in both dialects that servers use."""

_FAILURES = (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError)
"""What the validator and the decoder raise for numbers, keys and depths that they do not support."""

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class Validator:
    """One compiled schema."""

    def __init__(self, schema: dict[str, Any]) -> None:
        """Compile a schema in the dialect that `$schema` names, else 2020-12, MCP's default.

        Raises:
            ValueError: the schema is invalid, or refers to something outside of it.
        """
        self.schema = schema
        self._compiled = jsonschema_rs.validator_for(
            schema, pattern_options=jsonschema_rs.RegexOptions(size_limit=MAX_PATTERN_BYTES), **_OPTIONS
        )
        self._is_valid = self._compiled.is_valid
        self._work = Work(schema)
        self._quick_bytes = MAX_WORK // self._work.at(QUICK_DEPTH)

    def accepts(self, value: object) -> bool:
        """Whether a value is not known to be wrong: the server judges what cannot be validated."""
        return self._verdict(value) is not False

    def proves(self, value: object) -> bool:
        """Whether a value is known to be right."""
        return self._verdict(value) is True

    def proven(self, raw: bytes) -> Object | None:
        """The object that JSON says if it is known to be right, which took little work; None says nothing.

        How much work it takes is seen from the bytes: a value and a character take one each, a level a bracket.
        """
        if len(raw) > self._quick_bytes or raw.count(b"{") + raw.count(b"[") > QUICK_DEPTH:
            return None
        try:
            value: Object = _decode_object(raw)
            return value if self._is_valid(value) else None
        except BaseException as error:  # noqa: BLE001 - as in `_attempt`, without its Python calls
            _require_failure(error)
            return None

    def _verdict(self, value: object) -> bool | None:
        if self._work.of(value) > MAX_WORK:
            return None
        return _attempt(self._is_valid, value)

    def errors(self, value: object) -> list[jsonschema_rs.ValidationError]:
        """The errors in a value, at most `MAX_ERRORS`; none if collecting them would take long."""
        if self._is_told_soon(value):
            return self._errors(value, frozenset())
        short = _shortened(value, MAX_NESTING)
        return self._errors(short, _ABOUT_LENGTH) if self._is_told_soon(short) else []

    def _is_told_soon(self, value: object) -> bool:
        return self._work.of(value) <= MAX_WORK and self._work.of_telling(value) <= MAX_TELLING

    def _errors(self, value: object, but: frozenset[str]) -> list[jsonschema_rs.ValidationError]:
        return _attempt(lambda: list(islice(self._all_errors(value, but), MAX_ERRORS))) or []

    def _all_errors(self, value: object, but: frozenset[str]) -> Iterator[jsonschema_rs.ValidationError]:
        return (error for error in self._compiled.iter_errors(value) if error.kind.name not in but)


def _attempt(work: Callable[..., Result], *given: object) -> Result | None:
    """Call the validator; None if it fails.

    It is written in Rust, and panics where its own assumptions break (for example an anchor beneath an `$id`):
    with an exception that is not an `Exception`, which would otherwise end the daemon.
    """
    try:
        return work(*given)
    except BaseException as error:  # noqa: BLE001 - what is none of its failures is raised again
        _require_failure(error)
        return None


def _require_failure(error: BaseException) -> None:
    if not isinstance(error, _FAILURES) and type(error).__name__ != "PanicException":
        raise error


def _shortened(value: object, levels: int) -> object:
    """A value with only the first elements of its lists."""
    if isinstance(value, list):
        return [_shortened(each, levels - 1) for each in value[:MAX_ERRORS]] if levels else []
    if isinstance(value, dict):
        return {key: _shortened(each, levels - 1) for key, each in value.items()} if levels else {}
    return value


class Validators:
    """The most recently used validators."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Validator | None] = OrderedDict()

    def of(self, tool: Tool) -> Validator | None:
        """The validator of a tool's arguments; None if its schema is invalid or too large to compile."""
        if tool.schema_hash in self._kept:
            self._kept.move_to_end(tool.schema_hash)
            return self._kept[tool.schema_hash]
        made = self._kept[tool.schema_hash] = _compile(tool.parts.get("inputSchema", b""))
        if len(self._kept) > MAX_COMPILED:
            self._kept.popitem(last=False)
        return made


def _compile(raw: bytes) -> Validator | None:
    if raw.count(b'"pattern') > MAX_PATTERNS:
        return None
    try:
        schema = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return _attempt(Validator, schema) if isinstance(schema, dict) else None


TOO_MUCH = 10**9
"""Stands for every larger number of visits, and for what cannot be counted."""

MAX_COUNTED = 10_000
"""Most places of a schema, each at each depth, that are counted: 10 ms, and 30 times a large real schema."""

PATTERN_VISITS = 10
"""Visits that a pattern counts as: linear time, but up to 3 µs a character for a pattern made to be slow."""

CHARACTERS_A_VALUE = 4
"""Characters of a string that count as one more value, since a pattern visits all of them."""

MAX_DEPTH = 32
"""Levels of a value that are counted; a deeper one counts as too much."""

_UNKNOWN = {"$id": ""}
"""Stands for the target of a reference that we cannot follow, such as an anchor."""

_HERE_EACH = ("anyOf", "oneOf", "allOf")
_HERE_ONE = ("not", "if", "then", "else")
_MEMBERS_ONE = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_ITEMS_ONE = ("additionalItems", "unevaluatedItems", "contains")


class Extent(NamedTuple):
    """The size of a decoded JSON value."""

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

    def at(self, depth: int) -> int:
        """The most visits that a value of so many levels can take, for each value in it."""
        return self._visits(depth, 1)

    def of_telling(self, value: object) -> int:
        """The most visits that collecting a value's errors can take: string lengths matter little there."""
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
    """Counts the visits of one schema."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._known: dict[tuple[int, int], int] = {}

    def at(self, schema: object, depth: int) -> int:
        """Visits for a value with `depth` levels below it, along the most expensive way down."""
        if not isinstance(schema, dict):
            return 1
        if schema is not self._root and ("$id" in schema or isinstance(schema.get("id"), str)):
            # A document of its own: its references are relative to itself, which is not supported here.
            return TOO_MUCH
        place = (id(schema), depth)
        if place in self._known:
            return self._known[place]
        if len(self._known) >= MAX_COUNTED:
            return TOO_MUCH
        # A place that leads back to itself without a step down would never end.
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
