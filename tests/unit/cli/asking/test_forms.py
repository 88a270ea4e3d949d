"""Any schema of MCP's subset is asked and yields what it accepts, or is refused in words."""

from __future__ import annotations

from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.cli.asking.elicitation import answer
from daemon.cli.asking.forms import EMPTY, MAX_CHOICES, MAX_FIELDS, Unaskable, fields_of, wanted
from tests.unit.cli.asking.people import Helpful

Json = dict[str, Any]

WORDS = st.text(max_size=8)
TITLES: st.SearchStrategy[Json] = st.fixed_dictionaries({}, optional={"title": WORDS, "description": WORDS})
NUMBERS = st.integers(-1000, 1000) | st.floats(-1e6, 1e6)


@st.composite
def texts(draw: st.DrawFn) -> tuple[Json, str]:
    """A text's schema, and a line that fits."""
    form = draw(st.sampled_from(["email", "uri", "date", "date-time", None]))
    fitting = {
        "email": "ada@example.org",
        "uri": "https://example.org/a",
        "date": "2026-11-23",
        "date-time": "2026-11-23T14:30:00Z",
        None: draw(st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=9)),
    }[form]
    bounds = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "minLength": st.integers(0, len(fitting)),
                "maxLength": st.integers(len(fitting), 60),
                "default": st.just(fitting) | WORDS,
            },
        )
    )
    return {"type": "string", **({"format": form} if form else {}), **bounds}, fitting


@st.composite
def numbers(draw: st.DrawFn) -> tuple[Json, str]:
    """A number's schema, and a line that fits."""
    kind = draw(st.sampled_from(["number", "integer"]))
    value = draw(st.integers(-1000, 1000))
    bounds = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "minimum": st.integers(-2000, value) | st.floats(-2000, value),
                "maximum": st.integers(value, 2000) | st.floats(value, 2000),
                "default": NUMBERS | WORDS,
            },
        )
    )
    return {"type": kind, **bounds}, str(value)


@st.composite
def choices(draw: st.DrawFn) -> tuple[Json, str]:
    """A choice's schema in one of its spellings, and a line that fits."""
    values = draw(
        st.lists(st.text("ab12 ,", min_size=1, max_size=3), min_size=1, max_size=4, unique_by=str.strip)
    )
    values = [value for value in values if value.strip()] or ["x"]
    spelling = draw(st.sampled_from(["enum", "enumNames", "oneOf"]))
    spellings: dict[str, Json] = {
        "enum": {"enum": values},
        "enumNames": {"enum": values, "enumNames": [f"The {value}" for value in values]},
        "oneOf": {"oneOf": [{"const": value, "title": f"The {value}"} for value in values]},
    }
    titled = spellings[spelling]
    defaults: list[Json] = [{}, {"default": values[0]}, {"default": "none of them"}]
    default = draw(st.sampled_from(defaults))
    picked = draw(st.sampled_from(values)).strip()
    if not draw(st.booleans()):
        return {"type": "string", **titled, **default}, picked
    items = {"anyOf": titled["oneOf"]} if spelling == "oneOf" else {"type": "string", **titled}
    counts: list[Json] = [{}, {"minItems": 1}, {"maxItems": len(values)}, {"minItems": 0, "default": []}]
    bounds = draw(st.sampled_from(counts))
    return {"type": "array", "items": items, **bounds}, picked


BOOLEANS = st.tuples(
    st.fixed_dictionaries({"type": st.just("boolean")}, optional={"default": st.booleans() | WORDS}),
    st.sampled_from(["y", "no", "TRUE"]),
)
MEMBERS = st.tuples(texts() | numbers() | choices() | BOOLEANS, TITLES)


@given(members=st.dictionaries(WORDS, MEMBERS, max_size=5), data=st.data())
def test_a_form_yields_what_its_schema_accepts(members: dict[str, Any], data: st.DataObject) -> None:
    properties = {name: {**schema, **titles} for name, ((schema, _line), titles) in members.items()}
    required = data.draw(st.lists(st.sampled_from(sorted(properties)), unique=True)) if properties else []
    schema = {"type": "object", "properties": properties, "required": required}
    lines = [line for (_schema, line), _titles in members.values()]
    noise = (
        data.draw(st.lists(st.sampled_from(["\x1b[31m", "7e7", "nothing like it"]), max_size=1))
        if lines
        else []
    )
    # Noise that happens to fit the first question takes the place of its line.
    person = Helpful([*lines, "y", *lines, "y"], noise=noise)
    result = answer("alpha", {"message": "?", "requestedSchema": schema}, person, lambda _url: False)
    if noise and result["action"] != "accept":
        return
    assert result["action"] == "accept", person.all
    checker = jsonschema.FormatChecker(["date", "email"])
    jsonschema.validate(result["content"], schema, jsonschema.Draft202012Validator, format_checker=checker)


