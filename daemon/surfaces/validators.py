"""Compiles schemas of tools, limits the work of a validation, and remembers decisions about valid calls.

Schemas come from untrusted servers. A running validation holds the event loop and cannot be stopped, and a
schema of a few hundred bytes can make it visit one value a million times (with options that refer to each other
twice). So visits are limited beforehand: by the most visits of one value, times the number of values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from daemon.config.jsonc import target
from daemon.kit.later import later
from daemon.kit.waiting import keep_latest
from daemon.model import Tool
from daemon.protocol import decoded

if TYPE_CHECKING:
    import jsonschema_rs


if not TYPE_CHECKING:
    jsonschema_rs = later("jsonschema_rs", due=True)


Object = dict[str, Any]

Result = TypeVar("Result")

Decision = TypeVar("Decision")

WRAPPERS = frozenset({"args", "arguments", "parameters", "params", "input"})
"""Names of members in which models wrap arguments once more."""

MAX_COMPILED = 2048
"""Compiled schemas kept: more than the 1,519 tools of 46 real servers."""

MAX_REMEMBERED = 1024
"""Decisions of each kind kept with one view: more tools than a client calls between two changes."""

MAX_PATTERNS = 200
"""Patterns in a schema, each of which can take 0.3 ms."""

MAX_PATTERN_BYTES = 64 * 1024
"""Bytes of a compiled pattern: only nested repetitions take more."""

MAX_WORK = 500_000
"""Visits of one validation: 10 ms, at 10 to 20 ns each."""

QUICK_DEPTH = 8
"""Levels of a value that is validated without being measured: more than nearly all calls have."""

MAX_ERRORS = 50
"""Errors collected, and elements of a long list in which errors are searched."""

MAX_TELLING = 10_000
"""Visits while errors are collected, at up to 50 µs each: errors in options contain errors."""

MAX_NESTING = 32
"""Levels of a large value in which errors are searched."""

_ABOUT_LENGTH = frozenset({"minItems", "contains", "minContains", "maxItems"})
"""Keywords that a shortened list may violate."""

_OPTIONS: dict[str, Any] = {"mask": "this", "offline": True, "validate_formats": False}
"""Keep values out of messages; `format` is only an annotation in both dialects that servers use."""

_FAILURES = (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError)
"""Errors of validator and decoder about numbers, keys and depths that they do not support."""

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class Validator:
    """One compiled schema."""

    def __init__(self, schema: dict[str, Any]) -> None:
        """Compile a schema in the dialect of `$schema`, else 2020-12, MCP's default. Raises `ValueError`."""
        self.schema = schema
        self._compiled = jsonschema_rs.validator_for(
            schema, pattern_options=jsonschema_rs.RegexOptions(size_limit=MAX_PATTERN_BYTES), **_OPTIONS
        )
        self._is_valid = self._compiled.is_valid
        self._work = Work(schema)
        self._quick_bytes = MAX_WORK // self._work.at(QUICK_DEPTH)

    def accepts(self, value: object) -> bool:
        """Whether a value may be valid; if it cannot be validated, the server judges it."""
        return self._verdict(value) is not False

    def proves(self, value: object) -> bool:
        """Whether a value is known to be valid."""
        return self._verdict(value) is True

    def proven(self, raw: bytes) -> Object | None:
        """Decode an object that one visit per value proves valid; None if that proves nothing."""
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
        """At most `MAX_ERRORS` errors of a value; none if it would take long to collect them."""
        if self._is_told_soon(value):
            return self._errors(value, frozenset())
        short = _shortened(value, MAX_NESTING)
        return self._errors(short, _ABOUT_LENGTH) if self._is_told_soon(short) else []

    def _is_told_soon(self, value: object) -> bool:
        return self._work.of(value) <= MAX_WORK and self._work.of(value, telling=True) <= MAX_TELLING

    def _errors(self, value: object, but: frozenset[str]) -> list[jsonschema_rs.ValidationError]:
        return _attempt(lambda: list(islice(self._all_errors(value, but), MAX_ERRORS))) or []

    def _all_errors(self, value: object, but: frozenset[str]) -> Iterator[jsonschema_rs.ValidationError]:
        return (error for error in self._compiled.iter_errors(value) if error.kind.name not in but)


def _attempt(work: Callable[..., Result], *given: object) -> Result | None:
    """Call the validator; None if it fails, or panics with an exception that is not an `Exception`."""
    try:
        return work(*given)
    except BaseException as error:  # noqa: BLE001 - other errors are raised again
        _require_failure(error)
        return None


