"""The base of all formats: an edit must produce exactly the wanted value, or it is refused."""

from __future__ import annotations

import copy
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, ClassVar

from daemon.config.jsonc import MAX_DEPTH, ROOT, below
from daemon.documents.files import DocumentError
from daemon.errors import ConfigError, Fault

Trail = tuple[str | int, ...]
"""Keys and indices from the root to a value."""

_ABSENT = object()

TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels: this is not a configuration"
_MARK = "\ufeff"


class EditedText(ABC):
    """A text that can be edited locally; an edit changes nothing else."""

    keeps_empty: ClassVar[bool] = True
    """Whether the format can write an object that has lost its last member."""

    def __init__(self, text: str, source: str) -> None:
        """Start with a file's text; raises ConfigError if malformed."""
        self.body = text.removeprefix(_MARK)
        """The text without the byte order mark."""
        self.source = source
        self.line_end = "\r\n" if re.search(r"^[^\n]*\r\n", self.body) else "\n"
        self._mark = text[: len(text) - len(self.body)]
        self._decoded = self.body, self.decode(self.body)
        self._checks = True

    def value(self) -> object:
        """The decoded value, to be read only; decoded once for each text: some have megabytes."""
        if self._decoded[0] is not self.body:
            self._decoded = self.body, self.decode(self.body)
        return self._decoded[1]

    def text(self) -> str:
        """The current text."""
        return self._mark + self.body

    @contextmanager
    def together(self) -> Iterator[None]:
        """Check several edits together at the end: all are made, or none. Raises DocumentError."""
        before, self._checks = self._decoded, False
        with restoring(self):
            try:
                yield
                wanted = self.value()
            finally:
                # Each edit has only noted the value that it wants: now the text is decoded.
                self._checks, self._decoded = True, before
            self._verify((), wanted)

    def put(self, trail: Sequence[str | int], value: object) -> None:
        """Set a value; creates missing objects, and an index may append (not in TOML). Raises DocumentError."""
        path = tuple(trail)
        wanted = with_value(self, path, value)
        with restoring(self):
            while value_at(self.value(), path[:-1], _ABSENT) is _ABSENT:
                path, value = path[:-1], {path[-1]: value}
            self._approach(path, value_at(self.value(), path, _ABSENT), value)
            self._verify(path, wanted)

    def remove(self, trail: Sequence[str | int]) -> None:
        """Remove a member with its comments, if it exists. Raises DocumentError."""
        path = tuple(trail)
        if not path or value_at(self.value(), path, _ABSENT) is _ABSENT:
            return
        wanted = _copied(self.value(), path[:-1])
        del _within(wanted, path[:-1])[path[-1]]
        with restoring(self):
            self.body = self.without(path)
            if not self.keeps_empty:
                wanted = _less_empty(wanted, path, self.value())
            self._verify(path, wanted)

    def rename(self, trail: Trail, key: str) -> None:
        """Rename a member's key in place, with its comments. Raises DocumentError."""
        raise self.refusal(trail, f"mcpd renames keys in JSON only: rename this one to '{key}' by hand")

    @abstractmethod
    def decode(self, text: str) -> object:
        """Decode a text. Raises ConfigError."""

    @abstractmethod
    def with_new(self, trail: Trail, value: object) -> str:
        """The text with a new member in an object or null."""

    @abstractmethod
    def with_other(self, trail: Trail, value: object) -> str:
        """The text with another value of a member."""

    @abstractmethod
    def without(self, trail: Trail) -> str:
        """The text without an existing member."""

    def _fault(self, message: str, line: int | None = None, column: int | None = None) -> ConfigError:
        return ConfigError(self.source, [Fault(path=ROOT, message=message, line=line, column=column)])

    def refusal(self, trail: Trail, why: str) -> DocumentError:
        """The error for a refused edit."""
        return DocumentError(f"{self.source}: {spelt(trail)} cannot be changed: {why}")

    def _approach(self, trail: Trail, old: object, value: object) -> None:
        if _same(old, value):
            return
        if isinstance(old, dict) and isinstance(value, dict) and old and value:
            for key, item in value.items():
                self._approach((*trail, key), old.get(key, _ABSENT), item)
            for key in [key for key in old if key not in value]:
                self.body = self.without((*trail, key))
        else:
            self.body = (self.with_new if old is _ABSENT else self.with_other)(trail, value)

    def _verify(self, trail: Trail, wanted: object) -> None:
        if not self._checks:
            self._decoded = self.body, wanted
            return
        try:
            done = _same(self.value(), wanted)
        except ConfigError:
            done = False
        if not done:
            raise self.refusal(trail, "the file is written in a way that mcpd cannot edit: edit it by hand")


