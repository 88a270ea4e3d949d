"""Turns a server's form into fields, each with a question and a parser of the typed answer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from math import ceil, floor
from typing import TYPE_CHECKING, Any, NamedTuple

from daemon.kit.wording import suggestion
from daemon.operators.schema_words import between

if TYPE_CHECKING:
    from daemon.cli.control import Message

MAX_FIELDS = 100
"""Fields of the longest form shown: a person would not answer more."""

MAX_CHOICES = 1000
"""Values of the longest choice, which are all listed: a list of countries has 250."""

MAX_NAMED = 60
"""Characters of a name in a refusal."""

_PLAIN = frozenset({"string", "number", "integer", "boolean"})


class Unaskable(ValueError):
    """Raised for a form that cannot be shown; the text is a clause that says why."""


def fields_of(schema: object) -> list[Field]:
    """The fields of a form (`requestedSchema`). Raises Unaskable for a schema that MCP does not allow."""
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        raise Unaskable("its schema does not describe an object")
    properties, required = schema.get("properties", {}), schema.get("required", [])
    named = isinstance(required, list) and all(isinstance(name, str) for name in required)
    if not isinstance(properties, dict) or not named:
        raise Unaskable("its schema does not name its fields in a way that MCP allows")
    if len(properties) > MAX_FIELDS:
        raise Unaskable(f"it has {len(properties)} fields; mcpd asks for at most {MAX_FIELDS}")
    if unknown := [name for name in required if name not in properties]:
        raise Unaskable(f"it requires {str(unknown[0])[:MAX_NAMED]!r}, which it does not describe")
    return [_field(name, member, required=name in required) for name, member in properties.items()]


def _field(name: str, member: object, *, required: bool) -> Field:
    named = f"its field {name[:MAX_NAMED]!r}"
    if not isinstance(member, dict):
        raise Unaskable(f"{named} has no schema")
    kind, choices = _kind(member, named)
    schema = _bounds(member, kind, named)
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
        raise Unaskable(f"no value fits {named}: its bounds exclude each other")
    default = member.get("default")
    # The server itself would refuse a default that does not fit.
    return field._replace(default=default) if default is not None and fits(field, default) else field


def _kind(member: Message, named: str) -> tuple[str, tuple[Choice, ...]]:
    kind = member.get("type")
    if kind == "array":
        items = member.get("items")
        found = _choices_of(items, named) if isinstance(items, dict) else None
        if not found:
            raise Unaskable(f"{named} is a list, but not of choices")
        return "choices", found
    if (kind is None or kind == "string") and (found := _choices_of(member, named)) is not None:
        return "choice", found
    if not isinstance(kind, str) or kind not in _PLAIN:
        raise Unaskable(f"{named} is of the type {str(kind)[:MAX_NAMED]!r}, which MCP does not allow in forms")
    return kind, ()


def _choices_of(member: Message, named: str) -> tuple[Choice, ...] | None:
    """The values that a schema lists in any of MCP's ways; None if it lists none."""
    plain, titled = member.get("enum"), member.get("oneOf", member.get("anyOf"))
    if plain is None and titled is None:
        return None
    if plain is not None:
        names = member.get("enumNames")
        titles = names if isinstance(names, list) else []
        values = _listed(plain, named)
        pairs = list(zip(values, [*titles, *values[len(titles) :]], strict=False))
    else:
        options = _listed(titled, named)
        if not all(isinstance(option, dict) for option in options):
            raise Unaskable(f"{named} has a faulty list of choices")
        pairs = [(option.get("const"), option.get("title", option.get("const"))) for option in options]
    if not all(isinstance(part, str) for pair in pairs for part in pair):
        raise Unaskable(f"{named} has choices that are not texts")
    if len({value for value, _title in pairs}) != len(pairs):
        raise Unaskable(f"{named} has the same choice twice")
    return tuple(Choice(value, title.strip() or value) for value, title in pairs)


def _listed(choices: object, named: str) -> list[Any]:
    if not isinstance(choices, list) or not choices:
        raise Unaskable(f"{named} has no choices")
    if len(choices) > MAX_CHOICES:
        raise Unaskable(f"{named} has {len(choices)} choices; mcpd shows at most {MAX_CHOICES}")
    return choices


def _bounds(member: Mapping[str, Any], kind: str, named: str) -> Message:
    keys = ("minItems", "maxItems") if kind == "choices" else BOUNDS
    schema = {key: member[key] for key in keys if member.get(key) is not None}
    if kind in {"choice", "boolean"}:
        return {}
    # The server checks patterns that cannot be matched in linear time.
    without = {key: value for key, value in schema.items() if key != "pattern"}
    for bounds in (schema, without):
        with suppress(ValueError, TypeError, OverflowError, RecursionError):
            validator({"type": "array" if kind == "choices" else kind, **bounds})
            return bounds
    raise Unaskable(f"{named} has faulty bounds")


def _possible(field: Field) -> bool:
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


