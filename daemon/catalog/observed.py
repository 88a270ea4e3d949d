"""The observed shapes of results of tools without an output schema: member names and types, never values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from typing import Any

import attrs
import msgspec

from daemon.protocol import decoded

MAX_BYTES = 2048
"""Bytes of the largest shape as JSON; a larger one loses its deepest levels."""

MAX_DEPTH, MAX_MEMBERS, MAX_ITEMS = 6, 100, 50
"""Levels of a shape, members of an object that is no map, and elements of an array that are looked at."""

MAX_ALIKE, MAX_ALIKE_OBJECTS = 20, 2
"""Members of one type, or objects of one shape: an object that consists of more is a map."""

MAX_APART = 8
"""Members of two objects at one place without a common one: with more, they are maps."""

MAX_NAME = 40

_CAMEL = r"[A-Z]{1,4}[a-z]{1,20}|[A-Z]{2,4}"
_WORD = rf"(?:{_CAMEL}|[a-z]{{1,20}}|[A-Z]{{1,12}})"
_NAME = re.compile(rf"[$@_]{{0,2}}{_WORD}(?:[_:-]{{1,2}}{_WORD}|{_CAMEL}){{0,6}}_?[0-9]?")
_NUMBERED = re.compile(
    r"(?i)(?<![a-z])(sha|base|utf|int|float|iso)[_-]?(?:224|256|384|512|16|32|64|8601)(?![0-9])"
)
_HEX = re.compile(r"[a-fA-F0-9-]{8,}")

_decode, _encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode

MAP, OPTIONS, OPTIONAL = "*", "|", "?"
"""The member for all names that are data, the only member of a choice, and the end of the name of a member that
some results lack; no name that is kept has these characters."""


def is_data(name: str) -> bool:
    """Whether a member's name may be data, such as an id, a date, an address or a secret."""
    known = len(name) <= MAX_NAME and _NAME.fullmatch(_NUMBERED.sub(r"\1", name))
    return not known or _HEX.fullmatch(name) is not None


@attrs.frozen
class Shape:
    """A type as JSON: `"str"`, `[T]`, `{"name": T, "name?": T, "*": T}`, `{"|": [T, T]}`."""

    raw: bytes

    @property
    def python(self) -> str:
        """The type in Python's words on one line."""
        return _python(_decode(self.raw))

    @classmethod
    def of(cls, value: object) -> Shape:
        """The shape of a value; no string in the value becomes the name of a member."""
        said, rest = set[str](), [value]
        for each in rest:
            said |= {each} if isinstance(each, str) else set()
            rest += each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
        shapes = (cls(_encode(_of(value, depth, said))) for depth in range(MAX_DEPTH, -1, -1))
        return next(each for each in shapes if len(each.raw) <= MAX_BYTES)

    @classmethod
    def merged(cls, shapes: Sequence[Shape]) -> Shape:
        """The shape of the latest results, oldest first, as many as fit into one shape."""
        made = cls(_encode(reduce(_joined, [_decode(each.raw) for each in shapes])))
        return made if len(made.raw) <= MAX_BYTES or len(shapes) == 1 else cls.merged(shapes[1:])


class _Block(msgspec.Struct):
    text: str = ""


class _ToolResult(msgspec.Struct):
    content: list[_Block] = []
    structuredContent: Any = None  # noqa: N815 - the wire's name
    isError: bool = False  # noqa: N815 - the wire's name


_decode_result = msgspec.json.Decoder(_ToolResult).decode


def value_in(result: bytes) -> object:
    """A result as a script gets it: structured content, else text as JSON, else text; None for an error."""
    found = decoded(_decode_result, result)
    if found is None or found.isError or found.structuredContent is not None:
        return None if found is None or found.isError else found.structuredContent
    text = "\n".join(each.text for each in found.content if each.text)
    return text or None if (value := decoded(_decode, text)) is None else value


def _of(value: object, depth: int, said: set[str]) -> Any:
    if not depth or not isinstance(value, dict | list):
        return type(value).__name__.removesuffix("Type")
    if isinstance(value, list):
        inner = [_of(each, depth - 1, said) for each in value[:MAX_ITEMS]]
        return [reduce(_joined, inner)] if inner else []
    members = {name: _of(each, depth - 1, said) for name, each in value.items()}
    types = list(members.values())
    most = MAX_ALIKE_OBJECTS if types and isinstance(types[0], dict) else MAX_ALIKE
    if len(types) > MAX_MEMBERS or (len(types) > most and all(each == types[0] for each in types)):
        return {MAP: reduce(_joined, types)}
    is_map = any(map(is_data, value))
    unnamed = [members.pop(name) for name in value if is_map or name in said]
    return {**members, MAP: reduce(_joined, unnamed)} if unnamed else members


def _joined(one: Any, other: Any) -> Any:
    """The shape of the values of two shapes."""
    kept: dict[str, Any] = {}
    for shape in (one, other):
        for each in shape[OPTIONS] if isinstance(shape, dict) and OPTIONS in shape else [shape]:
            kind = each if isinstance(each, str) else type(each).__name__
            kept[kind] = _of_kind(kept[kind], each) if kind in kept else each
    if "float" in kept:
        kept.pop("int", None)
    options = list(kept.values())
    return options[0] if len(options) == 1 else {OPTIONS: options}


def _of_kind(one: Any, other: Any) -> Any:
    if one == other or isinstance(one, str) or isinstance(other, str):
        return other if isinstance(other, str) else one
    if isinstance(one, list):
        return [reduce(_joined, one + other)]
    sides = [{name.removesuffix(OPTIONAL): each for name, each in side.items()} for side in (one, other)]
    common = sides[0].keys() & sides[1].keys()
    inner = {**sides[0], **sides[1], **{name: _joined(sides[0][name], sides[1][name]) for name in common}}
    apart = all(sides) and not common and len(inner) > MAX_APART
    if apart or len(inner) > MAX_MEMBERS or {MAP} in (one.keys(), other.keys()):
        return {MAP: reduce(_joined, inner.values())}
    always = {MAP, *(one.keys() & other.keys())}
    return {name if name in always else name + OPTIONAL: each for name, each in inner.items()}


def _python(shape: Any) -> str:
    if isinstance(shape, str):
        return shape
    if not shape:
        return type(shape).__name__
    if isinstance(shape, list):
        return f"[{_python(shape[0])}]"
    if OPTIONS in shape:
        return " | ".join(map(_python, shape[OPTIONS]))
    return f"{{{', '.join(_member(name, _python(each)) for name, each in shape.items())}}}"


def _member(name: str, kind: str) -> str:
    if name.endswith(OPTIONAL):
        return f'"{name[:-1]}": NotRequired[{kind}]'
    return f"str: {kind}" if name == MAP else f'"{name}": {kind}'
