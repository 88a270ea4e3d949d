"""One field of a form: what is wanted in words, and the value that a typed line means."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from daemon.kit.wording import suggestion

if TYPE_CHECKING:
    from collections.abc import Sequence

Json = dict[str, Any]

FORMATS = {
    "email": "an e-mail address",
    "uri": "a URI, as https://example.org/page",
    "date": "a date, as 2026-11-23",
    "date-time": "a date and time with a zone, as 2026-11-23T14:30:00Z",
}
"""The formats of text that a form may want (MCP, elicitation), in words."""

BOUNDS = ("minLength", "maxLength", "pattern", "format", "minimum", "maximum")
"""The keywords that bound a text or a number (MCP, elicitation); any other is the server's own to check."""

MAX_DIGITS = 300
"""Digits of the longest number that is read: a double has 309 at most."""

MAX_PATTERN_BYTES = 64 * 1024
"""Bytes of a compiled pattern: larger ones have nested repetitions."""

EMPTY = '""'
"""What is typed for an empty text: Enter alone takes the default."""

_YES = frozenset({"y", "yes", "true", "on", "1"})
_NO = frozenset({"n", "no", "false", "off", "0"})
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")


class Unfit(ValueError):
    """A typed line does not mean a value that fits; the text says what would."""


class Choice(NamedTuple):
    """One of the values that a field may have."""

    value: str
    title: str


class Field(NamedTuple):
    """One question of a form."""

    name: str
    """The name of the member."""
    title: str
    """Its name for people."""
    about: str
    """What the server says of it; empty if nothing."""
    kind: str
    """`string`, `number`, `integer`, `boolean`, `choice` or `choices`."""
    schema: Json
    """The keywords that bound a text or a number, or the number of choices."""
    choices: tuple[Choice, ...] = ()
    """The values that it may have; empty if it is no choice."""
    required: bool = False
    """Whether there is no form without it."""
    default: object = None
    """The value that Enter alone means; None if there is none."""

    @property
    def numbered(self) -> bool:
        """Whether choices may be named by their number: not if a choice looks like one."""
        return not any(each.value.isdigit() or each.title.isdigit() for each in self.choices)


def wanted(field: Field) -> str:
    """What fits, in words."""
    schema = field.schema
    match field.kind:
        case "string":
            text = FORMATS.get(schema.get("format", ""), "text")
            spelt = f", spelt like {schema['pattern']}" if "pattern" in schema else ""
            return text + _between(schema.get("minLength"), schema.get("maxLength"), " characters") + spelt
        case "number" | "integer":
            noun = "a number" if field.kind == "number" else "a whole number"
            return noun + _between(schema.get("minimum"), schema.get("maximum"))
        case "boolean":
            return "yes or no"
        case "choice":
            return "one of them"
    counted = _between(schema.get("minItems"), schema.get("maxItems"), " of them")
    return "any of them, with commas between" + counted


def read(field: Field, line: str) -> object:
    """The value that a line means, which is not empty.

    Raises:
        Unfit: it means none that fits.
    """
    typed = line.strip()
    match field.kind:
        case "string":
            value: object = "" if typed == EMPTY else line
        case "number" | "integer":
            value = _number(field, typed)
        case "boolean":
            return _boolean(typed)
        case "choice":
            return _choice(field, typed)
        case _:
            return _choices(field, typed)
    if not fits(field, value):
        raise Unfit(f"wanted is {wanted(field)}")
    return value


def fits(field: Field, value: object) -> bool:
    """Whether a value may be sent."""
    if field.kind == "choice":
        return any(each.value == value for each in field.choices)
    if field.kind == "choices":
        return isinstance(value, list) and not _count_fault(field, value)
    return validator({"type": field.kind, **field.schema}).is_valid(value)  # type: ignore[no-any-return]


def validator(schema: Json) -> Any:
    """The compiled form of a schema; formats are checked.

    Raises:
        ValueError: the schema itself is faulty.
    """
    import jsonschema_rs  # noqa: PLC0415 - 6 ms, and only a form needs it

    linear = jsonschema_rs.RegexOptions(size_limit=MAX_PATTERN_BYTES)
    return jsonschema_rs.validator_for(schema, validate_formats=True, offline=True, pattern_options=linear)


def shown(field: Field, value: object) -> str:
    """A value as a person reads it, in one line."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(shown(field, each) for each in value)
    titles = {each.value: each.title for each in field.choices}
    if isinstance(value, str):
        return titles.get(value, value) or EMPTY
    return json.dumps(value)


def _between(least: float | None, most: float | None, unit: str = "") -> str:
    """Bounds as the end of a phrase; empty without any."""
    if least is None:
        return "" if most is None else f", at most {most}{unit}"
    return f", at least {least}{unit}" if most is None else f", {least} to {most}{unit}"


def _number(field: Field, typed: str) -> int | float:
    whole = field.kind == "integer"
    if len(typed) > MAX_DIGITS or not (_INTEGER if whole else _NUMBER).fullmatch(typed):
        raise Unfit(f"wanted is {wanted(field)}")
    if _INTEGER.fullmatch(typed):
        return int(typed)
    value = float(typed)
    if value in (float("inf"), float("-inf")):
        raise Unfit("this number is too large")
    return value


def _boolean(typed: str) -> bool:
    word = typed.casefold()
    if word in _YES | _NO:
        return word in _YES
    raise Unfit("wanted is yes or no")


def _choice(field: Field, typed: str) -> str:
    """The choice that is named by its value, its title or, where none is a number, its number."""
    for same in (_same, _alike):
        for choice in field.choices:
            if same(typed, choice.value) or same(typed, choice.title):
                return choice.value
    if field.numbered and typed.isascii() and typed.isdigit() and 0 < int(typed[:9]) <= len(field.choices):
        return field.choices[int(typed[:9]) - 1].value
    titles = [each.title for each in field.choices]
    raise Unfit(f"there is no {typed[:50]!r}{suggestion(typed, titles, 10)}")


def _same(typed: str, text: str) -> bool:
    return typed == (text.strip() or EMPTY)


def _alike(typed: str, text: str) -> bool:
    return typed.casefold() == text.strip().casefold()


def _choices(field: Field, typed: str) -> list[str]:
    """Several choices with commas between, each of them once."""
    try:
        named = [_choice(field, typed)]
    except Unfit:
        named = [_choice(field, word) for part in typed.split(",") if (word := part.strip())]
    value = list(dict.fromkeys(named))
    if fault := _count_fault(field, value):
        raise Unfit(fault)
    return value


def _count_fault(field: Field, value: Sequence[object]) -> str:
    """What is wrong with a list of choices; empty if nothing is."""
    known = {each.value for each in field.choices}
    least, most = field.schema.get("minItems", 0), field.schema.get("maxItems", len(known))
    if not all(each in known for each in value) or len(set(map(str, value))) != len(value):
        return f"wanted are {wanted(field)}"
    return "" if least <= len(value) <= most else f"wanted are {wanted(field)}"
