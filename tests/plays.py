"""Children that play their plays under a supervisor in virtual time, and everything that they ever said."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import attrs
import trio
import trio.testing

from daemon.config.tuning import Restart
from daemon.errors import ConnectionLost
from daemon.facts import ServerStatus
from daemon.states import ServerState
from daemon.supervision.lifecycle import ChildSpec, Lifecycle
from daemon.supervision.supervisor import Child, Supervisor
from tests.waiting import beside

Play = Callable[[Lifecycle], Awaitable[None]]
DAY = 24 * 3600.0
LOST = ConnectionLost("it hung up")
OFF = "switched off by an operator"
BACKOFF, CRASHLOOP, DISABLED, DORMANT, FAILED, NEEDS_AUTH, QUEUED, READY, STARTING, STOPPED, STOPPING = (
    ServerState(word)
    for word in (
        *("backoff", "crashloop", "disabled", "dormant", "failed", "needs_auth"),
        *("queued", "ready", "starting", "stopped", "stopping"),
    )
)


def play(error: BaseException | None = None, *, start: float = 0.0, ready_for: float | None = None) -> Play:
    """One run: takes `start` seconds, is ready for some, then ends."""

    async def run(life: Lifecycle) -> None:
        await trio.sleep(start)
        if ready_for is not None:
            life.ready()
            await trio.sleep(ready_for)
        if error is not None:
            raise error

    return run


FOREVER = play(ready_for=float("inf"))
HANG = play(start=float("inf"))


class Actor:
    """A child's body that plays its plays in turn, the last one for ever, and takes time to clean up."""

    def __init__(self, *plays: Play, cleanup: float = 0.0) -> None:
        self.starts: list[float] = []
        self.incarnations: list[int] = []
        self.live = 0
        self.most_live = 0
        self._plays = plays
        self._cleanup = cleanup

    async def run(self, life: Lifecycle) -> None:
        self.starts.append(trio.current_time())
        self.incarnations.append(life.incarnation)
        self.live += 1
        self.most_live = max(self.live, self.most_live)
        try:
            await self._plays[min(len(self.starts), len(self._plays)) - 1](life)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(self._cleanup)
            self.live -= 1

    @property
    def gaps(self) -> list[float]:
        """Seconds between starts."""
        return [later - earlier for earlier, later in pairwise(self.starts)]

    def spec(self, name: str = "a", *, lazy: bool = False, **policy: Any) -> ChildSpec:
        return ChildSpec(name=name, run=self.run, policy=Restart(**policy), lazy=lazy)


@attrs.define
class Stage:
    """A supervisor at work, and everything it ever said."""

    supervisor: Supervisor
    history: list[tuple[str, ServerStatus]]

    @property
    def child(self) -> Child:
        return next(iter(self.supervisor.children.values()))

    @property
    def state(self) -> ServerState:
        return self.child.status.value.state

    def states(self, name: str = "a") -> list[ServerState]:
        """The states that a child went through, each once."""
        told = [status.state for who, status in self.history if who == name]
        return [state for i, state in enumerate(told) if i == 0 or told[i - 1] is not state]

    async def reach(self, state: ServerState, *, within: float = 1000.0) -> ServerStatus:
        with trio.fail_after(within):
            return await self.child.status.wait_until(lambda status: status.state is state)


@asynccontextmanager
async def supervised(
    *specs: ChildSpec, starts: int = 4, rng: Callable[[], float] = lambda: 0.0
) -> AsyncIterator[Stage]:
    history: list[tuple[str, ServerStatus]] = []
    supervisor = Supervisor(
        specs,
        starts=starts,
        on_status=lambda name, status: history.append((name, status)),
        rng=rng,
        wall=trio.current_time,
    )
    async with beside(supervisor.run):
        yield Stage(supervisor, history)
    assert all(child.status.value.state is STOPPED for child in supervisor.children.values())
