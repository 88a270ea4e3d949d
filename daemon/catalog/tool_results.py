"""Reads the results of tools: their texts and data, and the shape of their data.

A shape is observed for tools without an output schema; it has members' names and types, but no values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import Any

import attrs
import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from daemon import protocol
from daemon.kit.later import pattern
from daemon.model import Tool
from daemon.protocol import MAX_SEARCHED, decoded
from daemon.safety.redact import Redactor


class _Block(Struct):
    text: str = ""
    type: str = "text"


class _ToolResult(Struct):
    content: list[_Block] = []
    structuredContent: Raw | UnsetType = UNSET  # noqa: N815 - the wire's name
    isError: bool = False  # noqa: N815 - the wire's name


_decode_result = msgspec.json.Decoder(_ToolResult).decode


def text_in(result: bytes | memoryview, most: int = MAX_SEARCHED) -> str:
    """The first text of a failed result; empty if there is none or the result is too large."""
    with suppress(*protocol.UNREADABLE):
        if memoryview(result).nbytes <= most:
            return next((each.text for each in _decode_result(result).content if each.text), "")
    return ""


class _Content(Struct):
    content: Raw = Raw(b"[]")


_decode_content = msgspec.json.Decoder(_Content).decode
_decode_raw = msgspec.json.Decoder(Raw).decode


def json_in(result: bytes) -> Raw:
    """A result as raw JSON: structured content, else text (parsed if JSON), or its content if it has images."""
    read = protocol.decoded(_decode_result, result)
    if read is None or read.isError:
        return Raw(b"null")
    if read.structuredContent is not UNSET:
        return read.structuredContent
    if any(each.type != "text" for each in read.content):
        return _decode_content(result).content
    text = "\n".join(each.text for each in read.content)
    return protocol.decoded(_decode_raw, text) or Raw(msgspec.json.encode(text))


def value_in(result: bytes) -> object:
    """A result's data (`json_in`); None for an error."""
    return protocol.decoded(msgspec.json.decode, json_in(result))


MAX_BYTES, MAX_DEPTH, MAX_MEMBERS, MAX_ITEMS = 2048, 6, 100, 50
"""Limits of a shape: bytes as JSON (a larger one loses its deepest level), levels, members of an object that is
no map, and elements of an array that are examined."""

MAX_ALIKE, MAX_ALIKE_OBJECTS, MAX_APART = 20, 2, 8
"""Members of one type, objects of one shape, and members of two objects that share none: an object with more is
a map."""

KEPT_RESULTS, MAX_TOOLS, MAX_WAITING, MAX_RESULT = 20, 1000, 4, 256 * 1024
"""Latest results that make up a tool's shape; tools with a shape; results that wait to be examined; bytes of
the longest examined result, which takes a worker thread some 50 ms."""

_CAMEL = r"[A-Z]{1,4}[a-z]{1,20}|[A-Z]{2,4}"
_WORD = rf"(?:{_CAMEL}|[a-z]{{1,20}}|[A-Z]{{1,12}})"
_DATA = r"[a-fA-F-]{8,}\Z|.{41}"
_NAME = pattern(rf"(?!{_DATA})[$@_]{{0,2}}{_WORD}(?:[_:-]{{1,2}}{_WORD}|{_CAMEL}){{0,6}}_?[0-9]?")
_NUMBERED = pattern(
    r"(?i)(?<![a-z])(sha|base|utf|int|float|iso)[_-]?(?:224|256|384|512|16|32|64|8601)(?![0-9])"
)

_decode, _encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode

MAP, OPTIONS, OPTIONAL = "*", "|", "?"
"""The member that stands for all names that are data, the only member of a choice, and the suffix of a member
that some results lack; names that are kept have none of these characters."""


def is_data(name: str) -> bool:
    """Whether a member's name may itself be data, such as an id, a date, an address or a secret."""
    return _NAME.fullmatch(_NUMBERED.sub(r"\1", name)) is None


class Shape(msgspec.Struct, frozen=True):
    """A type as JSON: `"str"`, `[T]`, `{"name": T, "name?": T, "*": T}`, `{"|": [T, T]}`."""

    raw: bytes

    @property
    def python(self) -> str:
        """The type in Python's notation, on one line."""
        return _python(_decode(self.raw))

    @classmethod
    def of(cls, value: object) -> Shape:
        """The shape of a value. No text in the value becomes the name of a member."""
        texts, rest = set[str](), [value]
        for each in rest:
            texts |= {each} if isinstance(each, str) else set()
            rest += each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
        shapes = (cls(_encode(_of(value, depth, texts))) for depth in range(MAX_DEPTH, -1, -1))
        return next(each for each in shapes if len(each.raw) <= MAX_BYTES)

    @classmethod
    def merged(cls, shapes: Sequence[Shape]) -> Shape:
        """Merge the shapes of results, oldest first; drop the oldest if the merged shape is too large."""
        made = cls(_encode(reduce(_joined, [_decode(each.raw) for each in shapes])))
        return made if len(made.raw) <= MAX_BYTES or len(shapes) == 1 else cls.merged(shapes[1:])


