"""Lists in pages: all of it once, as the bytes given, and no position that was never given out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from daemon.clients.connection import UnknownCursor
from daemon.clients.requests.tools import list_page, list_result


def read(raw: bytes) -> Any:
    return msgspec.json.decode(raw)


TOOLS = (b'{"name":"a" ,  "x":1.0}', b'{"name":"b"}', b'{"name":"c"}')


def answered(
    tools: tuple[bytes, ...], cursor: str | None, *, modern: bool = False, page_bytes: int = 1000
) -> bytes:
    return list_result(tools, list_page(tools, cursor, page_bytes), modern=modern)


def listed(cursor: str | None = None, *, page_bytes: int = 1000) -> Any:
    return read(answered(TOOLS, cursor, page_bytes=page_bytes))


def test_a_list_that_fits_is_one_page_of_the_bytes_given() -> None:
    whole = answered(TOOLS, None)
    assert whole == b'{"tools":[%b]}' % b",".join(TOOLS)
    assert answered((), None) == b'{"tools":[]}'
    assert list_result(TOOLS, range(1, 2), modern=False, member="prompts") == (
        b'{"prompts":[{"name":"b"}],"nextCursor":"2"}'
    )
    modern = answered(TOOLS[:1], None, modern=True)
    assert TOOLS[0] in modern
    assert read(modern) == {
        "resultType": "complete",
        "tools": [{"name": "a", "x": 1.0}],
        "ttlMs": 0,
        "cacheScope": "private",
    }


@pytest.mark.parametrize("page_bytes", [1, 12, 25, 34, 36, 1000])
def test_a_list_in_pages_holds_every_tool_once_and_each_page_at_least_one(page_bytes: int) -> None:
    seen: list[str] = []
    cursor = None
    while True:
        page = listed(cursor, page_bytes=page_bytes)
        names = [tool["name"] for tool in page["tools"]]
        assert names
        assert len(names) == 1 or sum(len(tool) for tool in TOOLS if read(tool)["name"] in names) <= page_bytes
        seen += names
        cursor = page.get("nextCursor")
        if cursor is None:
            break
    assert seen == ["a", "b", "c"]


def test_the_cursor_of_a_list_that_became_shorter_is_its_end() -> None:
    assert listed("3") == {"tools": []}


@pytest.mark.parametrize("cursor", ["", "x", "-1", "4", "1.0", "\u0661", "9" * 10_000])
def test_a_cursor_that_nobody_gave_out_is_refused(cursor: str) -> None:
    with pytest.raises(UnknownCursor):
        listed(cursor)
