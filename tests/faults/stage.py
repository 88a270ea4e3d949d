"""A stage for upstreams: what `tree` wires around them, without doors, and with a look at what is left behind.

`stage(...)` runs servers under the real supervisor, registry and child keeper. At its end, or at that of
`leaving_nothing`, there must be no child, no descriptor and no task more than before. `Recorder` follows what
scripted servers say in their `record`; it is a FIFO, so waiting needs no polling.
"""

import json
import os
import random
import re
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import attrs
import trio
from msgspec import Raw

from daemon.actors.registry import Registry
from daemon.actors.upstream import UpstreamActor
from daemon.catalog.snapshot import ServerEntry
from daemon.clients.connected_clients import ConnectedClients
from daemon.config.config_model import Config, Server, StartMode
from daemon.config.tuning import Restart, ServerLimits, Timeouts
from daemon.errors import CallError
from daemon.facts import ServerStatus, StatusChanged
from daemon.processes.children import Children
from daemon.protocol import ASKED_OF_CLIENTS
from daemon.safety.redact import Redactor
from daemon.states import ServerState
from daemon.supervision.lifecycle import ChildSpec
from daemon.supervision.supervisor import Supervisor
from daemon.upstreams.transports.server_connection import OpenContext
from daemon.upstreams.upstream_access import UpstreamAccess
from daemon.wire.envelope import Buffer, RemoteError
from daemon.wire.outbox import Outbox
from daemon.wire.requests import OwnExchange
from tests.fakes_upstream import tool_call
from tests.scripted_server import command
from tests.waiting import PATIENCE, background, beside, in_time

QUICK = {"stop_eof": 0.2, "stop_term": 0.2, "probe": 1.0, "initialize": 20.0}
"""Timeouts for servers that need no patience."""

Json = dict[str, Any]


def scripted(
    name: str = "s",
    *,
    timeouts: Json | None = None,
    limits: Json | None = None,
    restart: Json | None = None,
    lazy: bool = False,
    env: dict[str, str] | None = None,
    **script: Any,
) -> Server:
    """A server that plays a script of `scripted_server`."""
    program, *args = command(**script)
    return Server(
        name=name,
        command=program,
        args=tuple(args),
        env=env or {},
        timeouts=Timeouts(**{**QUICK, **(timeouts or {})}),
        limits=ServerLimits(**(limits or {})),
        restart=Restart(**(restart or {})),
        start=StartMode.LAZY if lazy else StartMode.EAGER,
    )


class Recorder:
    """Follows what servers record, and what they are."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.events: list[Json] = []
        self._more = trio.Event()
        os.mkfifo(path)

    async def follow(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)
        rest = b""
        task_status.started()
        try:
            while True:
                await trio.lowlevel.wait_readable(fd)
                *lines, rest = (rest + os.read(fd, 65536)).split(b"\n")
                self.events += map(json.loads, lines)
                self._more.set()
                self._more = trio.Event()
        finally:
            os.close(fd)

    def all(self, event: str, **fields: Any) -> list[Json]:
        """Events of one kind, with these fields."""
        return [
            found
            for found in self.events
            if found["event"] == event and all(found.get(key) == value for key, value in fields.items())
        ]

    def messages(self, method: str) -> list[Json]:
        """Messages with this method that servers received."""
        return [m for found in self.all("message") if (m := found["message"]).get("method") == method]

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until something holds of the record."""
        with trio.fail_after(PATIENCE):
            while not holds():
                await self._more.wait()

    async def until_more(self, number: int) -> None:
        """Wait, however long, until there are more events than this."""
        while len(self.events) <= number:
            await self._more.wait()

    async def wait(self, event: str, number: int = 1) -> Json:
        """The n-th event of a kind."""
        await self.until(lambda: len(self.all(event)) >= number)
        return self.all(event)[number - 1]

    async def wait_message(self, method: str, number: int = 1) -> Json:
        """The n-th message with a method."""
        await self.until(lambda: len(self.messages(method)) >= number)
        return self.messages(method)[number - 1]

    @property
    def pids(self) -> list[int]:
        """Every process that was ever told of."""
        return [found["pid"] for found in self.events if "pid" in found]


