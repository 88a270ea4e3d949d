"""What the tests of operators' commands share: a context over a `Stage`, and operators who are connected."""

import os
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from daemon.actors.control import Control
from daemon.audit.record import ChainHead
from daemon.authorization.login_runs import LoginRuns
from daemon.authorization.logins import FileLogins, ServerLogins
from daemon.catalog.loaded import SessionRecord
from daemon.catalog.snapshot import Catalog
from daemon.clients.calls import CallsInFlight
from daemon.clients.client import LOCAL_USER
from daemon.clients.context import SessionStatistics
from daemon.clients.sessions import Grants
from daemon.config.config_model import Instance, Server
from daemon.config.redaction import Redactors
from daemon.config.tuning import Restart
from daemon.counting.measures import Noise, StderrTail
from daemon.counting.recent_calls import Series
from daemon.counting.tally import CallStats
from daemon.errors import McpdError
from daemon.history.journal import History
from daemon.kit.waiting import Watch
from daemon.model import ToolKey
from daemon.operators.base import Clients, Counters, DaemonFacts, OperatorContext
from daemon.ports import Holder, Upstream
from daemon.processes.children import Children
from daemon.sandbox.egress import SeenHosts
from daemon.setup.approving import Approver
from daemon.state.health import Condition, Persistence
from daemon.state.notes import Totals
from daemon.supervision.lifecycle import ChildSpec, Lifecycle
from daemon.supervision.supervisor import Child, Supervisor
from daemon.surfaces.table import Grounds, SurfaceChoice
from daemon.upstreams.call_admission import Apart
from daemon.upstreams.handshake import Greeting, Keepalive
from daemon.upstreams.server_lists import ListingStatus
from daemon.wire.link import FdLink
from tests.fakes_upstream import Client, FakeUpstream, Stage, keep

FACTS = DaemonFacts(
    version="1", pid=os.getpid(), started_at=time.time(), socket="s", control_socket="c", config="f"
)
SESSION = SessionStatistics(
    number=3,
    key="/home/me/project",
    client="claude 2",
    protocol="2025-11-25",
    profile="default",
    surface="category",
    choice=SurfaceChoice(surface="category", grounds=Grounds.PROFILE),
    since=1_800_000_000.0 - 1.23456,
    calls=7,
    in_flight=1,
    loaded=2,
    repaired=3,
)


class FakeServer(FakeUpstream):
    """A server that can be looked at, and that lists its tools when it is told to."""

    def __init__(self, name: str, *, label: str = "", workspace: str | None = None) -> None:
        """Begin; with a label as an instance of the server."""
        super().__init__(label or name)
        self.of = name
        given = Instance(label=label, workspace=workspace) if label else None
        self.server = Server(name=name, command=name, instance=given)
        self.child: Child
        self.use: Any = None
        self.own: Catalog | None = None
        """The catalog with what it lists itself, if that is something else."""
        self.stats = CallStats()
        self.noise = Noise()
        self.stderr = StderrTail()
        self.apart = Apart(name)
        self.refused_hosts: SeenHosts | None = None
        self.greeting: Greeting | None = None
        self.pings: Keepalive | None = None
        self.children: dict[int, int] = {}
        self.in_flight = 0
        self.list_status = ListingStatus()
        self.problem = ""
        self.error: Exception | None = None
        self.on_refresh: Callable[[], None] = lambda: None
        self.listed = 0

    @property
    def pid(self) -> int | None:
        """Its first process."""
        return next(iter(self.children), None)

    def own_catalog(self, catalog: Catalog) -> Catalog:
        """As it is told."""
        return self.own or catalog

    async def refresh(self) -> str:
        """List, or fail as told."""
        self.listed += 1
        await trio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        if not self.problem:
            self.on_refresh()
        return self.problem


class FakeInstances:
    """The instances of a server that is divided: an operator gets the first; notes whom it was for."""

    begun = 3
    ended = 1

    def __init__(self, *instances: FakeServer) -> None:
        self.instances = instances
        self.holders: list[Holder] = []
        self.left: list[tuple[Hashable, bool]] = []
        self.error: Exception | None = None

    def of(self, holder: Holder) -> Upstream:
        """The first, or as told."""
        self.holders.append(holder)
        if self.error is not None:
            raise self.error
        return self.instances[0]

    def take_loss(self, holder: Holder) -> str:
        """Nobody loses anything (`ports.Instances.take_loss`)."""
        del holder
        return ""

    def session_ended(self, session: Hashable, *, soon: bool = False) -> None:
        """Note it."""
        self.left.append((session, soon))


@attrs.define(slots=False)
class FakeSession:
    """A client's connection; notes which profiles it was given."""

    facts: SessionStatistics
    profiles: list[str] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.number = self.facts.number
        self.calls: CallsInFlight

    @property
    def key(self) -> str | None:
        """As it is told."""
        return self.facts.key

    def statistics(self) -> SessionStatistics:
        """As it is told."""
        return self.facts

    def move(self, profile: str) -> None:
        """Note it."""
        self.profiles.append(profile)


