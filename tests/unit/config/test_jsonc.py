"""The scanner: comments and trailing commas vanish, everything else keeps its place and its meaning."""

import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.config.jsonc import MAX_DEPTH, below, blank, decode, placed
from daemon.errors import ConfigError, Fault
from tests.unit.cases import cases
from tests.unit.documents.test_json_document import sprinkled

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
    | st.sampled_from(["// no comment", "/* nor this */", '\\" // ', ",]", ",}"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "//", "/*", "é", '"']), inner)
    ),
    max_leaves=20,
)


@given(values, st.integers(0, 2**32))
def test_any_value_reads_back_equal_through_comments_and_trailing_commas_which_keep_their_places(
    value: object, seed: int
) -> None:
    text = f'// a comma, " and {{\n{sprinkled(value, random.Random(seed))}/* "x": [1,] // */'
    assert decode(text, source="x") == (value, [])
    blanked = blank(text)
    assert all(new == old or (new == " " and old != "\n") for old, new in zip(text, blanked, strict=True))


@given(st.text('{}[]",:/*\\ \n1a', max_size=30))
def test_no_text_makes_the_scanner_fail_in_another_way_than_with_a_fault(text: str) -> None:
    with suppress(ConfigError):
        decode(text, source="x")


@cases("text", "place", "message")
def test_a_syntax_error_says_where_it_is_and_what_was_expected(
    text: str, place: list[int], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        decode(text, source="x")
    (fault,) = caught.value.faults
    assert [fault.line, fault.column] == place
    assert str(fault) == f"line {place[0]}, column {place[1]}: {message}"


@pytest.mark.parametrize("text", ["[,]", "[1,,]", "{,}", "[1 /* */ 2]", "[1,//]"])
def test_only_a_comma_after_a_value_may_trail(text: str) -> None:
    with pytest.raises(ConfigError):
        decode(text, source="x")


@cases("text", "faults")
def test_what_json_readers_let_pass_silently_is_a_fault_with_its_path(
    text: str, faults: dict[str, str]
) -> None:
    assert {fault.path: fault.message for fault in decode(text, source="x")[1]} == faults


def test_nesting_is_bounded_and_the_place_named() -> None:
    assert decode("[" * MAX_DEPTH + "]" * MAX_DEPTH, source="x")[1] == []
    with pytest.raises(ConfigError) as caught:
        decode("[" * 100_000, source="x")
    assert str(caught.value.faults[0]) == "line 1, column 101: nested deeper than 100 levels"


def test_a_byte_order_mark_is_ignored_and_counts_for_no_column() -> None:
    assert decode('\ufeff{\r\n "a": 1, // one\r\n}\r\n', source="x") == ({"a": 1}, [])
    with pytest.raises(ConfigError) as caught:
        decode("\ufeff[1 1]", source="x")
    assert str(caught.value).endswith("list or object; found 1")
    assert caught.value.faults[0].column == 4


@cases("step", "trail")
def test_a_step_that_could_be_misread_is_quoted(step: str | int, trail: str) -> None:
    assert below("$", step) == trail


PLACED = """\ufeff// words
{ "a": {"b.c": [1, /* { */ {"d": 2}, [3, []]], "e": [], "f": "x",},
  "a": 3, }"""


@cases("trail", "place")
def test_a_fault_has_the_place_of_its_key_or_of_what_surrounds_it(trail: str, place: list[int]) -> None:
    (fault,) = placed([Fault(path=trail, message="m")], PLACED)
    assert [fault.line, fault.column] == place


def test_a_fault_below_a_repeated_key_has_its_last_place() -> None:
    assert placed([Fault(path="$.a.x", message="m")], '{"a": {"x": 1},\n "a": {"x": 2}}')[0].line == 2


def test_what_is_in_another_file_has_no_place_in_this_one() -> None:
    assert [str(fault) for fault in placed([Fault(path="env", message="m")], "{}")] == ["env: m"]
