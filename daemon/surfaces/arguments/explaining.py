"""The error about arguments that do not fit: the faults, the part of the schema that matters, and an example.

The client's values are never repeated, except for short ones that were right, which the example contains.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from daemon.catalog.definitions import compact
from daemon.errors import InvalidArguments
from daemon.kit.later import later
from daemon.kit.wording import closest, suggestion
from daemon.surfaces.arguments.examples import example_of
from daemon.surfaces.arguments.pointers import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from jsonschema_rs import ValidationError
    from jsonschema_rs import ValidationErrorKind as Kind

    from daemon.surfaces.arguments.validators import Validator
else:
    Kind = later("jsonschema_rs", "ValidationErrorKind", due=True)

MAX_FAULTS = 5
"""Faults that are named: a model that has mended these is told the others next."""

MAX_MESSAGE = 200
"""Characters of the description of one fault."""

MAX_SCHEMA = 4096
"""Bytes of the part of a schema that is shown; the whole can be asked for."""

MAX_KEPT = 100
"""Bytes of the longest right value that is repeated in the example."""

MAX_COMPARED = 200
"""Property names that a wrong name, or a fault, is compared with."""

MAX_KNOWN = 20
"""Property names that are listed if a wrong name is close to none of them."""

MAX_EXAMPLE = 2048
"""Bytes of made-up arguments: a server may declare a default of any length."""

MAX_KEPT_MEMBERS = 50
"""Members that are repeated in the example."""

Object = dict[str, Any]
Told = dict[str, str]


def refusal(
    name: str,
    validator: Validator | None,
    literal: object,
    beside: list[str],
    example: Callable[[object], object] | None,
    *,
    several: bool = False,
) -> InvalidArguments:
    """The error for arguments that fit in no reading, or in several.

    Args:
        name: the tool, as the client called it.
        validator: the validator of its schema; None if there is none to go by.
        literal: the value in the slot for arguments; None if it cannot be decoded.
        beside: the names of members beside that slot.
        example: makes a whole call of example arguments.
        several: whether more than one reading fits.
    """
    schema = {} if validator is None else validator.schema
    errors = validator.errors(literal) if validator is not None and isinstance(literal, dict) else []
    faults = [_fault("$", "this can be read in more than one way")] if several else []
    faults = [*faults, *_faults(schema, errors, literal, beside)][:MAX_FAULTS]
    good = _good_example(validator, errors, literal)
    call = good if example is None else example(good)
    said = "; ".join(f"at {fault['path']}: {fault['message']}" for fault in faults)
    return InvalidArguments(
        f"the arguments of {_cut(name)} do not fit it: {said}. Call it like this:"
        f" {msgspec.json.encode(call).decode()}",
        tool=_cut(name),
        faults=faults,
        **_part(schema, faults),
        example=call,
    )


def _faults(schema: Object, errors: list[ValidationError], literal: object, beside: list[str]) -> list[Told]:
    if literal is not None and not isinstance(literal, dict):
        return [_fault("$", f"an object is expected, not {_kind(literal)}")]
    faults = [_fault("$", f"{key[:50]!r} stands beside the arguments") for key in beside[:MAX_FAULTS]]
    if literal is None:
        return [*faults, _fault("$", "this cannot be read as JSON")]
    for error in errors:
        faults += _told(error, schema)
    faults += _misspelt(literal, schema)
    return faults or _missing(literal, schema) or [_fault("$", "this does not fit the schema of the tool")]


def _told(error: ValidationError, schema: Object) -> Iterator[Told]:
    path = _path(error.instance_path)
    match error.kind:
        case Kind.AdditionalProperties(unexpected) | Kind.UnevaluatedProperties(unexpected):
            declared = _declared_at(schema, error.schema_path)
            for key in unexpected[:MAX_FAULTS]:
                yield _fault(path, f"there is no {key[:50]!r}{suggestion(key, declared, MAX_KNOWN)}")
        case Kind.FalseSchema():
            yield _fault(path, "nothing is allowed here")
        case Kind.AnyOf(options) | Kind.OneOfNotValid(options) if options:
            yield from _told_of_options(error, options, schema)
        case _:
            yield _fault(path, error.message)


def _told_of_options(
    error: ValidationError, options: list[list[ValidationError]], schema: Object
) -> Iterator[Told]:
    """The faults of the option that was meant, if all others are of another type."""
    here = len(error.instance_path)
    types = [_types(option, here) for option in options]
    meant = [option for option, names in zip(options, types, strict=True) if not names]
    if not meant:
        expected = ", ".join(dict.fromkeys(name for names in types for name in names))
        yield _fault(_path(error.instance_path), f"this is not of any of the types {expected}")
    elif len(meant) == 1:
        for inner in meant[0]:
            yield from _told(inner, schema)
    elif all(len(option) == 1 for option in meant[:MAX_FAULTS]):
        said = [fault["message"] for (inner,) in meant[:MAX_FAULTS] for fault in _told(inner, schema)]
        yield _fault(_path(error.instance_path), ", or ".join(dict.fromkeys(said)))
    else:
        yield _fault(_path(error.instance_path), error.message)


def _types(option: list[ValidationError], here: int) -> list[str]:
    """The types that an option wants if the value as a whole has another; else none."""
    for error in option:
        if isinstance(error.kind, Kind.Type) and len(error.instance_path) == here:
            return error.kind.types
    return []


def _path(steps: Iterable[str | int]) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def _missing(literal: Object, schema: Object) -> list[Told]:
    """Missing members, found without the validator, for values that would take it long."""
    required = [key for key in schema.get("required", ()) if key not in literal][:MAX_FAULTS]
    return [_fault("$", f'"{key[:50]}" is a required property') for key in required]


def _misspelt(literal: Object, schema: Object) -> list[Told]:
    """Undeclared members that resemble a declared one: a lenient schema does not complain about them."""
    declared = schema.get("properties")
    if not isinstance(declared, dict) or schema.get("additionalProperties") is False:
        return []
    strange = [key for key in literal if key not in declared][:MAX_FAULTS]
    missing = [key for key in declared if key not in literal]
    return [
        _fault("$", f"there is no {key[:50]!r}{suggestion(key, missing)}")
        for key in strange
        if closest(key, missing, 1)
    ]


def _declared_at(schema: Object, schema_path: Iterable[object]) -> list[str]:
    """The properties beside the keyword at a path within a schema."""
    place: object = schema
    for step in list(schema_path)[:-1]:
        if isinstance(place, dict) and "$ref" in place:
            place = resolve(schema, place["$ref"])
        if isinstance(place, dict):
            place = place.get(str(step))
        elif isinstance(place, list) and isinstance(step, int) and step < len(place):
            place = place[step]
    properties = place.get("properties") if isinstance(place, dict) else None
    return list(properties) if isinstance(properties, dict) else []


def _fault(path: str, message: str) -> Told:
    return {"path": _cut(path), "message": _cut(message)}


def _cut(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


def _kind(value: object) -> str:
    names = {list: "an array", str: "a string that holds no object", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _good_example(validator: Validator | None, errors: list[ValidationError], literal: object) -> object:
    """Arguments that fit: short values that were sent right, and the rest made up."""
    if validator is None:
        return {}
    made = example_of(validator.schema)
    made = made if isinstance(made, dict) and len(msgspec.json.encode(made)) <= MAX_EXAMPLE else {}
    declared = validator.schema.get("properties")
    wrong = {str(error.instance_path[0]) for error in errors if error.instance_path}
    kept = {
        key: value
        for key, value in (literal.items() if isinstance(literal, dict) else ())
        if isinstance(declared, dict) and key in declared and key not in wrong and _is_short(value)
    }
    merged = {**made, **kept}
    return merged if kept and validator.proves(merged) and len(kept) <= MAX_KEPT_MEMBERS else made


def _is_short(value: object) -> bool:
    return len(msgspec.json.encode(value)) <= MAX_KEPT


def _part(schema: Object, faults: list[Told]) -> dict[str, object]:
    """The properties at fault and what is required; empty if there is no schema or it would be too long."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    required = schema.get("required") or []
    named = [key for key in islice(properties, MAX_COMPARED) if any(_is_about(fault, key) for fault in faults)]
    shown: Object = {}
    size = 0
    for key in dict.fromkeys([*named, *required[:MAX_COMPARED]]):
        if key not in properties:
            continue
        short = compact(msgspec.json.encode(_followed(schema, properties[key])))
        size += len(key) + len(short)
        if size > MAX_SCHEMA:
            break
        shown[key] = msgspec.json.decode(short)
    part: Object = {"properties": shown} if shown else {}
    if required and sum(map(len, required)) <= MAX_SCHEMA:
        part["required"] = required
    return {"schema": part} if part else {}


def _followed(schema: Object, place: object) -> object:
    """A property merged with what its reference leads to, one step; its own members take precedence."""
    found = resolve(schema, place["$ref"]) if isinstance(place, dict) and "$ref" in place else None
    if not isinstance(place, dict) or not isinstance(found, dict):
        return place
    return {**found, **{key: value for key, value in place.items() if key != "$ref"}}


def _is_about(fault: Told, key: str) -> bool:
    path = fault["path"]
    return (
        path == f"$.{key}"
        or path.startswith((f"$.{key}.", f"$.{key}["))
        or f"{key!r}" in fault["message"]
        or (f'"{key}"' in fault["message"])
    )
