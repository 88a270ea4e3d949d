"""Compiled schemas, one for each schema hash.

Nothing is ever fetched, regexes run in linear time, and work that would take long is not begun: a schema comes
from a server, which nobody has vetted.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from daemon.arguments.work import Work
from daemon.later import later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import jsonschema_rs

    from daemon.model import Tool
else:
    # 6 ms: it takes somebody who calls a tool through a wrapper.
    jsonschema_rs = later("jsonschema_rs", due=True)

Result = TypeVar("Result")

MAX_COMPILED = 2048
"""Compiled schemas that are kept: more than the 1,519 tools of 46 real servers."""

MAX_PATTERNS = 200
"""Mentions of patterns in a schema that is compiled: a pattern can take 0.3 ms."""

MAX_PATTERN_BYTES = 64 * 1024
"""Memory of one compiled pattern: what is larger repeats repetitions."""

MAX_WORK = 500_000
"""Visits of one validation: 10 ms, at 10 to 20 ns for each."""

MAX_ERRORS = 50
"""Errors that are looked at, and elements of a list that they are looked for in if there are many."""

MAX_TELLING = 10_000
"""Visits of one collection of errors, of which each can take 50 µs: under options, errors hold errors."""

MAX_NESTING = 32
"""Levels of a value in which errors are looked for if there is much of it."""

_ABOUT_LENGTH = frozenset({"minItems", "contains", "minContains", "maxItems"})
"""Keywords that a shortened list breaks by being short, or keeps."""

_OPTIONS: dict[str, Any] = {
    "mask": "this",
    "offline": True,
    "validate_formats": False,
}
"""Values never stand in messages; `format` is an annotation in both dialects that servers use."""

_FAILURES = (ValueError, TypeError, OverflowError, RecursionError)
"""What the validator raises for numbers, keys and depths that it does not take."""


class Validator:
    """One compiled schema."""

    def __init__(self, schema: dict[str, Any]) -> None:
        """Compile. Dialect: what `$schema` says, else 2020-12, MCP's default.

        Raises:
            ValueError: the schema is broken, or needs something from elsewhere.
        """
        self.schema = schema
        self._compiled = jsonschema_rs.validator_for(
            schema, pattern_options=jsonschema_rs.RegexOptions(size_limit=MAX_PATTERN_BYTES), **_OPTIONS
        )
        self._work = Work(schema)

    def accepts(self, value: object) -> bool:
        """Whether a value is not known to be wrong: what cannot be validated is the server's to judge."""
        return self._verdict(value) is not False

    def proves(self, value: object) -> bool:
        """Whether a value is known to be right."""
        return self._verdict(value) is True

    def _verdict(self, value: object) -> bool | None:
        if self._work.of(value) > MAX_WORK:
            return None
        return _attempt(self._compiled.is_valid, value)

    def errors(self, value: object) -> list[jsonschema_rs.ValidationError]:
        """What is wrong with a value, at most `MAX_ERRORS`; nothing if it would take long to tell."""
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
    """What the validator makes of something, None if it fails.

    It is written in Rust, and where its own assumptions break (an anchor beneath an `$id`, for one) it panics:
    with an exception that is no `Exception`, which would otherwise end the daemon.
    """
    try:
        return work(*given)
    except _FAILURES:
        return None
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return None


def _shortened(value: object, levels: int) -> object:
    """A value with the first elements of its lists only."""
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
        """The validator of a tool's arguments; None if its schema is broken or too large to work on."""
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
