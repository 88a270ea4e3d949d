"""What all surfaces share: results, refusals, and texts that tell a model what to do next."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec import Raw

from daemon.causes import Cause
from daemon.errors import CallError, InvalidArguments, UnknownTool
from daemon.states import ServerState
from daemon.surfaces.answers import (
    MAX_NAMED,
    MAX_QUOTED,
    SHORT_LINE,
    choices,
    cut,
    decode_arguments,
    error_result,
    fitting,
    lines_within,
    names_within,
    quoted,
    result,
    room_of,
    size_of,
    some_of,
    unavailable_entry,
)
from daemon.surfaces.table import SURFACES
from tests.unit.catalog.samples import after, catalog_of, listed, servers, status, tool
from tests.unit.surfaces.samples import act, answer, text_of, view_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daemon.surfaces.surface import View


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


def test_a_null_is_what_is_left_out_and_a_number_may_stand_in_quotes() -> None:
    for sent, count in ((b'{"name":"x","count":null}', 0), (b'{"name":"x","count":"3"}', 3)):
        assert decode_arguments(sent, Shape, "") == Shape(name="x", count=count)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (b"{}", "missing required field `name`"),
        (b'{"name":1}', "Expected `str`, got `int`"),
        (b'{"name":"x","more":1}', "unknown field `more`"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{", "truncated"),
        (b'{"name":"\xff"}', "utf-8"),
        (b'{"name":' + b"[" * 100_000, ""),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_the_problem_and_an_example(
    arguments: bytes, problem: str
) -> None:
    with pytest.raises(InvalidArguments) as caught:
        decode_arguments(arguments, Shape, '{"name": "NAME"}')
    assert problem in caught.value.message
    assert caught.value.message.endswith('Call it like this: {"name": "NAME"}')


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
    assert "more" not in choices(names[:MAX_NAMED], "zzz")


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


PROSE = "Looks for what was asked for and gives it back, in the order in which it was put there before. "
SCHEMA = {
    "type": "object",
    "properties": {f"parameter_{n}": {"type": "string", "description": PROSE} for n in range(6)},
}
MANY = 344
"""Tools of the largest server that was recorded."""

NAMES = [f"look_for_the_thing_number_{number}" for number in range(MANY)]


@cache
def view(tokens: int = 8000, state: ServerState = ServerState.READY, *, crowd: int = 3) -> View:
    """One server with very many tools, and others with a few, of which two are shown or all are down."""
    small = [f"small_{number}" for number in range(crowd)]
    known = [tool("large", name, description=PROSE * 3, inputSchema=SCHEMA) for name in NAMES]
    facts = [listed("large", *known)]
    facts += [listed(name, f"{name}_look", f"{name}_put") for name in small]
    config = {
        "mcpServers": servers("large", *small),
        "profiles": {"default": {"answerTokens": tokens}},
    }
    told = [status(name, state, reason="it ended: " + "no such file. " * 30) for name in ("large", *small)]
    return view_of(after(catalog_of(config), [*facts, *told]))


def read_of(result: bytes) -> int:
    """Bytes that a model reads of an answer: clients show it the text or the structure."""
    decoded = msgspec.json.decode(result)
    (item,) = decoded["content"]
    return max(len(item["text"].encode()), size_of(decoded["structuredContent"]))


def walked(surface: str, view: View, name: str, arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """An answer and all that its `next` leads to; none is larger than the profile says."""
    step: dict[str, Any] | None = {"name": name, "arguments": arguments}
    while step:
        action = act(SURFACES[surface], view, step["name"], step["arguments"])
        assert read_of(action.result) <= room_of(view), (step, read_of(action.result))  # type: ignore[union-attr]
        found = msgspec.json.decode(action.result)["structuredContent"]  # type: ignore[union-attr]
        yield found
        step = found.get("meta", {}).get("next")


@pytest.mark.parametrize("tokens", [1000, 2000, 8000, 65_536])
@pytest.mark.parametrize("state", [ServerState.READY, ServerState.FAILED])
@pytest.mark.parametrize(
    ("surface", "name", "arguments"),
    [
        ("category", "get-category-tools", {"category": "large"}),
        ("category", "get-category-tools", {"category": "large", "toolNames": NAMES}),
        ("browse", "get_tools", {"category": "large"}),
        ("browse", "get_tools", {"category": "large", "toolNames": NAMES[:9]}),
        ("browse", "list_categories", {}),
        ("search", "search_tools", {"query": "look for the thing"}),
        ("search", "search_tools", {"query": "look for the thing", "max_results": 100}),
        ("load", "load_mcp_server", {"name": "look for the thing"}),
        ("load", "load_mcp_server", {"name": "large"}),
        ("load", "load_mcp_tool", {"names": NAMES[:50]}),
        ("load", "load_mcp_tool", {"names": ["no such thing at all, whatever it is"] * 3 + NAMES[:9]}),
    ],
)
def test_no_answer_is_larger_than_the_profile_says(
    surface: str, name: str, arguments: dict[str, Any], tokens: int, state: ServerState
) -> None:
    for number, _found in enumerate(walked(surface, view(tokens, state), name, arguments)):
        assert number < MANY, "it goes on for ever"


LONG = [f"{'long_' * 24}{number:08}" for number in range(60)]
"""Names as long as they may be."""


@cache
def wide(tokens: int) -> View:
    """A server whose tools have long names, and servers with long names that have not listed any."""
    silent = [f"silent-{'x' * 50}-{number}" for number in range(30)]
    config = {"mcpServers": servers("wide", *silent), "profiles": {"default": {"answerTokens": tokens}}}
    return view_of(after(catalog_of(config), [status("wide"), listed("wide", *LONG)]))


@pytest.mark.parametrize("wrong", ["x" * 200_000, "\0" * 200_000, "語" * 9999, "\u2028" * 300, LONG[0] + "0"])
@pytest.mark.parametrize(
    ("surface", "name", "arguments"),
    [
        ("category", "call-category-tool", {"category": "wide", "name": "WRONG", "args": {}}),
        ("category", "get-category-tools", {"category": "WRONG"}),
        ("browse", "call_tool", {"tool_name": "WRONG", "arguments": {}}),
        ("browse", "get_tools", {"category": "wide", "toolNames": ["WRONG"]}),
        ("browse", "get_tools", {"category": "wide", "toolNames": ["WRONG", LONG[0]]}),
        ("browse", "get_tools", {"category": "WRONG"}),
        ("load", "load_mcp_tool", {"names": ["WRONG"]}),
        ("load", "load_mcp_tool", {"names": ["y"], "server_name": "WRONG"}),
        ("load", "load_mcp_tool", {"names": ["y"], "WRONG": 1}),
        ("load", "load_mcp_server", {"name": "WRONG"}),
    ],
)
def test_no_refusal_is_larger_than_the_profile_says(
    surface: str, name: str, arguments: dict[str, Any], wrong: str
) -> None:
    said = msgspec.json.encode(arguments).replace(b'"WRONG"', msgspec.json.encode(wrong))
    try:
        found = act(SURFACES[surface], wide(500), name, said, patient=False).result  # type: ignore[union-attr]
    except CallError as error:
        found = error_result(error)
    assert read_of(found) <= 2000


def test_a_hundred_and_fifty_servers_are_listed_in_parts_each_once() -> None:
    crowd = view(crowd=150)
    names = [
        category["name"]
        for found in walked("browse", crowd, "list_categories", {})
        for category in found["categories"]
    ]
    assert names == list(crowd.categories)
    assert len(list(walked("browse", view(1000, crowd=150), "list_categories", {}))) > 1
    assert "list_categories({" in text_of(act(SURFACES["browse"], view(1000, crowd=150), "list_categories"))


@pytest.mark.parametrize(("surface", "asking"), [("category", "get-category-tools"), ("browse", "get_tools")])
def test_a_category_that_is_too_large_is_outlined_and_its_tools_described_by_name(
    surface: str, asking: str
) -> None:
    (outline,) = walked(surface, view(), asking, {"category": "large"})
    assert list(outline["tools"]) == NAMES
    assert all(len(each.pop("description")) >= SHORT_LINE for each in outline["tools"].values())
    assert not any(outline["tools"].values())
    assert act(SURFACES[surface], view(), asking, {"category": "large"}).shown == ()  # type: ignore[union-attr]
    call = {"category": "large", "toolNames": NAMES[:2]}
    assert f"{asking}({msgspec.json.encode(call).decode()})" in outline["meta"]["note"]
    described = answer(SURFACES[surface], view(), asking, call)
    assert list(described["tools"]) == NAMES[:2]
    assert described["tools"][NAMES[0]]["inputSchema"] == SCHEMA


def test_of_tools_that_are_named_as_many_as_fit_are_described_and_the_others_named_again() -> None:
    seen: list[str] = []
    asked = {"category": "large", "toolNames": NAMES[:300]}
    for found in walked("category", view(), "get-category-tools", asked):
        assert all("inputSchema" in each for each in found["tools"].values())
        seen += found["tools"]
        assert found["meta"].get("toolsLeft", 0) == 300 - len(seen)
    assert seen == NAMES[:300]


def test_a_tool_that_is_larger_than_an_answer_is_described_alone() -> None:
    huge = tool("a", "huge", description="x" * 100_000)
    catalog = after(catalog_of({"mcpServers": servers("a")}), [status("a"), listed("a", huge, "small")])
    found = answer(SURFACES["category"], view_of(catalog), "get-category-tools", {"category": "a"})
    assert list(found["tools"]) == ["huge", "small"]
    assert "inputSchema" not in found["tools"]["huge"]
    asked = {"category": "a", "toolNames": ["huge", "small"]}
    found = answer(SURFACES["category"], view_of(catalog), "get-category-tools", asked)
    assert list(found["tools"]) == ["huge"]
    assert found["meta"]["next"]["arguments"] == {"category": "a", "toolNames": ["small"]}


def test_only_so_much_of_what_is_found_is_listed_as_fits_an_answer() -> None:
    action = act(SURFACES["search"], view(), "search_tools", {"query": "look thing", "max_results": 100})
    found = msgspec.json.decode(action.result)["structuredContent"]["tools"]  # type: ignore[union-attr]
    listed_now = [each["name"] for each in found if each.get("listed", True)]
    assert [key[1] for key in action.loading.tools] == listed_now  # type: ignore[union-attr]
    assert 0 < len(listed_now) < len(found)
    assert "search for one of them by its name" in text_of(action)


def test_as_many_members_fit_as_have_room_and_no_more_are_made() -> None:
    made: list[int] = []

    def members() -> Iterator[tuple[str, object]]:
        for number in range(100):
            made.append(number)
            yield f"n{number}", "x" * 90

    fitted = fitting(members(), 500)
    assert list(fitted) == ["n0", "n1", "n2", "n3", "n4"]
    assert size_of(fitted) <= 500
    assert made == [0, 1, 2, 3, 4, 5]
    assert list(fitting([("first", "x" * 90), ("second", 1)], 5)) == ["first"]
    assert fitting([], 5) == {}
    assert names_within(["a", "b"], 100) == ["a", "b"]


def test_lines_are_cut_alike_before_any_is_left_out() -> None:
    names = [f"n{number}" for number in range(50)]
    assert lines_within(names, lambda _number: "x" * 200, 10_000)["n0"] == f"{'x' * 159}…"
    narrow = lines_within(names, lambda _number: "x" * 200, 4000)
    assert list(narrow) == names
    assert size_of(narrow) <= 4000
    assert SHORT_LINE <= len(narrow["n0"]) < 90
    assert len(lines_within(names, lambda _number: "x" * 200, 1000)) < 50
    assert list(lines_within(names, lambda _number: "語" * 200, 1)) == ["n0"]
