"""`tools/list` to its end: all pages, within bounds that a broken server cannot break."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from daemon.catalog.listing import MAX_TOOLS, read_page
from daemon.causes import Cause
from daemon.errors import ListingFault, UpstreamTimeout
from daemon.wire.envelope import MAX_ERROR_BYTES
from daemon.wire.requests import RemoteError

if TYPE_CHECKING:
    from msgspec import Raw

    from daemon.catalog.listing import ListPage
    from daemon.ports import UpstreamConnection

MAX_PAGES = 1000
"""A cursor that never ends is a server's bug; real servers send one page, rarely a dozen."""


LONG_PAGE = 64 * 1024
"""Bytes of a page above which a worker thread splits it; a shorter one takes less time than to ask one."""

PAGES_SHARE = 10
"""All pages together may take so many times what one may: a listing is a matter of seconds."""


async def list_all(connection: UpstreamConnection, *, seconds: float) -> list[Raw]:
    """All raw tools of a server (`_list_pages`), within a bound for the whole."""
    with trio.move_on_after(seconds * PAGES_SHARE):
        return await _list_pages(connection, seconds=seconds)
    longest = seconds * PAGES_SHARE
    text = f"tools/list did not come to its end within {longest:g} s"
    raise ListingFault(text, Cause.LIST_TIMEOUT, seconds=longest)


async def _list_pages(connection: UpstreamConnection, *, seconds: float) -> list[Raw]:
    """All raw tools of a server.

    Args:
        connection: where to ask.
        seconds: how long each page may take.

    Raises:
        ListingFault: the server refuses, answers something else, does not answer in time, or its pages
            do not end.
        UpstreamLost: the connection ended.
    """
    tools: list[Raw] = []
    seen: set[str] = set()
    params: dict[str, object] = {}
    for _ in range(MAX_PAGES):
        try:
            page = await _read(await connection.request("tools/list", params, timeout=seconds))
        except RemoteError as error:
            text = f"tools/list was refused: {error}"
            raise ListingFault(text, Cause.LIST_REFUSED, error=str(error)) from None
        except UpstreamTimeout:
            text = f"no answer to tools/list within {seconds:g} s"
            raise ListingFault(text, Cause.LIST_TIMEOUT, seconds=seconds) from None
        except ValueError as error:
            raise ListingFault(str(error), Cause.LIST_REFUSED, error=str(error)) from None
        tools += page.tools
        if not page.nextCursor or len(tools) > MAX_TOOLS:
            return tools
        if page.nextCursor in seen:
            # Whoever shows it cuts it where it holds no secret.
            text = f"tools/list repeats the cursor {page.nextCursor[:MAX_ERROR_BYTES]!r}"
            raise ListingFault(text, Cause.LIST_ENDLESS)
        seen.add(page.nextCursor)
        params = {"cursor": page.nextCursor}
    raise ListingFault(f"tools/list has more than {MAX_PAGES} pages", Cause.LIST_ENDLESS)


async def _read(result: bytes) -> ListPage:
    return read_page(result) if len(result) < LONG_PAGE else await trio.to_thread.run_sync(read_page, result)