def _require_failure(error: BaseException) -> None:
    if not isinstance(error, _FAILURES) and type(error).__name__ != "PanicException":
        raise error


def _shortened(value: object, levels: int) -> object:
    if isinstance(value, list):
        return [_shortened(each, levels - 1) for each in value[:MAX_ERRORS]] if levels else []
    if isinstance(value, dict):
        return {key: _shortened(each, levels - 1) for key, each in value.items()} if levels else {}
    return value


def validator_of(tool: Tool | None) -> Validator | None:
    """The validator of a tool's arguments; None if its schema is unknown, invalid or too large."""
    return None if tool is None else _compiled(tool.parts.get("inputSchema", b""))


@lru_cache(maxsize=MAX_COMPILED)
def _compiled(raw: bytes) -> Validator | None:
    if raw.count(b'"pattern') > MAX_PATTERNS:
        return None
    schema = decoded(msgspec.json.decode, raw)
    return _attempt(Validator, schema) if isinstance(schema, dict) else None


class WrappedCalls(Generic[Decision]):
    """Remembers decisions about calls of a meta-tool by the bytes before the members of the arguments."""

    def __init__(self, opening: bytes) -> None:
        self._opening = opening
        self._known: dict[bytes, tuple[Decision, Validator]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def find(self, sent: bytes) -> tuple[Decision | None, bytes]:
        """The decision, and the tool's arguments; None and `sent` if the surface has to decide."""
        end = sent.find(self._opening) + len(self._opening)
        known = self._known.get(sent[:end])
        if known is not None and sent.endswith(b"}}"):
            decision, validator = known
            arguments = sent[end - 1 : -1]
            # Bytes that are one whole object leave nothing between them and the end of the call.
            value = validator.proven(arguments)
            if value is not None and (len(value) != 1 or WRAPPERS.isdisjoint(value)):
                return decision, arguments
        return None, sent

    def remember(self, head: bytes, decision: Decision, validator: Validator) -> None:
        """Keep a decision for calls that begin with these bytes and have valid arguments."""
        keep_latest(self._known, head, (decision, validator), MAX_REMEMBERED)


TOO_MUCH = 10**9
"""Stands for any larger number of visits, and for an unknown number."""

MAX_COUNTED = 10_000
"""Places of a schema times depths: counting takes 10 ms; large real schemas have a thirtieth."""

PATTERN_VISITS = 10
"""Visits that a pattern counts as: matching takes linear time, but up to 3 µs per character."""

CHARACTERS_A_VALUE = 4
"""Characters of a string that count as one value, since a pattern visits all of them."""

MAX_DEPTH = 32
"""Levels of a value that are counted; a deeper value counts as `TOO_MUCH`."""

_UNKNOWN = {"$id": ""}
"""Stands for the target of a reference that cannot be followed, such as an anchor."""

_HERE_EACH = ("anyOf", "oneOf", "allOf")
_HERE_ONE = ("not", "if", "then", "else")
_MEMBERS_ONE = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_ITEMS_ONE = ("additionalItems", "unevaluatedItems", "contains")


def extent(value: object) -> tuple[int, int, int]:
    """The depth of a decoded JSON value, the number of values with the outermost one, and of characters."""
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
    return depth, values, characters


class Work:
    """Counts the visits of a validation with one schema."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._by_depth: dict[int, int] = {}

    def of(self, value: object, *, telling: bool = False) -> int:
        """The most visits of validating a value, or of `telling` its errors; `TOO_MUCH` if that is unknown."""
        depth, values, characters = extent(value)
        # Lengths of strings hardly matter to errors.
        values += 0 if telling else characters // CHARACTERS_A_VALUE
        return min(TOO_MUCH, self.at(depth) * values)

    def at(self, depth: int) -> int:
        """The most visits per value, for a value of `depth` levels."""
        if depth > MAX_DEPTH:
            return TOO_MUCH
        if depth not in self._by_depth:
            try:
                self._by_depth[depth] = _Count(self._root).at(self._root, depth)
            except (RecursionError, TypeError, AttributeError):
                # Nested too deeply to be followed, or `$defs` of a dialect that does not look into them.
                self._by_depth[depth] = TOO_MUCH
        return self._by_depth[depth]


class _Count:
    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._known: dict[tuple[int, int], int] = {}

    def at(self, schema: object, depth: int) -> int:
        """Visits for a value with `depth` levels below it, on the most expensive path."""
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
    patterns = ("pattern" in schema) + len(schema.get("patternProperties", ()))
    return 1 + len(schema.get("enum", ())) + len(schema.get("required", ())) + PATTERN_VISITS * patterns
