"""Changes of a definition that count for trust, and noise that does not (docs/trust.md).

An order, a number, a date, white space, and an argument that accepts less are no change: servers print sets,
counts and days into their descriptions. A changed text, annotation or `_meta`, a new argument, and an argument
that accepts more are.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from daemon.catalog.definitions import SCHEMA, canonical, without_empty
from daemon.catalog.kinds import LISTS
from daemon.model import Kind

Change = Mapping[str, list[str]]
"""The changed `members` of a definition, and its arguments as `argumentsCame` and `argumentsChanged`."""

MOST = 20
"""Most names of each sort in a change: it is read as a line."""

KEPT = 8192
"""Cached forms: the tools of eighty large servers, a kilobyte each."""

MAX_PAIRS = 400
"""Most pairs of alternatives that are compared: more count as a change."""

DIGITS = 12
"""Hexadecimal digits of a part's digest: it only tells which part changed, the form's digest has 64."""

_NUMBER = re.compile(
    r"[-+]?(?<![\d.])\d{1,20}(?:[.,:/_-]\d{1,20}){0,7}(?:[eE][-+]?\d{1,3})?(?!\d)(?:\s?[AaPp]\.?[Mm]\b)?",
    re.ASCII,
)
_ID = re.compile(
    r"\b(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?=[a-f]*\d)[0-9a-f]{6,64})\b", re.ASCII | re.IGNORECASE
)
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_WEEKDAY = r"(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\.?"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?\b"
_DATE = re.compile(
    rf"\b(?:{_WEEKDAY},? ?)?(?:{_DAY}[ -]{_MONTH}|{_MONTH} {_DAY})(?:,?[ -]\d{{4}}\b)?"
    rf"|\b{_WEEKDAY},? (?=\d)",
    re.ASCII | re.IGNORECASE,
)
_SPACE = re.compile(r"[ \t\r\n\f\v\xa0]+")
_BULLETS = re.compile(r"(?:^[ \t]*[-*\u2022] [^\n]*+(?:\n|\Z)){2,}", re.MULTILINE)
_BRACKETS = re.compile(r"[\[({<]([^\[\](){}<>]{1,8192})[\])}>]")
_ITEM = r"(?:'[^'\n]{1,80}'|\"[^\"\n]{1,80}\"|`[^`\n]{1,80}`|[\w.$@#-]{1,80}+)"
_LIST = re.compile(rf"(?<![\w.$@#-]){_ITEM}(?: ?[,|;] ?(?:and |or )?{_ITEM}| (?:and|or) {_ITEM}){{1,500}}")
_BETWEEN = re.compile(r" ?[,|;] ?(?:and |or )?| (?:and|or) ")

TEXTS = frozenset({"title", "description", "$comment", "default", "examples", "deprecated"})
"""Keywords that say something and accept nothing."""

_MOST = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains"})
_LEAST = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains"})
_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_OPTIONS = ("anyOf", "oneOf")
_INNER = frozenset({"items", "additionalProperties", "contains", "propertyNames", "unevaluatedProperties"})
_SETS = frozenset({"required", "enum", "type"})
_EXACT = _MOST | _LEAST | {"multipleOf", "const", "pattern", "format", "$ref", "uniqueItems"}

_PLAIN = re.compile(r"\S{1,64}")
"""A value that says nothing to a model."""


class SteadyForm(msgspec.Struct, frozen=True):
    """A definition without what may vary."""

    digest: str
    """64 hexadecimal digits (SHA-256)."""
    parts: Mapping[str, str]
    """`DIGITS` digits for each member, and for each argument of a tool as `argument NAME`."""


def steady(text: str) -> str:
    """A text without numbers, dates and identifiers, with equal white space, and its lists in one order."""
    text = _NUMBER.sub("0", _DATE.sub("0 ", _ID.sub("0", text)))
    text = _BULLETS.sub(lambda found: "\n".join(sorted(found[0].splitlines())) + "\n", text)
    text = _SPACE.sub(" ", text).strip()
    text = _BRACKETS.sub(_in_order, text)
    return _LIST.sub(lambda found: ", ".join(sorted(_BETWEEN.split(found[0]))), text)


def _in_order(found: re.Match[str]) -> str:
    items = sorted(each.strip() for each in found[1].split(","))
    return f"{found[0][0]}{', '.join(items)}{found[0][-1]}"


def _steady(value: Any) -> Any:
    if isinstance(value, str):
        return steady(value)
    if isinstance(value, list):
        return sorted(map(_steady, value), key=canonical)
    if isinstance(value, dict):
        return {key: _steady(each) for key, each in value.items() if each is not None}
    return 0 if isinstance(value, int | float) and not isinstance(value, bool) else value


def _schema(schema: Any) -> Any:
    """A schema in one order, with what it accepts exactly and what it says steadily."""
    if not isinstance(schema, dict):
        return schema
    return {key: _keyword(key, value) for key, value in schema.items()}


def _keyword(key: str, value: Any) -> Any:
    if key in _MAPS and isinstance(value, dict):
        return {name: _schema(each) for name, each in value.items()}
    if key in _SETS:
        return sorted(value, key=canonical) if isinstance(value, list) else value
    if isinstance(value, list) and (key in _OPTIONS or key == "allOf"):
        return sorted(map(_schema, value), key=canonical)
    if key == "prefixItems" and isinstance(value, list):
        return [_schema(each) for each in value]
    if key in _INNER or key in {"not", "if", "then", "else"}:
        return _schema(value)
    return value if key in _EXACT else _steady(value)


@lru_cache(maxsize=KEPT)
def form_of(kind: Kind, raw: bytes) -> SteadyForm:
    """The form of a definition."""
    members, arguments = _members(kind, raw)
    parts = {name: _digest(value)[:DIGITS] for name, value in members.items()}
    parts |= {f"argument {name}": _digest(value)[:DIGITS] for name, value in arguments.items()}
    return SteadyForm(_digest([members, arguments]), parts)


def _members(kind: Kind, raw: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    said = msgspec.json.decode(raw)
    members = {
        name: _steady(value)
        for name, value in said.items()
        if name not in {SCHEMA, LISTS[kind].key} and value not in (None, "", [], {})
    }
    if kind is not Kind.TOOL:
        return members, {}
    schema = _schema(without_empty(said[SCHEMA]))
    arguments = _object(schema.pop("properties", None))
    return {**members, SCHEMA: schema}, arguments


def _digest(value: object) -> str:
    return hashlib.sha256(canonical(value)).hexdigest()


def change(kind: Kind, before: bytes, after: bytes) -> Change:
    """The changes of a definition that count; empty without any."""
    was, now = form_of(kind, before), form_of(kind, after)
    if was.digest == now.digest:
        return {}
    found = parts_changed(was.parts, now.parts)
    if kind is Kind.TOOL:
        old, new = (without_empty(msgspec.json.decode(raw)[SCHEMA]) for raw in (before, after))
        found = _that_count(found, old, new)
    return {what: names[:MOST] for what, names in found.items() if names}


def parts_changed(was: Mapping[str, str], now: Mapping[str, str]) -> dict[str, list[str]]:
    """The parts that differ between two forms."""
    came = [part for part in now if part not in was]
    differ = [part for part in now if part in was and now[part] != was[part]]
    went = [part for part in was if part not in now]
    return {
        "members": [part for part in (*differ, *came, *went) if not part.startswith(_ARGUMENT)],
        "argumentsWent": [part.removeprefix(_ARGUMENT) for part in went if part.startswith(_ARGUMENT)],
        "argumentsCame": [part.removeprefix(_ARGUMENT) for part in came if part.startswith(_ARGUMENT)],
        "argumentsChanged": [part.removeprefix(_ARGUMENT) for part in differ if part.startswith(_ARGUMENT)],
    }


_ARGUMENT = "argument "


def _that_count(found: dict[str, list[str]], old: Any, new: Any) -> dict[str, list[str]]:
    """The same without arguments that went or accept less, and with those that are no longer required."""
    had, has = (_object(each.get("properties")) for each in (old, new))
    required, still = (_as_set(each.get("required", [])) for each in (old, new))
    freed = [name for name in has if name in had and canonical(name) in required - still]
    changed = [name for name in found["argumentsChanged"] if name in freed or _is_wider(had[name], has[name])]
    changed += [name for name in freed if name not in changed]
    around_old, around_new = (
        {key: value for key, value in each.items() if key not in {"properties", "required"}}
        for each in (old, new)
    )
    members = [name for name in found["members"] if name != SCHEMA or _is_wider(around_old, around_new)]
    return {**found, "members": members, "argumentsChanged": changed, "argumentsWent": []}


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


_MISSING = object()


def _is_wider(old: Any, new: Any) -> bool:
    """Whether a schema accepts, or says, something that the old one does not."""
    old, new = ({} if each is True else each for each in (old, new))
    if new is False or canonical(old) == canonical(new):
        return False
    if not (isinstance(old, dict) and isinstance(new, dict)) or not new:
        return True
    for options in _OPTIONS:
        if isinstance(old.get(options), list) or isinstance(new.get(options), list):
            return _has_more_options(_options(old, options), _options(new, options))
    return any(_is_wider_in(key, old.get(key, _MISSING), new.get(key, _MISSING)) for key in {**old, **new})


def _options(schema: dict[str, Any], keyword: str) -> list[Any]:
    """The alternatives of a schema, each as a whole; the schema itself without any."""
    around = {key: value for key, value in schema.items() if key != keyword}
    found = schema.get(keyword, [{}])
    return [
        {**around, **each} if isinstance(each, dict) else each
        for each in (found if isinstance(found, list) else [found])
    ]


def _has_more_options(old: list[Any], new: list[Any]) -> bool:
    if len(old) * len(new) > MAX_PAIRS:
        return True
    return not all(any(not _is_wider(was, each) for was in old) for each in new)


def _is_wider_in(key: str, old: Any, new: Any) -> bool:
    if _MISSING not in (old, new) and canonical(_keyword(key, old)) == canonical(_keyword(key, new)):
        return False
    if key in TEXTS or (key not in _RULES and key not in _EXACT):
        return True
    if new is _MISSING:
        return True
    if old is _MISSING:
        # A new restriction accepts less; it must not say anything either.
        return key in _MAPS or _says_something(new)
    rule = _RULES.get(key)
    return True if rule is None else rule(old, new)


def _says_something(value: Any) -> bool:
    if isinstance(value, str):
        return not _PLAIN.fullmatch(value)
    if isinstance(value, dict):
        return any(key in TEXTS or _says_something(key) or _says_something(each) for key, each in value.items())
    return isinstance(value, list) and any(map(_says_something, value))


def _exceeds(old: Any, new: Any) -> bool:
    return not (_are_numbers(old, new) and new <= old)


def _falls_below(old: Any, new: Any) -> bool:
    return not (_are_numbers(old, new) and new >= old)


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(each, int | float) and not isinstance(each, bool) for each in values)


def _has_more_types(old: Any, new: Any) -> bool:
    had, has = _as_set(old), _as_set(new)
    return not has <= (had | {b'"integer"'} if b'"number"' in had else had)


def _has_more_values(old: Any, new: Any) -> bool:
    # A list of days has other values tomorrow, and as many.
    return not _as_set(new) <= _as_set(old) and _steady(new) != _steady(old)


def _as_set(value: Any) -> set[bytes]:
    return set(map(canonical, value if isinstance(value, list) else [value]))


def _requires_less(old: Any, new: Any) -> bool:
    return not _as_set(old) <= _as_set(new)


def _has_wider_members(old: Any, new: Any) -> bool:
    return not (isinstance(old, dict) and isinstance(new, dict)) or any(
        name not in old or _is_wider(old[name], each) for name, each in new.items()
    )


def _drops_a_condition(old: Any, new: Any) -> bool:
    return (
        not (isinstance(old, list) and isinstance(new, list))
        or not all(any(not _is_wider(was, each) for each in new) for was in old)
        or len(new) > len(old)
    )


_RULES: Mapping[str, Callable[[Any, Any], bool]] = {
    **dict.fromkeys(_MOST, _exceeds),
    **dict.fromkeys(_LEAST, _falls_below),
    **dict.fromkeys(_MAPS, _has_wider_members),
    **dict.fromkeys(_INNER, _is_wider),
    "type": _has_more_types,
    "enum": _has_more_values,
    "required": _requires_less,
    "allOf": _drops_a_condition,
    "uniqueItems": lambda _old, new: new is not True,
}
"""Whether a keyword with another value accepts more; other keywords may not differ."""
