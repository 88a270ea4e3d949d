"""Shapes of results: types, what two results share, maps, bounds, and that no value is ever in one."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.catalog.observed import MAX_BYTES, MAX_MEMBERS, Shape, is_data, value_in


def merged(*values: object) -> str:
    return Shape.merged([Shape.of(each) for each in values]).python


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        ("text", "str"),
        (1, "int"),
        (1.5, "float"),
        (True, "bool"),
        (None, "None"),
        ([], "list"),
        ({}, "dict"),
        ([1, 2.5], "[float]"),
        ([1, "x", None], "[int | str | None]"),
        ({"id": 1, "user": {"login": "x"}}, '{"id": int, "user": {"login": str}}'),
        ([{"a": 1}, {"a": None}], '[{"a": int | None}]'),
        ([{"a": 1}, {"a": 1, "b": 2}], '[{"a": int, "b": NotRequired[int]}]'),
        ([{"a": [1]}, {"a": []}], '[{"a": [int]}]'),
        ([{"a": {"b": 1}}, {"a": "x"}], '[{"a": {"b": int} | str}]'),
        ({"user-4711": 1, "user-4712": 2.5}, "{str: float}"),
        ({"ann": {"age": 1}, "bob": {"age": 2}, "cay": {"age": 3}}, '{str: {"age": int}}'),
        ({chr(97 + number) * 3: number for number in range(21)}, "{str: int}"),
        ({"by": {"ann": 1, "sum": 2}, "users": ["ann"]}, '{"by": {"sum": int, str: int}, "users": [str]}'),
        ([[[[[[[1]]]]]]], "[[[[[[list]]]]]]"),
    ],
)  # fmt: skip
def test_a_value_has_a_shape(value: object, shape: str) -> None:
    assert Shape.of(value).python == shape


def test_several_results_have_one_shape_whose_members_may_be_missing() -> None:
    assert merged({"a": 1, "b": "x"}, {"a": 1.5}, {"a": None}) == '{"a": float | None, "b": NotRequired[str]}'
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
    assert not is_data(name)


@pytest.mark.parametrize(
    "name",
    [*DATA.split(), "xKqBvTzRmW", "sk-a1b2c3", "*", "|", "a?", "naïve", "", "Ann Lee", "x" * 21, "a_" * 30,
     "husha-256"],
)  # fmt: skip
def test_names_that_may_be_data_are_not(name: str) -> None:
    assert is_data(name)
    assert Shape.of({name: 1, "id": 2}).python == "{str: int}"


def test_a_shape_is_cut_to_two_kilobytes() -> None:
    words = [f"{one * 4}_{other * 4}" for one in "abcdefghij" for other in "abcdefghij"]
    flat = {name: (number if number % 2 else "x") for number, name in enumerate(words[:60])}
    whole = {**flat, "inner": {**flat, "inner": flat}}
    found = Shape.of(whole)
    assert len(found.raw) <= MAX_BYTES
    assert found.python.endswith('"inner": dict}')
    both = Shape.merged([Shape.of(flat), Shape.of(dict.fromkeys(words[60:], 1) | {"id": None})])
    assert len(both.raw) <= MAX_BYTES
    assert (
        Shape.of(dict.fromkeys([f"x{word}" for word in words] + ["y"], 1) | {"z": "x"}).python
        == "{str: int | str}"
    )
    assert len(words) == MAX_MEMBERS


@pytest.mark.parametrize(
    ("result", "value"),
    [
        ({"structuredContent": {"a": 1}, "content": [{"type": "text", "text": "x"}]}, {"a": 1}),
        ({"content": [{"type": "text", "text": '[{"a": 1}]'}]}, [{"a": 1}]),
        ({"content": [{"type": "text", "text": "[]"}]}, []),
        ({"content": [{"type": "text", "text": "plain"}]}, "plain"),
        ({"content": [{"type": "text", "text": "two"}, {"type": "text", "text": "parts"}]}, "two\nparts"),
        ({"content": [{"type": "image", "data": "", "mimeType": "image/png"}]}, None),
        ({"content": [{"type": "text", "text": "x"}], "isError": True}, None),
        ({"structuredContent": {"a": 1}, "isError": True}, None),
        ({"content": 5}, None),
    ],
)
def test_a_script_gets_structured_content_or_json_or_text(result: object, value: object) -> None:
    assert value_in(json.dumps(result).encode()) == value


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
        # A word that is a value somewhere is no name of a member anywhere.
        | st.builds(lambda name, value: {"id": name, "items": {name: value}}, SECRETS, inner)
    ),
    max_leaves=25,
)


@given(results=st.lists(RESULTS, min_size=1, max_size=5))
def test_no_value_and_no_key_that_is_data_is_ever_in_a_shape(results: list[Any]) -> None:
    shape = Shape.merged([Shape.of(each) for each in results])
    assert len(shape.raw) <= MAX_BYTES
    words = {"id", "name", "items", "user_id", "nodeId", "str", "int", "float", "bool", "None", "dict", "list"}
    assert set(_strings(msgspec.json.decode(shape.raw))) <= words | {f"{word}?" for word in words} | {"*", "|"}


def _strings(shape: object) -> list[str]:
    if isinstance(shape, str):
        return [shape]
    inner = [*shape, *shape.values()] if isinstance(shape, dict) else shape if isinstance(shape, list) else []
    return [text for each in inner for text in _strings(each)]
