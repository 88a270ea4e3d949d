"""The error about arguments that do not fit: the faults, a part of the schema, and an example call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from math import ceil, floor
from typing import TYPE_CHECKING, Any

import msgspec

from daemon.catalog.definitions import compact, merged
from daemon.config.jsonc import followed, resolve
from daemon.errors import InvalidArguments
from daemon.kit.later import later
from daemon.kit.wording import closest, suggestion
from daemon.model import Tool
from daemon.protocol import decoded
from daemon.surfaces.validators import Validator, validator_of

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError
    from jsonschema_rs import ValidationErrorKind as Kind


MAX_DEPTH = 6
"""Levels of an example, counting references and options: a schema may contain itself."""

MAX_VALUES = 200
"""Values in an example: on each level, a schema may require itself many times."""

MAX_ITEMS = 3
"""Elements of an array in an example."""

MAX_TEXT = 64
"""Characters of a string in an example."""

LARGE = 2**53 - 1
"""The largest bound that may serve as an example; larger bounds only mean "any integer"."""

Object = dict[str, Any]


def example_of(schema: object) -> object:
    """Build a value from keywords of a schema that are known here; the validator decides whether it fits."""
    return _Maker(schema).make(schema, 0)


class _Maker:
    def __init__(self, root: object) -> None:
        self._root = root
        self._left = MAX_VALUES

    def make(self, schema: object, depth: int) -> object:
        self._left -= 1
        if not isinstance(schema, dict) or depth > MAX_DEPTH or self._left < 0:
            return {} if depth == 0 else None
        for key in ("const", "default"):
            if schema.get(key) is not None:
                return schema[key]
        for key in ("enum", "examples"):
            if isinstance(schema.get(key), list) and schema[key]:
                return schema[key][0]
        merged = self._merged(schema)
        if merged is not schema:
            return self.make(merged, depth + 1 if "$ref" in schema else depth)
        return self._of_type(schema, depth)

    def _merged(self, schema: Object) -> Object:
        """Merge a schema with its `$ref` target, the parts of `allOf` and the first useful option."""
        parts = [resolve(self._root, schema["$ref"])] if "$ref" in schema else []
        if isinstance(schema.get("allOf"), list):
            parts += schema["allOf"]
        for key in ("anyOf", "oneOf"):
            if isinstance(schema.get(key), list) and schema[key]:
                parts.append(_first_useful(schema[key]))
        whole = {key: value for key, value in schema.items() if key not in _JOINED}
        for part in parts:
            whole = merged(whole, part) if isinstance(part, dict) else whole
        return whole if parts else schema

    def _of_type(self, schema: Object, depth: int) -> object:
        match _type_of(schema):
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "integer" | "number":
                return _number(schema)
            case "boolean":
                return False
            case "null":
                return None
            case _:
                return _string(schema)

    def _object(self, schema: Object, depth: int) -> Object:
        properties, required = schema.get("properties", {}), schema.get("required")
        if not isinstance(properties, dict) or not isinstance(required, list):
            return {}
        return {key: self.make(properties.get(key, {}), depth + 1) for key in required if isinstance(key, str)}

    def _array(self, schema: Object, depth: int) -> list[object]:
        least = schema.get("minItems", 0)
        count = min(least, MAX_ITEMS) if isinstance(least, int) else 0
        return [
            self.make(schema.get("items", {}), depth + 1) for _ in range(max(count, int("items" in schema)))
        ]


_JOINED = frozenset({"$ref", "allOf", "anyOf", "oneOf"})


def _first_useful(options: list[Any]) -> object:
    return next(
        (each for each in options if not (isinstance(each, dict) and each.get("type") == "null")), options[0]
    )


def _type_of(schema: Object) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), "null")
    if isinstance(kind, str):
        return kind
    return "object" if "properties" in schema else "array" if "items" in schema else "string"


def _number(schema: Object) -> int | float:
    for key, step in (("minimum", 0), ("exclusiveMinimum", 1), ("maximum", 0), ("exclusiveMaximum", -1)):
        bound = schema.get(key)
        if isinstance(bound, int | float) and not isinstance(bound, bool) and abs(bound) < LARGE:
            exact = _type_of(schema) == "number"
            return (bound if exact else _whole(bound, key)) + step
    return 1


def _whole(bound: float, key: str) -> int:
    """The integer closest to a bound and within it; the caller avoids exclusive bounds."""
    up = key in {"minimum", "exclusiveMaximum"}
    return ceil(bound) if up else floor(bound)


_SAMPLES = {"uri": "https://example.com", "date": "2026-01-31", "date-time": "2026-01-31T12:00:00Z"}


def _string(schema: Object) -> str:
    text = _SAMPLES.get(str(schema.get("format")), "text")
    least, most = schema.get("minLength"), schema.get("maxLength")
    text = text[:most] if isinstance(most, int) and most >= 0 else text
    return text.ljust(max(0, min(least, MAX_TEXT)), "x") if isinstance(least, int) else text


if not TYPE_CHECKING:
    Kind = later("jsonschema_rs", "ValidationErrorKind", due=True)


MAX_FAULTS = 5
"""Faults in one error; the model sees further faults once these are corrected."""

MAX_MESSAGE = 200
"""Most characters of the text about one fault."""

MAX_SCHEMA = 4096
"""Bytes of the part of a schema that is quoted; a model can request the whole."""

MAX_KEPT = 100
"""Bytes of the longest valid value that the example repeats."""

MAX_COMPARED = 200
"""Property names that are compared with a wrong name or a fault."""

MAX_KNOWN = 20
"""Property names listed if none resembles the wrong name."""

MAX_EXAMPLE = 2048
"""Bytes of the example's arguments: a declared default may have any length."""

