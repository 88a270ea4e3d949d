"""JSON with comments and trailing commas, read without losing a position or a duplicate key.

Comments and trailing commas are blanked out, one space for each character, and the standard library reads what
is left, so the line and column of its errors are those of the file. What the standard library would accept
silently is marked while it reads and found by one walk over the result: the last of two equal keys, NaN, 1e400,
integers that other languages cannot hold, lone surrogates.

A trail says where in a file something is, in the file's own spelling: `$.mcpServers.git.args[1]`. References
within JSON schemas are resolved here, too.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import attrs
import msgspec

from daemon.errors import ConfigError, Fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


MAX_HOPS = 16
"""Most references that are followed in a row: a circle ends here."""


def resolve(root: Any, reference: object) -> Any:
    """What `#/...` resolves to within `root`: further references are followed if they stand alone.

    Args:
        root: the whole schema.
        reference: the value of a `$ref`; one that leaves the schema, or names an anchor, resolves to None.
    """
    for _ in range(MAX_HOPS):
        found = target(root, reference)
        if not isinstance(found, dict) or "$ref" not in found or len(found) > 1:
            return found
        reference = found["$ref"]
    return None


def target(root: Any, reference: object) -> Any:
    """What `#/...` points to within `root` (RFC 6901), one step; None if there is nothing."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    return _at(root, unquote(reference[1:]))


def _at(place: Any, pointer: str) -> Any:
    for token in pointer.split("/")[1:]:
        step = token.replace("~1", "/").replace("~0", "~")
        if isinstance(place, dict):
            place = place.get(step)
        elif isinstance(place, list):
            place = dict(zip(map(str, range(len(place))), place, strict=True)).get(step)
        else:
            return None
    return place


MAX_DEPTH = 100
"""Most levels of nesting: far beyond any configuration, far below what exhausts the interpreter's stack
(reliability.md §3.4)."""

MAX_INTEGER = 2**63 - 1
"""The largest integer that SQLite and every client can hold."""

_TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\\n]++|\\.)*+"?) | (?P<comment>//[^\n]*+|/\*.*?\*/) | (?P<unclosed>/\*)
      | (?P<open>[\[{]) | (?P<close>[\]}]) | (?P<comma>,) | (?P<other>[^\s"/,\[\]{}]++|\S)""",
    re.DOTALL | re.VERBOSE,
)

_EXPECTED = {
    "Expecting value": "expected a value: text in double quotes, a number, true, false, null, [ or {",
    "Expecting property name": "expected a key in double quotes, or }",
    "Expecting ',' delimiter": "expected a comma, or the end of this list or object",
    "Expecting ':' delimiter": "expected a colon between key and value",
    "Extra data": "expected the end of the file",
    "Unterminated string": "expected the double quote that ends this text",
    "Invalid control character": "expected the text to end on its line (write a line break as \\n)",
    "Invalid \\escape": 'expected one of " \\ / b f n r t u after the backslash',
    "Invalid \\uXXXX": "expected four hexadecimal digits after \\u",
}
"""The standard library's errors, and what each means to someone editing a file."""

UNSOUND = "this text holds a NUL or half a character (a lone surrogate): remove it"

_SURROGATE = re.compile("[\ud800-\udfff]")

_FOREIGN_LITERALS = {"True": "true", "False": "false", "None": "null", "undefined": "null"}


def decode(text: str, *, source: str) -> tuple[object, list[Fault]]:
    """Decode `text`, and list the faults that did not prevent that.

    Raises:
        ConfigError: it cannot be decoded; the single fault names line and column.
    """
    text = text.removeprefix("\ufeff")
    try:
        value = _DECODER.decode(blank(text))
    except json.JSONDecodeError as error:
        fault = _syntax_fault(error)
        raise ConfigError(source, [fault]) from None
    faults = list(_oddities(ROOT, value))
    return _plain(value), faults


def blank(text: str) -> str:
    """`text` with comments and trailing commas replaced by spaces, every other character in its place.

    Raises:
        json.JSONDecodeError: a comment does not end, or nesting exceeds `MAX_DEPTH`.
    """
    characters = list(text)
    depth = 0
    before = comma = None
    for token in _TOKEN.finditer(text):
        kind, start = token.lastgroup, token.start()
        if kind == "unclosed":
            raise json.JSONDecodeError("this comment does not end: */ is missing", text, start)
        if kind == "comment":
            characters[start : token.end()] = re.sub(r"[^\n]", " ", token[0])
            continue
        depth += (kind == "open") - (kind == "close")
        if depth > MAX_DEPTH:
            raise json.JSONDecodeError(f"nested deeper than {MAX_DEPTH} levels", text, start)
        if kind == "close" and comma is not None:
            characters[comma] = " "
        # A trailing comma follows a value: [,] and [1,,] remain errors.
        comma = start if kind == "comma" and before not in {None, "open", "comma"} else None
        before = kind
    return "".join(characters)


def _syntax_fault(error: json.JSONDecodeError) -> Fault:
    """Say what was expected and what was found; never more of the line, since it may hold a secret."""
    expected = next((words for start, words in _EXPECTED.items() if error.msg.startswith(start)), None)
    if expected is None:
        message = error.msg
    elif not error.doc.strip():
        message = 'the file is empty: begin with {"mcpServers": {}}'
    else:
        message = f"{expected}; found {_found(error)}{_hint(error)}"
    return Fault(path=ROOT, message=message, line=error.lineno, column=error.colno)


def _found(error: json.JSONDecodeError) -> str:
    """The one character at which the reader stopped: an unquoted word may be a secret."""
    found = error.doc[error.pos : error.pos + 1]
    if not found:
        return "the end of the file"
    return found if found.isascii() and found.isprintable() else f"U+{ord(found):04X}"


def _hint(error: json.JSONDecodeError) -> str:
    """The likely slip behind a syntax error."""
    for word, ours in _FOREIGN_LITERALS.items():
        if error.doc.startswith(word, error.pos):
            return f": write {ours} instead of {word}"
    if error.doc.startswith("'", error.pos):
        return ": text stands in double quotes"
    if error.doc.startswith('"', error.pos) and error.msg.startswith("Expecting ','"):
        return ": a comma is missing before it"
    return ""


class _Odd(msgspec.Struct, frozen=True):
    """Marks a number that JSON, or a later reader, cannot represent."""

    message: str


class _Pairs(dict[str, object]):
    """A JSON object that remembers which of its keys were repeated."""

    repeated: tuple[str, ...] = ()


def _pairs(pairs: list[tuple[str, object]]) -> _Pairs:
    kept = _Pairs(pairs)
    if len(kept) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        kept.repeated = tuple(key for key, count in counts.items() if count > 1)
    return kept


def _integer(digits: str) -> object:
    # The length is checked first: int() raises an error of its own for thousands of digits.
    if len(digits) > len(str(MAX_INTEGER)) + 1 or abs(int(digits)) > MAX_INTEGER:
        return _Odd("this number is too large: at most 2^63-1")
    return int(digits)


def _real(digits: str) -> object:
    number = float(digits)
    return number if math.isfinite(number) else _Odd("this number is too large")


def _constant(word: str) -> _Odd:
    return _Odd(f"{word} is not JSON: write a number")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_int=_integer, parse_float=_real, parse_constant=_constant
)


def _oddities(trail: str, value: object) -> Iterator[Fault]:
    """Faults that the standard library accepted, in the order of the file."""
    match value:
        case _Odd(message=message):
            yield Fault(path=trail, message=message)
        case str() if not sound(value):
            yield Fault(path=trail, message=UNSOUND)
        case _Pairs():
            for key in value.repeated:
                yield Fault(path=below(trail, key), message="this key stands here twice: keep one of them")
            for key, item in value.items():
                if not sound(key):
                    yield Fault(path=below(trail, key), message=UNSOUND)
                yield from _oddities(below(trail, key), item)
        case list():
            for index, item in enumerate(value):
                yield from _oddities(below(trail, index), item)


