"""Turns decoded JSON into the model, strictly: nothing is converted or ignored, and all faults are reported.

cattrs would turn 3 into "3", "no" into True and "abc" into a tuple of three letters; the hooks below refuse
instead. Its errors are a tree that mirrors the model; `_faults` turns it into trails in the file's spelling.
`read` continues after faults with what is sound, so that rules across entries can still be checked. An unknown
key is answered with the closest known one, or with what says the same here if another client has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

import attrs
from cattrs import ClassValidationError, Converter, ForbiddenExtraKeysError, IterableValidationError
from cattrs.errors import IterableValidationNote
from cattrs.gen import make_dict_structure_fn, override

from daemon.config.client_keys import understood
from daemon.config.jsonc import below, echoes
from daemon.config.listen import AccessToken, HttpListen
from daemon.config.model import Category, OAuth, Profile, Server, ToolSelection
from daemon.config.tuning import AtLeast, AtMost, MoreThan, OrText, Rule
from daemon.errors import Fault
from daemon.kit.wording import camel, quoted, suggestion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_THE_KEY = "the name is the key that the entry stands under: remove it"

FOREIGN: Mapping[type, Mapping[str, str]] = {
    Category: {
        "name": _THE_KEY,
        "includeNames": 'write "tools": {"includeNames": [...]}',
        "includePatterns": 'write "tools": {"includePatterns": [...]}',
        "excludePatterns": 'write "tools": {"excludePatterns": [...]}',
        "overrides": 'write "tools": {"overrides": {...}}',
    },
    ToolSelection: {
        "include": 'write "includeNames" or "includePatterns"',
        "names": 'write "includeNames"',
        "exclude": 'write "excludePatterns"',
    },
    Profile: {"name": _THE_KEY},
    HttpListen: {
        "host": 'write both in "address": "HOST:PORT"',
        "port": 'write both in "address": "HOST:PORT"',
        "token": 'write "tokens"',
        "allowedHosts": 'write "hosts"',
        "allowedOrigins": 'write "origins"',
    },
    AccessToken: {"token": 'write "value"', "profile": 'write "profiles": ["..."]'},
}
"""Keys that are not there, with what to write instead."""


def unknown_key(cls: type, key: str, known: Iterable[str]) -> str:
    """The fault for a key that `cls` does not have."""
    if cls is Server and (meaning := understood(key)):
        return f"this value of {quoted(key)} cannot be understood. {meaning}"
    advice = FOREIGN.get(cls, {}).get(key)
    return f"unknown key {quoted(key)}" + (f": {advice}" if advice else suggestion(key, known))


T = TypeVar("T")
Tree = ClassValidationError | IterableValidationError

TRANSPORT_SPELLINGS = {
    "streamable-http": "http",
    "streamableHttp": "http",
    "streamable_http": "http",
    "websocket": "ws",
}
"""Other clients' words for `type`, with ours."""


class Misfit(ValueError):
    """A value of the wrong type; the text says what was expected."""


def read(cls: type[T], raw: object, trail: str, faults: list[Fault], *, name: str | None = None) -> T | None:
    """Turn `raw` into a `cls`, adding to `faults`; faulty values are left at their defaults.

    `name` is the key of the entry: a field in the model, but not in the file. Returns None only if `raw` cannot
    be used at all.
    """
    if not isinstance(raw, dict):
        faults.append(Fault(path=trail, message=expected("an object, {...}", raw)))
        return None
    if name is not None:
        if "name" in raw:
            faults.append(Fault(path=below(trail, "name"), message=unknown_key(cls, "name", keys(cls))))
        raw = {**raw, "name": name}
    try:
        return _CONVERTER.structure(raw, cls)
    except ClassValidationError as error:
        faults += [fault for fault in list(_faults(error, trail)) if not echoes(fault, faults)]
        return _salvage(cls, _pruned(raw, error))


def keys(cls: type) -> list[str]:
    """The keys that a file may use for `cls`."""
    return [camel(field.name) for field in attrs.fields(cls) if field.metadata.get("in_file", True)]


def _salvage(cls: type[T], raw: object) -> T | None:
    try:
        return _CONVERTER.structure(raw, cls)
    except ClassValidationError:
        return None


def _pruned(raw: Any, error: Exception) -> Any:
    """`raw` without what `error` is about. A faulty list is dropped whole, so that indices stay right."""
    kept = dict(raw)
    for step, inner in _branches(error):
        if isinstance(inner, ForbiddenExtraKeysError):
            kept = {key: value for key, value in kept.items() if key not in inner.extra_fields}
        elif isinstance(inner, Tree) and isinstance(kept.get(step), dict):
            kept[step] = _pruned(kept[step], inner)
        else:
            kept.pop(step, None)
    return kept


def _faults(error: Exception, trail: str) -> Iterator[Fault]:
    for step, inner in _branches(error):
        here = trail if step is None else below(trail, step)
        if isinstance(inner, Tree):
            yield from _faults(inner, here)
        elif isinstance(inner, ForbiddenExtraKeysError):
            for key in sorted(inner.extra_fields):
                yield Fault(path=below(here, key), message=unknown_key(inner.cl, key, keys(inner.cl)))
        elif isinstance(inner, KeyError):
            yield Fault(path=here, message="this key is required")
        else:
            yield Fault(path=here, message=str(inner))