class Answer(OwnExchange):
    """An exchange that a test can wait for. Fails if it ends twice."""

    answerable = ASKED_OF_CLIENTS

    def __init__(self) -> None:
        self.key = 0
        self.result: Json | None = None
        self.error: Exception | None = None
        self.progress: list[dict[str, Raw]] = []
        self.ended_at = 0.0
        self._done = trio.Event()

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def answered(self, result: Buffer) -> None:
        self._end()
        self.result = json.loads(bytes(result))

    def refused(self, error: Buffer) -> None:
        self._end()
        self.error = RemoteError.from_wire(error)

    def lost(self, error: CallError) -> None:
        self._end()
        self.error = error

    def progressed(self, params: dict[str, Raw]) -> None:
        self.progress.append(params)

    async def wait(self) -> Json:
        """The result."""
        await in_time(self._done.wait())
        if self.error is not None:
            raise self.error
        assert self.result is not None
        return self.result

    async def text(self) -> str:
        """The text of the result."""
        found: str = (await self.wait())["content"][0]["text"]
        return found

    def _end(self) -> None:
        assert not self._done.is_set(), "a call ended twice"
        self.ended_at = trio.current_time()
        self._done.set()


class Stage:
    """Servers at work."""

    def __init__(self, servers: tuple[Server, ...], starts: int, rng: Callable[[], float]) -> None:
        self.outbox = Outbox()
        self.children = Children()
        self.subscribers = ConnectedClients()
        self.history: list[tuple[str, ServerStatus]] = []
        self.lessons: dict[str, Any] = {}
        self.registry = Registry(Config(mcp_servers={s.name: s for s in servers}), wall=time.time)
        self.upstreams = {
            s.name: UpstreamActor(
                s,
                outbox=self.outbox,
                opening=partial(OpenContext, outbox=self.outbox, children=self.children, lessons=self.lessons),
                tell=self.registry.tell,
                wall=time.time,
                redact=Redactor(()),
                subscribers=self.subscribers,
            ).access
            for s in servers
        }
        self.supervisor = Supervisor(
            [
                ChildSpec(name=n, run=u.run, policy=u.server.restart, lazy=u.server.start is StartMode.LAZY)
                for n, u in self.upstreams.items()
            ],
            starts=starts,
            on_status=self._on_status,
            rng=rng,
            wall=time.time,
        )
        for name, upstream in self.upstreams.items():
            upstream.child = self.supervisor.children[name]

    def _on_status(self, name: str, status: ServerStatus) -> None:
        self.history.append((name, status))
        self.registry.tell(StatusChanged(server=name, status=status))

    @property
    def one(self) -> UpstreamAccess:
        """The first upstream."""
        return next(iter(self.upstreams.values()))

    def states(self, name: str = "s") -> list[ServerState]:
        """The states that a server went through."""
        told = [status.state for who, status in self.history if who == name]
        return [state for i, state in enumerate(told) if i == 0 or told[i - 1] is not state]

    async def reach(self, *states: ServerState, name: str = "s", incarnation: int = 0) -> ServerStatus:
        """Wait for a state, of a certain incarnation or a later one."""
        with trio.fail_after(PATIENCE):
            return await self.supervisor.children[name].status.wait_until(
                lambda status: status.state in states and status.incarnation >= incarnation
            )

    async def told(self, reason: str, name: str = "s") -> ServerStatus:
        """Wait until a status was told whose reason contains this: the way a run ended comes in two steps."""
        with trio.fail_after(PATIENCE):
            while True:
                for who, status in self.history:
                    if who == name and reason in status.reason:
                        return status
                watch = self.supervisor.children[name].status
                await watch.wait_changed(watch.value)

    async def ready(self, name: str = "s", incarnation: int = 0) -> ServerStatus:
        """Wait until a server is ready, and the catalog knows."""
        status = await self.reach(ServerState.READY, name=name, incarnation=incarnation)
        await self.entry(lambda entry: entry.status.incarnation >= status.incarnation, name)
        return status

    async def entry(self, holds: Callable[[ServerEntry], object], name: str = "s") -> ServerEntry:
        """Wait until something holds of a server in the catalog."""
        with trio.fail_after(PATIENCE):
            catalog = await self.registry.catalog.wait_until(lambda it: bool(holds(it.servers[name])))
        return catalog.servers[name]

    def call(self, tool: str, *, name: str = "s", progress: bool = False, **arguments: Any) -> Answer:
        """Send a call now."""
        answer = Answer()
        call = tool_call(tool, json.dumps(arguments).encode(), wants_progress=progress)
        answer.key = self.upstreams[name].send(call, answer)
        self.outbox.flush()
        return answer


