"""What a person is asked and told, and the answer that MCP has for what they type."""

from collections.abc import Iterable
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.cli.asking.elicitation import answer, missing
from daemon.cli.asking.forms import Choice, Field, Unaskable, Unfit, fields_of, fits, read, shown, wanted
from tests.unit.cases import cases
from tests.unit.cli.asking.people import Helpful, Scripted

Json = dict[str, Any]

FORM: Json = {
    "message": "Tell me\x1b[2J", "requestedSchema": {"type": "object",
    "properties": {"name": {"type": "string", "title": "Your name", "description": "In full", "minLength": 2},
    "age": {"type": "integer", "default": 42}, "pet": {"type": "string", "oneOf": [{"const": "c",
    "title": "Cat"}, {"const": "d", "title": "Dog"}]}}, "required": ["name"]},
}  # fmt: skip


def asked(params: Json, *lines: str) -> tuple[Json, Scripted]:
    person = Scripted(*lines)
    return answer("alpha", params, person, lambda _url: False), person


def test_a_form_is_asked_question_by_question_and_shown_before_it_is_sent() -> None:
    result, person = asked(FORM, "", "x", "Ada", "", "dog", "n", "Eve", "7", "", "y")
    assert result == {"action": "accept", "content": {"name": "Eve", "age": 7}}
    assert "*alpha* asks: Tell me\\x1b[2J" in person.all
    assert "*Your name*: In full" in person.all
    assert "This value is required." in person.all
    assert "Wanted is text, at least 2 characters." in person.all
    assert "  a whole number [42]: " in person.all
    assert "  1) Cat\n  2) Dog" in person.all
    assert "  Your name: Ada\n  age: 42\n  pet: Dog\nSend this to alpha? [Y/n, decline] " in person.all


def test_every_question_can_be_declined_or_broken_off_and_the_word_itself_be_sent() -> None:
    for lines in ((), ("Ada",), ("Ada", "", "")):
        assert asked(FORM, *lines, " decline ")[0] == {"action": "decline"}
        assert asked(FORM, *lines)[0] == {"action": "cancel"}
    assert asked(FORM, r"\decline", "", "", "y")[0]["content"]["name"] == "decline"


def test_a_form_without_fields_is_a_question_of_yes_or_no_and_one_that_cannot_be_asked_is_declined() -> None:
    params = {"message": "Delete all?", "requestedSchema": {"type": "object", "properties": {}}}
    assert asked(params, "y")[0] == {"action": "accept", "content": {}}
    assert asked(params, "what?", "")[0] == {"action": "decline"}
    result, person = asked({"message": "?", "requestedSchema": {"properties": {"a": {"type": "object"}}}})
    assert result == {"action": "decline"}
    assert (
        "Declined: this form cannot be shown here, because its field 'a' is of the type 'object'" in person.all
    )


def test_a_field_that_looks_like_a_secret_is_marked() -> None:
    for name in ("password", "api_key", "Access Token", "dbPasswd", "client_secret"):
        for properties in ({name: {"type": "string", "title": "x"}}, {"x": {"type": "string", "title": name}}):
            _, person = asked({"message": "?", "requestedSchema": {"properties": properties}})
            assert "MCP forbids servers to ask for one like this" in person.all


URL = "https://user@login.example.org:8443/start?x=1"


def page(url: object, *lines: str, browser: bool = True) -> tuple[Json, Scripted, list[str]]:
    person, opened = Scripted(*lines), []

    def browse(url: str) -> bool:
        opened.append(url)
        return browser

    params = {"mode": "url", "message": "Log in", "elicitationId": "1", "url": url}
    return answer("alpha", params, person, browse), person, opened


def test_a_page_is_shown_in_full_and_opened_only_after_a_yes() -> None:
    result, person, opened = page(URL, "y")
    assert (result, opened) == ({"action": "accept"}, [URL])
    assert "https://user@*login.example.org:8443*/start?x=1" in person.all
    assert "Host: *login.example.org*" in person.all
    assert "The part before the @" in person.all
    assert page(URL, "")[::2] == ({"action": "decline"}, [])
    assert page(URL, "hm", "no")[::2] == ({"action": "decline"}, [])
    assert page(URL)[::2] == ({"action": "cancel"}, [])


def test_a_page_can_be_opened_by_oneself_and_what_is_odd_about_it_is_said() -> None:
    assert page(URL, "m")[::2] == ({"action": "accept"}, [])
    result, person, _ = page(URL, "y", browser=False)
    assert (result, "open it yourself" in person.all) == ({"action": "accept"}, True)
    assert "letters beyond ASCII" in page("https://xn--80ak6aa92e.com/")[1].all
    assert "not encrypted" in page("http://example.org/")[1].all
    for usual in ("http://127.0.0.1:8080/cb", "http://localhost/x", "https://example.org/"):
        assert "! " not in page(usual)[1].all


@cases("url")
def test_what_is_no_page_is_declined_unasked(url: object) -> None:
    result, person, opened = page(url, "y")
    assert (result, opened, person.left) == ({"action": "decline"}, [], ["y"])
    assert "\x1b" not in person.all
    assert "is not the address of a web page" in person.all


