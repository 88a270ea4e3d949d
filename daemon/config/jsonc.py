"""Reads JSON with comments and trailing commas, and keeps all positions and duplicate keys."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

import attrs
import msgspec

from daemon.errors import ConfigError, Fault
from daemon.kit.later import pattern

MAX_HOPS = 16
"""References followed in a row, at most; this bound ends cycles."""


def resolve(root: Any, reference: object) -> Any:
    """Follow a `#/...` reference within a schema; None for an anchor or a reference to another document."""
    for _ in range(MAX_HOPS):
        found = target(root, reference)
        if not isinstance(found, dict) or "$ref" not in found or len(found) > 1:
            return found
        reference = found["$ref"]
    return None


def followed(root: Any, schema: object) -> Any:
    """A schema merged with its reference's target; the schema's own members take precedence."""
    found = resolve(root, schema["$ref"]) if isinstance(schema, dict) and "$ref" in schema else None
    if not isinstance(schema, dict) or found is None:
        return schema
    own = {key: value for key, value in schema.items() if key != "$ref"}
    return {**found, **own} if isinstance(found, dict) else found


def target(root: Any, reference: object) -> Any:
    """Follow one `#/...` pointer (RFC 6901); None if it leads nowhere."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    return _at(root, unquote(reference[1:]))


def _at(place: Any, pointer: str) -> Any:
    for token in pointer.split("/")[1:]:
        step = token.replace("~1", "/").replace("~0", "~")
        if isinstance(place, list):
            place = dict(zip(map(str, range(len(place))), place, strict=True))
        place = place.get(step) if isinstance(place, dict) else None
    return place


MAX_DEPTH = 100
"""Levels of nesting: more than any configuration has, and too few to exhaust the interpreter's stack."""

MAX_INTEGER = 2**63 - 1
"""The largest integer that SQLite and every client can hold."""

