"""Reads, screens and refreshes the lists of one server: on announced changes, after a time, on request.

Calls depend on the tools, so their list is read first, then the others independently. A server counts as up
once its tools are listed, and its other lists are read or late.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

import msgspec
import trio
from loguru import logger
from msgspec import Raw

from daemon import errors
from daemon.catalog.kinds import LISTS
from daemon.catalog.listing import MAX_DEFINITION_BYTES, MAX_LISTED, ListPage, read_definitions, read_page
from daemon.causes import HEALTHY, Cause, Reason
from daemon.config.config_model import Server
from daemon.facts import DefinitionsListed, Fact, SelfDescription
from daemon.kit.waiting import Watch
from daemon.kit.wording import counted
from daemon.model import Kind
from daemon.ports import UpstreamConnection
from daemon.safety.legible import ScreenedList
from daemon.safety.redact import HIDDEN, REASON, Redactor
from daemon.upstreams.handshake import Greeting
from daemon.wire.envelope import MAX_ERROR_BYTES, RemoteError

MAX_PAGES = 1000
"""Most pages of one list: endless cursors are a server's bug; real servers send one page, rarely a dozen."""

MAX_LIST_BYTES = 64 * 1024 * 1024
"""Most bytes of all pages of one list: four of the largest messages. Ten thousand resources have some 5 MB."""

LONG_PAGE = 64 * 1024
"""Bytes of a page from which a worker thread splits it; below, the thread takes longer than it saves."""

PAGES_SHARE = 10
"""All pages together may take this many times as long as one."""


async def list_all(connection: UpstreamConnection, kind: Kind, *, seconds: float) -> list[Raw]:
    """Read a whole list of one kind, raw (`_list_pages`), with a time limit for all pages together."""
    with trio.move_on_after(seconds * PAGES_SHARE):
        return await _list_pages(connection, kind, seconds=seconds)
    longest = seconds * PAGES_SHARE
    text = f"{LISTS[kind].method} did not come to its end within {longest:g} s"
    raise errors.ListingFault(text, Cause.LIST_TIMEOUT, seconds=longest)


