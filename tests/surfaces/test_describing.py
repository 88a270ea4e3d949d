"""Descriptions: short, in parts where they are long, and honest about what is down."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from daemon.errors import InvalidArguments, SchemaFetchError
from daemon.states import ServerState
from daemon.surfaces.describing import (
    PAGE_BYTES,
    definition,
    paged,
    require_lists,
    rest,
    starting,
    unavailable,
    unlisted,
)
from tests.catalog.samples import after, catalog_of, failed, listed, servers, status, tool
from tests.surfaces.samples import view_of

BEFORE = catalog_of({"mcpServers": servers("a", "b")})


def plain(value: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def test_a_definition_holds_what_a_caller_needs_and_nothing_empty() -> None:
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
    assert plain(definition(full, "shown")) == {
        "description": "shown",
        "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
        "schemaHash": full.schema_hash[:12],
    }
    bare = tool("a", "x", outputSchema=None, annotations={})
    assert list(plain(definition(bare, ""))) == ["description", "inputSchema", "schemaHash"]


LARGE = [
    ("t" + str(number), tool("a", f"t{number}", description="x" * 1000), "y" * 1000) for number in range(700)
]


def test_what_exceeds_one_answer_comes_in_parts_that_hold_every_tool_once() -> None:
    seen: list[str] = []
    cursor = None
    while True:
        page = paged(LARGE, cursor)
        assert len(msgspec.json.encode(page.tools)) <= PAGE_BYTES * 1.2
        seen += page.tools
        assert page.left == len(LARGE) - len(seen)
        if page.cursor is None:
            break
        cursor = page.cursor
    assert seen == [name for name, _, _ in LARGE]


def test_one_tool_that_is_too_large_comes_alone() -> None:
    huge = tool("a", "huge")
    page = paged([("huge", huge, "x" * PAGE_BYTES * 2), ("next", huge, "")], None)
    assert list(page.tools) == ["huge"]
    assert page.left == 1


def test_the_rest_is_told_as_a_count_and_the_exact_call() -> None:
    page = paged(LARGE, None)
    assert rest(page, "get_tools", {"category": "c"}) == {
        "toolsLeft": page.left,
        "next": {"name": "get_tools", "arguments": {"category": "c", "cursor": page.cursor}},
    }
    assert rest(paged(LARGE[:2], None), "get_tools", {}) == {}


@pytest.mark.parametrize("cursor", ["", "x", "-1", "701", "1e2", "0x1", "\u0663", "9" * 5000])
def test_a_cursor_that_nobody_gave_out_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        paged(LARGE, cursor)
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(
    ("state", "is_unlisted", "is_starting"),
    [
        (ServerState.STOPPED, True, True),
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
