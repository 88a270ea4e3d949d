"""Reading one of a server's lists to its end, screening it, and logging what is wrong with it.

The parts that take long with a long list run in a thread, so that no client waits for another's server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from loguru import logger
from msgspec import Raw

from daemon.catalog.kinds import LISTS
from daemon.catalog.listing import MAX_DEFINITION_BYTES, MAX_LISTED, read_definitions, read_page
from daemon.causes import Cause, Reason
from daemon.errors import ListingFault, RequestTooLarge, UpstreamTimeout
from daemon.kit.wording import counted
from daemon.model import Kind
from daemon.safety.legible import ScreenedList
from daemon.safety.redact import HIDDEN, REASON
from daemon.wire.envelope import MAX_ERROR_BYTES
from daemon.wire.requests import RemoteError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from daemon.catalog.listing import ListPage
    from daemon.ports import UpstreamConnection
    from daemon.safety.redact import Redactor


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


QUARANTINED_NAMED = 20
"""How many quarantined or completed definitions of one list are named in the log."""

UNSPEAKABLE = "its name holds a secret of the configuration, so it cannot be called by what may be shown"
"""Why something is quarantined whose name or URI holds a secret."""


def screen(
    kind: Kind, server: str, raws: Iterable[Raw], redact: Redactor
) -> tuple[ScreenedList, dict[str, str]]:
    """Read a list, for a worker thread: what can be used of it, and the reasons of the rest by name.

    Secrets are removed first: what is hashed, kept, shown and validated against is the same text without them.
    """
    # A definition that is too large is quarantined unread.
    definitions, faulty = read_definitions(kind, server, [_without_secrets(raw, redact) for raw in raws])
    faulty |= {each.name: UNSPEAKABLE for each in definitions if HIDDEN in each.name}
    usable = ScreenedList.of(each for each in definitions if HIDDEN not in each.name)
    return usable, {redact(name): redact(reason, REASON) for name, reason in faulty.items()}


def _without_secrets(raw: Raw, redact: Redactor) -> Raw:
    return raw if len(raw) > MAX_DEFINITION_BYTES else Raw(redact.json(bytes(raw)))


def unusable(kind: Kind, quarantined: Mapping[str, str]) -> Reason:
    """Why nothing is offered from a list in which everything is faulty."""
    name, fault = next(iter(quarantined.items()))
    number = f"{len(quarantined)} {kind}{'s' if len(quarantined) > 1 else ''}"
    text = f"it lists {number}, of which none can be used; {name}: {fault}"
    return Reason(text, Cause.TOOLS_UNUSABLE, {"count": len(quarantined), "tool": name, "error": fault})


class Warnings:
    """Logs what is wrong with one of a server's lists, once for as long as it stays so."""

    def __init__(self, server: str, kind: Kind) -> None:
        """Begin with nothing wrong."""
        self._log = logger.bind(server=server)
        self._kind = kind
        self._problem = ""
        self._quarantined: Mapping[str, str] = {}
        self._completed: tuple[str, ...] = ()

    def of_problem(self, problem: str) -> None:
        """Log why there is no list; what is no tool is looked for again and again where none may be."""
        if problem != self._problem or self._kind is Kind.TOOL:
            self._log.warning("does not list its {}s: {}", self._kind, problem)
        self._problem = problem

    def of(self, quarantined: Mapping[str, str], completed: tuple[str, ...]) -> None:
        """Log what is newly wrong with single definitions: the same may be listed a thousand times over."""
        self._problem = ""
        self._of_completed(completed)
        known, self._quarantined = self._quarantined, quarantined
        fresh = [(name, reason) for name, reason in quarantined.items() if known.get(name) != reason]
        for name, reason in fresh[:QUARANTINED_NAMED]:
            self._log.warning("{} {} is quarantined: {}", self._kind, name, reason)
        if len(fresh) > QUARANTINED_NAMED:
            more = len(fresh) - QUARANTINED_NAMED
            self._log.warning("{} more {}s are quarantined: `mcpd status --json` has them", more, self._kind)

    def _of_completed(self, completed: tuple[str, ...]) -> None:
        """Log tools whose schema was completed, and again only if they are other tools."""
        known, self._completed = self._completed, completed
        if completed and completed != known:
            more = "" if len(completed) <= QUARANTINED_NAMED else ", …"
            self._log.warning(
                'lists {} without "type": "object" in its inputSchema, which MCP requires; it was added: {}{}',
                counted(len(completed), "tool"),
                ", ".join(completed[:QUARANTINED_NAMED]),
                more,
            )


EMPTY = Reason("it lists no tools", Cause.NO_TOOLS)
"""What is wrong with a server that declares tools and lists none."""

NOTHING = Reason("it declares neither tools nor prompts nor resources", Cause.NOTHING_OFFERED)
"""What is wrong with a server that declares nothing at all."""
