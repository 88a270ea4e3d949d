"""Keeping a server's list of tools current: listed at first, on announced changes, when old, and when asked."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio
from loguru import logger
from msgspec import Raw

from daemon.catalog.listing import MAX_TOOL_BYTES, read_tools
from daemon.causes import HEALTHY, Cause, Reason
from daemon.errors import ListingFault, UpstreamUnavailable
from daemon.facts import ListingFailed, ToolsListed
from daemon.kit.mailbox import Watch
from daemon.safety.legible import ScreenedList
from daemon.safety.redact import HIDDEN, REASON
from daemon.upstreams.own_requests import list_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from daemon.config.model import Server
    from daemon.facts import Fact
    from daemon.model import Tool
    from daemon.ports import UpstreamConnection
    from daemon.safety.redact import Redactor
    from daemon.upstreams.own_requests import Greeting

DEBOUNCE = 0.1
"""Seconds between two listings that a server asks for: real ones announce a change up to four times in a row.
Doubled after each that failed: there are servers that refuse every listing they ask for."""

RELIST_AFTER_FAILURE = 30.0
"""Seconds until a listing that failed, or was empty so far, is tried again; the connection stays up."""

CURRENT_PATIENCE = 2.0
"""Seconds that a call waits for the new list of a server that has announced a change."""

QUARANTINED_NAMED = 20
"""How many quarantined or completed tools of one list are named in the log."""

LISTING_SLACK = 1.0
"""Seconds beyond twice `timeouts.list` that an operator waits: a listing under way ends first."""

UNSPEAKABLE = "its name holds a secret of the configuration, so it cannot be called by what may be shown"
"""Why a tool is quarantined whose name holds a secret."""

EMPTY = Reason("it lists no tools", Cause.NO_TOOLS)
"""What is wrong with a server that declares tools and lists none."""

NOTHING = Reason("it declares neither tools nor prompts nor resources", Cause.NOTHING_OFFERED)
"""What is wrong with a server that declares nothing at all."""


@attrs.frozen(kw_only=True)
class ListingStatus:
    """The state of the list of a server that is up."""

    problem: Reason = HEALTHY
    """Why it offers no tools, or possibly outdated ones; `HEALTHY` if nothing is wrong."""
    attempt: int = 0
    """Faulty lists in a row."""
    next_at: float | None = None
    """When the daemon lists again, in seconds since the epoch; None if nothing is wrong."""


class Listing:
    """The listing of one server's tools, over all of its connections."""

    def __init__(
        self,
        server: Server,
        *,
        tell: Callable[[Fact], None],
        wall: Callable[[], float],
        redact: Redactor,
        settle: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    ) -> None:
        """Start without a connection.

        Args:
            server: the server's configuration.
            tell: leaves a fact with the registry.
            wall: seconds since the epoch.
            redact: takes secrets out of what the server says about itself.
            settle: returns once the facts told so far are in the catalog.
        """
        self._server = server
        self._tell = tell
        self._wall = wall
        self._redact = redact
        self._settle = settle
        self._log = logger.bind(server=server.name)
        self._connection: UpstreamConnection | None = None
        self._incarnation = 0
        self._lists_tools = True
        self._should_offer = True
        self._has_listed = False
        self.standing = ListingStatus()
        """The state after the latest list."""
        self.is_stale = False
        """Whether the server has announced that its tools changed, and has not listed them since."""
        self._warnings = _Warnings(server.name)
        self._asked = trio.Event()
        self._needed_now = trio.Event()
        self._current = trio.Event()
        self._begun = 0
        self._needed = 0
        self._obtained = 0
        self._outcome = Watch((0, ""))

    async def wait_current(self) -> None:
        """Return once the list is current, or is newer than every change announced before this call.

        Raises:
            UpstreamUnavailable: there is no such list within `CURRENT_PATIENCE`.
        """
        needed = self._needed
        if self._outcome.value[1]:
            # The last listing failed and the next one is not due, but a call needs it now.
            self._ask_now()
        with trio.move_on_after(CURRENT_PATIENCE):
            while self.is_stale:
                await self._current.wait()
            return
        # A server that announces changes all the time is never current: the latest list must do.
        if self._obtained < needed:
            name, problem = self._server.name, self._outcome.value[1]
            why = f" ({problem})" if problem else ""
            raise UpstreamUnavailable(
                f"server {name} has said that its tools changed, and has not listed them for"
                f" {CURRENT_PATIENCE:g} s{why}. The call was not sent: try again in a moment.",
                server=name,
            )

    def begin(self, connection: UpstreamConnection, incarnation: int, greeting: Greeting) -> None:
        """Use a new connection.

        Args:
            connection: the connection, which is up.
            incarnation: the server's incarnation that it belongs to.
            greeting: what the server said in the handshake.
        """
        self._connection = connection
        self._incarnation = incarnation
        self._lists_tools = greeting.lists_tools
        self._should_offer = greeting.lists_tools or not greeting.others
        self._about = self._redact(greeting.about)
        self._instructions = self._redact(greeting.instructions)
        self.standing = ListingStatus()
        self._has_listed = False
        self._asked = trio.Event()

    def end(self) -> None:
        """Note that the connection is down, and end every wait for a list of it."""
        self._connection = None
        self._is_current()
        # As if one more listing had ended: it wakes those, too, who wait for one that has not begun.
        self._begun += 1
        self._outcome.set((self._begun, "the connection was lost"))

    def is_asked_for(self) -> None:
        """Note that the server announced a change; the debounce turns a burst of these into one listing."""
        self._asked.set()
        # A listing under way may still show the tools from before the change.
        self._needed = self._begun + 1
        if not self.is_stale:
            self.is_stale, self._current = True, trio.Event()

    def _is_current(self) -> None:
        self.is_stale = False
        self._current.set()

    async def refresh(self) -> str:
        """List again now; return what went wrong, empty if nothing did."""
        number = self._begun + 1
        self._ask_now()
        seconds = 2 * self._server.timeouts.list + LISTING_SLACK
        with trio.move_on_after(seconds):
            _number, problem = await self._outcome.wait_until(lambda outcome: outcome[0] >= number)
            return problem
        return f"no list within {seconds:g} s"

    def _ask_now(self) -> None:
        """Have the tools listed without the delay after failures, as somebody waits for it."""
        self._asked.set()
        self._needed_now.set()

    async def list_now(self) -> str:
        """List the tools and tell the registry; return what went wrong, empty if nothing did.

        An empty list is a list: only the `standing` says what is wrong with it.
        """
        assert self._connection is not None, "listed while connected"
        self._begun += 1
        number = self._begun
        problem = await self._read(self._connection)
        # A list that counts as current must be in the catalog.
        await self._settle()
        if not problem:
            self._obtained = number
        if not problem and not self._asked.is_set():
            self._is_current()
        self._outcome.set((number, problem))
        return problem

    async def keep(self, problem: str, report: Callable[[Reason], None]) -> None:
        """List again when asked to, when the list is old, and soon after a failure, until cancelled.

        Args:
            problem: what went wrong with the first listing.
            report: told what is wrong after each further one, `HEALTHY` if nothing is.
        """
        pause = DEBOUNCE
        while True:
            soon = problem or (self._lists_tools and not self._has_listed)
            seconds = RELIST_AFTER_FAILURE if soon else self._server.timeouts.refresh
            self._expect_next(seconds)
            with trio.move_on_after(seconds):
                await self._asked.wait()
            self._asked, self._needed_now = trio.Event(), trio.Event()
            problem = await self.list_now()
            report(self.standing.problem)
            pause = min(2 * pause, RELIST_AFTER_FAILURE) if problem else DEBOUNCE
            self._expect_next(pause + RELIST_AFTER_FAILURE)
            await trio.sleep(DEBOUNCE)
            with trio.move_on_after(pause - DEBOUNCE):
                await self._needed_now.wait()

    def _expect_next(self, seconds: float) -> None:
        if self.standing.problem.cause:
            self.standing = attrs.evolve(self.standing, next_at=self._wall() + seconds)

    def may_have_changed(self) -> None:
        """Have the lists read again: changes of them may have been announced, and missed."""
        self._asked.set()

    async def _read(self, connection: UpstreamConnection) -> str:
        name = self._server.name
        try:
            raws = await list_all(connection, seconds=self._server.timeouts.list)
        except ListingFault as error:
            if self._lists_tools:
                problem = error.reason.redacted(partial(self._redact, most=REASON))
                self._log.warning("does not list its tools: {}", problem.text)
                self._tell(ListingFailed(server=name, incarnation=self._incarnation, reason=problem.text))
                self._stand(problem)
                return problem.text
            raws = []
        tools, quarantined = await trio.to_thread.run_sync(_looked_through, name, raws, self._redact)
        self._warnings.of_quarantined(quarantined)
        self._warnings.of_completed(tools.screened.completed)
        self._tell(
            ToolsListed(
                server=name,
                incarnation=self._incarnation,
                tools=tools,
                quarantined=quarantined,
                at=self._wall(),
                first=not self._has_listed,
                about=self._about,
                instructions=self._instructions,
            )
        )
        self._has_listed |= bool(tools)
        if tools or not (quarantined or self._should_offer):
            self._stand(HEALTHY)
        elif quarantined:
            self._stand(_unusable(quarantined))
        else:
            self._stand(EMPTY if self._lists_tools else NOTHING)
        return ""

    def _stand(self, problem: Reason) -> None:
        if problem.cause:
            attempt = self.standing.attempt + 1
            self.standing = attrs.evolve(self.standing, problem=problem, attempt=attempt)
        else:
            self.standing = ListingStatus()


