"""A recorder on a stage: a real registry, and a store that the test chooses."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from daemon.actors.recorder import Recorder, Timing
from daemon.actors.registry import Registry
from daemon.catalog.loaded import Loaded, SessionRecord, Source
from daemon.catalog.snapshot import ServerEntry
from daemon.causes import Reason
from daemon.facts import Fact, ServerStatus, StatusChanged
from daemon.history.event import Event
from daemon.history.journal import History
from daemon.state.health import Condition
from daemon.state.postgres import PostgresNotifications
from daemon.state.store import Store
from daemon.state.store_access import Opener, TrustedSwitches
from daemon.states import ServerState
from tests.unit.catalog.samples import listed, servers, tool
from tests.unit.config.reading import config_of
from tests.unit.state.scripted_store import WHERE, Disk
from tests.waiting import beside, until

START = 1_000_000.0
"""The wall clock at the start of every test, in seconds since the epoch."""

UNHURRIED = 60.0
"""Seconds that tests wait for an operation unless they are about that: a busy machine is no hanging store."""

DAY = 24 * 3600.0


def session(key: str, *tools: str, server: str = "a", at: float = START) -> SessionRecord:
    """A session that has loaded these tools."""
    loaded = Loaded().adding([(tool(server, name), 1) for name in tools], Source.MANUAL, at)
    return SessionRecord(key=key, loaded=loaded, client="test", created_at=at, seen_at=at)


@attrs.define
class Stage:
    """One life of a daemon, as far as its memory goes."""

    registry: Registry
    told: list[Fact]
    live: set[str]
    adopted: list[SessionRecord]
    recorder: Recorder = attrs.field(init=False)
    wall: float = START
    settles: bool = True

    def tell(self, fact: Fact) -> None:
        self.told.append(fact)
        self.registry.tell(fact)

    async def settle(self) -> None:
        if not self.settles:
            await trio.sleep_forever()
        await self.registry.settle()

    def entry(self, server: str = "a") -> ServerEntry:
        return self.registry.catalog.value.servers[server]

    async def lists(self, server: str, *tools: str) -> None:
        """A server lists these tools, and the catalog knows."""
        self.registry.tell(listed(server, *tools))
        await self.registry.settle()

    def has_given(self, server: str, tool: str) -> bool:
        """Whether a tool has a name for good."""
        names = self.registry.catalog.value.names
        return (server, tool) in names.given and (server, tool) not in names.provisional

    async def becomes(self, server: str, state: ServerState) -> None:
        status = ServerStatus(state=state, incarnation=1, why=Reason(str(state)))
        self.registry.tell(StatusChanged(server=server, status=status))
        await self.registry.settle()

    @property
    def degraded(self) -> bool:
        return self.recorder.persistence.value.state is Condition.DEGRADED

    @property
    def reason(self) -> str:
        return self.recorder.persistence.value.reason

    async def written(self) -> None:
        """Until the store works and there is nothing to do at once."""
        await until(lambda: not self.degraded and self.recorder._sync.idle)


def begin(
    open_store: Callable[[], Store],
    *names: str,
    count: Callable[[], Mapping[str, int]] = dict,
    set_aside: Callable[[], str] | None = None,
    shared: bool = False,
    listen: Callable[[], PostgresNotifications] | None = None,
    where: str = WHERE,
    history: History | None = None,
    count_hourly: Callable[[], Mapping[str, int]] = dict,
    trusted: TrustedSwitches | None = None,
    trust: str = "all",
    note: Callable[[Event], None] = lambda _event: None,
    **timing: Any,
) -> Stage:
    """A recorder that has done nothing yet."""
    config = config_of({"trust": trust, "mcpServers": servers(*(names or ("a", "b")))})
    made = Stage(Registry(config, wall=lambda: START, note=note), [], set(), [])
    chosen: dict[str, Any] = {"session_idle": 30 * DAY, "patience": UNHURRIED, **timing}
    made.recorder = Recorder(
        Opener(open_store, where=where, set_aside=set_aside, shared=shared, listen=listen, trusted=trusted),
        catalog=made.registry.catalog,
        tell=made.tell,
        settle=made.settle,
        timing=Timing(**{"wall": lambda: made.wall, "rng": lambda: 0.0, **chosen}),
        count=count,
        history=history,
        count_hourly=count_hourly,
    )
    return made


@asynccontextmanager
async def life(
    made: Stage, disk: Disk | None = None, *, opened: bool = False, finish: bool = True
) -> AsyncIterator[Stage]:
    """One life, from the opening of the store to its end.

    Args:
        made: what lives.
        disk: whatever hangs there comes back at the end.
        opened: whether the store was opened already, or that was tried.
        finish: whether what is left is written.
    """
    try:
        async with beside(made.registry.run) as nursery:
            if not opened:
                await made.recorder.open()
            nursery.start_soon(made.recorder.run, lambda: made.live, made.adopted.append)
            await made.registry.settle()
            yield made
    finally:
        if disk is not None:
            disk.goes_on()
        if finish:
            await made.recorder.finish()


@asynccontextmanager
async def settled(disk: Disk) -> AsyncIterator[Stage]:
    """A life whose first words are written."""
    async with life(begin(disk.open), disk) as stage:
        await stage.written()
        yield stage


def tools_of(entry: ServerEntry) -> Iterator[str]:
    return iter(entry.tools or ())