async def _list_pages(connection: UpstreamConnection, kind: Kind, *, seconds: float) -> list[Raw]:
    """Read a whole list of one kind, raw; each page may take `seconds`.

    Raises ListingFault: the server refuses, answers wrongly or too late; UpstreamLost: the connection ended.
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
            fault = errors.ListingFault(text, Cause.LIST_REFUSED, error=str(error))
            fault.refusal = error.encoded()
            raise fault from None
        except errors.UpstreamTimeout:
            text = f"no answer to {method} within {seconds:g} s"
            raise errors.ListingFault(text, Cause.LIST_TIMEOUT, seconds=seconds) from None
        except errors.RequestTooLarge:
            text = f"the answer to {method} is over the limit (limits.messageBytes): list in pages"
            raise errors.ListingFault(text, Cause.MESSAGE_TOO_LARGE) from None
        except ValueError as error:
            raise errors.ListingFault(str(error), Cause.LIST_REFUSED, error=str(error)) from None
        listed += page.definitions
        if not page.next_cursor or len(listed) > MAX_LISTED:
            return listed
        if page.next_cursor in seen:
            # It is cut further, outside any secret, where it is shown.
            text = f"{method} repeats the cursor {page.next_cursor[:MAX_ERROR_BYTES]!r}"
            raise errors.ListingFault(text, Cause.LIST_ENDLESS)
        if size > MAX_LIST_BYTES:
            raise errors.ListingFault(f"{method} has more than {MAX_LIST_BYTES} bytes", Cause.LIST_ENDLESS)
        seen.add(page.next_cursor)
        params = {"cursor": page.next_cursor}
    raise errors.ListingFault(f"{method} has more than {MAX_PAGES} pages", Cause.LIST_ENDLESS)


async def _read(kind: Kind, result: bytes) -> ListPage:
    if len(result) < LONG_PAGE:
        return read_page(kind, result)
    return await trio.to_thread.run_sync(read_page, kind, result)


QUARANTINED_NAMED = 20
"""Most quarantined or completed definitions of one list that the log names."""

UNSPEAKABLE = "its name contains a secret of the configuration, so mcpd cannot show it, and nobody can call it"
"""Why a definition is quarantined if its name or URI contains a secret."""


def screen(
    kind: Kind, server: str, raws: Iterable[Raw], redact: Redactor
) -> tuple[ScreenedList, dict[str, str]]:
    """Read a list in a worker thread; returns its usable definitions, and the faults of the others by name."""
    # Secrets are removed first: the text that is hashed, kept, shown and validated against is the same.
    # A definition that is too large is quarantined unread.
    definitions, faulty = read_definitions(kind, server, [_without_secrets(raw, redact) for raw in raws])
    faulty |= {each.name: UNSPEAKABLE for each in definitions if HIDDEN in each.name}
    usable = ScreenedList.of(each for each in definitions if HIDDEN not in each.name)
    return usable, {redact(name): redact(reason, REASON) for name, reason in faulty.items()}


def _without_secrets(raw: Raw, redact: Redactor) -> Raw:
    return raw if len(raw) > MAX_DEFINITION_BYTES else Raw(redact.json(bytes(raw)))


def unusable(kind: Kind, quarantined: Mapping[str, str]) -> Reason:
    """Why a list is not offered at all: all its definitions are faulty."""
    name, fault = next(iter(quarantined.items()))
    number = f"{len(quarantined)} {kind}{'s' if len(quarantined) > 1 else ''}"
    text = f"it lists {number}, but none can be used; {name}: {fault}"
    return Reason(text, Cause.TOOLS_UNUSABLE, {"count": len(quarantined), "tool": name, "error": fault})


class Warnings:
    """Logs the faults of a list, each fault once while it lasts."""

    def __init__(self, server: str, kind: Kind) -> None:
        self._log = logger.bind(server=server)
        self._kind = kind
        self._problem = ""
        self._quarantined: Mapping[str, str] = {}
        self._completed: tuple[str, ...] = ()

    def of_problem(self, problem: str) -> None:
        """Log why there is no list; for lists other than tools, a repeated problem is logged once."""
        if problem != self._problem or self._kind is Kind.TOOL:
            self._log.warning("does not list its {}s: {}", self._kind, problem)
        self._problem = problem

    def of(self, quarantined: Mapping[str, str], completed: tuple[str, ...]) -> None:
        """Log new faults of single definitions; the same faults may be listed a thousand times."""
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
        """Log the tools whose schema mcpd completed; again only if the tools differ."""
        known, self._completed = self._completed, completed
        if completed and completed != known:
            more = "" if len(completed) <= QUARANTINED_NAMED else ", …"
            self._log.warning(
                'lists {} without "type": "object" in its inputSchema, which MCP requires; mcpd adds it: {}{}',
                counted(len(completed), "tool"),
                ", ".join(completed[:QUARANTINED_NAMED]),
                more,
            )


EMPTY = Reason("it lists no tools", Cause.NO_TOOLS)
"""The problem of a server that declares tools but lists none."""

NOTHING = Reason("it declares neither tools nor prompts nor resources", Cause.NOTHING_OFFERED)
"""The problem of a server that declares nothing at all."""


LATER_PATIENCE = 1.0
"""Seconds for the other lists of a server that has listed its tools, before it counts as up: most answer within
milliseconds, and a slow list must not hold up calls."""


class ServerLists:
    """The lists of one server, over all of its connections."""

    def __init__(self, make: Callable[[Kind], Listing]) -> None:
        self._all = {kind: make(kind) for kind in Kind}
        self.tools = self._all[Kind.TOOL]
        """The list of tools: calls wait for it, and without it the server is not useful."""
        self._later = [listing for kind, listing in self._all.items() if kind is not Kind.TOOL]
        self._greeting: Greeting | None = None

    def begin(self, connection: UpstreamConnection, incarnation: int, greeting: Greeting) -> None:
        """Use a new connection (`Listing.begin`)."""
        self._greeting = greeting
        for listing in self._all.values():
            listing.begin(connection, incarnation, greeting)

    def end(self) -> None:
        """Note that the connection is down, and end every wait for its lists."""
        for listing in self._all.values():
            listing.end()

    def are_asked_for(self, kinds: Iterable[Kind]) -> None:
        """Note that the server announced changes of its lists of these kinds."""
        for kind in kinds:
            if kind is Kind.TOOL or self._all[kind].is_declared:
                self._all[kind].is_asked_for()

    async def refresh(self) -> str:
        """List everything again now; return the problem with the tools, or empty."""
        async with trio.open_nursery() as nursery:
            for listing in self._later:
                if listing.is_declared:
                    nursery.start_soon(listing.refresh)
            return await self.tools.refresh()

    async def keep(
        self,
        problem: str,
        report: Callable[[Reason], None],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Keep all lists current until cancelled; started once the other lists are known or out of time.

        `problem` is the first listing's, of tools; `report` gets each later problem, or `HEALTHY`.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.tools.keep, problem, report)
            for listing in self._later:
                nursery.start_soon(listing.begin_and_keep)
            with trio.move_on_after(LATER_PATIENCE):
                for listing in self._later:
                    await listing.wait_first()
            task_status.started()

    def may_have_changed(self) -> None:
        """Read again the lists whose changes the server announces: mcpd may have missed some."""
        for kind, listing in self._all.items():
            if self._greeting is not None and self._greeting.announces(kind):
                listing.read_again()


DEBOUNCE = 0.1
"""Seconds between two listings that a server asks for: real servers announce a change up to four times in a
row. Doubled after each failure: some servers refuse every listing that they ask for."""

LONG = 1_000
"""Entries from which a list is long and delays everybody: folding 10,000 entries takes some 50 ms."""

LONG_DEBOUNCE = 1.0
"""`DEBOUNCE` after a long list, doubled while the server keeps announcing changes. Shorter than
`CURRENT_PATIENCE`: a call that needs the list ends the doubling."""

RELIST_AFTER_FAILURE = 30.0
"""Seconds until a listing that failed, or has always been empty, is retried; the connection stays up."""

CURRENT_PATIENCE = 2.0
"""Seconds that a call waits for the new list after the server announced a change."""

LISTING_SLACK = 1.0
"""Seconds beyond twice `timeouts.list` that an operator waits: a listing under way has to end first."""


class ListingStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one list of a server that is up."""

    problem: Reason = HEALTHY
    """Why the server offers no entries of the list, or outdated ones; `HEALTHY` without a problem."""
    attempt: int = 0
    """The number of faulty lists in a row."""
    next_at: float | None = None
    """The time of the next listing, in seconds since the epoch; None without a problem."""

    def after(self, problem: Reason) -> ListingStatus:
        """The state after another reading with this problem, or `HEALTHY`."""
        if not problem.cause:
            return ListingStatus()
        return msgspec.structs.replace(self, problem=problem, attempt=self.attempt + 1)

    def expecting(self, at: float) -> ListingStatus:
        """The state with the time of the next listing, which is kept only while there is a problem."""
        return msgspec.structs.replace(self, next_at=at) if self.problem.cause else self


