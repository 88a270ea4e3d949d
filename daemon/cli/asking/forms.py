"""The form that a server wants filled in: from its schema to questions, or why it cannot be asked.

The schema is the subset of MCP's elicitation: an object of texts, numbers, booleans and choices.
"""

from __future__ import annotations

from math import ceil, floor
from typing import TYPE_CHECKING, Any

from daemon.cli.asking.fields import BOUNDS, Choice, Field, fits, validator

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = dict[str, Any]

MAX_FIELDS = 100
"""Most questions of one form: nobody answers more, and a server may send any number."""

MAX_CHOICES = 1000
"""Most values of one choice, which are all listed: a country and its like have 250."""

MAX_NAMED = 60
"""Characters of a name that a refusal repeats."""

_PLAIN = frozenset({"string", "number", "integer", "boolean"})


class Unaskable(ValueError):
    """A form that is not asked; the text says why, as a clause."""


def fields_of(schema: object) -> list[Field]:
    """The questions of a form, in the server's order.

    Args:
        schema: `requestedSchema` of an elicitation, decoded.

    Raises:
        Unaskable: it is outside of what MCP lets servers ask.
    """
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        raise Unaskable("its schema is not that of an object")
    properties, required = schema.get("properties", {}), schema.get("required", [])
    named = isinstance(required, list) and all(isinstance(name, str) for name in required)
    if not isinstance(properties, dict) or not named:
        raise Unaskable("its schema names its fields in no way that MCP knows")
    if len(properties) > MAX_FIELDS:
        raise Unaskable(f"it has {len(properties)} fields, and more than {MAX_FIELDS} are not asked")
    if unknown := [name for name in required if name not in properties]:
        raise Unaskable(f"it requires {str(unknown[0])[:MAX_NAMED]!r}, which it does not describe")
    return [_field(name, member, required=name in required) for name, member in properties.items()]


def _field(name: str, member: object, *, required: bool) -> Field:
    said = f"its field {name[:MAX_NAMED]!r}"
    if not isinstance(member, dict):
        raise Unaskable(f"{said} has no schema")
    kind, choices = _kind(member, said)
    schema = _bounds(member, kind, said)
    title, about = member.get("title"), member.get("description")
    field = Field(
        name=name,
        title=title if isinstance(title, str) and title.strip() else name,
        about=about if isinstance(about, str) else "",
        kind=kind,
        schema=schema,
        choices=choices,
        required=required,
    )
    if not _possible(field):
        raise Unaskable(f"nothing fits {said}: its bounds exclude each other")
    default = member.get("default")
    # A default that does not fit would be refused by its own server.
    return field._replace(default=default) if default is not None and fits(field, default) else field


def _kind(member: Json, said: str) -> tuple[str, tuple[Choice, ...]]:
    """The kind of a field, and its choices if it is one."""
    kind = member.get("type")
    if kind == "array":
        items = member.get("items")
        found = _choices_of(items, said) if isinstance(items, dict) else None
        if not found:
            raise Unaskable(f"{said} is a list of other things than choices")
        return "choices", found
    if (kind is None or kind == "string") and (found := _choices_of(member, said)) is not None:
        return "choice", found
    if not isinstance(kind, str) or kind not in _PLAIN:
        raise Unaskable(f"{said} is of the type {str(kind)[:MAX_NAMED]!r}, which MCP has in no form")
    return kind, ()


def _choices_of(member: Json, said: str) -> tuple[Choice, ...] | None:
    """The values that a schema lists in one of MCP's ways; None if it lists none."""
    plain, titled = member.get("enum"), member.get("oneOf", member.get("anyOf"))
    if plain is None and titled is None:
        return None
    if plain is not None:
        names = member.get("enumNames")
        told = names if isinstance(names, list) else []
        values = _listed(plain, said)
        pairs = list(zip(values, [*told, *values[len(told) :]], strict=False))
    else:
        options = _listed(titled, said)
        if not all(isinstance(option, dict) for option in options):
            raise Unaskable(f"{said} has choices that are none")
        pairs = [(option.get("const"), option.get("title", option.get("const"))) for option in options]
    if not all(isinstance(part, str) for pair in pairs for part in pair):
        raise Unaskable(f"{said} has choices that are no texts")
    if len({value for value, _title in pairs}) != len(pairs):
        raise Unaskable(f"{said} has the same choice twice")
    return tuple(Choice(value, title.strip() or value) for value, title in pairs)


def _listed(choices: object, said: str) -> list[Any]:
    if not isinstance(choices, list) or not choices:
        raise Unaskable(f"{said} has no choices")
    if len(choices) > MAX_CHOICES:
        raise Unaskable(f"{said} has {len(choices)} choices, and more than {MAX_CHOICES} are not shown")
    return choices


def _bounds(member: Mapping[str, Any], kind: str, said: str) -> Json:
    """The keywords that bound an answer, and are sound."""
    keys = ("minItems", "maxItems") if kind == "choices" else BOUNDS
    schema = {key: member[key] for key in keys if member.get(key) is not None}
    if kind in {"choice", "boolean"}:
        return {}
    # A pattern that cannot be checked in linear time is left to the server, which checks all answers itself.
    without = {key: value for key, value in schema.items() if key != "pattern"}
    for bounds in (schema, without):
        if _sound({"type": "array" if kind == "choices" else kind, **bounds}):
            return bounds
    raise Unaskable(f"{said} has bounds that are not sound")


def _sound(schema: Json) -> bool:
    try:
        validator(schema)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return False
    return True


def _possible(field: Field) -> bool:
    """Whether the bounds of a field leave any answer, as far as numbers tell."""
    schema, all_of_them = field.schema, len(field.choices)
    match field.kind:
        case "string":
            return bool(schema.get("minLength", 0) <= schema.get("maxLength", schema.get("minLength", 0)))
        case "number" | "integer":
            least, most = schema.get("minimum"), schema.get("maximum")
            if least is None or most is None:
                return True
            return bool(least <= most and (field.kind == "number" or ceil(least) <= floor(most)))
        case "choices":
            least, most = schema.get("minItems", 0), min(schema.get("maxItems", all_of_them), all_of_them)
            return bool(least <= most)
    return True