@attrs.define(eq=False)
class Observed:
    """The observed shapes of tools' results, by schema hash, and the results that wait to be examined."""

    is_on: Callable[[], bool]
    redactor: Callable[[str], Redactor]
    wake: Callable[[], object] = bool
    """Called when a result waits to be examined."""
    resting: set[str] = attrs.field(factory=set)
    """Tools whose next result is not examined."""
    waiting: dict[str, tuple[str, bytes]] = attrs.field(factory=dict)
    """Servers and results that wait; empty results are not examined."""
    _latest: dict[str, tuple[Shape, list[Shape]]] = attrs.field(factory=dict, init=False)

    def shape(self, schema_hash: str) -> Shape | None:
        """The shape of a tool's results."""
        return self._latest[schema_hash][0] if schema_hash in self._latest and self.is_on() else None

    def know(self, stored: Mapping[str, Any]) -> None:
        """Take those stored shapes that can be read."""
        for key, raw in stored.items():
            if isinstance(raw, bytes) and decoded(_decode, raw) is not None:
                self._latest[key] = Shape(raw), [Shape(raw)]

    def take(self, tool: Tool, result: bytes | memoryview | msgspec.Raw) -> None:
        """Copy a result to be examined, and let its tool rest, for good if the tool has an output schema."""
        self.resting = {tool.schema_hash, *(self.resting if len(self.resting) < MAX_TOOLS else ())}
        if "outputSchema" not in tool.parts:
            wanted = self.is_on() and len(result) <= MAX_RESULT and len(self.waiting) < MAX_WAITING
            self.waiting[tool.schema_hash] = tool.server, bytes(result) if wanted else b""
            self.wake()

    def learn(self, taken: Mapping[str, tuple[str, bytes]]) -> dict[str, Shape]:
        """Examine results, in a worker thread; returns the shapes that have changed."""
        changed = dict[str, Shape]()
        for key, (server, result) in taken.items():
            shape = Shape.of(value := value_in(result))
            if value is not None and self.redactor(server).json(shape.raw) == shape.raw:
                before, latest = self._latest.get(key, (None, []))
                latest = [*latest, shape][-KEPT_RESULTS:]
                self._latest[key] = Shape.merged(latest), latest
                changed |= {key: self._latest[key][0]} if self._latest[key][0] != before else {}
        self._latest = dict(list(self._latest.items())[-MAX_TOOLS:])
        return changed


def _of(value: object, depth: int, texts: set[str]) -> Any:
    if not depth or not value or not isinstance(value, dict | list):
        return type(value).__name__.removesuffix("Type")
    if isinstance(value, list):
        return [reduce(_joined, [_of(each, depth - 1, texts) for each in value[:MAX_ITEMS]])]
    members = {name: _of(each, depth - 1, texts) for name, each in value.items()}
    first, *others = members.values()
    alike = MAX_ALIKE_OBJECTS if isinstance(first, dict) else MAX_ALIKE
    most = alike if others == [first] * len(others) else MAX_MEMBERS
    is_map = len(others) >= most or any(map(is_data, value))
    unnamed = [members.pop(name) for name in value if is_map or name in texts]
    return {**members, MAP: reduce(_joined, unnamed)} if unnamed else members


def _joined(one: Any, other: Any) -> Any:
    kept: dict[str, Any] = {}
    for shape in (one, other):
        for each in shape[OPTIONS] if isinstance(shape, dict) and OPTIONS in shape else [shape]:
            kind = each if isinstance(each, str) else type(each).__name__
            kept[kind] = _of_kind(kept[kind], each) if kind in kept else each
    options = list(kept.values())
    return options[0] if len(options) == 1 else {OPTIONS: options}


def _of_kind(one: Any, other: Any) -> Any:
    if one == other or isinstance(one, str) or isinstance(other, str):
        return other if isinstance(one, str) else one
    if isinstance(one, list):
        return [reduce(_joined, one + other)]
    sides = [{name.removesuffix(OPTIONAL): each for name, each in side.items()} for side in (one, other)]
    common = sides[0].keys() & sides[1].keys()
    inner = {**sides[0], **sides[1], **{name: _joined(sides[0][name], sides[1][name]) for name in common}}
    if {MAP} in (one.keys(), other.keys()) or len(inner) > (MAX_MEMBERS if common else MAX_APART):
        return {MAP: reduce(_joined, inner.values())}
    always = {MAP, *(one.keys() & other.keys())}
    return {name if name in always else name + OPTIONAL: each for name, each in inner.items()}


def _python(shape: Any) -> str:
    if isinstance(shape, str):
        return shape
    if isinstance(shape, list):
        return f"[{_python(shape[0])}]"
    if OPTIONS in shape:
        return " | ".join(map(_python, shape[OPTIONS]))
    return f"{{{', '.join(_member(name, _python(each)) for name, each in shape.items())}}}"


def _member(name: str, kind: str) -> str:
    if name.endswith(OPTIONAL):
        return f'"{name[:-1]}": NotRequired[{kind}]'
    return f"str: {kind}" if name == MAP else f'"{name}": {kind}'
