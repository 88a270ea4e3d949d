"""Converts decoded JSON into the model and reports all faults; strictly, while cattrs turns 3 into "3"."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import attrs
from cattrs import Converter

from daemon.config import client_keys
from daemon.config.config_model import NOT_WRITTEN, OAuth, Server
from daemon.config.jsonc import below, echoes
from daemon.config.sandbox_keys import SandboxMode, SandboxRules, SandboxWish
from daemon.config.tuning import OrText, Rule
from daemon.errors import Fault
from daemon.kit.wording import camel, quoted, suggestion

T = TypeVar("T")


class Misfit(ValueError):
    """A value has faults, which are listed by trail within it, with the usable rest."""

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


def read(cls: type[T], raw: object, trail: str, faults: list[Fault], *, name: str | None = None) -> T | None:
    """Convert `raw` into a `cls` and append faults. Faulty members keep their defaults; None if unusable."""
    if not isinstance(raw, dict):
        faults.append(Fault(path=trail, message=expected("an object, {...}", raw)))
        return None
    if name is not None:
        if "name" in raw:
            faults.append(Fault(path=below(trail, "name"), message=unknown_key(cls, "name", keys(cls))))
        raw = {**raw, "name": name}
    try:
        return _CONVERTER.structure(raw, cls)
    except Misfit as misfit:
        found = [Fault(path=trail + where, message=message) for where, message in misfit.problems]
        faults += [fault for fault in found if not echoes(fault, faults)]
        rest: T | None = misfit.rest
        return rest


def keys(cls: type) -> list[str]:
    """The keys that a file may use for `cls`."""
    return [camel(field.name) for field in attrs.fields(cls) if field.metadata.get("in_file", True)]


# --- strict hooks -------------------------------------------------------------------------------------------

_KINDS: Mapping[type, str] = {
    type(None): "null",
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
    ("a list, [...]", str): ': put it in brackets, ["..."]',
    ("an object, {...}", list): ': write {"name": ...} instead of a list',
}


def expected(what: str, value: object) -> str:
    """Name the expected and the actual type, but not the value, which may be a secret."""
    remedy = _REMEDIES.get((what, type(value)), "")
    if value is None:
        remedy = ": remove the key to get the default"
    return f"expected {what}, found {_KINDS.get(type(value), 'something else')}{remedy}"


def _checked(value: object, kind: type[T], what: str) -> T:
    if not isinstance(value, kind):
        raise Misfit(expected(what, value))
    return value


def _strictly(what: str, *kinds: type) -> Callable[[object, object], Any]:
    """Make a hook that accepts exactly these types; `isinstance` would take a bool for an int."""

    def check(value: object, _: object) -> object:
        if type(value) not in kinds:
            raise Misfit(expected(what, value))
        return value

    return check


_text = _strictly("text", str)


def _text_or_word(value: object, kind: Any) -> object:
    """Convert a `str`; cattrs uses this hook for every StrEnum, too."""
    return _word(value, kind) if issubclass(kind, StrEnum) else _text(value, kind)


def _word(value: object, enum: type[StrEnum]) -> StrEnum:
    known = [member.value for member in enum if member not in NOT_WRITTEN]
    value = _checked(value, str, f"one of {', '.join(known)}")
    if value not in known:
        hint = suggestion(value, known)
        tail = "" if "known are" in hint else f" Known are {', '.join(known)}"
        raise Misfit(f"unknown value {quoted(value)}{hint}{tail}")
    return enum(value)


def _bounded(value: object, kind: Any) -> object:
    text = next((each for each in kind.__metadata__ if isinstance(each, OrText)), None)
    if text is not None and type(value) not in {int, float}:
        value = _number(value, text)
    made = _CONVERTER.structure(value, kind.__origin__)
    for rule in kind.__metadata__:
        if isinstance(rule, Rule) and (problem := rule.problem(made)):
            raise Misfit(problem)
    return made


def _number(value: object, text: OrText) -> float:
    value = _checked(value, str, text.words)
    if not re.fullmatch(text.pattern, value):
        raise Misfit(f"cannot understand {quoted(value)}: write {text.words}")
    try:
        return text.number(value)
    except ValueError as error:
        raise Misfit(str(error)) from None


def _items(value: object, kind: Any) -> tuple[Any, ...]:
    """Convert a list. A faulty list is dropped whole, so that indices stay right."""
    value = _checked(value, list, "a list, [...]")
    done, problems = _each(enumerate(value), lambda _, each: _CONVERTER.structure(each, get_args(kind)[0]))
    if problems:
        raise Misfit("items at fault", problems)
    return tuple(done.values())


def _text_or_list(value: object, kind: Any) -> object:
    if value is None:
        return value
    if not isinstance(value, str | list):
        raise Misfit(expected("text or a list, [...]", value))
    fits = _is_text if isinstance(value, str) else _is_tuple
    return _CONVERTER.structure(value, next(each for each in get_args(kind) if fits(each)))


def _by_type(what: str, kinds: Mapping[type, Any]) -> Callable[[object, object], Any]:
    """Make a hook for a union whose members differ in the type of the value."""

    def choose(value: object, _: object) -> object:
        if type(value) not in kinds:
            raise Misfit(expected(what, value))
        return _CONVERTER.structure(value, kinds[type(value)])

    return choose


_oauth = _by_type("true, false or an object, {...}", {bool: bool, dict: OAuth})
_sandbox = _by_type("home, strict, off or an object, {...}", {str: SandboxMode, dict: SandboxRules})


def _entries(value: object, kind: Any) -> dict[str, Any]:
    value = _checked(value, dict, "an object, {...}")
    key, inner = get_args(kind)

    def make(name: str, each: object) -> object:
        made: object = _CONVERTER.structure(each, inner)
        _CONVERTER.structure(name, key)
        return made

    done, problems = _each(value.items(), make)
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
        camel(field.name): (field, hints[field.name])
        for field in attrs.fields(cls)
        if field.metadata.get("in_file", True) or field.default is attrs.NOTHING
    }


def _object(value: object, cls: Any) -> Any:
    value = _checked(value, dict, "an object, {...}")
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
    converter.register_structure_hook(str, _text_or_word)
    converter.register_structure_hook(bool, _strictly("true or false", bool))
    converter.register_structure_hook(int, _strictly("a whole number", int))
    converter.register_structure_hook(float, _strictly("a number", int, float))
    converter.register_structure_hook_func(lambda kind: hasattr(kind, "__metadata__"), _bounded)
    converter.register_structure_hook_func(_is_tuple, _items)
    converter.register_structure_hook_func(_is_mapping, _entries)
    converter.register_structure_hook_func(_is_text_or_list, _text_or_list)
    converter.register_structure_hook_func(lambda kind: kind == OAuth | bool, _oauth)
    converter.register_structure_hook_func(lambda kind: kind == SandboxWish, _sandbox)
    converter.register_structure_hook_func(attrs.has, _object)
    return converter


def _is_text_or_list(kind: Any) -> bool:
    arguments = get_args(kind)
    return any(map(_is_text, arguments)) and any(map(_is_tuple, arguments))


def _is_text(kind: Any) -> bool:
    return getattr(kind, "__origin__", kind) is str


def _is_mapping(kind: Any) -> bool:
    origin: object = get_origin(kind)
    return origin is Mapping


def _is_tuple(kind: Any) -> bool:
    return get_origin(kind) is tuple


_CONVERTER = _strict_converter()
