"""A one_for_one supervisor: children are restarted independently, each behind its own exception boundary.

trio's nurseries are one_for_all; here nothing that happens in one child (`child`) affects another. Children are
added, removed, replaced and switched off while the others keep running.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

from daemon.causes import Reason
from daemon.states import ServerState
from daemon.supervision.child import Child
from daemon.supervision.starts import StartQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from daemon.facts import ServerStatus
    from daemon.history.event import Event
    from daemon.processes.marks import Effort
    from daemon.supervision.lifecycle import ChildSpec
    from daemon.supervision.starts import Look


async def _nobody_seen(_marks: frozenset[int]) -> Mapping[int, Effort]:
    return {}


class Supervisor:
    """Starts children, restarts them, and reports each change of their status."""

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        *,
        starts: int,
        on_status: Callable[[str, ServerStatus], None],
        rng: Callable[[], float],
        wall: Callable[[], float],
        redact: Callable[[str], Callable[[str], str]] = lambda _name: str,
        look: Look = _nobody_seen,
        note: Callable[[Event], None] = lambda _event: None,
    ) -> None:
        """Make the children without starting them.

        Args:
            specs: the children; names must be unique.
            starts: how many may be starting at once.
            on_status: called with a child's name and each new status, synchronously.
            rng: returns random numbers in [0, 1), for the jitter.
            wall: returns seconds since the epoch, for people.
            redact: returns what removes secrets from the reasons of a child, which operators and models see.
            look: returns the effort of starting children (`starts`).
            note: takes what happens to children.

        Raises:
            ValueError: two children share a name.
        """
        self._starts = StartQueue(starts, look)
        self._make = partial(Child, starts=self._starts, on_status=on_status, rng=rng, wall=wall, note=note)
        self._redact = redact
        self._nursery: trio.Nursery | None = None
        self._children: dict[str, Child] = {}
        self._retired: set[Child] = set()
        for spec in specs:
            self.add(spec)

    @property
    def children(self) -> Mapping[str, Child]:
        """The children by name; always the same object."""
        return self._children

    def add(self, spec: ChildSpec) -> Child:
        """Add a child, which is started at once if the supervisor runs.

        Raises:
            ValueError: there is a child of that name.
        """
        if spec.name in self._children:
            raise ValueError(f"two children are named {spec.name!r}")
        child = self._children[spec.name] = self._make(spec, redact=self._redact(spec.of or spec.name))
        if self._nursery is not None:
            self._nursery.start_soon(child.supervise)
        return child

    async def remove(self, name: str, reason: str) -> None:
        """Remove a child at once, stop it for good, and return once it has cleaned up.

        Raises:
            KeyError: there is no child of that name.
        """
        await self.end(self.retire(name), reason)

    def retire(self, name: str) -> Child:
        """Give a child's name back at once; the child goes on until `end`.

        Raises:
            KeyError: there is no child of that name.
        """
        child = self._children.pop(name)
        self._retired.add(child)
        return child

    async def end(self, child: Child, reason: str) -> None:
        """Stop a retired child for good, and return once it has cleaned up."""
        child.leave(reason)
        if self._nursery is not None:
            await child.left.wait()
        self._retired.discard(child)
        child.status.become(ServerState.STOPPED, Reason(reason))

    async def run(self) -> None:
        """Supervise until cancelled; returns after every child has cleaned up."""
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._starts.watch)
                for child in self._children.values():
                    self._nursery.start_soon(child.supervise)
                await trio.sleep_forever()
        finally:
            self._nursery = None
            self.announce_stop()
            for child in self._all:
                child.status.become(ServerState.STOPPED)

    def announce_stop(self) -> None:
        """Show all children as stopping; `run` is about to be cancelled."""
        for child in self._all:
            child.status.end()

    @property
    def _all(self) -> list[Child]:
        return [*self._children.values(), *self._retired]
