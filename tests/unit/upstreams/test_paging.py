"""Listing to the end, and not beyond it."""

from typing import Any

import pytest
import trio

from daemon.catalog.listing import MAX_COMMAS, MAX_LISTED
from daemon.causes import Cause
from daemon.errors import ListingFault, UpstreamLost
from daemon.model import Kind
from daemon.upstreams.server_lists import LONG_PAGE, MAX_LIST_BYTES, MAX_PAGES, list_all
from tests.unit.cases import cases
from tests.unit.upstreams.transports.replies import DEATH, SILENCE, TableConnection, refusal


def page(*names: str, cursor: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"tools": [{"name": name} for name in names]}
    return found if cursor is None else {**found, "nextCursor": cursor}


async def listed(*replies: Any) -> tuple[list[bytes], TableConnection]:
    connection = TableConnection(tools__list=list(replies))
    tools = await list_all(connection, Kind.TOOL, seconds=15.0)
    return [bytes(tool) for tool in tools], connection


@cases("pages", "names", "cursors")
async def test_pages_are_followed_in_order_to_the_end(
    pages: list[Any], names: str, cursors: list[str | None]
) -> None:
    tools, connection = await listed(*pages)
    assert tools == [b'{"name": "%b"}' % name.encode() for name in names]
    asked: list[dict[str, object]] = [{} if each is None else {"cursor": each} for each in cursors]
    assert connection.said == [("tools/list", params) for params in asked]
    assert set(connection.patience) == {15.0}
    with pytest.raises(ListingFault):
        await listed(*pages[:-1], {**pages[-1], "nextCursor": "z"}, refusal())


async def test_tools_are_handed_over_as_they_came_however_malformed() -> None:
    tools, _ = await listed(b'{"tools":[1,null,{"name":7},{ "name" : "a" }]}')
    assert tools == [b"1", b"null", b'{"name":7}', b'{ "name" : "a" }']


@pytest.mark.parametrize("pages", [1, 2, 5])
async def test_a_cursor_that_comes_again_is_named(pages: int) -> None:
    cursors = [*map(str, range(pages)), "0"]
    with pytest.raises(ListingFault, match="repeats the cursor '0'"):
        await listed(*[page("a", cursor=cursor) for cursor in cursors])


async def test_cursors_without_end_are_cut_off() -> None:
    with pytest.raises(ListingFault, match=f"more than {MAX_PAGES} pages"):
        await listed(*[page(cursor=str(number)) for number in range(MAX_PAGES + 1)])


async def test_no_more_pages_are_asked_for_once_there_are_too_many_tools() -> None:
    names = [f"t{number}" for number in range(MAX_LISTED // 2)]
    replies = [page(*names, "more", cursor=str(number)) for number in range(3)]
    tools, connection = await listed(*replies)
    assert len(connection.said) == 2
    assert len(tools) > MAX_LISTED


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (refusal(-32603, "database is down"), "tools/list was refused: database is down"),
        (SILENCE, "no answer to tools/list within 15 s"),
        (b"[]", "the answer to tools/list"),
        (b"{}", "the answer to tools/list"),
        (b'{"tools":{}}', "the answer to tools/list"),
        (b'{"tools":[],"nextCursor":7}', "the answer to tools/list"),
    ],
)
async def test_what_went_wrong_is_named(reply: Any, text: str) -> None:
    with pytest.raises(ListingFault, match=text):
        await listed(reply)


async def test_a_lost_connection_is_no_failure_of_the_listing() -> None:
    with pytest.raises(UpstreamLost):
        await listed(DEATH)


async def test_a_long_page_is_read_while_others_go_on() -> None:
    count = LONG_PAGE // len(page("a" * 100)["tools"])
    names = ["a" * 100 + str(number) for number in range(count // 100)]
    turns: list[str] = []

    async def go_on() -> None:
        await trio.lowlevel.checkpoint()
        turns.append("somebody else")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(go_on)
        tools, _ = await listed(page(*names))
        turns.append("read")
    assert len(tools) == len(names)
    assert turns == ["somebody else", "read"]


async def test_a_long_page_that_is_none_is_refused_like_a_short_one() -> None:
    with pytest.raises(ListingFault, match="cannot read the answer to tools/list"):
        await listed(b'{"tools":7,"x":"' + b"x" * LONG_PAGE + b'"}')


async def test_pages_that_are_too_large_together_are_no_list() -> None:
    large = "x" * (MAX_LIST_BYTES // 4)
    with pytest.raises(ListingFault, match=f"more than {MAX_LIST_BYTES} bytes") as fault:
        await listed(*[page(large, cursor=str(number)) for number in range(9)])
    assert fault.value.reason.cause is Cause.LIST_ENDLESS


async def test_of_one_page_no_more_is_kept_than_tells_that_there_is_more() -> None:
    tools, _ = await listed(page(*map(str, range(2 * MAX_LISTED))))
    assert len(tools) == MAX_LISTED + 1


async def test_a_page_of_millions_is_not_taken_apart() -> None:
    with pytest.raises(ListingFault, match="too large for a list"):
        await listed(b'{"tools":[1' + b",1" * (MAX_COMMAS + 1) + b"]}")