@contextmanager
def restoring(document: EditedText) -> Iterator[None]:
    """Leave a text as it was after a failed edit."""
    before = document.body
    try:
        yield
    except BaseException:
        document.body = before
        raise


def with_value(document: EditedText, trail: Trail, value: object) -> object:
    """The document's value with `value` at a trail. Raises DocumentError."""
    whole: Any = {"": document.value()}
    holder, key = whole, ""
    for place, step in enumerate(trail):
        at = holder[key]
        if at is None and isinstance(step, str):
            at = holder[key] = {}
        fits = isinstance(at, dict) if isinstance(step, str) else isinstance(at, list) and step <= len(at)
        if not fits:
            wanted = "an object" if isinstance(step, str) else "a list that is long enough"
            raise document.refusal(trail, f"{spelt(trail[:place])} is not {wanted}")
        at = holder[key] = copy.copy(at)
        if isinstance(step, int) and step == len(at):
            at.append(None)
        elif isinstance(step, str):
            at.setdefault(step, None)
        holder, key = at, step  # type: ignore[assignment] # decoded data may have any type
    holder[key] = copy.deepcopy(value)
    return whole[""]


def spelt(trail: Sequence[str | int]) -> str:
    """A trail in messages: `$.mcpServers.git`."""
    spelling = ROOT
    for step in trail:
        spelling = below(spelling, step)
    return spelling


def with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Apply `change` to every text in a value, except keys."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: with_texts(item, change) for key, item in value.items()}
    return [with_texts(item, change) for item in value] if isinstance(value, list) else value


def is_too_deep(value: object) -> bool:
    """Whether a value is nested deeper than JSON may be, so that it would exhaust the stack."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner = [
            each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)
        ]
        if not inner:
            return False
        level = [*chain.from_iterable(inner)]
    return True


def _within(value: object, trail: Trail) -> Any:
    at: Any = value
    for step in trail:
        if isinstance(step, int) is not isinstance(at, list):
            raise TypeError
        at = at[step]
    return at


def value_at(value: object, trail: Trail, absent: object = None) -> object:
    """The value at a trail, or `absent`."""
    try:
        return _within(value, trail)
    except (KeyError, IndexError, TypeError):
        return absent


def _copied(value: Any, trail: Trail) -> Any:
    made = copy.copy(value)
    if trail:
        made[trail[0]] = _copied(made[trail[0]], trail[1:])
    return made


def _less_empty(wanted: object, trail: Trail, now: object) -> object:
    """Remove the objects on a trail that the edit leaves empty."""
    for end in range(len(trail) - 1, 0, -1):
        if value_at(now, trail[:end], _ABSENT) is not _ABSENT or _within(wanted, trail[:end]):
            break
        del _within(wanted, trail[: end - 1])[trail[end - 1]]
    return wanted


def _same(one: object, other: object) -> bool:
    """Equality that also compares types: to Python, true equals 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and one == other


def leading(text: str, at: int) -> str:
    """The blanks at the start of a line."""
    start = text.rfind("\n", 0, at) + 1
    return re.compile(r"[ \t]*").match(text, start)[0]  # type: ignore[index] # it fits everywhere
