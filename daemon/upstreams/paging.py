"""A server's list of one kind, page after page to its end; bounded, since a server's pages may never end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from daemon.catalog.kinds import LISTS
from daemon.catalog.listing import MAX_LISTED, read_page
from daemon.causes import Cause
from daemon.errors import ListingFault, RequestTooLarge, UpstreamTimeout
from daemon.wire.envelope import MAX_ERROR_BYTES
from daemon.wire.requests import RemoteError

if TYPE_CHECKING:
    from msgspec import Raw

    from daemon.catalog.listing import ListPage
    from daemon.model import Kind
    from daemon.ports import UpstreamConnection

MAX_PAGES = 1000
"""Pages of one list: cursors that never end are a server's bug; real servers send one page, rarely a dozen."""

MAX_LIST_BYTES = 64 * 1024 * 1024
"""Bytes of all pages of one list: four of the largest messages. Ten thousand resources have some 5 MB."""

LONG_PAGE = 64 * 1024
"""Bytes of a page from which a worker thread splits it: for a shorter one, asking the thread takes longer."""

PAGES_SHARE = 10
"""How many times the limit of one page all pages together may take: a listing takes seconds."""


async def list_all(connection: UpstreamConnection, kind: Kind, *, seconds: float) -> list[Raw]:
    """List all of one kind, raw (`_list_pages`), within a bound for all pages together."""
    with trio.move_on_after(seconds * PAGES_SHARE):
        return await _list_pages(connection, kind, seconds=seconds)
    longest = seconds * PAGES_SHARE
    text = f"{LISTS[kind].method} did not come to its end within {longest:g} s"
    raise ListingFault(text, Cause.LIST_TIMEOUT, seconds=longest)


async def _list_pages(connection: UpstreamConnection, kind: Kind, *, seconds: float) -> list[Raw]:
    """List all tools, prompts, resources or templates of a server, raw.

    Args:
        connection: the connection to the server.
        kind: what to list.
        seconds: how long each page may take.

    Raises:
        ListingFault: the server refuses, answers something else, does not answer in time, or its pages
            do not end.
        UpstreamLost: the connection ended.
    """
    method = LISTS[kind].method
    listed: list[Raw] = []
    seen: set[str] = set()
    params: dict[str, object] = {}
    size = 0
    for _ in range(MAX_PAGES):
        try:
            result = await connection.request(method, params, timeout=seconds)
            size += len(result)
            page = await _read(kind, result)
        except RemoteError as error:
            text = f"{method} was refused: {error}"
            raise ListingFault(text, Cause.LIST_REFUSED, error=str(error)) from None
        except UpstreamTimeout:
            text = f"no answer to {method} within {seconds:g} s"
            raise ListingFault(text, Cause.LIST_TIMEOUT, seconds=seconds) from None
        except RequestTooLarge:
            text = f"the answer to {method} is over the limit (limits.messageBytes): list in pages"
            raise ListingFault(text, Cause.MESSAGE_TOO_LARGE) from None
        except ValueError as error:
            raise ListingFault(str(error), Cause.LIST_REFUSED, error=str(error)) from None
        listed += page.definitions
        if not page.next_cursor or len(listed) > MAX_LISTED:
            return listed
        if page.next_cursor in seen:
            # It is cut further, outside any secret, where it is shown.
            text = f"{method} repeats the cursor {page.next_cursor[:MAX_ERROR_BYTES]!r}"
            raise ListingFault(text, Cause.LIST_ENDLESS)
        if size > MAX_LIST_BYTES:
            raise ListingFault(f"{method} has more than {MAX_LIST_BYTES} bytes", Cause.LIST_ENDLESS)
        seen.add(page.next_cursor)
        params = {"cursor": page.next_cursor}
    raise ListingFault(f"{method} has more than {MAX_PAGES} pages", Cause.LIST_ENDLESS)


async def _read(kind: Kind, result: bytes) -> ListPage:
    if len(result) < LONG_PAGE:
        return read_page(kind, result)
    return await trio.to_thread.run_sync(read_page, kind, result)
