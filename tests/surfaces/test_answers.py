"""What all surfaces share: results, refusals, and texts that tell a model what to do next."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from daemon.causes import Cause
from daemon.errors import InvalidArguments, UnknownTool
from daemon.states import ServerState
from daemon.surfaces.answers import (
    MAX_NAMED,
    MAX_QUOTED,
    choices,
    cut,
    decode_arguments,
    error_result,
    quoted,
    result,
    size_of,
    some_of,
    unavailable_entry,
)
from tests.catalog.samples import after, catalog_of, servers, status


class Shape(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    count: int = 0


def test_a_result_says_the_same_as_structure_and_as_compact_json_in_one_text() -> None:
    read = msgspec.json.decode(result({"a": Raw(b'{"x":"\\u00e9\\"\\n"}'), "b": "深"}))
    assert read["structuredContent"] == {"a": {"x": 'é"\n'}, "b": "深"}
    (item,) = read["content"]
    assert item["type"] == "text"
    assert msgspec.json.decode(item["text"]) == read["structuredContent"]
    assert ": " not in item["text"]
    assert read["isError"] is False


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.text(), max_size=3), max_size=4))
def test_whatever_a_result_holds_its_two_forms_agree(structured: dict[str, object]) -> None:
    read = msgspec.json.decode(result(structured))
    assert read["structuredContent"] == structured
    assert msgspec.json.decode(read["content"][0]["text"]) == structured


def test_a_refusal_carries_code_message_and_details() -> None:
    read = msgspec.json.decode(error_result(UnknownTool("none here", tool="x", closest=["y"])))
    assert read == {
        "content": [{"type": "text", "text": "UnknownTool: none here"}],
        "structuredContent": {
            "error": {"code": "UnknownTool", "message": "none here", "tool": "x", "closest": ["y"]}
        },
        "isError": True,
    }


def test_of_an_unknown_argument_no_more_is_repeated_than_of_any_wrong_name() -> None:
    arguments = msgspec.json.encode({"name": "x", "k" * 200_000: 1})
    with pytest.raises(InvalidArguments, match="unknown field `kkk") as refused:
        decode_arguments(arguments, Shape, '{"name": "x"}')
    assert len(str(refused.value)) < MAX_QUOTED + 100
    assert str(refused.value).endswith('{"name": "x"}')


def test_arguments_that_fit_are_read() -> None:
    assert decode_arguments(b'{"name":"x","count":2}', Shape, "") == Shape(name="x", count=2)


def test_a_null_is_what_is_left_out_and_a_number_may_stand_in_quotes() -> None:
    assert decode_arguments(b'{"name":"x","count":null}', Shape, "") == Shape(name="x")
    assert decode_arguments(b'{"name":"x","count":"3"}', Shape, "") == Shape(name="x", count=3)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (b"{}", "missing required field `name`"),
        (b'{"name":1}', "Expected `str`, got `int`"),
        (b'{"name":"x","more":1}', "unknown field `more`"),
        (b"[]", "Expected `object`, got `array`"),
        (b"null", "Expected `object`, got `null`"),
        (b"{", "truncated"),
        (b'{"name":"\xff"}', "utf-8"),
        (b'{"name":"\\ud800"}', "truncated"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_the_problem_and_an_example(
    arguments: bytes, problem: str
) -> None:
    with pytest.raises(InvalidArguments) as caught:
        decode_arguments(arguments, Shape, '{"name": "NAME"}')
    assert problem in caught.value.message
    assert caught.value.message.endswith('Call it like this: {"name": "NAME"}')


def test_a_bomb_in_the_arguments_is_a_refusal() -> None:
    with pytest.raises(InvalidArguments):
        decode_arguments(b'{"name":' + b"[" * 100_000, Shape, "")


@pytest.mark.parametrize(
    ("names", "wanted", "text"),
    [
        ([], "x", "There are none."),
        (["fs"], "zzz", "There are: fs."),
        (["code", "fs"], "cod", "Did you mean code? There are: code, fs."),
        (["read_file", "read_files"], "readfile", "Did you mean read_file or read_files? "),
    ],
)
def test_after_an_unknown_name_the_closest_and_then_all_are_named(
    names: list[str], wanted: str, text: str
) -> None:
    assert choices(iter(names), wanted).startswith(text)


def test_names_in_an_error_are_bounded_and_the_rest_is_counted() -> None:
    names = [f"tool{number:03}" for number in range(100)]
    text = choices(names, "zzz")
    assert text == f"There are: {', '.join(names[:MAX_NAMED])} and {100 - MAX_NAMED} more."


def test_no_more_names_than_allowed_are_counted_as_more() -> None:
    assert "more" not in choices([f"t{number}" for number in range(MAX_NAMED)], "zzz")


CONFIG: dict[str, Any] = {"mcpServers": servers("git", "fs")}


@pytest.mark.parametrize(
    ("next_retry_at", "shown"),
    [(None, {}), (1012.3456, {"nextRetryInMs": 2346}), (1000.0, {"nextRetryInMs": 0})],
)
def test_a_server_that_is_down_is_described_with_reason_and_next_try(
    next_retry_at: float | None, shown: dict[str, int]
) -> None:
    fact = status(
        "git",
        ServerState.BACKOFF,
        reason="exited with status 1",
        cause=Cause.EXITED,
        since=1000.12345,
        attempt=3,
        next_retry_at=next_retry_at,
    )
    entry = after(catalog_of(CONFIG), [fact]).servers["git"]
    assert unavailable_entry(entry, 1010.0) == {
        "state": "backoff",
        "reason": "exited with status 1",
        "cause": "exited",
        "since": 1000.123,
        "attempt": 3,
        **shown,
    }


@pytest.mark.parametrize("text", ["short", "long " * 100, "語" * 100, '"' * 100, "\n" * 100])
def test_a_text_is_cut_to_what_json_takes_for_it(text: str) -> None:
    assert size_of(cut(text, 80)) <= 84
    assert (cut(text, 80) == text) == (size_of(text) <= 80)


@pytest.mark.parametrize("name", ["x" * MAX_QUOTED, "\0" * 50, "語" * 500, "it's " * 100])
def test_of_a_wrong_name_so_much_is_quoted_as_a_real_one_may_have(name: str) -> None:
    assert size_of(quoted(name)) <= MAX_QUOTED + 10
    assert quoted(name)[0] == quoted(name)[-1]


def test_of_many_names_those_are_given_that_have_room_and_the_others_are_counted() -> None:
    names = [f"{number:0100}" for number in range(9)]
    assert choices(names, "x", room=350).endswith(f"There are: {names[0]}, {names[1]}, {names[2]} and 6 more.")
    assert some_of(names, 0) == names[:1]
