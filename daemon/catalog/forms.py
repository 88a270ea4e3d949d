"""Decides which changes of a definition count for trust, and which are noise (docs/trust.md).

Servers print sets, counts and dates into their descriptions. So a different order, number, date or white space
does not count. An argument that accepts less counts only if it has new words. A changed text, annotation or
`_meta` counts; so does a new argument, and one that accepts more.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.resources import files
from typing import Any

import msgspec

from daemon.catalog.definitions import SCHEMA, canonical
from daemon.catalog.kinds import LISTS
from daemon.catalog.listing import is_nested_deeper
from daemon.kit.waiting import keep_latest
from daemon.model import Kind

Change = Mapping[str, list[str]]
"""The changed `members` of a definition, `argumentsCame`, `argumentsChanged`; `argumentsWent` of digests."""

MOST = 20
"""Names per sort in a `Change`: people read it as one line."""

MAX_WORK = 512 * 1024
"""Bytes compared for one list, in some 0.1 s: twice both forms of the longest of 44 real lists."""

MAX_DEPTH = 64
"""Levels of a definition; real ones have 23. In a deeper definition, every byte counts."""

MAX_NUMBER = 10**20
"""Numbers below this may vary, as digits in a text may (`forms.toml`)."""

KEPT = 10_000
"""Cached digests: as many as one list has definitions."""

DIGITS = 12
"""Hexadecimal digits of a part's digest, which only identifies the changed part; a form's digest has 64."""

_TABLE: Any = tomllib.loads((files("daemon.catalog") / "forms.toml").read_text(encoding="utf-8"))


def _pattern(text: str) -> re.Pattern[str]:
    for name, part in reversed(_TABLE["parts"].items()):
        text = text.replace(f"<{name}>", part)
    return re.compile(text, re.VERBOSE | re.ASCII)


_TEXTS = {name: _pattern(text) for name, text in _TABLE["texts"].items() if isinstance(text, str)}
_NUMBERS = [_pattern(text) for text in _TABLE["texts"]["numbers"]]
_ITEM = _pattern("<item>")
_SPACES = re.compile(r"[ \t\r\f\v\xa0]+")


def steady(text: str) -> str:
    """Remove numbers, dates and identifiers from a text, even out its white space, and sort its lists."""
    if not _TEXTS["suspect"].search(text):
        return text.strip()
    text = "\n".join(filter(None, (line.strip(" ") for line in _SPACES.sub(" ", text).split("\n"))))
    for pattern in _NUMBERS if "day" in text or re.search("[0-9]", text) else ():
        text = pattern.sub("0", text)
    text = _TEXTS["bullets"].sub(lambda found: "\n".join(sorted(found[0].split("\n"))), text)
    text = re.sub(r"([,;|])(?! )", r"\1 ", text.replace("\n", " "))
    text = _TEXTS["brackets"].sub(lambda found: found[0][0] + ", ".join(sorted(found[0][1:].split(", "))), text)
    return _TEXTS["list"].sub(_in_order, text)


def _in_order(found: re.Match[str]) -> str:
    items = iter(sorted(_ITEM.findall(found[0])))
    return _ITEM.sub(lambda _: next(items), found[0])


_MEMBERS: Mapping[str, frozenset[str]] = {name: frozenset(row) for name, row in _TABLE["members"].items()}
_MAPS = _MEMBERS["maps"]
_EXACT = _MEMBERS["exact"] | _MEMBERS["most"] | _MEMBERS["least"]
_IDLE = _MEMBERS["idle"] | _MAPS
_WORDS = frozenset[str]().union(*_MEMBERS.values())
_ABSENT: Mapping[str, Any] = _TABLE["absent"]

WHOLE = "definition"
"""The name of the only part of a definition that is not parsed."""

_DIALECT = re.compile(r"https?://json-schema\.org/[a-z0-9/.-]{1,40}#?")
_ARGUMENT = "argument "

_OF_CLASS = re.compile(r"_|(?:Arguments|Args|Input|Parameters|Params|Request|Schema)$")
"""Matches the parts of a class's name that do not belong to its tool's name."""

_LEFT_OVER = b'"unevaluated'
"""The start of keywords for members that no other keyword names. With one, a new limit can allow more."""

_NO_TASKS = {"taskSupport": "forbidden"}
"""The value of `execution` that means the same as none (MCP 2025-11-25, tools)."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Decode a JSON object. Readers differ about repeated members, so all of them count."""
    made = dict(pairs)
    return made if len(made) == len(pairs) else {**made, "(repeated)": [list(pair) for pair in pairs]}


