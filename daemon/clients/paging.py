"""Lists in pages, as clients are given them: a cursor is a position in the list (MCP, pagination)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.protocol import UNCACHED

if TYPE_CHECKING:
    from collections.abc import Sequence

CURSOR_DIGITS = 9
"""Digits of the longest cursor, a position in a list."""


class UnknownCursor(ValueError):
    """A cursor was never given out (MCP, pagination: answered as invalid params)."""


def list_page(items: Sequence[bytes], cursor: str | None, page_bytes: int) -> range:
    """The items in a page of a list: as many from the cursor on as fit, at least one.

    Args:
        items: raw JSON objects.
        cursor: the cursor that an earlier page gave out; None begins.
        page_bytes: how long a page may become.

    Raises:
        UnknownCursor: the cursor was never given out.
    """
    start = _position(cursor, len(items))
    end, size = start, 0
    while end < len(items) and (end == start or size + len(items[end]) <= page_bytes):
        size += len(items[end])
        end += 1
    return range(start, end)


def list_result(items: Sequence[bytes], page: range, *, modern: bool, member: str = "tools") -> bytes:
    """The answer to a request for a page of a list.

    Args:
        items: raw JSON objects.
        page: those in the answer (`list_page`).
        modern: whether the request belongs to the 2026-07-28 era.
        member: the member of the result that holds them.
    """
    rest = b"" if page.stop == len(items) else b',"nextCursor":"%d"' % page.stop
    shown = b'"%b":[%b]%b' % (member.encode(), b",".join(items[page.start : page.stop]), rest)
    if not modern:
        return b"{%b}" % shown
    return b'{"resultType":"complete",%b,%b}' % (shown, UNCACHED)


def _position(cursor: str | None, count: int) -> int:
    if cursor is None:
        return 0
    if cursor.isascii() and cursor.isdigit() and len(cursor) <= CURSOR_DIGITS and int(cursor) <= count:
        return int(cursor)
    raise UnknownCursor("unknown cursor: begin again without one")