FORMATS = {
    "email": "an e-mail address",
    "uri": "a URI, as https://example.org/page",
    "date": "a date, as 2026-11-23",
    "date-time": "a date and time with a zone, as 2026-11-23T14:30:00Z",
}

BOUNDS = ("minLength", "maxLength", "pattern", "format", "minimum", "maximum")
"""Keywords that limit a text or number (MCP, elicitation); the server checks other keywords."""

MAX_DIGITS = 300
"""Digits of the longest number: a double has at most 309."""

MAX_PATTERN_BYTES = 64 * 1024
"""Bytes of the largest compiled pattern: only nested repetitions need more."""

EMPTY = '""'
"""Typed for an empty text, since Enter alone takes the default."""

_YES = dict.fromkeys(("y", "yes", "true", "on", "1"), True)
_NO = dict.fromkeys(("n", "no", "false", "off", "0"), False)
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")


class Unfit(ValueError):
    """Raised for a typed line that is no valid value; the text says which values are."""


class Choice(NamedTuple):
    """A value of a field, with its title."""

    value: str
    title: str


class Field(NamedTuple):
    """One field of a form."""

    name: str
    title: str
    about: str
    kind: str
    """`string`, `number`, `integer`, `boolean`, `choice` or `choices`."""
    schema: Message
    """Keywords that limit a text, a number, or the number of choices."""
    choices: tuple[Choice, ...] = ()
    required: bool = False
    default: object = None

    @property
    def numbered(self) -> bool:
        """Whether choices are numbered; they are not if a choice looks like a number."""
        return not any(each.value.isdigit() or each.title.isdigit() for each in self.choices)


def wanted(field: Field) -> str:
    """Describe the valid values."""
    schema = field.schema
    match field.kind:
        case "string":
            text = FORMATS.get(schema.get("format", ""), "text")
            spelt = f", spelt like {schema['pattern']}" if "pattern" in schema else ""
            return text + between(schema.get("minLength"), schema.get("maxLength"), " characters") + spelt
        case "number" | "integer":
            noun = "a number" if field.kind == "number" else "a whole number"
            return noun + between(schema.get("minimum"), schema.get("maximum"))
        case "boolean":
            return "yes or no"
        case "choice":
            return "one of them"
    counted = between(schema.get("minItems"), schema.get("maxItems"), " of them")
    return "any of them, separated by commas" + counted


def read(field: Field, line: str) -> object:
    """Parse a typed line that is not empty. Raises Unfit for an invalid value."""
    typed = line.strip()
    match field.kind:
        case "string":
            value: object = "" if typed == EMPTY else line
        case "number" | "integer":
            value = _number(field, typed)
        case "boolean":
            value = {**_YES, **_NO}.get(typed.casefold())
        case "choice":
            value = _choice(field, typed)
        case _:
            value = _choices(field, typed)
    if not fits(field, value):
        raise Unfit(f"wanted {'are' if field.kind == 'choices' else 'is'} {wanted(field)}")
    return value


def fits(field: Field, value: object) -> bool:
    """Whether a value is valid for a field."""
    values = {"enum": [each.value for each in field.choices]}
    schema = {"type": field.kind, **field.schema}
    if field.kind == "choice":
        schema = values
    elif field.kind == "choices":
        schema = {"type": "array", "items": values, "uniqueItems": True, **field.schema}
    return validator(schema).is_valid(value)  # type: ignore[no-any-return]


def validator(schema: Message) -> Any:
    """Compile a schema, with checks of formats. Raises ValueError if the schema is faulty."""
    import jsonschema_rs  # noqa: PLC0415 - 6 ms, and only a form needs it

    linear = jsonschema_rs.RegexOptions(size_limit=MAX_PATTERN_BYTES)
    return jsonschema_rs.validator_for(schema, validate_formats=True, offline=True, pattern_options=linear)


def shown(field: Field, value: object) -> str:
    """A value as people read it, in one line."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(shown(field, each) for each in value)
    titles = {each.value: each.title for each in field.choices}
    if isinstance(value, str):
        return titles.get(value, value) or EMPTY
    return json.dumps(value)


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


def _choice(field: Field, typed: str) -> str:
    for spelt in (str, str.casefold):
        for choice in field.choices:
            if any(spelt(typed) == spelt(text.strip() or EMPTY) for text in choice):
                return choice.value
    if field.numbered and typed.isascii() and typed.isdigit() and 0 < int(typed[:9]) <= len(field.choices):
        return field.choices[int(typed[:9]) - 1].value
    titles = [each.title for each in field.choices]
    raise Unfit(f"there is no {typed[:50]!r}{suggestion(typed, titles, 10)}")


def _choices(field: Field, typed: str) -> list[str]:
    try:
        named = [_choice(field, typed)]
    except Unfit:
        named = [_choice(field, word) for part in typed.split(",") if (word := part.strip())]
    return list(dict.fromkeys(named))
