"""Keeping one of a server's lists current: read at first, on announced changes, when old, and when asked."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio

from daemon.causes import HEALTHY, Cause, Reason
from daemon.errors import ListingFault, RunError, UpstreamLost, UpstreamUnavailable
from daemon.facts import DefinitionsListed, ListingFailed, ToolsListed
from daemon.kit.mailbox import Watch
from daemon.model import Kind
from daemon.safety.redact import REASON
from daemon.upstreams.paging import list_all
from daemon.upstreams.screening import Warnings, looked_through, unusable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from msgspec import Raw

    from daemon.config.model import Server
    from daemon.facts import Fact
    from daemon.ports import UpstreamConnection
    from daemon.safety.redact import Redactor
    from daemon.upstreams.handshake import Greeting
    from daemon.upstreams.screening import LookedThrough

DEBOUNCE = 0.1
"""Seconds between two listings that a server asks for: real ones announce a change up to four times in a row.
Doubled after each that failed: there are servers that refuse every listing they ask for."""

RELIST_AFTER_FAILURE = 30.0
"""Seconds until a listing that failed, or was empty so far, is tried again; the connection stays up."""

CURRENT_PATIENCE = 2.0
"""Seconds that a call waits for the new list of a server that has announced a change."""

LISTING_SLACK = 1.0
"""Seconds beyond twice `timeouts.list` that an operator waits: a listing under way ends first."""

EMPTY = Reason("it lists no tools", Cause.NO_TOOLS)
"""What is wrong with a server that declares tools and lists none."""

NOTHING = Reason("it declares neither tools nor prompts nor resources", Cause.NOTHING_OFFERED)
"""What is wrong with a server that declares nothing at all."""


@attrs.frozen(kw_only=True)
class ListingStatus:
    """The state of a list of a server that is up."""

    problem: Reason = HEALTHY
    """Why it offers none, or possibly outdated ones; `HEALTHY` if nothing is wrong."""
    attempt: int = 0
    """Faulty lists in a row."""
    next_at: float | None = None
    """When the daemon lists again, in seconds since the epoch; None if nothing is wrong."""


class Listing:
    """The listing of one server's tools, prompts, resources or templates, over all of its connections."""

    def __init__(
        self,
        server: Server,
        kind: Kind = Kind.TOOL,
        *,
        tell: Callable[[Fact], None],
        wall: Callable[[], float],
        redact: Redactor,
        settle: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    ) -> None:
        """Start without a connection.

        Args:
            server: the server's configuration.
            kind: what is listed.
            tell: leaves a fact with the registry.
            wall: seconds since the epoch.
            redact: takes secrets out of what the server says about itself.
            settle: returns once the facts told so far are in the catalog.
        """
        self._server = server
        self._kind = kind
        self._tell = tell
        self._wall = wall
        self._redact = redact
        self._settle = settle
        self._connection: UpstreamConnection | None = None
        self._incarnation = 0
        self.is_declared = True
        """Whether the server declares that it has such a list."""
        self._should_offer = kind is Kind.TOOL
        self._has_listed = False
        self.standing = ListingStatus()
        """The state after the latest list."""
        self.is_stale = False
        """Whether the server has announced that they changed, and has not listed them since."""
        self._warnings = Warnings(server.name, kind)
        self._asked = trio.Event()
        self._needed_now = trio.Event()
        self._current = trio.Event()
        self._begun = 0
        self._begun_before = 0
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
        self._begun_before = self._begun
        self.is_declared = greeting.lists(self._kind)
        self._should_offer = self._kind is Kind.TOOL and (greeting.lists_tools or not greeting.others)
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
        """Have them listed without the delay after failures, as somebody waits for it."""
        self._asked.set()
        self._needed_now.set()

    def read_again(self) -> None:
        """Have them listed once more: they may have changed without a word."""
        self._asked.set()

    async def wait_first(self) -> None:
        """Return once the first list of this connection was read, or could not be."""
        await self._outcome.wait_until(lambda outcome: outcome[0] > self._begun_before)

    async def begin_and_keep(self) -> None:
        """List them, and go on as `keep` does if the server has declared that it has some."""
        problem = await self.list_now()
        if self.is_declared:
            await self.keep(problem, lambda _problem: None)

    async def list_now(self) -> str:
        """List them and tell the registry; return what went wrong, empty if nothing did.

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
            seconds = RELIST_AFTER_FAILURE if self._is_due_soon(problem) else self._server.timeouts.refresh
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

    def _is_due_soon(self, problem: str) -> bool:
        if self._kind is Kind.TOOL:
            return bool(problem) or (self.is_declared and not self._has_listed)
        # Servers declare prompts and resources without having any, and even without knowing the method.
        return bool(problem) and self.standing.problem.cause is not Cause.LIST_REFUSED

    async def _read(self, connection: UpstreamConnection) -> str:
        try:
            raws = await self._raws(connection)
        except ListingFault as error:
            problem = error.reason.redacted(partial(self._redact, most=REASON))
            self._warnings.of_problem(problem.text)
            self._tell(self._failed(problem.text))
            self._stand(problem)
            return problem.text
        looked = await trio.to_thread.run_sync(
            looked_through, self._kind, self._server.name, raws, self._redact
        )
        self._warnings.of(looked)
        self._tell(self._listed(looked))
        self._has_listed |= bool(looked.usable)
        if looked.usable or not (looked.quarantined or self._should_offer):
            self._stand(HEALTHY)
        elif looked.quarantined:
            self._stand(unusable(self._kind, looked.quarantined))
        else:
            self._stand(EMPTY if self.is_declared else NOTHING)
        return ""

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

    def _failed(self, problem: str) -> Fact:
        if self._kind is Kind.TOOL:
            return ListingFailed(server=self._server.name, incarnation=self._incarnation, reason=problem)
        return DefinitionsListed(
            server=self._server.name,
            incarnation=self._incarnation,
            kind=self._kind,
            definitions=(),
            problem=problem,
            at=self._wall(),
        )

    def _listed(self, looked: LookedThrough) -> Fact:
        if self._kind is Kind.TOOL:
            return ToolsListed(
                server=self._server.name,
                incarnation=self._incarnation,
                tools=looked.tools,
                quarantined=looked.quarantined,
                at=self._wall(),
                first=not self._has_listed,
                about=self._about,
                instructions=self._instructions,
            )
        return DefinitionsListed(
            server=self._server.name,
            incarnation=self._incarnation,
            kind=self._kind,
            definitions=looked.definitions,
            quarantined=looked.quarantined,
            at=self._wall(),
            first=not self._has_listed,
            declared=self.is_declared,
        )

    def _stand(self, problem: Reason) -> None:
        if problem.cause:
            attempt = self.standing.attempt + 1
            self.standing = attrs.evolve(self.standing, problem=problem, attempt=attempt)
        else:
            self.standing = ListingStatus()