def _unusable(quarantined: Mapping[str, str]) -> Reason:
    """Why nothing is offered from a list in which every tool is faulty."""
    tool, fault = next(iter(quarantined.items()))
    tools = f"{len(quarantined)} tool{'s' if len(quarantined) > 1 else ''}"
    text = f"it lists {tools}, of which none can be used; {tool}: {fault}"
    return Reason(text, Cause.TOOLS_UNUSABLE, {"count": len(quarantined), "tool": tool, "error": fault})


def _looked_through(
    server: str, raws: list[Raw], redact: Redactor
) -> tuple[ScreenedList[Tool], dict[str, str]]:
    """Do everything that takes long with a long list; for a worker thread, so that the registry only compares.

    Secrets are removed first: what is hashed, kept, shown and validated against is the same text without them.
    """
    # A definition that is too large is quarantined unread.
    tools, faulty = read_tools(server, [_without_secrets(raw, redact) for raw in raws])
    faulty |= {tool.name: UNSPEAKABLE for tool in tools if HIDDEN in tool.name}
    quarantined = {redact(tool): redact(reason, REASON) for tool, reason in faulty.items()}
    return ScreenedList.of(tool for tool in tools if HIDDEN not in tool.name), quarantined


def _without_secrets(raw: Raw, redact: Redactor) -> Raw:
    return raw if len(raw) > MAX_TOOL_BYTES else Raw(redact.json(bytes(raw)))


