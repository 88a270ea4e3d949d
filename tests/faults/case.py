"""A fault as data, and the play in which it happens.

A `Case` names a server that misbehaves and the steps of what happens (`steps`). A `Play` is one performance: it
brings the server in, has the neighbour called all the while, takes the steps, takes the server out again and
reads the history.
"""

import os
import random
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import attrs
import trio

from tests.e2e.harness import scripted
from tests.faults.arena import BOUND, CANARY, Arena, Client, Pending, Visitors, settled, visiting
from tests.faults.history import Born, Connections, Described, History, Left, Said, Seen, Took
from tests.faults.stage import Recorder, is_alive, recording
from tests.faults.upstreams import SERVERS, Act, Upstream
from tests.faults.wire import HARMLESS, Toxic, Wire
from tests.waiting import LOOK_SECONDS, background, until

Json = dict[str, Any]

QUICK: Json = {
    "connect": 10,
    "initialize": 20,
    "list": 20,
    "probe": 10,
    "wake": 0.1,
    "stopEof": 0.3,
    "stopTerm": 0.3,
}
"""Patience for what is to succeed on a slow machine, none for what has to stop or is waited for in vain."""

SOON: Json = {"base": 0.05, "cap": 0.05, "floor": 0, "intensity": 100_000}
"""Restarts at once, and never a crash loop."""

LATER: Json = {"base": 600, "cap": 600, "floor": 300, "freeAfter": 600}
"""The first failure is followed by a wait that outlasts the case."""

CANARY_PAUSE = 0.2
"""Seconds between calls to the neighbour: all the while, without taking the machine for itself."""


DOORS = ("unix", "http")
"""By which clients come in. Which of them is left to chance, and so to the seed: all cases by both would take
twice the time, and a door has little to do with what servers do."""

DOOR = os.environ.get("MCPD_DOOR")
"""The one for all cases, to have them all by the same."""

STATUS_SECONDS = 0.1
"""Between looks at a status: each costs the daemon a description of every server."""


class Step(Protocol):
    """Something that happens, or must be so, in a case."""

    async def take(self, play: "Play") -> None:
        """Do it; raises AssertionError if it is not as it must be."""


@attrs.frozen(kw_only=True)
class Stdio:
    """A server that is a child: `tests/scripted_server.py` says what a script is."""

    script: Mapping[str, Any] = attrs.field(factory=dict)
    """What it does."""
    entry: Mapping[str, Any] = attrs.field(factory=dict)
    """More keys of its configuration, or others."""


@attrs.frozen(kw_only=True)
class Net:
    """A server behind a network (`upstreams`), at the far end of a faulty line."""

    kind: str
    """Its transport."""
    on: Mapping[str, Sequence[Act | None]] = attrs.field(factory=dict)
    """What it does with messages."""
    session: bool = False
    """Whether it gives its sessions ids."""
    listens: bool = True
    """Whether it is there from the start."""
    up: Toxic = HARMLESS
    """The line to it."""
    down: Toxic = HARMLESS
    """The line from it."""
    url: str = ""
    """What its url looks like, if it does not look as usual: `{port}` stands for its port."""
    entry: Mapping[str, Any] = attrs.field(factory=dict)
    """More keys of its configuration, or others."""


@attrs.frozen(kw_only=True)
class Case:
    """A fault: what, where, and what is expected."""

    name: str
    """What goes wrong, in words."""
    steps: Sequence[Step]
    """What happens and what must be so, in this order."""
    server: Stdio | Net | None = None
    """The server that it happens to; None: the fault is a client's or an operator's."""
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)
    """What must not be put out."""
    effects: int | None = None
    """How many side effects there are in the end; None: nobody counts."""

    @property
    def alone(self) -> bool:
        """Whether it must not be performed while others are."""
        return any(getattr(step, "alone", False) for step in self.steps)


