"""What all surfaces share: results, refusals, and texts that tell a model what to do next."""

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import msgspec
import pytest
from msgspec import Raw

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
    lines_within,
    names_within,
    result,
    room_of,
    size_of,
)
from daemon.surfaces.calling import find
from daemon.surfaces.describing import position, starting, unavailable, unlisted
from daemon.surfaces.surface import AwaitListing, View
from daemon.surfaces.table import SURFACES
from tests.pairwise import at_night, pairwise
from tests.unit.cases import cases
from tests.unit.catalog.samples import after, catalog_of, listed, servers, status, tool, up
from tests.unit.surfaces.samples import act, answer, refused, text_of, view_of


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


def test_a_refusal_carries_code_message_and_details_and_its_text_those_that_a_model_goes_on_with() -> None:
    error = UnknownTool("none here", tool="x", schema={"a": Raw(b"[1]")}, printed="so\n")
    details = {"tool": "x", "schema": {"a": [1]}, "printed": "so\n"}
    text = 'UnknownTool: none here\nschema: {"a":[1]}\nprinted: "so\\n"'
    assert msgspec.json.decode(error_result(error)) == {
        "content": [{"type": "text", "text": text}],
        "structuredContent": {"error": {"code": "UnknownTool", "message": "none here", **details}},
        "isError": True,
    }


def test_of_an_unknown_argument_no_more_is_repeated_than_of_any_wrong_name() -> None:
    arguments = msgspec.json.encode({"name": "x", "k" * 200_000: 1})
    with pytest.raises(InvalidArguments, match="unknown field `kkk") as caught:
        decode_arguments(arguments, Shape, '{"name": "x"}')
    assert len(str(caught.value)) < MAX_QUOTED + 100
    assert str(caught.value).endswith('{"name": "x"}')


def test_a_null_is_what_is_left_out_and_a_number_may_stand_in_quotes() -> None:
    for sent, count in ((b'{"name":"x","count":null}', 0), (b'{"name":"x","count":"3"}', 3)):
        assert decode_arguments(sent, Shape, "") == Shape(name="x", count=count)


@cases("names", "wanted", "text")
def test_after_an_unknown_name_the_closest_and_then_all_are_named(
    names: list[str], wanted: str, text: str
) -> None:
    assert choices(iter(names), wanted).startswith(text)


def test_names_in_an_error_are_bounded_and_the_rest_is_counted() -> None:
    names = [f"tool{number:03}" for number in range(100)]
    text = choices(names, "zzz")
    assert text == f"There are: {', '.join(names[:MAX_NAMED])} and {100 - MAX_NAMED} more."
    assert "more" not in choices(names[:MAX_NAMED], "zzz")


@pytest.mark.parametrize("text", ["short", "long " * 100, "語" * 100, '"' * 100, "\n" * 100])
def test_a_text_is_cut_to_what_json_takes_for_it(text: str) -> None:
    assert size_of(cut(text, 80)) <= 84
    assert (cut(text, 80) == text) == (size_of(text) <= 80)


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
    config = {"mcpServers": servers("large", *small), "profiles": {"default": {"answerTokens": tokens}}}
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


ASKED: list[tuple[str, str, dict[str, Any]]] = [
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
]
STATES = (ServerState.READY, ServerState.FAILED)


@pytest.mark.parametrize(
    ("asked", "tokens", "state"),
    [
        *pairwise(range(len(ASKED)), (1000, 65_536), STATES),
        *at_night(product(range(len(ASKED)), (2000, 8000), STATES)),
    ],
)
def test_no_answer_is_larger_than_the_profile_says(asked: int, tokens: int, state: ServerState) -> None:
    surface, name, arguments = ASKED[asked]
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
@cases("surface", "name", "arguments")
def test_no_refusal_is_larger_than_the_profile_says(
    surface: str, name: str, arguments: dict[str, Any], wrong: str
) -> None:
    said = msgspec.json.encode(arguments).replace(b'"WRONG"', msgspec.json.encode(wrong))
    try:
        found = act(SURFACES[surface], wide(500), name, said, patient=False).result  # type: ignore[union-attr]
    except CallError as error:
        found = error_result(error)
    assert read_of(found) <= 2000


@cases("surface", "name", "sent")
def test_arguments_that_cannot_be_read_are_refused(surface: str, name: str, sent: str) -> None:
    refused(SURFACES[surface], view(), name, sent.encode(), InvalidArguments)


