"""All lists of one server: its tools first, since calls depend on them, then what else it declares.

Each list is kept current by itself, so that one that fails, or takes long, holds up no other. A server counts
as up once its tools are listed, and its other lists are, too, or have had a moment's time for it: so whoever
waits for a server to come up finds its prompts and resources with its tools.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from daemon.catalog.kinds import BESIDE_TOOLS
from daemon.model import Kind
from daemon.upstreams.listing import Listing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from daemon.causes import Reason
    from daemon.config.model import Server
    from daemon.facts import Fact
    from daemon.ports import UpstreamConnection
    from daemon.safety.redact import Redactor
    from daemon.upstreams.handshake import Greeting

BESIDE_PATIENCE = 1.0
"""Seconds that a server that has listed its tools gets for its other lists before it counts as up: most answer
within milliseconds, and one that does not must not hold up calls of its tools."""


class ServerLists:
    """The lists of one server, over all of its connections."""

    def __init__(
        self,
        server: Server,
        *,
        tell: Callable[[Fact], None],
        wall: Callable[[], float],
        redact: Redactor,
        settle: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    ) -> None:
        """Start without a connection (`Listing`)."""

        def of(kind: Kind) -> Listing:
            return Listing(server, kind, tell=tell, wall=wall, redact=redact, settle=settle)

        self.tools = of(Kind.TOOL)
        """The list of tools: calls wait for it, and it decides whether the server is of use."""
        self._beside = {kind: of(kind) for kind in BESIDE_TOOLS}
        self._greeting: Greeting | None = None

    @property
    def _all(self) -> dict[Kind, Listing]:
        return {Kind.TOOL: self.tools, **self._beside}

    def begin(self, connection: UpstreamConnection, incarnation: int, greeting: Greeting) -> None:
        """Use a new connection (`Listing.begin`)."""
        self._greeting = greeting
        for listing in self._all.values():
            listing.begin(connection, incarnation, greeting)

    def end(self) -> None:
        """Note that the connection is down, and end every wait for a list of it."""
        for listing in self._all.values():
            listing.end()

    def are_asked_for(self, kinds: Iterable[Kind]) -> None:
        """Note that the server announced that its lists of these kinds changed."""
        for kind in kinds:
            if kind is Kind.TOOL or self._beside[kind].is_declared:
                self._all[kind].is_asked_for()

    async def refresh(self) -> str:
        """List everything again now; return what went wrong with the tools, empty if nothing did."""
        async with trio.open_nursery() as nursery:
            for listing in self._beside.values():
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
        """Keep all lists current until cancelled, once the tools were listed.

        Args:
            problem: what went wrong with the first listing of tools.
            report: told what is wrong with the tools after each further one, `HEALTHY` if nothing is.
            task_status: started once the other lists are known, or have had their time.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.tools.keep, problem, report)
            for listing in self._beside.values():
                nursery.start_soon(listing.begin_and_keep)
            with trio.move_on_after(BESIDE_PATIENCE):
                for listing in self._beside.values():
                    await listing.wait_first()
            task_status.started()

    def may_have_changed(self) -> None:
        """Read the lists again whose changes the server announces: some may have been missed."""
        for kind, listing in self._all.items():
            if self._greeting is not None and self._greeting.announces(kind):
                listing.read_again()
