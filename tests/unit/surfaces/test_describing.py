"""Descriptions: short, in parts where they are long, and honest about what is down."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from daemon.errors import InvalidArguments, SchemaFetchError
from daemon.states import ServerState
from daemon.surfaces.describing import (
    definition,
    outlined,
    paged,
    position,
    require_lists,
    starting,
    unavailable,
    unlisted,
)
from tests.unit.catalog.samples import after, catalog_of, failed, listed, servers, status, tool
from tests.unit.surfaces.samples import view_of

BEFORE = catalog_of({"mcpServers": servers("a", "b")})


def plain(value: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def test_a_definition_holds_what_a_caller_needs_and_nothing_empty() -> None:
    view = view_of(BEFORE)
    full = tool(
        "a",
        "x",
        title="X",
        description="does x",
        inputSchema={"$schema": "s", "type": "object", "required": []},
        outputSchema={"type": "object", "properties": {}},
        annotations={"readOnlyHint": True, "title": None, "x": {}},
        _meta={"a": 1},
        icons=[],
    )
    assert plain(definition(view, full, "shown")) == {
        "description": "shown",
        "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
        "schemaHash": full.schema_hash[:12],
    }
    bare = tool("a", "x", outputSchema=None, annotations={})
    assert list(plain(definition(view, bare, ""))) == ["description", "inputSchema", "schemaHash"]


LARGE = [
    ("t" + str(number), tool("a", f"t{number}", description="x" * 1000), "y" * 1000) for number in range(700)
]


ROOM = 32_000


def test_what_exceeds_one_answer_comes_in_parts_that_hold_every_tool_once() -> None:
    seen: list[str] = []
    while len(seen) < len(LARGE):
        page = paged(view_of(BEFORE), LARGE, ROOM, len(seen))
        assert len(msgspec.json.encode(page.tools)) <= ROOM
        seen += page.tools
        assert (page.end, page.left, page.whole) == (len(seen), len(LARGE) - len(seen), True)
    assert seen == [name for name, _, _ in LARGE]


def test_one_tool_that_is_too_large_comes_alone() -> None:
    huge = tool("a", "huge")
    page = paged(view_of(BEFORE), [("huge", huge, "x" * ROOM * 2), ("next", huge, "")], ROOM)
    assert list(page.tools) == ["huge"]
    assert page.left == 1


def test_an_outline_has_a_line_for_each_tool_in_parts_where_even_those_are_too_many() -> None:
    view = view_of(after(BEFORE, [status("a"), listed("a")]))
    page = outlined(view, LARGE[:100], ROOM)
    assert (len(page.tools), page.left, page.whole) == (100, 0, False)
    assert page.tools["t0"] == {"description": f"{'y' * 159}…"}
    seen: list[str] = []
    while len(seen) < len(LARGE):
        page = outlined(view, LARGE, ROOM, len(seen))
        assert len(msgspec.json.encode(page.tools)) <= ROOM
        seen += page.tools
    assert seen == [name for name, _, _ in LARGE]


@pytest.mark.parametrize("cursor", ["", "x", "-1", "701", "1e2", "0x1", "\u0663", "9" * 5000])
def test_a_cursor_that_nobody_gave_out_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        position(cursor, 700)
    assert len(caught.value.message) < 200


def test_a_cursor_that_was_given_out_is_a_position() -> None:
    assert (position(None, 7), position("0", 7), position("7", 7)) == (0, 0, 7)


@pytest.mark.parametrize(
    ("state", "is_unlisted", "is_starting"),
    [
        (ServerState.STOPPED, True, True),
        (ServerState.QUEUED, True, True),
        (ServerState.STARTING, True, True),
        (ServerState.READY, True, False),
        (ServerState.DORMANT, True, False),
        (ServerState.BACKOFF, False, False),
        (ServerState.FAILED, False, False),
    ],
)
def test_who_sleeps_may_be_woken_and_who_starts_may_be_waited_for(
    state: ServerState, *, is_unlisted: bool, is_starting: bool
) -> None:
    (entry, _) = after(BEFORE, [status("a", state)]).servers.values()
    assert unlisted([entry]) == (("a",) if is_unlisted else ())
    assert starting([entry]) == (("a",) if is_starting else ())


def test_who_has_listed_or_failed_to_is_not_waited_for() -> None:
    catalog = after(BEFORE, [status("a"), status("b"), listed("a"), failed("b")])
    assert unlisted(catalog.servers.values()) == ()


def test_a_server_that_is_up_and_does_not_list_is_named() -> None:
    with pytest.raises(SchemaFetchError, match="server b does not list its tools: timed out"):
        require_lists(after(BEFORE, [status("b"), failed("b")]).servers.values())
    require_lists(after(BEFORE, [status("b"), failed("b"), listed("b")]).servers.values())


def test_nothing_is_said_of_what_is_up() -> None:
    catalog = after(BEFORE, [status("a"), status("b", ServerState.BACKOFF)])
    a, b = catalog.servers.values()
    assert unavailable(view_of(catalog), [a], []) == {}
    assert list(unavailable(view_of(catalog), [a, b], ["x", "x"])) == ["unavailableTools", "unavailableServers"]
    assert unavailable(view_of(catalog), [a], ["x", "x"]) == {"unavailableTools": ["x"]}


def test_of_very_much_that_is_down_the_first_is_named_and_the_rest_counted() -> None:
    names = [f"s{number}" for number in range(200)]
    down = [status(name, ServerState.FAILED, reason="no such command") for name in names]
    catalog = after(catalog_of({"mcpServers": servers(*names)}), down)
    told = plain(unavailable(view_of(catalog), catalog.servers.values(), [f"tool_{n}" for n in range(2000)]))
    assert told["unavailableTools"][0] == "tool_0"
    assert len(told["unavailableTools"]) + told["unavailableToolsLeft"] == 2000
    assert len(told["unavailableServers"]) + told["unavailableServersLeft"] == 200
    assert len(msgspec.json.encode(told)) < ROOM // 2 + 200