def _branches(error: Exception) -> Iterator[tuple[Any, Exception]]:
    """The errors inside `error`, each with the step that leads to it; None for errors of the whole."""
    if isinstance(error, ClassValidationError):
        named, whole = error.group_exceptions()
        yield from ((camel(note.name), inner) for inner, note in named)
        yield from ((None, inner) for inner in whole)
    elif isinstance(error, IterableValidationError):
        yield from ((note.index, inner) for inner, note in error.group_exceptions()[0])


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
    """What was expected and what type was found. Never the value: it may be a secret."""
    remedy = _REMEDIES.get((what, type(value)), "")
    if value is None:
        remedy = ": remove the key to get the default"
    return f"expected {what}, found {_KINDS.get(type(value), 'something else')}{remedy}"


def _strictly(what: str, *kinds: type) -> Callable[[object, object], Any]:
    """A hook that accepts exactly these types; `type` rather than `isinstance`, since bool is an int."""

    def check(value: object, _: object) -> object:
        if type(value) not in kinds:
            raise Misfit(expected(what, value))
        return value

    return check


_text = _strictly("text", str)


def _text_or_word(value: object, kind: Any) -> object:
    """The hook for `str`, which cattrs also uses for every StrEnum."""
    return _word(value, kind) if issubclass(kind, StrEnum) else _text(value, kind)


def _word(value: object, enum: type[StrEnum]) -> StrEnum:
    known = [member.value for member in enum]
    if not isinstance(value, str):
        raise Misfit(expected(f"one of {', '.join(known)}", value))
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
        problem = ""
        match rule:
            case AtLeast(least=least) if made < least:
                problem = f"must be at least {least}"
            case AtMost(most=most) if made > most:
                problem = f"{made} is too much; it must be {most} or less"
            case MoreThan(limit=limit) if made <= limit:
                problem = f"must be more than {limit}"
            case Rule():
                problem = rule.problem(made)
        if problem:
            raise Misfit(problem)
    return made


def _number(value: object, text: OrText) -> float:
    """The number that a text stands for, where both may be written."""
    if not isinstance(value, str):
        raise Misfit(expected(text.words, value))
    if not re.fullmatch(text.pattern, value):
        raise Misfit(f"cannot understand {quoted(value)}: write {text.words}")
    try:
        return text.number(value)
    except ValueError as error:
        raise Misfit(str(error)) from None


def _items(value: object, kind: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise Misfit(expected("a list, [...]", value))
    return tuple(item for _, item in _each(enumerate(value), int, get_args(kind)[0], kind))


def _text_or_list(value: object, kind: Any) -> object:
    """The hook for `str | tuple[...] | None`."""
    if value is None:
        return value
    if not isinstance(value, str | list):
        raise Misfit(expected("text or a list, [...]", value))
    fits = _is_text if isinstance(value, str) else _is_tuple
    return _CONVERTER.structure(value, next(each for each in get_args(kind) if fits(each)))


def _oauth(value: object, _: object) -> object:
    """The hook for `OAuth | bool`."""
    if type(value) is bool:
        return value
    if not isinstance(value, dict):
        raise Misfit(expected("true, false or an object, {...}", value))
    return _CONVERTER.structure(value, OAuth)


def _entries(value: object, kind: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Misfit(expected("an object, {...}", value))
    key, inner = get_args(kind)
    return dict(_each(value.items(), key, inner, kind))


def _each(pairs: Iterable[tuple[Any, object]], key: Any, kind: Any, whole: Any) -> list[tuple[Any, Any]]:
    """Read every member before reporting faults."""
    done, errors = [], []
    for step, value in pairs:
        try:
            item = _CONVERTER.structure(value, kind)
            done.append((_CONVERTER.structure(step, key), item))
        except (Misfit, *get_args(Tree)) as error:
            error.add_note(IterableValidationNote(f"at {step}", step, kind))
            errors.append(error)
    if errors:
        raise IterableValidationError("members at fault", errors, whole)
    return done


def _object_hook(cls: Any, converter: Converter) -> Callable[[object, object], Any]:
    renamed: dict[str, Any] = {
        field.name: override(rename=camel(field.name), omit=_only_ours(field)) for field in attrs.fields(cls)
    }
    make = make_dict_structure_fn(cls, converter, _cattrs_forbid_extra_keys=True, **renamed)

    def check(value: object, kind: Any) -> Any:
        if not isinstance(value, dict):
            raise Misfit(expected("an object, {...}", value))
        return make(value, kind)

    return check


def _only_ours(field: attrs.Attribute[Any]) -> bool:
    """Whether only the reader sets this field; `name` is passed with the entry instead."""
    return not field.metadata.get("in_file", True) and field.default is not attrs.NOTHING


def _strict_converter() -> Converter:
    converter = Converter(detailed_validation=True, forbid_extra_keys=True)
    converter.register_structure_hook(str, _text_or_word)
    converter.register_structure_hook(bool, _strictly("true or false", bool))
    converter.register_structure_hook(int, _strictly("a whole number", int))
    converter.register_structure_hook(float, _strictly("a number", int, float))
    converter.register_structure_hook_func(lambda kind: hasattr(kind, "__metadata__"), _bounded)
    converter.register_structure_hook_func(_is_tuple, _items)
    converter.register_structure_hook_func(_is_mapping, _entries)
    converter.register_structure_hook_func(_is_text_or_list, _text_or_list)
    converter.register_structure_hook_func(lambda kind: kind == OAuth | bool, _oauth)
    converter.register_structure_hook_factory(attrs.has, _object_hook)
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