@attrs.frozen
class _Holdings:
    fds: dict[str, str]
    tasks: int
    children: frozenset[int]


def _holdings() -> _Holdings:
    fds = {}
    for entry in list(Path("/proc/self/fd").iterdir()):
        with suppress(OSError):
            fds[entry.name] = str(entry.readlink())
    fds = {fd: target for fd, target in fds.items() if not target.startswith(f"/proc/{os.getpid()}")}
    return _Holdings(fds, trio.lowlevel.current_statistics().tasks_living, frozenset(children_of_ours()))


def children_of_ours() -> list[int]:
    """Direct children of this process."""
    return children_of("self")


def children_of(pid: int | str) -> list[int]:
    """Direct children of a process, zombies and adopted ones included."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            found += map(int, (task / "children").read_text().split())
    return found


def resident_kib(pid: int | str = "self") -> int:
    """The resident memory of a process."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


@asynccontextmanager
async def leaving_nothing(recorder: Recorder | None = None) -> AsyncIterator[None]:
    """No child, no descendant, no descriptor and no task may outlive the block."""
    await trio.lowlevel.checkpoint()
    before = _holdings()
    try:
        yield
    except BaseException:
        _kill({*children_of_ours(), *(recorder.pids if recorder else ())} - before.children)
        raise
    await trio.lowlevel.checkpoint()
    assert not [pid for pid in (recorder.pids if recorder else ()) if is_alive(pid)]
    after = _holdings()
    assert not (left := after.children - before.children), f"children are left: {left}"
    assert not after.fds.items() - before.fds.items()
    assert after.tasks == before.tasks


def _kill(pids: set[int]) -> None:
    """A test failed: the next one shall not suffer from it."""
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


_numbers = count()


@asynccontextmanager
async def recording(directory: Path) -> AsyncIterator[Recorder]:
    """A recorder that follows while the block runs."""
    recorder = Recorder(directory / f"record{next(_numbers)}")
    async with background() as nursery:
        await nursery.start(recorder.follow)
        yield recorder


@asynccontextmanager
async def stage(
    *servers: Server,
    recorder: Recorder | None = None,
    starts: int = 4,
    rng: Callable[[], float] = random.random,
) -> AsyncIterator[Stage]:
    """Servers at work while the block runs; afterwards nothing of them is left."""
    async with leaving_nothing(recorder), at_work(*servers, starts=starts, rng=rng) as found:
        yield found


@asynccontextmanager
async def at_work(
    *servers: Server, starts: int = 4, rng: Callable[[], float] = random.random
) -> AsyncIterator[Stage]:
    """Servers at work while the block runs."""
    found = Stage(servers, starts, rng)
    others = set(children_of_ours())
    async with beside(found.registry.run) as core:
        core.start_soon(found.children.reap_orphans)
        async with beside(found.supervisor.run):
            yield found
        with trio.move_on_after(PATIENCE):  # orphans are adopted, then reaped, in their own time
            while set(children_of_ours()) - others:  # noqa: ASYNC110
                await trio.sleep(0.005)
