"""Reading one of a server's lists: asked for to its end, screened, told to the registry, and judged.

The parts that take long with a long list run in a thread, so that no client waits for another's server.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio
from loguru import logger
from msgspec import Raw

from daemon.catalog.kinds import LISTS
from daemon.catalog.listing import MAX_DEFINITION_BYTES, MAX_LISTED, read_definitions, read_page
from daemon.causes import HEALTHY, Cause, Reason
from daemon.errors import ListingFault, RequestTooLarge, RunError, UpstreamLost, UpstreamTimeout
from daemon.facts import DefinitionsListed, SelfDescription
from daemon.kit.wording import counted
from daemon.model import Kind
from daemon.safety.legible import ScreenedList
from daemon.safety.redact import HIDDEN, REASON
from daemon.wire.envelope import MAX_ERROR_BYTES
from daemon.wire.requests import RemoteError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from daemon.catalog.listing import ListPage
    from daemon.config.model import Server
    from daemon.facts import Fact
    from daemon.ports import UpstreamConnection
    from daemon.safety.redact import Redactor
    from daemon.upstreams.handshake import Greeting


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


class ListReader:
    """Reads a server's tools, prompts, resources or templates, over one connection after the other."""

    def __init__(
        self,
        server: Server,
        kind: Kind,
        *,
        tell: Callable[[Fact], None],
        wall: Callable[[], float],
        redact: Redactor,
    ) -> None:
        """Start with nothing known of the server.

        Args:
            server: the server's configuration.
            kind: what is listed.
            tell: leaves a fact with the registry.
            wall: seconds since the epoch.
            redact: takes secrets out of what the server says about itself.
        """
        self._server = server
        self._kind = kind
        self._tell = tell
        self._wall = wall
        self._redact = redact
        self._warnings = Warnings(server.name, kind)
        self.is_declared = True
        """Whether the server declares that it has such a list."""
        self.size = 0
        """The length of the latest list, with what is not usable."""
        self._should_offer = kind is Kind.TOOL
        self._has_listed = False
        self._incarnation = 0
        self._said: SelfDescription | None = None

    def begin(self, incarnation: int, greeting: Greeting) -> None:
        """Read over a new connection from now on.

        Args:
            incarnation: the server's incarnation that it belongs to.
            greeting: what the server said in the handshake.
        """
        self._incarnation = incarnation
        self.is_declared = greeting.lists(self._kind)
        if self._kind is Kind.TOOL:
            self._should_offer = greeting.lists_tools or not greeting.others
            self._said = SelfDescription(
                about=self._redact(greeting.about),
                instructions=self._redact(greeting.instructions),
                introduction=self._redact.json(greeting.introduction),
            )
        self._has_listed = False

    async def read(self, connection: UpstreamConnection) -> tuple[str, Reason]:
        """Read the list and tell the registry of it, or of why there is none.

        Returns:
            What went wrong, empty if nothing did; and what is wrong with the list, `HEALTHY` if nothing is. An
            empty list is a list: only the second says what is wrong with it.

        Raises:
            UpstreamLost, RunError: the connection ended, while tools were read.
        """
        listed = partial(
            DefinitionsListed, server=self._server.name, incarnation=self._incarnation, kind=self._kind
        )
        try:
            raws = await self._raws(connection)
        except ListingFault as error:
            problem = error.reason.redacted(partial(self._redact, most=REASON))
            self._warnings.of_problem(problem.text)
            self._tell(listed(problem=problem.text, at=self._wall()))
            return problem.text, problem
        usable, quarantined = await trio.to_thread.run_sync(
            screen, self._kind, self._server.name, raws, self._redact
        )
        self.size = len(raws)
        self._warnings.of(quarantined, usable.screened.completed)
        self._tell(
            listed(
                definitions=usable,
                quarantined=quarantined,
                at=self._wall(),
                first=not self._has_listed,
                declared=self.is_declared,
                said=self._said,
            )
        )
        self._has_listed |= bool(usable)
        if usable or not (quarantined or self._should_offer):
            return "", HEALTHY
        if quarantined:
            return "", unusable(self._kind, quarantined)
        return "", EMPTY if self.is_declared else NOTHING

    def is_due_soon(self, problem: str, wrong: Reason) -> bool:
        """Whether the list is worth another look soon, after `read` has returned this."""
        if self._kind is Kind.TOOL:
            return bool(problem) or (self.is_declared and not self._has_listed)
        # Servers declare prompts and resources without having any, and even without knowing the method.
        return bool(problem) and wrong.cause is not Cause.LIST_REFUSED

    async def _raws(self, connection: UpstreamConnection) -> list[Raw]:
        """What the server lists, raw; nothing where nothing was promised.

        Raises:
            ListingFault: it does not list what it has declared.
            UpstreamLost: the connection ended.
        """
        if self._kind is not Kind.TOOL and not self.is_declared:
            return []
        try:
            return await list_all(connection, self._kind, seconds=self._server.timeouts.list)
        except ListingFault as error:
            # Who declares resources need not have templates, and may not know the method.
            refused = error.reason.cause is Cause.LIST_REFUSED
            if not self.is_declared or (self._kind is Kind.TEMPLATE and refused):
                return []
            raise
        except (UpstreamLost, RunError) as error:
            if self._kind is Kind.TOOL:
                raise
            # Over HTTP only this request may have failed. If all is lost, a task of its own says so.
            raise ListingFault(str(error), Cause.CONNECTION_LOST) from None