def test_sixty_servers_are_listed_in_parts_each_once() -> None:
    crowd = view(crowd=60)
    names = [
        category["name"]
        for found in walked("browse", crowd, "list_categories", {})
        for category in found["categories"]
    ]
    assert names == list(crowd.categories)
    assert len(list(walked("browse", view(1000, crowd=60), "list_categories", {}))) > 1
    assert "list_categories({" in text_of(act(SURFACES["browse"], view(1000, crowd=60), "list_categories"))


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


def test_a_tool_that_is_larger_than_an_answer_is_described_alone() -> None:
    huge = tool("a", "huge", description="x" * 100_000)
    catalog = up(a=[huge, "small"])
    found = answer(SURFACES["category"], view_of(catalog), "get-category-tools", {"category": "a"})
    assert list(found["tools"]) == ["huge", "small"]
    assert "inputSchema" not in found["tools"]["huge"]
    asked = {"category": "a", "toolNames": ["huge", "small"]}
    found = answer(SURFACES["category"], view_of(catalog), "get-category-tools", asked)
    assert list(found["tools"]) == ["huge"]
    assert found["meta"]["next"]["arguments"] == {"category": "a", "toolNames": ["small"]}


def test_of_names_and_lines_without_room_the_first_is_kept() -> None:
    assert names_within(["long", "longer"], 1) == ["long"]
    assert lines_within(["long", "longer"], str, 1) == {"long": "0"}


def test_only_so_much_of_what_is_found_is_listed_as_fits_an_answer() -> None:
    action = act(SURFACES["search"], view(), "search_tools", {"query": "look thing", "max_results": 100})
    found = msgspec.json.decode(action.result)["structuredContent"]["tools"]  # type: ignore[union-attr]
    listed_now = [each["name"] for each in found if each.get("listed", True)]
    assert [key[1] for key in action.loading.tools] == listed_now  # type: ignore[union-attr]
    assert 0 < len(listed_now) < len(found)
    assert "search for one of them by its name" in text_of(action)


# --- descriptions: short, in parts where they are long, and honest about what is down ------------------------


BEFORE = catalog_of({"mcpServers": servers("a", "b")})


def plain(value: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


ROOM = 32_000


@pytest.mark.parametrize("cursor", ["", "x", "-1", "701", "1e2", "0x1", "\u0663", "9" * 5000])
def test_a_cursor_that_nobody_gave_out_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        position(cursor, 700)
    assert len(caught.value.message) < 200


@cases("state", "is_unlisted", "is_starting")
def test_who_sleeps_may_be_woken_and_who_starts_may_be_waited_for(
    state: str, *, is_unlisted: bool, is_starting: bool
) -> None:
    (entry, _) = after(BEFORE, [status("a", ServerState(state))]).servers.values()
    assert unlisted([entry]) == (("a",) if is_unlisted else ())
    assert starting([entry]) == (("a",) if is_starting else ())


def test_of_very_much_that_is_down_the_first_is_named_and_the_rest_counted() -> None:
    names = [f"s{number}" for number in range(60)]
    down = [status(name, ServerState.FAILED, reason="no such command " * 9) for name in names]
    catalog = after(catalog_of({"mcpServers": servers(*names)}), down)
    told = plain(unavailable(view_of(catalog), catalog.servers.values(), [f"tool_{n}" for n in range(2000)]))
    assert told["unavailableTools"][0] == "tool_0"
    assert len(told["unavailableTools"]) + told["unavailableToolsLeft"] == 2000
    assert len(told["unavailableServers"]) + told["unavailableServersLeft"] == 60
    assert len(msgspec.json.encode(told)) < ROOM // 2 + 200


# --- a profile that shows less -------------------------------------------------------------------------------

RESTRICTED: dict[str, Any] = {
    "mcpServers": {**servers("a", "other", "asleep"), "off": {"command": "x", "enabled": False}},
    "categories": {"ca": {"server": "a"}},
    "profiles": {"only": {"categories": ["ca"], "includedOptionalTools": ["other/extra"]}},
}


def test_a_name_that_nobody_has_wakes_nobody_and_tells_of_nobody_outside_the_profile() -> None:
    catalog = after(
        catalog_of(RESTRICTED),
        [status("a"), listed("a", "x"), listed("other", "extra"), status("asleep", ServerState.DORMANT)],
    )
    for profile in ("only", "default"):
        with pytest.raises(UnknownTool) as caught:
            find(view_of(catalog, profile), "frobnicate", patient=True)
        assert ("asleep" in caught.value.message) is (profile == "default")
        assert "off" not in caught.value.message


def test_a_name_with_its_servers_wakes_that_server() -> None:
    catalog = after(catalog_of(RESTRICTED), [status("asleep", ServerState.DORMANT)])
    assert find(view_of(catalog), "asleep__x", patient=True) == AwaitListing(servers=("asleep",), calling=True)