class Listing:
    """The listing of one server's tools, prompts, resources or templates, over all of its connections."""

    def __init__(
        self,
        server: Server,
        kind: Kind,
        *,
        tell: Callable[[Fact], None],
        wall: Callable[[], float],
        redact: Redactor,
        settle: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    ) -> None:
        self._server, self._kind = server, kind
        self._tell, self._wall, self._redact, self._settle = tell, wall, redact, settle
        self._warnings = Warnings(server.name, kind)
        self.is_declared = True
        """Whether the server declares such a list."""
        self._size = 0
        self._should_offer = kind is Kind.TOOL
        self._has_listed = False
        self._refusal = b""
        self._incarnation = 0
        self._said: SelfDescription | None = None
        self._connection: UpstreamConnection | None = None
        self.status = ListingStatus()
        self._asked = trio.Event()
        self._needed_now = trio.Event()
        self._begun = self._begun_before = 0
        """The number of all listings begun so far, and of those begun on earlier connections."""
        self.is_stale = False
        """Whether the server announced a change, and mcpd has not listed since."""
        self._needed = self._obtained = 0
        """The numbers of the first listing after the last announced change, and of the last success."""
        self._outcome = Watch((0, ""))

    async def wait_current(self) -> None:
        """Return once the list is newer than every announced change; UpstreamUnavailable if not in time."""
        needed = self._needed
        if self.is_stale:
            self._needed_now.set()
        if self._outcome.value[1]:
            # The last listing failed and the next one is not due, but a call needs it now.
            self._ask_now()
        with trio.move_on_after(CURRENT_PATIENCE):
            await self._outcome.wait_until(lambda _: not self.is_stale)
            return
        # A server that announces changes all the time is never current: the latest list must do.
        if self._obtained < needed:
            name, problem = self._server.label, self._outcome.value[1]
            why = f" ({problem})" if problem else ""
            raise errors.UpstreamUnavailable(
                f"server {name} has said that its tools changed, and has not listed them for"
                f" {CURRENT_PATIENCE:g} s{why}. The call was not sent: try again in a moment.",
                server=name,
            )

    def begin(self, connection: UpstreamConnection, incarnation: int, greeting: Greeting) -> None:
        """Use a new connection, which belongs to this incarnation of the server."""
        self._connection = connection
        self._begun_before = self._begun
        self._incarnation, self._has_listed = incarnation, False
        self.is_declared = greeting.lists(self._kind)
        if self._kind is Kind.TOOL:
            self._should_offer = greeting.lists_tools or not greeting.others
            self._said = SelfDescription(
                about=self._redact(greeting.about),
                instructions=self._redact(greeting.instructions),
                introduction=self._redact.json(greeting.introduction),
            )
        self.status = ListingStatus()
        self._asked = trio.Event()

    def end(self) -> None:
        """Note that the connection is down, and end every wait for its list."""
        self._connection = None
        self._obtained, self.is_stale = self._needed, False
        # As if one more listing had ended: it wakes those, too, who wait for one that has not begun.
        self._begun += 1
        self._outcome.set((self._begun, "the connection was lost"))

    def is_asked_for(self) -> None:
        """Note that the server announced a change; the debounce combines a burst into one listing."""
        self._asked.set()
        # A listing under way may still show the tools from before the change.
        self._needed, self.is_stale = self._begun + 1, True

    async def refresh(self) -> str:
        """List again now; return the problem, or empty."""
        number = self._begun + 1
        self._ask_now()
        seconds = 2 * self._server.timeouts.list + LISTING_SLACK
        with trio.move_on_after(seconds):
            _number, problem = await self._outcome.wait_until(lambda outcome: outcome[0] >= number)
            return problem
        return f"no list within {seconds:g} s"

    def _ask_now(self) -> None:
        self._asked.set()
        self._needed_now.set()

    def read_again(self) -> None:
        """List once more: there may be an unannounced change."""
        self._asked.set()

    async def wait_first(self) -> None:
        """Return once the first list of this connection was read or failed."""
        await self._outcome.wait_until(lambda outcome: outcome[0] > self._begun_before)

    async def begin_and_keep(self) -> None:
        """List once, then continue as `keep` does if the server declares this kind."""
        problem = await self.list_now()
        if self.is_declared:
            await self.keep(problem, lambda _problem: None)

    async def list_now(self) -> str:
        """List and tell the registry; return the problem, or empty. An empty list is not a problem."""
        self._begun += 1
        number = self._begun
        problem, wrong = await self.read()
        self.status = self.status.after(wrong)
        # A list that counts as current must be in the catalog.
        await self._settle()
        if not problem:
            self._obtained, self.is_stale = number, number < self._needed
        self._outcome.set((number, problem))
        return problem

    async def keep(self, problem: str, report: Callable[[Reason], None]) -> None:
        """List again on request, when the list is old, and soon after a failure, until cancelled."""
        pause = DEBOUNCE
        while True:
            soon = self.is_due_soon(problem, self.status.problem)
            seconds = RELIST_AFTER_FAILURE if soon else self._server.timeouts.refresh
            self.status = self.status.expecting(self._wall() + seconds)
            with trio.move_on_after(seconds):
                await self._asked.wait()
            self._asked, self._needed_now = trio.Event(), trio.Event()
            problem = await self.list_now()
            report(self.status.problem)
            least = LONG_DEBOUNCE if self._size > LONG else DEBOUNCE
            grows = bool(problem) or least > DEBOUNCE
            pause = min(max(2 * pause, least), RELIST_AFTER_FAILURE) if grows else least
            self.status = self.status.expecting(self._wall() + pause + RELIST_AFTER_FAILURE)
            await trio.sleep(least)
            with trio.move_on_after(pause - least):
                await self._needed_now.wait()
            if not (problem or self._asked.is_set()):
                pause = DEBOUNCE

    async def read(self) -> tuple[str, Reason]:
        """Read the list and tell the registry; return why there is no list, and what is wrong with the list.

        Raises UpstreamLost, RunError: the connection ended while tools were read.
        """
        listed = partial(
            DefinitionsListed, server=self._server.name, incarnation=self._incarnation, kind=self._kind
        )
        try:
            raws = await self._raws()
        except errors.ListingFault as error:
            problem = error.reason.redacted(partial(self._redact, most=REASON))
            self._warnings.of_problem(problem.text)
            self._tell(listed(problem=problem.text, at=self._wall(), refusal=self._refusal))
            return problem.text, problem
        usable, quarantined = await trio.to_thread.run_sync(
            screen, self._kind, self._server.name, raws, self._redact
        )
        self._size = len(raws)
        self._warnings.of(quarantined, usable.screened.completed)
        self._tell(
            listed(
                definitions=usable,
                quarantined=quarantined,
                at=self._wall(),
                first=not self._has_listed,
                declared=self.is_declared,
                said=self._said,
                refusal=self._refusal,
            )
        )
        self._has_listed |= bool(usable)
        if usable or not (quarantined or self._should_offer):
            return "", HEALTHY
        if quarantined:
            return "", unusable(self._kind, quarantined)
        return "", EMPTY if self.is_declared else NOTHING

    def is_due_soon(self, problem: str, wrong: Reason) -> bool:
        """Whether to read the list again soon, after `read` returned these problems."""
        if self._kind is Kind.TOOL:
            return bool(problem) or (self.is_declared and not self._has_listed)
        # Servers declare prompts and resources without having any, and even without knowing the method.
        return bool(problem) and wrong.cause is not Cause.LIST_REFUSED

    async def _raws(self) -> list[Raw]:
        """The server's raw list; empty if it declares none. Raises as `list_all` does."""
        assert self._connection is not None, "listed while connected"
        self._refusal = b""
        if self._kind is not Kind.TOOL and not self.is_declared:
            return []
        try:
            return await list_all(self._connection, self._kind, seconds=self._server.timeouts.list)
        except errors.ListingFault as error:
            self._refusal = self._redact.json(error.refusal)
            # Who declares resources need not have templates, and may not know the method.
            refused = error.reason.cause is Cause.LIST_REFUSED
            if not self.is_declared or (self._kind is Kind.TEMPLATE and refused):
                return []
            raise
        except (errors.UpstreamLost, errors.RunError) as error:
            if self._kind is Kind.TOOL:
                raise
            # Over HTTP only this request may have failed. If all is lost, a task of its own says so.
            raise errors.ListingFault(str(error), Cause.CONNECTION_LOST) from None
