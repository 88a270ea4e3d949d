"""Shapes of results: types, what two results share, maps, bounds, and that no value is ever in one."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.catalog import tool_results
from daemon.safety.redact import Redactor
from tests.unit.cases import cases
from tests.unit.catalog.samples import tool


def merged(*values: object) -> str:
    return tool_results.Shape.merged([tool_results.Shape.of(each) for each in values]).python


@cases("value", "shape")
def test_a_value_has_a_shape(value: object, shape: str) -> None:
    assert tool_results.Shape.of(value).python == shape


def test_several_results_have_one_shape_whose_members_may_be_missing() -> None:
    assert (
        merged({"a": 1, "b": "x"}, {"a": 1.5}, {"a": None})
        == '{"a": int | float | None, "b": NotRequired[str]}'
    )
    assert merged({"a": 1}, "error") == '{"a": int} | str'
    assert merged({"items": [], "next": None}, {"items": [{"id": 1}], "next": "x"}) == (
        '{"items": [{"id": int}], "next": None | str}'
    )


def test_results_whose_members_have_nothing_in_common_are_maps() -> None:
    assert merged(*({name * 3: 1} for name in "abcdefghi")) == "{str: int}"
    assert merged({"ann-17": 1}, {"bob": 2}) == "{str: int}"
    many = [{f"{one * 2}_{other * 2}": 1 for other in "abcdefghijklmn"} | {"id": "x"} for one in "abcdefgh"]
    assert merged(*many) == "{str: int | str}"


NAMES = (
    "html_url nodeId URL isURLOk md5 sha256 line2 $schema @type dc:title Content-Type X-Rate-Limit iso8601Time"
)
DATA = "2026-11-29 a@example.com 7 550e8400-e29b-41d4-a716-446655440000 deadbeef user42 example.com /etc/passwd"


@pytest.mark.parametrize("name", [*NAMES.split(), "closed_issues_count"])
def test_the_names_of_members_are_kept(name: str) -> None:
    assert not tool_results.is_data(name)


@pytest.mark.parametrize(
    "name",
    [*DATA.split(), "xKqBvTzRmW", "sk-a1b2c3", "*", "|", "a?", "naïve", "", "Ann Lee", "x" * 21, "a_" * 30,
     "husha-256"],
)  # fmt: skip
def test_names_that_may_be_data_are_not(name: str) -> None:
    assert tool_results.is_data(name)
    assert tool_results.Shape.of({name: 1, "id": 2}).python == "{str: int}"


def test_a_shape_is_cut_to_two_kilobytes() -> None:
    words = [f"{one * 4}_{other * 4}" for one in "abcdefghij" for other in "abcdefghij"]
    flat = {name: (number if number % 2 else "x") for number, name in enumerate(words[:60])}
    whole = {**flat, "inner": {**flat, "inner": flat}}
    found = tool_results.Shape.of(whole)
    assert len(found.raw) <= tool_results.MAX_BYTES
    assert found.python.endswith('"inner": dict}')
    both = tool_results.Shape.merged(
        [tool_results.Shape.of(flat), tool_results.Shape.of(dict.fromkeys(words[60:], 1) | {"id": None})]
    )
    assert len(both.raw) <= tool_results.MAX_BYTES
    assert (
        tool_results.Shape.of(dict.fromkeys([f"x{word}" for word in words] + ["y"], 1) | {"z": "x"}).python
        == "{str: int | str}"
    )
    assert len(words) == tool_results.MAX_MEMBERS


def test_of_results_that_are_too_different_for_one_shape_the_latest_count() -> None:
    words = [f"{one * 8}_{other * 9}" for one in "abcdefghi" for other in "abcdefghij"]
    former, latest = (tool_results.Shape.of({"id": "x", **dict.fromkeys(words[part::2], 1)}) for part in (0, 1))
    assert latest.python.count(": int") == 45
    assert tool_results.Shape.merged([former, latest]) == latest


def test_the_first_elements_of_an_array_are_looked_at() -> None:
    assert tool_results.Shape.of([1] * tool_results.MAX_ITEMS + ["x"]).python == "[int]"
    assert tool_results.Shape.of([1] * (tool_results.MAX_ITEMS - 1) + ["x"]).python == "[int | str]"


@cases("result", "value")
def test_a_script_gets_structured_content_or_json_or_text(result: object, value: object) -> None:
    assert tool_results.value_in(json.dumps(result).encode()) == value


# --- which results are looked at --------------------------------------------------------------------------


TOOL = tool("s", "t")
TYPED = tool("s", "typed", outputSchema={"type": "object"})


def text(value: object) -> bytes:
    """A result with this as its text."""
    return msgspec.json.encode({"content": [{"type": "text", "text": json.dumps(value)}]})


def observing(on: bool = True, *secrets: str) -> tool_results.Observed:
    return tool_results.Observed(lambda: on, lambda _server: Redactor(secrets))


def look(observed: tool_results.Observed, result: bytes) -> str | None:
    """The shape after one more result."""
    observed.resting.clear()
    observed.take(TOOL, result)
    taken, observed.waiting = observed.waiting, {}
    observed.learn(taken)
    found = observed.shape(TOOL.schema_hash)
    return None if found is None else found.python


def test_one_result_of_a_tool_is_copied_and_none_of_a_tool_with_an_output_schema() -> None:
    observed, woken = observing(), list[int]()
    observed.wake = lambda: woken.append(1)
    buffer = bytearray(text({"a": 1}))
    observed.take(TOOL, memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    assert observed.resting == {TOOL.schema_hash}
    assert observed.waiting == {TOOL.schema_hash: ("s", text({"a": 1}))}
    observed.take(TYPED, text({"a": 1}))
    assert observed.resting == {TOOL.schema_hash, TYPED.schema_hash}
    assert list(observed.waiting) == [TOOL.schema_hash]
    assert woken == [1]


def test_a_result_that_is_too_long_or_one_too_many_is_not_copied() -> None:
    observed = observing()
    observed.take(TOOL, text("x" * tool_results.MAX_RESULT))
    assert observed.waiting == {TOOL.schema_hash: ("s", b"")}
    assert observed.learn(observed.waiting) == {}
    for number in range(tool_results.MAX_WAITING):
        observed.take(tool("s", f"t{number}"), text(1))
    assert sum(bool(result) for _, result in observed.waiting.values()) == tool_results.MAX_WAITING - 1


def test_what_rests_is_bounded() -> None:
    observed = observing()
    observed.resting = {str(number) for number in range(tool_results.MAX_TOOLS)}
    observed.take(TYPED, b"{}")
    assert observed.resting == {TYPED.schema_hash}
    hashes = [f"{number:064}" for number in range(tool_results.MAX_TOOLS + 1)]
    observed.know(dict.fromkeys(hashes, b'"str"'))
    observed.learn({})
    assert observed.shape(hashes[0]) is None
    assert observed.shape(hashes[1]) == tool_results.Shape(b'"str"')


def test_nothing_is_observed_or_shown_where_that_is_off() -> None:
    off = observing(on=False)
    off.know({TOOL.schema_hash: b'"int"'})
    assert look(off, text({"a": 1})) is None
    off.is_on = lambda: True
    assert off.shape(TOOL.schema_hash) == tool_results.Shape(b'"int"')


def test_the_last_results_make_a_shape_and_errors_count_for_nothing() -> None:
    observed = observing()
    assert look(observed, text({"a": 1})) == '{"a": int}'
    assert look(observed, text({"b": 1})) == '{"a": NotRequired[int], "b": NotRequired[int]}'
    assert look(observed, msgspec.json.encode({"content": [], "isError": True})) != "list"
    for _ in range(tool_results.KEPT_RESULTS - 2):
        assert look(observed, text({"b": 1})) == '{"a": NotRequired[int], "b": NotRequired[int]}'
    assert look(observed, text({"b": 1})) == '{"b": int}'


def test_only_shapes_that_have_changed_are_told() -> None:
    observed = observing()
    taken = {TOOL.schema_hash: ("s", text({"a": 1}))}
    assert observed.learn(taken) == {TOOL.schema_hash: tool_results.Shape(b'{"a":"int"}')}
    assert observed.learn(taken) == {}


def test_a_result_with_a_secret_as_a_name_is_not_looked_at() -> None:
    assert look(observing(True, "opensesame"), text({"opensesame": 1})) is None
    assert look(observing(True, "opensesame"), text({"token": "x", "password": "y"})) is not None


def test_stored_shapes_are_known_and_unreadable_ones_left_out() -> None:
    observed = observing()
    observed.know({"a": b'{"id":"int"}', "b": b"{", "c": 5, "d": "text"})
    found = {key: observed.shape(key) for key in "abcd"}
    assert found == {"a": tool_results.Shape(b'{"id":"int"}'), "b": None, "c": None, "d": None}


MARK = "hush"
SECRETS = st.text(alphabet="abcXYZ", max_size=12).map(lambda text: f"{MARK}{text}")
KEYS = st.sampled_from(["id", "name", "items", "user_id", "nodeId"])
SECRET_KEYS = SECRETS.map(lambda text: f"{text}-{len(text)}17") | SECRETS.map(
    lambda text: f"{text}@example.com"
)
RESULTS = st.recursive(
    SECRETS | st.integers(10**6, 10**9) | st.floats(1e6, 1e9) | st.booleans() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.dictionaries(KEYS | SECRET_KEYS, inner, max_size=4)
        # A word that is a value somewhere is not a name of a member anywhere.
        | st.builds(lambda name, value: {"id": name, "items": {name: value}}, SECRETS, inner)
    ),
    max_leaves=25,
)


@given(results=st.lists(RESULTS, min_size=1, max_size=5))
def test_no_value_and_no_key_that_is_data_is_ever_in_a_shape(results: list[Any]) -> None:
    shape = tool_results.Shape.merged([tool_results.Shape.of(each) for each in results])
    assert len(shape.raw) <= tool_results.MAX_BYTES
    words = {"id", "name", "items", "user_id", "nodeId", "str", "int", "float", "bool", "None", "dict", "list"}
    assert set(_strings(msgspec.json.decode(shape.raw))) <= words | {f"{word}?" for word in words} | {"*", "|"}


def _strings(shape: object) -> list[str]:
    if isinstance(shape, str):
        return [shape]
    inner = [*shape, *shape.values()] if isinstance(shape, dict) else shape if isinstance(shape, list) else []
    return [text for each in inner for text in _strings(each)]