class Play:
    """One performance of a case."""

    def __init__(
        self, arena: Arena, case: Case, name: str, directory: Path, rng: random.Random, *, alone: bool
    ) -> None:
        self.arena = arena
        self.alone = alone
        self.case = case
        self.name = name
        self.rng = rng
        self.door = DOOR or rng.choice(DOORS)
        """By which its client comes in; the neighbour's comes in by the other."""
        self.directory = directory
        self.history = History(neighbours=frozenset({CANARY}), secrets=case.secrets)
        self.held: list[Pending] = []
        self.upstream: Upstream | None = None
        self.wire: Wire | None = None
        self.first_epoch: int | None = None
        self.client: Client
        self.operator: Client
        self.visitors: Visitors
        self.recorder: Recorder
        self._log_from = arena.log_size()
        self._entry: Json = {}
        self._noted = 0
        self._born: list[int] = []

    # --- from the curtain to the curtain --------------------------------------------------------------------

    async def perform(self) -> None:
        """All of it. Raises AssertionError with every violation that the history has."""
        async with (
            recording(self.directory) as self.recorder,
            visiting(self.arena, self.history, self.rng) as self.visitors,
            background() as nursery,
        ):
            self.client = await self._comes_in(self.door)
            self.operator = await self.visitors.operator()
            await self.look(CANARY)
            nursery.start_soon(self._chronicle)
            async with self._neighbour_called(), self._server():
                for step in self.case.steps:
                    await step.take(self)
                await self._look_at_the_end()
            await self._remains()
            await self.look(CANARY)
            self.history.note(Said(where="the log", text=self.log()))
        self._judge()

    async def _comes_in(self, door: str) -> Client:
        return await (self.visitors.client() if door == "unix" else self.visitors.over_http())

    def _judge(self) -> None:
        if self.case.effects is not None:
            counted = self.effects()
            assert counted == self.case.effects, f"{counted} side effects instead of {self.case.effects}"
        assert not (found := self.history.violations()), "\n".join(found)

    @asynccontextmanager
    async def _server(self) -> AsyncIterator[None]:
        match self.case.server:
            case Net() as net:
                async with self._behind_a_network(net):
                    yield
            case Stdio() as stdio:
                kept = {name: str(self.directory / name) for name in ("effects", "count")}
                entry = scripted(record=self.recorder.path, **kept, **stdio.script)
                async with self._configured({**entry, **stdio.entry}):
                    yield
            case None:
                yield

    @asynccontextmanager
    async def _behind_a_network(self, net: Net) -> AsyncIterator[None]:
        self.upstream = SERVERS[net.kind](self.name, self.history, on=net.on, session=net.session)
        async with background() as nursery:
            self.upstream.attend(nursery)
            async with Wire(
                self.upstream.connect, rng=self.rng, up=net.up, down=net.down
            ).running() as self.wire:
                url = self._url(net, self.wire)
                if net.listens:
                    self.wire.answer()
                async with self._configured({"type": net.kind, "url": url, **net.entry}):
                    yield

    def _url(self, net: Net, wire: Wire) -> str:
        if net.kind == "unix" and not net.url:
            path = str(self.arena.daemon.directory / f"{self.name}.sock")
            wire.name_path(path)
            return f"unix://{path}"
        usual = "ws://127.0.0.1:{port}/mcp" if net.kind == "ws" else "http://127.0.0.1:{port}/mcp"
        return (net.url or usual).format(port=wire.reserve_port())

    @asynccontextmanager
    async def _configured(self, entry: Json) -> AsyncIterator[None]:
        self._entry = {
            **entry,
            "timeouts": {**QUICK, **entry.get("timeouts", {})},
            "restart": {**SOON, **entry.get("restart", {})},
        }
        await self.reload(self._entry)
        try:
            yield
        except BaseException:
            # Others need the stage, and nobody of this case can be relied on any more.
            with trio.CancelScope(shield=True):
                async with self.arena.writing:
                    self.arena.configure(self.name, None)
                    await trio.to_thread.run_sync(self.arena.daemon.ask, "reload")
            raise
        asked = await self.reload(None)
        answer = await asked.wait()
        assert "result" in answer, answer

    async def reconfigure(self, **changed: object) -> None:
        """Change some keys of the server's entry."""
        self._entry = {**self._entry, **changed}
        await self.reload(self._entry)

    async def reload(self, entry: Json | None) -> Pending:
        """Put a configuration in force; servers may still be starting when this returns."""
        async with self.arena.writing:
            since = self.arena.log_size()
            self.arena.configure(self.name, entry)
            # The answer waits for servers that may never come up; the log tells when it is in force.
            asked = await self.operator.ask("reload")
            in_force = re.compile(rf"\b{self.name}\b.*; unchanged servers: ")
            await self.until(
                lambda: asked.done.is_set() or in_force.search(self.arena.log_since(since)), "no reload"
            )
        assert not asked.done.is_set() or "result" in asked.message, asked.message
        return asked

    # --- what a case looks at -------------------------------------------------------------------------------

    async def status(self) -> Json:
        """All servers, as operators see them."""
        answer = await (await self.operator.ask("status")).wait()
        found: Json = answer["result"]["servers"]
        return found

    async def look(self, server: str = "") -> tuple[Seen, Json]:
        """How a server is shown now; noted."""
        seen, told = await self._look(server)
        self.history.note(seen)
        return seen, told

    async def _look(self, server: str = "") -> tuple[Seen, Json]:
        name = server or self.name
        told = (await self.status())[name]
        seen = Seen(
            server=name,
            state=told["state"],
            since=told["since"],
            restarts=told["restarts"],
            epoch=told["epoch"],
            pid=told["pid"],
            reason=told["reason"],
        )
        self.history.note(Said(where=f"the status of {name}", text=str(told)))
        return seen, told

    async def until_seen(self, holds: Callable[[Seen, Json], object], what: str) -> Seen:
        """Look at the server until something holds of it."""
        seen, told = await self.look()
        with trio.move_on_after(BOUND):
            while not holds(seen, told):
                await trio.sleep(STATUS_SECONDS)
                seen, told = await self.look()
            return seen
        raise AssertionError(f"{what}: it is {seen}\n{self.log()}")

    async def until(self, holds: Callable[[], object], what: str) -> None:
        """Look again and again until something holds."""
        await until(holds, lambda: f"{what}\n{self.log()}", seconds=BOUND, every=LOOK_SECONDS)

    async def describe(self) -> Described:
        """What a model is told of the server; noted."""
        before, _ = await self.look()
        found = await self.client.describe(self.name)
        after, _ = await self._look()
        meta = found.get("meta", {})
        entry = meta.get("unavailableServers", {}).get(self.name)
        described = Described(
            server=self.name,
            before=before,
            after=after,
            epoch=meta.get("epoch", after.epoch),
            tools=frozenset(found.get("tools", ())),
            unavailable=frozenset(meta.get("unavailableTools", ())),
            entry=None if entry is None else (entry["state"], entry["reason"]),
        )
        self.history.note(described)
        self.history.note(after)
        self.history.note(Said(where="a description", text=str(found)))
        return described

    @property
    def is_hasty(self) -> bool:
        """Whether its calls have so little time that a busy machine may need a second try."""
        return "call" in self._entry.get("timeouts", {})

    def log(self) -> str:
        """What the daemon has logged since the case began, but for the calls."""
        lines = self.arena.log_since(self._log_from).splitlines()
        return "\n".join(line for line in lines if "] call " not in line)

    def ended(self) -> list[str]:
        """Why the server's runs have ended, so far."""
        return self.arena.ended(self.name, self._log_from)

    def taken(self, method: str) -> list[Json]:
        """What the server has received of a method."""
        if self.upstream is not None:
            return self.upstream.messages(method)
        return self.recorder.messages(method)

    def effects(self) -> int:
        """Side effects that were counted."""
        if self.upstream is not None:
            return self.upstream.effects.total()
        with suppress(FileNotFoundError):
            return len((self.directory / "effects").read_text().splitlines())
        return 0

    # --- all the while --------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _neighbour_called(self) -> AsyncIterator[None]:
        caller = await self._comes_in(DOORS[not DOORS.index(self.door)])
        over = trio.Event()
        async with trio.open_nursery() as nursery:

            async def keep_calling() -> None:
                while not over.is_set():
                    await (await caller.call(CANARY, "echo")).wait()
                    await trio.sleep(CANARY_PAUSE)

            nursery.start_soon(keep_calling)
            yield
            over.set()
        await caller.close()
        await caller.closed.wait()

    async def _chronicle(self) -> None:
        """Note what servers record: a start at once, for who else is alive then is a matter of the moment."""
        while True:
            await self.recorder.until_more(self._noted)
            event = self.recorder.events[self._noted]
            self._noted += 1
            self._note(event)

    def _note(self, event: Json) -> None:
        if event["event"] == "start":
            others = tuple(pid for pid in self._born if is_alive(pid))
            self._born.append(event["pid"])
            self.history.note(Born(server=self.name, pid=event["pid"], others=others))
        elif event["event"] == "message" and event["message"].get("method") == "tools/call":
            arguments = event["message"]["params"].get("arguments") or {}
            if "nonce" in arguments:
                self.history.note(Took(server=self.name, nonce=arguments["nonce"]))

    # --- the end --------------------------------------------------------------------------------------------

    async def _look_at_the_end(self) -> None:
        if self.case.server is None:
            return
        await self.describe()
        if self.upstream is not None and self.upstream.kind in {"unix", "ws"}:
            upstream = self.upstream
            live = await settled(lambda: min(len(upstream.live), 1) == len(upstream.live), wanted=True)
            self.history.note(Connections(server=self.name, live=1 if live else len(upstream.live)))

    async def _remains(self) -> None:
        if self.alone:
            await self._note_holdings()
        pids = [pid for pid in self.recorder.pids if is_alive(pid)]
        self.history.note(Left(what="processes that servers started", before=[], after=pids))

    async def _note_holdings(self) -> None:
        sockets = self.arena.at_rest["socket"]
        assert isinstance(sockets, int)
        await self.client.close()
        # One of its operator.
        before = {**self.arena.at_rest, "socket": sockets + 1}
        after = await settled(self.arena.holdings, before)
        assert isinstance(after, dict)
        for what, had in before.items():
            self.history.note(Left(what=what, before=had, after=after[what]))


def kill(pid: int | None, number: int) -> None:
    """Signal a process that should be there."""
    assert pid is not None, "there is no process to signal"
    os.kill(pid, number)