_decode = json.JSONDecoder(object_pairs_hook=_object).decode


def _parts(kind: Kind, raw: bytes) -> dict[str, Any]:
    if is_nested_deeper(raw, MAX_DEPTH):
        return {WHOLE: raw.decode()}
    members = _decode(raw.decode())
    parts = {
        # No member passes for an argument.
        f"member {name}" if name.startswith((_ARGUMENT, "member ")) else name: value
        for name, value in members.items()
        if name != LISTS[kind].key and not _is_idle(name, value) and value != _NO_TASKS
    }
    if kind is Kind.TOOL:
        parts[SCHEMA] = schema = dict(_folded(parts[SCHEMA]))
        if _folded_name(schema.get("title")) in _folded_name(members.get(LISTS[kind].key)):
            # The name of a class, which an SDK makes of the tool's.
            del schema["title"]
        if isinstance(schema.get("properties"), dict):
            parts |= {_ARGUMENT + name: each for name, each in schema.pop("properties").items()}
    return parts


def _folded_name(name: object) -> str:
    return _OF_CLASS.sub("", name).lower() if isinstance(name, str) else "\0"


def _folded(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema whose properties each say whether they are required."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict):
        return schema
    names = {each: True for each in required if isinstance(each, str)} if isinstance(required, list) else {}
    folded = {name: {"schema": each, "required": name in names} for name, each in properties.items()}
    return {**schema, "properties": folded, "required": [name for name in names if name not in properties]}


def _is_idle(name: str, value: Any) -> bool:
    """Whether a schema means the same without a member; a member with an unknown name always counts."""
    if value is None:
        return name in _WORDS and name != "const"
    is_dialect = name == "$schema" and isinstance(value, str) and _DIALECT.fullmatch(value)
    return bool(is_dialect) or (name in _IDLE and value in ("", [], {}))


def _steady(value: Any, key: str, *, are_names: bool = False) -> Any:
    """Sort a value and steady its texts; `are_names` says that its members are names, not keywords."""
    if key in _EXACT:
        if isinstance(value, dict):
            return {name: _steady(each, key) for name, each in value.items()}
        return sorted(value, key=canonical) if isinstance(value, list) else value
    if isinstance(value, str):
        return steady(value)
    if isinstance(value, list):
        items = [_steady(each, key) for each in value]
        return items if key in {"items", "prefixItems"} else sorted(items, key=canonical)
    if isinstance(value, dict):
        made = {
            name: _steady(each, "" if are_names else name, are_names=name in _MAPS and not are_names)
            for name, each in (value if are_names else _folded(value)).items()
            if are_names or not _is_idle(name, each)
        }
        if "const" in made and "enum" not in made and not are_names:
            made["enum"] = [made.pop("const")]
        return made
    # A number that a value must equal limits it as a maximum does; the digits of another could be a text.
    is_noise = _are_numbers(value) and key not in {"enum", "const"} and abs(value) < MAX_NUMBER
    return 0 if is_noise else value


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(each, int | float) and not isinstance(each, bool) for each in values)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for each in value if isinstance(value, list) else (*value, *value.values()):
            yield from _texts(each)


class SteadyForm(msgspec.Struct, frozen=True):
    """A definition without the parts that may vary."""

    digest: str
    """SHA-256 as 64 hexadecimal digits."""
    parts: Mapping[str, str]
    """A digest of each member, and of each argument of a tool as `argument NAME`."""