MAX_KEPT_MEMBERS = 50
"""Members of the sent arguments that the example repeats."""

Fault = dict[str, str]


def check_arguments(tool: Tool | None, name: str, raw: bytes) -> None:
    """Raise `InvalidArguments` if a tool's schema refuses arguments (a JSON object) that nobody else checks."""
    validator, arguments = validator_of(tool), decoded(msgspec.json.decode, raw)
    if arguments is None or (validator is not None and not validator.accepts(arguments)):
        raise refusal(name, validator, arguments, [], None)


def refusal(
    name: str,
    validator: Validator | None,
    literal: object,
    others: list[str],
    example: Callable[[object], object] | None,
    *,
    several: bool = False,
) -> InvalidArguments:
    """The error about arguments if no reading of them fits, or `several` do; `example` makes a call."""
    schema = {} if validator is None else validator.schema
    errors = validator.errors(literal) if validator is not None and isinstance(literal, dict) else []
    faults = [_fault("$", "this can be read in more than one way")] if several else []
    faults = [*faults, *_faults(schema, errors, literal, others)][:MAX_FAULTS]
    good = _good_example(validator, errors, literal)
    call = good if example is None else example(good)
    complaint = "; ".join(f"at {fault['path']}: {fault['message']}" for fault in faults)
    return InvalidArguments(
        f"the arguments of {_cut(name)} do not fit it: {complaint}. Call it like this:"
        f" {msgspec.json.encode(call).decode()}",
        tool=_cut(name),
        faults=faults,
        **_part(schema, faults),
        example=call,
    )


def _faults(schema: Object, errors: list[ValidationError], literal: object, others: list[str]) -> list[Fault]:
    if literal is not None and not isinstance(literal, dict):
        return [_fault("$", f"an object is expected, not {_kind(literal)}")]
    faults = [_fault("$", f"{key[:50]!r} is outside of the arguments") for key in others[:MAX_FAULTS]]
    if literal is None:
        return [*faults, _fault("$", "this cannot be read as JSON")]
    for error in errors:
        faults += _faults_of(error, schema)
    faults += _misspelt(literal, schema)
    return faults or _missing(literal, schema) or [_fault("$", "this does not fit the schema of the tool")]


def _faults_of(error: ValidationError, schema: Object) -> Iterator[Fault]:
    path = _path(error.instance_path)
    match error.kind:
        case Kind.AdditionalProperties(unexpected) | Kind.UnevaluatedProperties(unexpected):
            declared = _declared_at(schema, error.schema_path)
            for key in unexpected[:MAX_FAULTS]:
                yield _fault(path, f"there is no {key[:50]!r}{suggestion(key, declared, MAX_KNOWN)}")
        case Kind.FalseSchema():
            yield _fault(path, "nothing is allowed here")
        case Kind.AnyOf(options) | Kind.OneOfNotValid(options) if options:
            yield from _faults_of_options(error, options, schema)
        case _:
            yield _fault(path, error.message)


def _faults_of_options(
    error: ValidationError, options: list[list[ValidationError]], schema: Object
) -> Iterator[Fault]:
    """The faults of the option that was meant, if all other options want another type."""
    here = len(error.instance_path)
    types = [_types(option, here) for option in options]
    meant = [option for option, names in zip(options, types, strict=True) if not names]
    if not meant:
        expected = ", ".join(dict.fromkeys(name for names in types for name in names))
        yield _fault(_path(error.instance_path), f"this has none of the types {expected}")
    elif len(meant) == 1:
        for inner in meant[0]:
            yield from _faults_of(inner, schema)
    elif all(len(option) == 1 for option in meant[:MAX_FAULTS]):
        messages = [fault["message"] for (inner,) in meant[:MAX_FAULTS] for fault in _faults_of(inner, schema)]
        yield _fault(_path(error.instance_path), ", or ".join(dict.fromkeys(messages)))
    else:
        yield _fault(_path(error.instance_path), error.message)


def _types(option: list[ValidationError], here: int) -> list[str]:
    for error in option:
        if isinstance(error.kind, Kind.Type) and len(error.instance_path) == here:
            return error.kind.types
    return []


def _path(steps: Iterable[str | int]) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def _missing(literal: Object, schema: Object) -> list[Fault]:
    """The missing members, found without the validator: the value may be too large for it."""
    required = [key for key in schema.get("required", ()) if key not in literal][:MAX_FAULTS]
    return [_fault("$", f'"{key[:50]}" is a required property') for key in required]


def _misspelt(literal: Object, schema: Object) -> list[Fault]:
    """Undeclared members that resemble a declared one, which a lenient schema would accept."""
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


def _fault(path: str, message: str) -> Fault:
    return {"path": _cut(path), "message": _cut(message)}


def _cut(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


def _kind(value: object) -> str:
    names = {list: "an array", str: "a string that holds no object", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _good_example(validator: Validator | None, errors: list[ValidationError], literal: object) -> object:
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


def _part(schema: Object, faults: list[Fault]) -> dict[str, object]:
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
        short = compact(msgspec.json.encode(followed(schema, properties[key])))
        size += len(key) + len(short)
        if size > MAX_SCHEMA:
            break
        shown[key] = msgspec.json.decode(short)
    part: Object = {"properties": shown} if shown else {}
    if required and sum(map(len, required)) <= MAX_SCHEMA:
        part["required"] = required
    return {"schema": part} if part else {}


def _is_about(fault: Fault, key: str) -> bool:
    path = fault["path"]
    return (
        path == f"$.{key}"
        or path.startswith((f"$.{key}.", f"$.{key}["))
        or f"{key!r}" in fault["message"]
        or (f'"{key}"' in fault["message"])
    )