_TOKEN = pattern(
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

UNSOUND = "this text holds a NUL or half a character (a lone surrogate): remove it"

_SURROGATE = pattern("[\ud800-\udfff]")

_FOREIGN_LITERALS = {"True": "true", "False": "false", "None": "null", "undefined": "null"}


def decode(text: str, *, source: str) -> tuple[object, list[Fault]]:
    """Decode `text`, and return its non-fatal faults, too. Raises ConfigError with line and column."""
    text = text.removeprefix("\ufeff")
    try:
        value = _DECODER.decode(blank(text))
    except json.JSONDecodeError as error:
        fault = _syntax_fault(error)
        raise ConfigError(source, [fault]) from None
    faults = list[Fault]()
    return _plain(ROOT, value, faults), faults


def blank(text: str) -> str:
    """Replace comments and trailing commas by blanks. Raises json.JSONDecodeError."""
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
    """Describe a syntax error, quoting at most one character: the line may hold a secret."""
    expected = next((words for start, words in _EXPECTED.items() if error.msg.startswith(start)), None)
    if expected is None:
        message = error.msg
    elif not error.doc.strip():
        message = 'the file is empty: begin with {"mcpServers": {}}'
    else:
        message = f"{expected}; found {_found(error)}{_hint(error)}"
    return Fault(path=ROOT, message=message, line=error.lineno, column=error.colno)


def _found(error: json.JSONDecodeError) -> str:
    found = error.doc[error.pos : error.pos + 1]
    if not found:
        return "the end of the file"
    return found if found.isascii() and found.isprintable() else f"U+{ord(found):04X}"


def _hint(error: json.JSONDecodeError) -> str:
    for word, ours in _FOREIGN_LITERALS.items():
        if error.doc.startswith(word, error.pos):
            return f": write {ours} instead of {word}"
    if error.doc.startswith("'", error.pos):
        return ": text stands in double quotes"
    if error.doc.startswith('"', error.pos) and error.msg.startswith("Expecting ','"):
        return ": a comma is missing before it"
    return ""


class _Odd(msgspec.Struct, frozen=True):
    message: str


class _Pairs(dict[str, object]):
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


def _plain(trail: str, value: object, faults: list[Fault]) -> object:
    """Convert to plain types that messages can quote, and append faults; a refused number becomes null."""
    match value:
        case _Odd(message=message):
            faults.append(Fault(path=trail, message=message))
            return None
        case str():
            return _whole(trail, value, faults)
        case _Pairs():
            repeated = "this key occurs twice: keep one of them"
            faults += [Fault(path=below(trail, key), message=repeated) for key in value.repeated]
            items = ((key, below(trail, key), item) for key, item in value.items())
            return {_whole(here, key, faults): _plain(here, item, faults) for key, here, item in items}
        case list():
            return [_plain(below(trail, index), item, faults) for index, item in enumerate(value)]
    return value


def sound(text: str) -> bool:
    """Whether the operating system and UTF-8 accept the text."""
    return "\0" not in text and not _SURROGATE.search(text)


def _whole(trail: str, text: str, faults: list[Fault]) -> str:
    """Replace lone surrogates, which could not be encoded in a message; append a fault of unsound text."""
    if not sound(text):
        faults.append(Fault(path=trail, message=UNSOUND))
    return _SURROGATE.sub("\ufffd", text)


ROOT = "$"

_PLAIN = pattern(r"[A-Za-z_$][\w$-]*", re.ASCII)


def below(trail: str, *steps: str | int) -> str:
    """The trail of a member. Unusual keys are quoted, so that different trails stay different."""
    for step in steps:
        if isinstance(step, int):
            trail += f"[{step}]"
        else:
            trail += f".{step}" if _PLAIN.fullmatch(step) else f"[{json.dumps(step)}]"
    return trail


_STEP = pattern(r"""\.[A-Za-z_$][\w$-]*+|\[[0-9]++\]|\["(?:[^"\\]|\\.)*+"\]""", re.ASCII)


def outward(trail: str) -> Iterator[str]:
    """A trail and its parents, from the innermost outward."""
    ends = [len(ROOT), *(step.end() for step in _STEP.finditer(trail))]
    return (trail[:end] for end in reversed(ends))


def echoes(fault: Fault, earlier: Iterable[Fault]) -> bool:
    """Whether an earlier fault is about the same place, a part of it, or an object around it."""
    return any(is_within(fault.path, other.path) or is_within(other.path, fault.path) for other in earlier)


def is_within(inner: str, outer: str) -> bool:
    """Whether a trail leads to the place `outer` or into it."""
    return inner == outer or inner.startswith((f"{outer}.", f"{outer}["))


def placed(faults: Iterable[Fault], text: str) -> list[Fault]:
    """Give faults a line and column: for a repeated key its last place, for a missing key its parent's."""
    text = text.removeprefix("\ufeff")
    offsets = _offsets(text)
    return [_placed(fault, text, offsets) if fault.line is None else fault for fault in faults]


def _placed(fault: Fault, text: str, offsets: Mapping[str, int]) -> Fault:
    offset = next((offsets[trail] for trail in outward(fault.path) if trail in offsets), None)
    if offset is None:
        return fault
    line = text.count("\n", 0, offset) + 1
    return attrs.evolve(fault, line=line, column=offset - text.rfind("\n", 0, offset))


def _offsets(text: str) -> dict[str, int]:
    blanked, found = blank(text), dict[str, int]()
    waiting = deque([(ROOT, after_space(blanked, 0))])
    found[ROOT] = waiting[0][1]
    while waiting:
        trail, at = waiting.popleft()  # in order: of a repeated key, the last place counts
        for member in members_of(blanked, at).members if blanked[at] in "[{" else ():
            key = member.key if isinstance(member.key, int) else _SURROGATE.sub("\ufffd", member.key)
            here = below(trail, key)
            found[here] = member.start
            waiting.append((here, member.value))
    return found


# Numbers as their texts: only where they end matters, and int() has a limit of its own.
_PLACER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
_SPACE = pattern(r"\s*")


class JsonMember(NamedTuple):
    """The places of a member or item in a text: its start, its value's start, and its end."""

    key: str | int
    start: int
    value: int
    end: int


class JsonHolder(NamedTuple):
    """The places of an object or list in a text, and of its members."""

    opening: int
    closing: int
    members: list[JsonMember]


def members_of(blanked: str, opening: int) -> JsonHolder:
    """Find the members of the object or list that begins at `opening`, in a text without comments (`blank`)."""
    members: list[JsonMember] = []
    at = after_space(blanked, opening + 1)
    while blanked[at] not in "}]":
        start, key = at, len(members) if blanked[opening] == "[" else None
        if key is None:
            key, at = _PLACER.raw_decode(blanked, at)
            at = after_space(blanked, after_space(blanked, at) + 1)
        end = end_of_value(blanked, at)
        members.append(JsonMember(key, start, at, end))
        at = after_space(blanked, end)
        if blanked[at] == ",":
            at = after_space(blanked, at + 1)
    return JsonHolder(opening, at, members)


def end_of_value(text: str, start: int) -> int:
    """The end of the value that begins at `start`."""
    return _PLACER.raw_decode(text, start)[1]


def after_space(text: str, at: int) -> int:
    """The first place that is not white space."""
    found = _SPACE.match(text, at)
    return found.end() if found else at