class _Warnings:
    """Logs what is wrong with one server's tools, once for as long as it stays so."""

    def __init__(self, server: str) -> None:
        self._log = logger.bind(server=server)
        self._quarantined: dict[str, str] = {}
        self._completed: tuple[str, ...] = ()

    def of_quarantined(self, quarantined: dict[str, str]) -> None:
        """Log newly quarantined tools: a server may list the same a thousand times, or a thousand at a time."""
        known, self._quarantined = self._quarantined, quarantined
        fresh = [(tool, reason) for tool, reason in quarantined.items() if known.get(tool) != reason]
        for tool, reason in fresh[:QUARANTINED_NAMED]:
            self._log.warning("tool {} is quarantined: {}", tool, reason)
        if len(fresh) > QUARANTINED_NAMED:
            more = len(fresh) - QUARANTINED_NAMED
            self._log.warning("{} more tools are quarantined: `mcpd status --json` has them", more)

    def of_completed(self, completed: tuple[str, ...]) -> None:
        """Log tools whose schema was completed, and again only if they are other tools."""
        known, self._completed = self._completed, completed
        if completed and completed != known:
            more = "" if len(completed) <= QUARANTINED_NAMED else ", …"
            self._log.warning(
                'lists {} without "type": "object" in its inputSchema, which MCP requires; it was added: {}{}',
                "1 tool" if len(completed) == 1 else f"{len(completed)} tools",
                ", ".join(completed[:QUARANTINED_NAMED]),
                more,
            )