@attrs.define
class FakeArchive:
    """What outlives the daemon, or why it cannot be read or written."""

    records: list[SessionRecord] = attrs.field(factory=list)
    fault: McpdError | None = None
    """Why nothing can be read."""
    persistence: Watch[Persistence] = attrs.field(factory=lambda: Watch(Persistence(state=Condition.OK)))
    totals: Totals = attrs.field(factory=lambda: Totals(dict))
    counted: Mapping[str, Sequence[tuple[int, int]]] = attrs.field(factory=dict)
    """What was counted by the hour."""
    audited: list[ChainHead] = attrs.field(factory=list)
    """The heads of the audit."""

    def degrade(self, reason: str, **more: Any) -> None:
        """Nothing is written any more."""
        self.persistence.set(Persistence(state=Condition.DEGRADED, reason=reason, **more))

    async def kept(self) -> bool:
        """Unless it is degraded."""
        return self.persistence.value.state is Condition.OK

    async def sessions(self, limit: int) -> tuple[SessionRecord, ...]:
        """Those used last."""
        if self.fault is not None:
            raise self.fault
        return tuple(sorted(self.records, key=lambda each: -each.seen_at)[:limit])

    async def hours(self, since: float) -> Mapping[str, Sequence[tuple[int, int]]]:
        """What was counted."""
        if self.fault is not None:
            raise self.fault
        return {
            name: found
            for name, hours in self.counted.items()
            if (found := [each for each in hours if each[0] >= since])
        }

    async def heads(self) -> list[ChainHead]:
        """Those of the audit."""
        if self.fault is not None:
            raise self.fault
        return self.audited

    async def recall(self, key: str) -> SessionRecord | None:
        """The one of this key."""
        if self.fault is not None:
            raise self.fault
        return next((each for each in self.records if each.key == key), None)


class StageRegistry:
    """A registry that takes facts in at once."""

    def __init__(self, stage: Stage) -> None:
        self.catalog = stage.catalog
        self.tell = stage.learn

    async def settle(self) -> None:
        """Everything is."""
        await trio.lowlevel.checkpoint()


def clients_of(
    *live: FakeSession,
    in_use: Iterable[tuple[SessionRecord, int]] = (),
    moves: dict[str, str] | None = None,
    grants: Mapping[str, Grants] | None = None,
    unload: Callable[[Hashable, Collection[ToolKey]], Awaitable[bool]] | None = None,
) -> Clients:
    def change(key: str, act: Callable[[Grants], object]) -> None:
        act((grants or {})[key])

    return Clients(
        live=lambda: live,
        in_use=lambda: in_use,
        moves={} if moves is None else moves,
        change_grants=change,
        unload=unload or nobody,
        parked=lambda: (),
        connections=lambda: {
            "clients": {"open": len(live), "places": 1024, "refused": {}},
            "operators": {"open": 1, "places": 32, "refused": {"uid": 2}},
        },
    )


async def nobody(*_given: object) -> Any:
    raise AssertionError("nobody does this here")


def operator_context(stage: Stage, **changed: Any) -> OperatorContext:
    """A context over a stage; what is not changed is idle, empty or well."""
    registry, history = StageRegistry(stage), History(time.time)
    given: dict[str, Any] = {
        "facts": FACTS,
        "registry": registry,
        "approver": Approver(registry=registry, note=history.note, wall=time.time, directory=Path("/nowhere")),
        "upstreams": {},
        "children": {},
        "reload": nobody,
        "archive": FakeArchive(),
        "clients": clients_of(),
        "counters": Counters(
            tally=stage.tally,
            mended=stage.mended,
            summarizer=lambda: None,
            export=nobody,
            recent=stage.recent,
            series=Series(),
        ),
        "services": stage.services,
        "redact": Redactors(),
        "outbox": stage.outbox,
        "logins": LoginRuns(
            ServerLogins(FileLogins(Path("/nowhere"))), Path("/nowhere"), Children.__new__(Children)
        ),
        "wall": time.time,
        "history": history,
    }
    given |= changed
    return OperatorContext(**{"actors": given["upstreams"], **given})


class OperatorStage:
    """A daemon for operators: its servers are fakes, its children only say that they are ready."""

    def __init__(self, stage: Stage | None = None) -> None:
        self.stage = stage or Stage()
        self.runs = 0
        self.servers = {name: FakeServer(name) for name in self.stage.upstreams}
        self.actors = dict(self.servers)
        """What runs: these servers, and instances in place of those that are divided."""
        self.supervisor = Supervisor(
            [ChildSpec(name=name, run=self._live, policy=Restart()) for name in self.servers],
            starts=4,
            on_status=lambda _name, _status: None,
            rng=lambda: 0.5,
            wall=time.time,
        )
        for name, server in self.servers.items():
            server.child = self.supervisor.children[name]

    @property
    def alpha(self) -> FakeServer:
        """The first server."""
        return self.servers["alpha"]

    def divide(self, name: str, *labels: str, workspace: str | None = None) -> FakeInstances:
        """Let a server have these instances, which run beside the others; started if they are supervised."""
        made = [FakeServer(name, label=label, workspace=workspace) for label in labels]
        del self.actors[name]
        for each in made:
            each.child = self.supervisor.add(ChildSpec(name=each.name, run=self._live, policy=Restart()))
            self.actors[each.name] = each
        instances = self.servers[name].instances = FakeInstances(*made)
        return instances

    async def _live(self, lifecycle: Lifecycle) -> None:
        self.runs += 1
        lifecycle.ready()
        await trio.sleep_forever()

    def context(self, **changed: Any) -> OperatorContext:
        """What commands work with here."""
        parts = {"upstreams": self.servers, "actors": self.actors, "children": self.supervisor.children}
        return operator_context(self.stage, **{**parts, **changed})

    async def connect(self, nursery: trio.Nursery, **changed: Any) -> Client:
        """An operator connects."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        fd = ours.detach()
        link = FdLink(fd, fd, outbox=self.stage.outbox, max_line=1 << 20, max_queue=8 << 20)
        client, operator = Client(theirs), attrs.evolve(LOCAL_USER, pid=changed.pop("pid", 0))
        nursery.start_soon(_serve, Control(self.context(**changed), link, 1, operator), link)
        nursery.start_soon(keep, client)
        return client


async def _serve(control: Control, link: FdLink) -> None:
    with pytest.raises(Exception, match=r"closed the connection|no request for 30 s"):
        await control.run()
    link.close()