def sound(text: str) -> bool:
    """Whether `text` can be encoded and handed to the operating system."""
    return "\0" not in text and not _SURROGATE.search(text)


def _whole(text: str) -> str:
    """`text` with lone surrogates replaced: a message that quotes one could not be encoded."""
    return _SURROGATE.sub("\ufffd", text)


def _plain(value: object) -> object:
    """`value` in plain types that messages can quote: no lone surrogates, null for refused numbers."""
    match value:
        case _Odd():
            return None
        case str():
            return _whole(value)
        case dict():
            return {_whole(key): _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
    return value


ROOT = "$"

_PLAIN = re.compile(r"[A-Za-z_$][\w$-]*", re.ASCII)


def below(trail: str, step: str | int) -> str:
    """The trail of a key or an index within `trail`. Unusual keys are quoted, so that no two trails collide."""
    if isinstance(step, int):
        return f"{trail}[{step}]"
    if _PLAIN.fullmatch(step):
        return f"{trail}.{step}"
    return f"{trail}[{json.dumps(step)}]"


_STEP = re.compile(r"""\.[A-Za-z_$][\w$-]*+|\[[0-9]++\]|\["(?:[^"\\]|\\.)*+"\]""", re.ASCII)
"""One step of a trail, as `below` writes it."""


def outward(trail: str) -> Iterator[str]:
    """A trail, then those of what surrounds the place, from the inside out."""
    ends = [len(ROOT), *(step.end() for step in _STEP.finditer(trail))]
    return (trail[:end] for end in reversed(ends))


def echoes(fault: Fault, earlier: Iterable[Fault]) -> bool:
    """Whether an earlier fault is about the same place, something within it or something around it."""
    return any(is_within(fault.path, other.path) or is_within(other.path, fault.path) for other in earlier)


def is_within(inner: str, outer: str) -> bool:
    """Whether a trail leads to the same place as another one, or within it."""
    return inner == outer or inner.startswith((f"{outer}.", f"{outer}["))


def placed(faults: Iterable[Fault], text: str) -> list[Fault]:
    """The faults of a text that could be decoded, each with line and column.

    A key stands where it is written last. What is missing, or was never in the text, has the place of what
    surrounds it.
    """
    text = text.removeprefix("\ufeff")
    offsets = _offsets(text)
    return [_placed(fault, text, offsets) if fault.line is None else fault for fault in faults]


def _placed(fault: Fault, text: str, offsets: Mapping[str, int]) -> Fault:
    offset = next((offsets[trail] for trail in outward(fault.path) if trail in offsets), None)
    if offset is None:
        return fault
    line = text.count("\n", 0, offset) + 1
    return attrs.evolve(fault, line=line, column=offset - text.rfind("\n", 0, offset))


class _Level(msgspec.Struct):
    """An object or a list that the scanner is in."""

    trail: str
    is_list: bool
    count: int = 0
    """Members before this one."""


def _offsets(text: str) -> dict[str, int]:
    """The position of every key and every item of a text that can be decoded, by trail."""
    found: dict[str, int] = {}
    levels: list[_Level] = []
    here, begins = ROOT, True
    for token in _TOKEN.finditer(text):
        match token.lastgroup:
            case "comment":
                continue
            case "close":
                levels.pop()
                continue
            case "comma":
                levels[-1].count += 1
                begins = True
                continue
        if begins:
            if levels:
                level = levels[-1]
                here = below(level.trail, level.count if level.is_list else _whole(json.loads(token[0])))
            found[here] = token.start()
            begins = False
        if token.lastgroup == "open":
            levels.append(_Level(here, token[0] == "["))
            begins = True
    return found