@given(members=st.dictionaries(WORDS, MEMBERS, max_size=5))
def test_enter_alone_takes_defaults_and_leaves_out_the_rest(members: dict[str, Any]) -> None:
    properties = {name: {**schema, **titles} for name, ((schema, _line), titles) in members.items()}
    schema = {"type": "object", "properties": properties}
    person = Helpful([""] * len(properties) + ["y"])
    result = answer("alpha", {"message": "?", "requestedSchema": schema}, person, lambda _url: False)
    assert result["action"] == "accept"
    jsonschema.validate(result["content"], schema, jsonschema.Draft202012Validator)
    known = {field.name: field.default for field in fields_of(schema) if field.default is not None}
    assert result["content"] == known


KEYWORDS = ("type", "properties", "required", "enum", "oneOf", "anyOf", "items", "const", "title", "default")
BOUNDING = (
    "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "pattern", "format", "enumNames",
)  # fmt: skip
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*KEYWORDS, *BOUNDING]) | WORDS,
            inner | st.sampled_from(["string", "object", "array", "number", "boolean", "integer"]),
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(schema=JUNK)
def test_whatever_a_server_sends_is_asked_or_refused_in_words(schema: object) -> None:
    try:
        told = [wanted(field) for field in fields_of(schema)]
    except Unaskable as error:
        told = [str(error)]
    assert all(told)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (None, "its schema is not that of an object"),
        ({"type": "array"}, "its schema is not that of an object"),
        ({"properties": []}, "names its fields in no way"),
        ({"required": [[]]}, "names its fields in no way"),
        ({"properties": {"a": {"type": ["string"]}}}, "is of the type"),
        ({"properties": {}, "required": ["a"]}, "it requires 'a', which it does not describe"),
        ({"properties": {str(n): {"type": "string"} for n in range(MAX_FIELDS + 1)}}, "it has 101 fields"),
        ({"properties": {"a": True}}, "its field 'a' has no schema"),
        ({"properties": {"a": {"type": "object"}}}, "is of the type 'object', which MCP has in no form"),
        ({"properties": {"a": {"type": "array", "items": {"type": "string"}}}},
            "list of other things than choices"),
        ({"properties": {"a": {"enum": []}}}, "has no choices"),
        ({"properties": {"a": {"enum": [1, 2]}}}, "choices that are no texts"),
        ({"properties": {"a": {"enum": ["x", "x"]}}}, "the same choice twice"),
        ({"properties": {"a": {"enum": [str(n) for n in range(MAX_CHOICES + 1)]}}}, "are not shown"),
        ({"properties": {"a": {"oneOf": ["x"]}}}, "choices that are none"),
        ({"properties": {"a": {"type": "string", "minLength": "3"}}}, "bounds that are not sound"),
        ({"properties": {"a": {"type": "string", "minLength": 3, "maxLength": 2}}},
            "nothing fits its field 'a'"),
        ({"properties": {"a": {"type": "integer", "minimum": 1.2, "maximum": 1.8}}}, "nothing fits"),
        ({"properties": {"a": {"type": "array", "items": {"enum": ["x"]}, "minItems": 2}}}, "nothing fits"),
    ],
)  # fmt: skip
def test_what_mcp_does_not_let_servers_ask_is_refused(schema: object, said: str) -> None:
    with pytest.raises(Unaskable, match=said):
        fields_of(schema)


def test_a_pattern_that_cannot_be_checked_in_linear_time_is_left_to_the_server() -> None:
    (field,) = fields_of({"properties": {"a": {"type": "string", "pattern": "(?=a)a", "maxLength": 3}}})
    assert field.schema == {"maxLength": 3}


def test_an_empty_text_can_be_typed() -> None:
    person = Helpful([EMPTY, "y"])
    schema = {"properties": {"a": {"type": "string", "default": "x"}}, "required": ["a"]}
    assert answer("s", {"requestedSchema": schema}, person, lambda _url: False)["content"] == {"a": ""}