def form_of(kind: Kind, raw: bytes) -> SteadyForm:
    """The form of a definition."""
    parts = {name: _steady(value, name) for name, value in _parts(kind, raw).items()}
    return SteadyForm(_digest(parts), {name: _digest(value)[:DIGITS] for name, value in parts.items()})


def _digest(value: object) -> str:
    return hashlib.sha256(canonical(value)).hexdigest()


def parts_changed(was: Mapping[str, str], now: Mapping[str, str]) -> Change:
    """The parts that differ between two forms."""
    return _change(was, now, (part for part in {**now, **was} if was.get(part) != now.get(part)))


def _change(was: Mapping[str, Any], now: Mapping[str, Any], parts: Iterable[str]) -> Change:
    found: dict[str, list[str]] = {}
    for part in parts:
        name = part.removeprefix(_ARGUMENT)
        how = "Went" if part not in now else "Changed" if part in was else "Came"
        found.setdefault("members" if name == part else f"arguments{how}", []).append(name)
    return {sort: names[:MOST] for sort, names in found.items()}


def change(kind: Kind, before: bytes, after: bytes) -> Change:
    """The changes of a definition that count; empty if there are none."""
    found = Comparing().change(kind, before, after)
    return {"members": [WHOLE]} if found is None else found


_digests: dict[tuple[Kind, bytes], str] = {}
"""Cached digests of forms, by kind and SHA-256 of the definition."""


class _TooMuch(Exception):
    pass