def test_only_what_a_tool_requires_and_lacks_is_asked_for() -> None:
    members = {"zone": {"type": "string"}, "days": {"type": "integer"}, "deep": {"type": "object"}}
    schema = {"properties": {**members, "more": {"type": "string"}}, "required": ["zone", "days", "deep"]}
    person = Scripted("UTC", "many", "3")
    # What no form can ask is named by the check of the call.
    assert missing(schema, {}, person) == {"zone": "UTC", "days": 3}
    assert missing(schema, {"zone": "UTC", "days": 3}, Scripted()) == {}


# --- a typed line for each kind of field ---------------------------------------------------------------------


def field(kind: str, /, *choices: str, **schema: Any) -> Field:
    return made(kind, choices, schema)


def made(kind: str, choices: Iterable[str], schema: dict[str, Any]) -> Field:
    return Field("f", "F", "", kind, schema, tuple(Choice(each, each.title()) for each in choices))


@cases("one", "line", "value")
def test_a_line_means_a_value(one: list[Any], line: str, value: object) -> None:
    found = read(made(*one), line)
    assert (found, type(found)) == (value, type(value))
    assert fits(made(*one), found)


@cases("one", "line", "said")
def test_what_does_not_fit_is_told_with_what_would(one: list[Any], line: str, said: str) -> None:
    with pytest.raises(Unfit, match=said):
        read(made(*one), line)


@cases("one", "value", "text")
def test_a_value_is_shown_as_it_is_typed(one: list[Any], value: object, text: str) -> None:
    assert shown(made(*one), value) == text


def test_formats_and_bounds_are_told_together_only_choices_fit_and_an_uncheckable_pattern_is_left_out() -> None:
    assert wanted(field("string", format="email", maxLength=9)) == "an e-mail address, at most 9 characters"
    assert wanted(field("integer", minimum=0, maximum=0)) == "a whole number, 0 to 0"
    assert not any(fits(field("choices", "a", "b"), value) for value in (["x"], ["a", "a"], "a", [1]))
    assert not any(fits(field("choice", "b"), value) for value in (["b"], "a", 1))
    (odd,) = fields_of({"properties": {"a": {"type": "string", "pattern": "(?=a)a", "maxLength": 3}}})
    assert odd.schema == {"maxLength": 3}


# --- any schema of MCP's subset is asked and yields what it accepts, or is refused in words ------------------


WORDS = st.text(max_size=8)
NUMBERS = st.integers(-1000, 1000) | st.floats(-1e6, 1e6)


def bounded(**bounds: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """Any of these keywords."""
    return st.fixed_dictionaries({}, optional=bounds)


@st.composite
def texts(draw: st.DrawFn) -> tuple[Json, str]:
    """A text's schema, and a line that fits."""
    fitting = {
        "email": "ada@example.org",
        "uri": "https://example.org/a",
        "date": "2026-11-23",
        "date-time": "2026-11-23T14:30:00Z",
        None: draw(st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=9)),
    }
    form = draw(st.sampled_from([*fitting]))
    line = fitting[form]
    least, most = st.integers(0, len(line)), st.integers(len(line), 60)
    bounds = draw(bounded(minLength=least, maxLength=most, default=st.just(line) | WORDS))
    return {"type": "string", **({"format": form} if form else {}), **bounds}, line


@st.composite
def numbers(draw: st.DrawFn) -> tuple[Json, str]:
    """A number's schema, and a line that fits."""
    value = draw(st.integers(-1000, 1000))
    least = st.integers(-2000, value) | st.floats(-2000, value)
    most = st.integers(value, 2000) | st.floats(value, 2000)
    bounds = draw(bounded(minimum=least, maximum=most, default=NUMBERS | WORDS))
    return {"type": draw(st.sampled_from(["number", "integer"])), **bounds}, str(value)


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
    bounded(default=st.booleans() | WORDS).map(lambda bounds: {"type": "boolean", **bounds}),
    st.sampled_from(["y", "no", "TRUE"]),
)
MEMBERS = st.tuples(texts() | numbers() | choices() | BOOLEANS, bounded(title=WORDS, description=WORDS))


@given(members=st.dictionaries(WORDS, MEMBERS, max_size=5), data=st.data())
def test_a_form_yields_what_its_schema_accepts(members: dict[str, Any], data: st.DataObject) -> None:
    properties = {name: {**schema, **titles} for name, ((schema, _line), titles) in members.items()}
    required = data.draw(st.lists(st.sampled_from(sorted(properties)), unique=True)) if properties else []
    schema = {"type": "object", "properties": properties, "required": required}
    lines = [line for (_schema, line), _titles in members.values()]
    noises = st.lists(st.sampled_from(["\x1b[31m", "7e7", "nothing like it"]), max_size=1)
    noise = data.draw(noises) if lines else []
    # Noise that happens to fit the first question takes the place of its line.
    person = Helpful([*lines, "y", *lines, "y"], noise=noise)
    result = answer("alpha", {"message": "?", "requestedSchema": schema}, person, lambda _url: False)
    if noise and result["action"] != "accept":
        return
    assert result["action"] == "accept", person.all
    checker = jsonschema.FormatChecker(["date", "email"])
    jsonschema.validate(result["content"], schema, jsonschema.Draft202012Validator, format_checker=checker)


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


@cases("schema", "said")
def test_what_mcp_does_not_let_servers_ask_is_refused(schema: object, said: str) -> None:
    with pytest.raises(Unaskable, match=said):
        fields_of(schema)
