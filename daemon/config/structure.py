"""Converts decoded JSON into the model, strictly, and reports all faults: cattrs alone turns 3 into "3"."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import EnumType, StrEnum
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import attrs
from cattrs import Converter

from daemon.config import client_keys
from daemon.config.config_model import NOT_WRITTEN, Server
from daemon.config.jsonc import below, echoes
from daemon.config.tuning import OrText, Rule
from daemon.errors import Fault
from daemon.kit.wording import camel, quoted, suggestion

T = TypeVar("T")


class Misfit(ValueError):
    """A value has faults: `problems` has each by its trail in the value, `rest` is the usable part."""

    def __init__(self, message: str, problems: Iterable[tuple[str, str]] = (), rest: Any = None) -> None:
        super().__init__(message)
        self.problems = list(problems) or [("", message)]
        self.rest = rest


def unknown_key(cls: type, key: str, known: Iterable[str]) -> str:
    """The message about a key that `cls` does not have."""
    if cls is Server and (meant := client_keys.keys_of_servers().get(client_keys.fold(key))):
        return f"this value of {quoted(key)} cannot be understood. {meant.sentence}"
    advice = client_keys.table().instead.get(cls.__name__, {}).get(key)
    return f"unknown key {quoted(key)}" + (f": {advice}" if advice else suggestion(key, known))


def read(cls: type[T], raw: object, trail: str, faults: list[Fault]) -> T | None:
    """Convert `raw` into a `cls` and append faults. Faulty members keep their defaults; None if unusable."""
    try:
        made: T = _object(raw, cls)
    except Misfit as misfit:
        found = [Fault(path=trail + where, message=message) for where, message in misfit.problems]
        faults += [fault for fault in found if not echoes(fault, faults)]
        rest: T | None = misfit.rest
        return rest
    return made


def keys(cls: type) -> list[str]:
    """The keys that a file may use for `cls`."""
    return [camel(field.name) for field in attrs.fields(cls) if field.metadata.get("in_file", True)]


AN_OBJECT, _A_LIST = "an object, {...}", "a list, [...]"

_KINDS: Mapping[type, str] = {
    NoneType: "null",
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "an object",
}

_REMEDIES: Mapping[tuple[str, type], str] = {
    ("text", int): ": put it in double quotes",
    ("text", float): ": put it in double quotes",
    ("text", bool): ": put it in double quotes",
    ("text", list): ": write one text here; further words are a list of their own (args)",
    ("true or false", str): ": write true or false, without quotes",
    ("true or false", int): ": write true or false",
    ("a number", str): ": write it without quotes",
    ("a whole number", str): ": write it without quotes",
    (_A_LIST, str): ': put it in brackets, ["..."]',
    (AN_OBJECT, list): ': write {"name": ...} instead of a list',
}


def expected(what: str, value: object) -> str:
    """Name the expected and the actual type, but not the value, which may be a secret."""
    remedy = _REMEDIES.get((what, type(value)), "")
    if value is None:
        remedy = ": remove the key to get the default"
    return f"expected {what}, found {_KINDS.get(type(value), 'something else')}{remedy}"


_PLAIN: Mapping[type, tuple[str, tuple[type, ...]]] = {
    str: ("text", (str,)),
    bool: ("true or false", (bool,)),
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
}
"""Types without members, with their names in messages and the types of JSON that they accept."""


def _checked(value: Any, what: str, accepted: Iterable[type]) -> Any:
    """Refuse a value of any other type; `isinstance` would take a bool for an int."""
    if type(value) not in accepted:
        raise Misfit(expected(what, value))
    return value


def _text(value: object, kind: Any) -> object:
    """Convert text; cattrs calls this hook for every StrEnum, too."""
    return _word(value, kind) if issubclass(kind, StrEnum) else _checked(value, *_PLAIN[str])


def _ruled(value: object, kind: Any) -> object:
    rules = kind.__metadata__
    text = next((rule for rule in rules if isinstance(rule, OrText)), None)
    if text is not None and type(value) not in {int, float}:
        value = _number(value, text)
    made = _CONVERTER.structure(value, kind.__origin__)
    for rule in rules:
        if isinstance(rule, Rule) and (problem := rule.problem(made)):
            raise Misfit(problem)
    return made


def _number(value: object, text: OrText) -> float:
    written = _checked(value, text.words, {str})
    if not re.fullmatch(text.pattern, written):
        raise Misfit(f"cannot understand {quoted(written)}: write {text.words}")
    try:
        return text.number(written)
    except ValueError as error:
        raise Misfit(str(error)) from None


def _word(value: object, enum: type[StrEnum]) -> StrEnum:
    known = _known(enum)
    word = _checked(value, f"one of {', '.join(known)}", {str})
    if word not in known:
        hint = suggestion(word, known)
        tail = "" if "known are" in hint else f" Known are {', '.join(known)}"
        raise Misfit(f"unknown value {quoted(word)}{hint}{tail}")
    return enum(word)


def _known(enum: Any) -> list[str]:
    return [member.value for member in enum if member not in NOT_WRITTEN]


def _one_of(value: object, union: Any) -> Any:
    """Convert to the union's member whose JSON type is the type of the value."""
    members = {_written_as(kind): kind for kind in get_args(union)}
    if members.pop(NoneType, None) is not None and value is None:
        return None
    if len(members) == 1:
        return _CONVERTER.structure(value, *members.values())
    names = {bool: "true, false", str: "text", list: _A_LIST, dict: AN_OBJECT}
    if isinstance(word := members.get(str), EnumType):
        names[str] = ", ".join(_known(word))
    _checked(value, " or ".join(name for each, name in names.items() if each in members), members)
    return _CONVERTER.structure(value, members[type(value)])


