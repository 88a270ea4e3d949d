"""JSON documents: what is not changed stays byte for byte, and what is new is written as the file is."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.documents.files import DocumentError
from daemon.documents.json_document import WIDTH, JsonDocument, JsonWriting
from tests.unit.cases import cases

TIME = {"command": "uvx", "args": ["mcp-server-time==1.2.3"]}
GAPS = ["", "", " ", "\n", "\n\n  ", "\n\t", ' // c, { "\n', "\n  // c\n  ", " /* x */ ", "/* y\n*/", "\r\n "]

keys = st.sampled_from(["a", "b", "é", "//", 'q"', "mcpServers"])
plain = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "x // y", "{", "\\"])
objects = st.dictionaries(
    keys,
    st.recursive(plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3)),
    max_size=4,
)


def sprinkled(value: object, dice: random.Random) -> str:
    """`value` as JSON with odd spacing, comments between all tokens, and commas before closing brackets.

    An empty object holds no blanks alone: `{ }` comes back as `{}`.
    """

    def gap() -> str:
        return dice.choice(GAPS)

    if not isinstance(value, dict | list) or not value:
        return json.dumps(value, ensure_ascii=False)
    parts = []
    for each in value:
        label = f"{json.dumps(each, ensure_ascii=False)}{gap()}:{gap()}" if isinstance(value, dict) else ""
        inner = value[each] if isinstance(value, dict) else each
        parts.append(f"{gap()}{label}{sprinkled(inner, dice)}{gap()}")
    last = f",{gap()}" if dice.random() < 0.3 else ""
    first, end = "{}" if isinstance(value, dict) else "[]"
    return f"{first}{','.join(parts)}{last}{end}"


def holders(value: object, trail: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The trails of all objects in a value."""
    if isinstance(value, dict):
        return [trail, *(each for key in value for each in holders(value[key], (*trail, key)))]
    if isinstance(value, list):
        return [each for at, item in enumerate(value) for each in holders(item, (*trail, at))]
    return []


@given(objects, st.randoms(use_true_random=False), st.sampled_from(["", "\ufeff"]))
def test_what_was_put_and_is_removed_leaves_every_byte_as_it_was(
    value: dict[str, object], dice: random.Random, mark: str
) -> None:
    text = mark + sprinkled(value, dice) + dice.choice(["", "\n", "\n// end"])
    document = JsonDocument(text, "x.json")
    assert document.text() == text
    for holder in holders(value):
        document.put((*holder, "new"), TIME)
        document.remove((*holder, "new"))
        assert document.text() == text


@given(objects, st.randoms(use_true_random=False))
def test_any_member_can_be_removed_and_set(value: dict[str, object], dice: random.Random) -> None:
    text = sprinkled(value, dice)
    for key in value:
        document = JsonDocument(text, "x.json")
        document.remove((key,))
        assert document.value() == {other: value[other] for other in value if other != key}
        document = JsonDocument(text, "x.json")
        document.put((key,), TIME)
        assert document.value() == {**value, key: TIME}


@cases("before", "key", "after")
def test_a_member_takes_its_own_comments_along(before: str, key: str, after: str) -> None:
    document = JsonDocument(before, "x.json")
    document.remove((key,))
    assert document.text() == after


@given(objects, st.randoms(use_true_random=False))
def test_a_member_has_another_key_and_every_other_byte_stays(
    value: dict[str, object], dice: random.Random
) -> None:
    text = sprinkled(value, dice)
    for key in value:
        document = JsonDocument(text, "x")
        document.rename((key,), "new name")
        assert list(document.value()) == ["new name" if each == key else each for each in value]  # type: ignore[call-overload]
        document.rename(("new name",), key)
        assert document.text() == text
        with pytest.raises(DocumentError, match="exists, too"):
            document.rename((key,), dice.choice([*value]))
        assert document.text() == text


def test_only_the_members_that_differ_are_touched() -> None:
    document = JsonDocument('{"s": {"command": "x", /* kept */ "args":[1,2], "old": 1}}', "x.json")
    for _ in range(2):
        document.put(("s",), {"command": "y", "args": [1, 2], "new": True})
        assert document.text() == '{"s": {"command": "y", /* kept */ "args":[1,2], "new": true}}'


def test_missing_objects_on_the_way_are_made_and_items_are_appended_and_true_is_not_one() -> None:
    document = JsonDocument('{"a": null, "l": [1]}', "x.json")
    document.put(("a", "b", "c"), 1)
    document.put(("a", "b", "c"), True)
    document.put(("l", 1), 2)
    assert document.value() == {"a": {"b": {"c": 1}}, "l": [1, 2]}
    assert '"c": true' in document.text()


WRITING = JsonWriting(unit="\t", line_end="\r\n")


def test_a_list_that_fits_stands_on_one_line_and_without_an_indentation_everything() -> None:
    assert WRITING.member("args", ["a", 1], "") == '"args": ["a", 1]'
    assert WRITING.value(["a" * WIDTH, "é"], "") == f'[\r\n\t"{"a" * WIDTH}",\r\n\t"é"\r\n]'
    assert WRITING.value({"a": {"b": [{}]}}, None) == '{"a": {"b": [{}]}}'
    assert WRITING.value({"a": [1, 2]}, None, tight=True) == '{"a":[1,2]}'