class Comparing:
    """Finds what changed in one list, until a limit on bytes is used up."""

    def __init__(self, most: int = MAX_WORK) -> None:
        self._left = most

    def digest(self, kind: Kind, raw: bytes) -> str:
        """The digest of a definition's form; empty once the limit is used up."""
        key = kind, hashlib.sha256(raw).digest()
        if key not in _digests:
            with suppress(_TooMuch):
                self._spend(len(raw))
                keep_latest(_digests, key, form_of(kind, raw).digest, KEPT)
        return _digests.get(key, "")

    def change(self, kind: Kind, before: bytes, after: bytes) -> Change | None:
        """The changes of a definition, as `change` finds them; None once the limit is used up."""
        with suppress(_TooMuch):
            self._spend(len(before) + len(after))
            was, now = _parts(kind, before), _parts(kind, after)
            return _change(was, now, (part for part in {**now, **was} if self._differs(part, was, now)))
        return None

    def changed_since(self, parts: Mapping[str, str], kind: Kind, raw: bytes) -> Change | None:
        """The parts of a definition that differ from an older form's; None once the limit is used up."""
        with suppress(_TooMuch):
            self._spend(len(raw))
            return parts_changed(parts, form_of(kind, raw).parts)
        return None

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise _TooMuch

    def _differs(self, part: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
        if part not in was or part not in now:
            # Without an argument, a tool accepts less.
            return part in now or not part.startswith(_ARGUMENT)
        if canonical(was[part]) == canonical(now[part]):
            return False
        old, new = _steady(was[part], part), _steady(now[part], part)
        if part != SCHEMA and not part.startswith(_ARGUMENT):
            return canonical(old) != canonical(new)
        return not _WORDS.union(_texts(old)).issuperset(_texts(new)) or self.is_wider(old, new)

    def is_wider(self, old: Any, new: Any) -> bool:
        """Whether a schema accepts something that the old one did not, or describes it otherwise."""
        old, new = ({} if each is True else each for each in (old, new))
        one, other = canonical(old), canonical(new)
        self._spend(len(one) + len(other))
        if new is False or one == other:
            return False
        if _LEFT_OVER in one:
            return True
        if not (isinstance(old, dict) and isinstance(new, dict) and new):
            return True
        had, has = old.get("schema"), new.get("schema")
        if (
            new.get("required") is True
            and isinstance(had, dict)
            and not (isinstance(has, dict) and "default" in has)
        ):
            # An argument that must be given needs no default.
            old = {**old, "schema": {key: value for key, value in had.items() if key != "default"}}
        for options in ("anyOf", "oneOf"):
            if isinstance(old.get(options), list) or isinstance(new.get(options), list):
                known = {canonical(each): each for each in self._options(old, options)}
                more = [each for each in self._options(new, options) if canonical(each) not in known]
                return any(all(self.is_wider(was, each) for was in known.values()) for each in more)
        return any(self._is_wider_in(key, old, new) for key in {**old, **new})

    def _options(self, schema: dict[str, Any], keyword: str) -> list[Any]:
        """The alternatives of a schema, each as a whole schema; without alternatives, the schema itself."""
        around = {key: value for key, value in schema.items() if key != keyword}
        options = [{} if each is True else each for each in _listed(schema.get(keyword, {}))]
        self._spend(len(canonical(around)) * len(options))
        return [
            {**around, **{f"{key} around": around[key] for key in each if key in around}, **each}
            if isinstance(each, dict)
            else each
            for each in options
        ]

    def _is_wider_in(self, key: str, old: dict[str, Any], new: dict[str, Any]) -> bool:
        if key in _ABSENT:
            old, new = ({**_ABSENT, **each} for each in (old, new))
        if key not in new:
            return key not in _MAPS
        if key not in old:
            return key in _MAPS or key not in _LIMITS
        rule = _RULES.get(key)
        same = canonical(old[key]) == canonical(new[key])
        return not same and (rule is None or rule(self, old[key], new[key]))

    def has_wider_members(self, old: Any, new: Any) -> bool:
        """Whether a map of schemas has a new schema or a wider one."""
        return not (isinstance(old, dict) and isinstance(new, dict)) or any(
            name not in old or self.is_wider(old[name], each) for name, each in new.items()
        )

    def drops_a_member(self, old: Any, new: Any) -> bool:
        """Whether a map of schemas, all of which must hold, lacks a schema, or has a new or wider one."""
        return self.has_wider_members(old, new) or not old.keys() <= new.keys()

    def drops_a_condition(self, old: Any, new: Any) -> bool:
        """Whether a list of schemas, all of which must hold, demands less or describes more."""
        if not (isinstance(old, list) and isinstance(new, list)) or len(new) > len(old):
            return True
        return any(all(self.is_wider(was, each) for each in new) for was in old)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _values(value: Any) -> set[object]:
    """The values in a list, among which 1 and 1.0 are the same."""
    return {each if _are_numbers(each) else canonical(each) for each in _listed(value)}


def _types(value: Any) -> set[object]:
    types = _values(value)
    return types | {b'"integer"'} if b'"number"' in types else types


def _is_multiple(value: Any, of: Any) -> bool:
    return _are_numbers(value, of) and 0 < of <= value < MAX_NUMBER and value % of == 0


_RULES: Mapping[str, Callable[[Comparing, Any, Any], bool]] = {
    **dict.fromkeys(_MEMBERS["most"], lambda _, old, new: not (_are_numbers(old, new) and new <= old)),
    **dict.fromkeys(_MEMBERS["least"], lambda _, old, new: not (_are_numbers(old, new) and new >= old)),
    **dict.fromkeys(_MAPS, Comparing.has_wider_members),
    **dict.fromkeys(_MEMBERS["conditions"], Comparing.drops_a_member),
    **dict.fromkeys(_MEMBERS["schemas"], Comparing.is_wider),
    "allOf": Comparing.drops_a_condition,
    "enum": lambda _, old, new: not _values(new) <= _values(old),
    "multipleOf": lambda _, old, new: not _is_multiple(new, old),
    "required": lambda _, old, new: new is not True and not _values(old) <= _values(new),
    "type": lambda _, old, new: not _types(new) <= _types(old),
    "uniqueItems": lambda _, _old, new: new is not True,
}
"""Rules by keyword: does a new value accept more than the old one? Keywords without a rule may not change."""

_LIMITS = _RULES.keys() - {"enum"} | {"pattern", "format"}
"""Keywords that only restrict where there were none. `enum` is left out: models read its values, too."""