def _written_as(kind: Any) -> type:
    """The JSON type of a union's member; a number is never one of several members."""
    while hasattr(kind, "__origin__"):
        kind = kind.__origin__
    if attrs.has(kind):
        return dict
    plain: type = {tuple: list}.get(kind, kind)
    return str if issubclass(plain, StrEnum) else plain


def _items(value: Any, kind: Any) -> tuple[Any, ...]:
    """Convert a list. A faulty list is dropped whole, so that indices stay right."""
    value = _checked(value, _A_LIST, {list})
    inner = get_args(kind)[0]
    done, problems = _each(enumerate(value), lambda _, each: _CONVERTER.structure(each, inner))
    if problems:
        raise Misfit("items at fault", problems)
    return tuple(done.values())


_NAME = "\0name"  # the key of an entry's own name during its conversion; no file can hold it


def _entries(value: Any, kind: Any) -> dict[str, Any]:
    key, inner = get_args(kind)
    is_named = attrs.has(inner) and _NAME in _fields(inner)

    def make(name: str, each: object) -> object:
        entry = {**each, _NAME: name} if is_named and isinstance(each, dict) else each
        made: object = _CONVERTER.structure(entry, inner)
        _CONVERTER.structure(name, key)
        return made

    done, problems = _each(_checked(value, AN_OBJECT, {dict}).items(), make)
    if problems:
        raise Misfit("entries at fault", problems, done)
    return done


def _each(
    pairs: Iterable[tuple[Any, object]], make: Callable[[Any, object], object]
) -> tuple[dict[Any, Any], list[tuple[str, str]]]:
    done, problems = {}, list[tuple[str, str]]()
    for step, value in pairs:
        try:
            done[step] = make(step, value)
        except Misfit as misfit:
            problems += [(below("", step) + where, message) for where, message in misfit.problems]
            if misfit.rest is not None:
                done[step] = misfit.rest
    return done, problems


@cache
def _fields(cls: Any) -> dict[str, tuple[attrs.Attribute[Any], Any]]:
    """The fields of `cls` with their types, by key: those that a file may hold, and a required name."""
    hints = get_type_hints(cls, include_extras=True)
    return {
        camel(field.name) if field.metadata.get("in_file", True) else _NAME: (field, hints[field.name])
        for field in attrs.fields(cls)
        if field.metadata.get("in_file", True) or field.default is attrs.NOTHING
    }


def _object(value: Any, cls: Any) -> Any:
    value = _checked(value, AN_OBJECT, {dict})
    fields = _fields(cls)
    required = {key for key, (field, _) in fields.items() if field.default is attrs.NOTHING}

    def make(key: str, each: object) -> object:
        if key not in value:
            raise Misfit("this key is required")
        return _CONVERTER.structure(each, fields[key][1])

    done, problems = _each([(key, value.get(key)) for key in fields if key in value or key in required], make)
    strange = sorted(value.keys() - fields)
    problems += [(below("", key), unknown_key(cls, key, keys(cls))) for key in strange]
    made = cls(**{fields[key][0].name: each for key, each in done.items()}) if required <= done.keys() else None
    if problems:
        raise Misfit("members at fault", problems, made)
    return made


def _strict_converter() -> Converter:
    converter = Converter(detailed_validation=False)
    for kind in (bool, int, float):
        converter.register_structure_hook(kind, lambda value, kind: _checked(value, *_PLAIN[kind]))
    converter.register_structure_hook(str, _text)
    for hook, origins in ((_one_of, {Union, UnionType}), (_items, {tuple}), (_entries, {Mapping})):
        converter.register_structure_hook_func(partial(_has_origin, origins), hook)
    converter.register_structure_hook_func(attrs.has, _object)
    converter.register_structure_hook_func(lambda kind: hasattr(kind, "__metadata__"), _ruled)
    return converter


def _has_origin(origins: Collection[object], kind: Any) -> bool:
    return get_origin(kind) in origins


_CONVERTER = _strict_converter()
