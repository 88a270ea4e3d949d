"""Reading one of a server's lists: it is asked for to its end, screened, told to the registry, and judged."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

from daemon.causes import HEALTHY, Cause, Reason
from daemon.errors import ListingFault, RunError, UpstreamLost
from daemon.facts import DefinitionsListed, ListingFailed, ToolsListed
from daemon.model import Kind
from daemon.safety.redact import REASON
from daemon.upstreams.paging import list_all
from daemon.upstreams.screening import Warnings, looked_through, unusable

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Raw

    from daemon.config.model import Server
    from daemon.facts import Fact
    from daemon.ports import UpstreamConnection
    from daemon.safety.redact import Redactor
    from daemon.upstreams.handshake import Greeting
    from daemon.upstreams.screening import LookedThrough

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
        self._about = self._instructions = ""
        self._introduction = b""

    def begin(self, incarnation: int, greeting: Greeting) -> None:
        """Read over a new connection from now on.

        Args:
            incarnation: the server's incarnation that it belongs to.
            greeting: what the server said in the handshake.
        """
        self._incarnation = incarnation
        self.is_declared = greeting.lists(self._kind)
        self._should_offer = self._kind is Kind.TOOL and (greeting.lists_tools or not greeting.others)
        self._about = self._redact(greeting.about)
        self._instructions = self._redact(greeting.instructions)
        self._introduction = self._redact.json(greeting.introduction)
        self._has_listed = False

    async def read(self, connection: UpstreamConnection) -> tuple[str, Reason]:
        """Read the list and tell the registry of it, or of why there is none.

        Returns:
            What went wrong, empty if nothing did; and what is wrong with the list, `HEALTHY` if nothing is. An
            empty list is a list: only the second says what is wrong with it.

        Raises:
            UpstreamLost, RunError: the connection ended, while tools were read.
        """
        try:
            raws = await self._raws(connection)
        except ListingFault as error:
            problem = error.reason.redacted(partial(self._redact, most=REASON))
            self._warnings.of_problem(problem.text)
            self._tell(self._failed(problem.text))
            return problem.text, problem
        looked = await trio.to_thread.run_sync(
            looked_through, self._kind, self._server.name, raws, self._redact
        )
        self.size = len(raws)
        self._warnings.of(looked)
        self._tell(self._listed(looked))
        self._has_listed |= bool(looked.usable)
        return "", self._judged(looked)

    def is_due_soon(self, problem: str, wrong: Reason) -> bool:
        """Whether the list is worth another look soon, after `read` has returned this."""
        if self._kind is Kind.TOOL:
            return bool(problem) or (self.is_declared and not self._has_listed)
        # Servers declare prompts and resources without having any, and even without knowing the method.
        return bool(problem) and wrong.cause is not Cause.LIST_REFUSED

    def _judged(self, looked: LookedThrough) -> Reason:
        if looked.usable or not (looked.quarantined or self._should_offer):
            return HEALTHY
        if looked.quarantined:
            return unusable(self._kind, looked.quarantined)
        return EMPTY if self.is_declared else NOTHING

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
                introduction=self._introduction,
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
