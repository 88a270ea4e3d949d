"""The form of an operator's command, and the context that commands work in.

A command is a function, a struct of parameters and a line in `table` (docs/operators.md). It reads the catalog
and asks actors; it holds no state of its own, so one object serves all operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import attrs
import msgspec
import trio
from msgspec import Raw

from daemon.clients.server_requests import ServerRequests
from daemon.config.labels import server_of
from daemon.errors import McpdError, UnknownServer
from daemon.kit.wording import hint
from daemon.ports import Upstream
from daemon.protocol import PROGRESS
from daemon.states import COMING, ServerState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
    from pathlib import Path

    from daemon.authorization.login_runs import LoginRuns
    from daemon.catalog.loaded import SessionRecord
    from daemon.catalog.snapshot import Catalog
    from daemon.clients.calls import CallsInFlight, ClientCall
    from daemon.clients.context import SessionStatistics
    from daemon.clients.doors.http.valid_tokens import Tokens
    from daemon.clients.grants import Grants
    from daemon.config.config_model import Config, Server
    from daemon.config.parse import CheckedConfig, Plan
    from daemon.config.redaction import Redactors
    from daemon.counting.measures import CallStats, Noise, RepairCounts, StderrTail
    from daemon.counting.recent_calls import RecentCalls
    from daemon.counting.series import Series
    from daemon.counting.tally import Tally
    from daemon.errors import CallError, Fault
    from daemon.facts import Fact
    from daemon.history.journal import History
    from daemon.kit.waiting import Watch
    from daemon.model import ToolKey
    from daemon.operators.reports import StateReport
    from daemon.ports import OwnCall
    from daemon.processes.peers import Connections
    from daemon.state.health import Persistence
    from daemon.state.session_notes import Totals
    from daemon.supervision.supervisor import Child
    from daemon.surfaces.surface import Means
    from daemon.upstreams.call_admission import Apart
    from daemon.upstreams.handshake import Greeting, Keepalive
    from daemon.upstreams.server_lists import ListingStatus
    from daemon.wire.outbox import Outbox
    from daemon.wire.peer import Peer
    from daemon.wire.requests import PeerRequest


P = TypeVar("P", bound=msgspec.Struct)


OUTCOME_SECONDS = 5.0
"""Seconds that an answer waits for servers to start or stop; they carry on after it. A stop takes up to 4 s."""


PASSED_THROUGH = COMING | {ServerState.STOPPED, ServerState.STOPPING}
"""Transient states: a server in one of them is on its way to another."""


class Refused(McpdError):
    """A command that cannot be carried out; the text says why, and what would work instead."""


@attrs.frozen
class Command(Generic[P]):
    """An operator's command, as the control socket knows it."""

    name: str
    """The JSON-RPC method that runs it."""
    params: type[P]
    """The struct that its parameters are decoded into; unknown keys are ignored."""
    run: Callable[[OperatorContext, P], Awaitable[object]]
    """Runs the command and returns the answer: anything that msgspec encodes as a JSON object. Raises an
    `McpdError` to refuse."""


class NoParams(msgspec.Struct):
    """The parameters of a command that takes none."""


@attrs.frozen(kw_only=True)
class DaemonFacts:
    """Facts about the daemon that do not change while it runs."""

    version: str
    """The version of mcpd."""
    pid: int
    """The daemon's process id."""
    started_at: float
    """When the daemon started, in seconds since the epoch."""
    socket: str
    """The path of the socket that clients connect to."""
    control_socket: str
    """The path of the socket that operators connect to."""
    config: str
    """The path of the configuration file."""
    directory: str = ""
    """The working directory that relative paths start from."""
    state: str = ""
    """The path of the state directory."""
    log: str = ""
    """The path of its log; empty if that is its stderr."""
    unrecorded: str = ""
    """Why started children are not recorded (`processes.leftovers`); empty if they are."""
    environ: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """The daemon's environment. Only variable names are shown, and the values that every server is given."""
    warnings: Callable[[CheckedConfig, Path, Mapping[str, str]], Sequence[Fault]] = attrs.field(
        default=lambda *_told: (), repr=False
    )
    """What `mcpd check` warns of in a configuration, given its file and the environment. Blocks."""


class CatalogWriter(Protocol):
    """The part of the registry that commands use (`actors.registry`)."""

    catalog: Watch[Catalog]

    def tell(self, fact: Fact) -> None:
        """Leave a fact for the registry."""

    async def settle(self) -> None:
        """Return once every fact told so far is in the catalog."""


class ObservedUpstream(Upstream, Protocol):
    """A server as operators see it, or one of its instances: callable as for clients, with its statistics."""

    stats: CallStats
    pings: Keepalive | None
    """How its pings go; None while it has no connection."""

    @property
    def pid(self) -> int | None:
        """The process of its first connection."""

    children: dict[int, int]
    """The marks of its processes by pid: two where clients of both eras call it (`upstreams.second`)."""

    @property
    def noise(self) -> Noise:
        """What it prints that is not MCP."""

    @property
    def stderr(self) -> StderrTail:
        """The last lines of its stderr."""

    @property
    def apart(self) -> Apart:
        """Whether its calls are made one client at a time."""

    @property
    def greeting(self) -> Greeting | None:
        """What it said in the handshake; None before the first."""

    @property
    def in_flight(self) -> int:
        """The number of calls that are not answered yet."""

    @property
    def standing(self) -> ListingStatus:
        """The state of listing the server's tools."""

    async def refresh(self) -> str:
        """List the server's tools now; returns what went wrong, or an empty string.

        Raises:
            CallError: the server is not up and cannot be woken.
        """


class Use(Protocol):
    """The last use of a server or an instance."""

    @property
    def at(self) -> float:
        """When it was, on the event loop's clock."""


class ObservedActor(ObservedUpstream, Protocol):
    """What runs of a server: the server itself, or an instance of it."""

    server: Server
    """The configuration that it was made with."""
    child: Child
    """The supervisor's view of it."""

    @property
    def use(self) -> Use | None:
        """When it was last used; None if nothing depends on it."""


class Archive(Protocol):
    """The part of the recorder that commands use (`actors.recorder`)."""

    persistence: Watch[Persistence]
    """The state of the store."""
    totals: Totals
    """Counts that go on over restarts of the daemon."""

    async def kept(self) -> bool:
        """Whether operators' switches are on disk, after a bounded wait."""

    async def sessions(self, limit: int) -> tuple[SessionRecord, ...]:
        """The most recently used sessions, newest first.

        Raises:
            McpdError: the store cannot be read now.
        """

    @property
    def hours(self) -> Callable[[float], Awaitable[Mapping[str, Sequence[tuple[int, int]]]]]:
        """Returns what was counted in each hour since a time, of all daemons on the store, of 90 days.

        By the name of the count (`counting.summary.hourly`): when each hour began, in seconds since the epoch,
        and its count, oldest first; an hour without any is left out.

        Raises:
            McpdError: from the call: the store cannot be read now.
        """

    async def recall(self, key: str) -> SessionRecord | None:
        """The session of a key; None if there is none.

        Raises:
            McpdError: the store cannot be read now.
        """


class SummaryModel(Protocol):
    """The model that writes summaries, asked by an operator (`summaries.endpoint`)."""

    prompt: str
    """The instructions that it always has."""
    sends: str
    """What is sent to it, in words."""
    tested: Mapping[str, object] | None
    """The last question to it with its answer (`test`); None before the first."""

    @property
    def offered(self) -> Sequence[str] | None:
        """What its endpoint listed when it was asked last; None if it was not asked."""

    async def models(self) -> tuple[str, ...]:
        """The names of the models that its endpoint offers; raises `McpdError`."""

    async def test(self, question: str) -> Mapping[str, object]:
        """Put a question to it; returns the answer with its cost by field. Raises `McpdError`."""


class LiveSession(Protocol):
    """An open connection of a client (`actors.session`)."""

    number: int
    """The number of the connection, counted from 1 since the daemon started."""

    calls: CallsInFlight
    """Its calls that have no answer yet."""

    @property
    def key(self) -> str | None:
        """The key of the connection's session; None if the session ends with the connection."""

    def statistics(self) -> SessionStatistics:
        """The connection's statistics."""

    def move(self, profile: str) -> None:
        """Serve another profile from now on, and tell the client."""


@attrs.frozen(kw_only=True)
class Clients:
    """The connected clients, by session and by listening socket."""

    live: Callable[[], Iterable[LiveSession]]
    """Returns the open connections of clients."""
    in_use: Callable[[], Iterable[tuple[SessionRecord, int]]]
    """Returns the keyed sessions that are in use, each with its number of connections: one connection may take
    part in several sessions."""
    moves: dict[str, str]
    """The profiles that sessions were given, by their keys."""
    change_grants: Callable[[str, Callable[[Grants], object]], None]
    """Changes what the session with a key may call without its user being asked again."""
    unload: Callable[[Hashable, Collection[ToolKey]], Awaitable[bool]]
    """Takes tools away from a session (`clients.sessions.unload`)."""
    parked: Callable[[], Iterable[ClientCall]]
    """Returns the calls that are parked: their clients were asked something, and have not come back yet."""
    connections: Callable[[], Mapping[str, Connections]]
    """Returns how many clients each listening socket has accepted and refused."""

    def statistics(self) -> list[SessionStatistics]:
        """The statistics of each open connection."""
        return [session.statistics() for session in self.live()]


@attrs.define(eq=False, kw_only=True)
class OperatorCall:
    """A request of an operator's that waits for an answer (`operators.own_requests`)."""

    sent: OwnCall
    """What is sent."""
    tool: str
    """The server's own name of the tool; empty if it is no call of one."""
    upstream: Upstream
    """The server, or the instance, that it is for."""
    started: float
    """When it began, in seconds on trio's clock."""
    lose: Callable[[CallError], None]
    """Ends it with an error."""
    waiting: trio.CancelScope = attrs.field(factory=trio.CancelScope, repr=False)
    """The scope in which it waits for its server to come up."""
    key: int | None = None
    """The key to cancel it by at that server; None until it is sent."""
    shown_as: tuple[int, float] | None = None
    """The number that operators know it by, and when it began for them, in seconds since the epoch; None if it
    was not shown to any (`operators.call_commands`)."""


class ConsoleAccess(Protocol):
    """Who is let into the console (`console.console`)."""

    async def link(self, *, may_change: bool) -> str:
        """Make a link that lets one browser in, once.

        Raises:
            OSError: the console cannot be served.
        """

    def end_all(self) -> int:
        """End all sessions; returns how many there were."""


class OperatorPeer:
    """The operator's side of one command that a server works on."""

    def __init__(self, peer: Peer, outbox: Outbox, request_id: bytes) -> None:
        """Begin.

        Args:
            peer: the operator.
            outbox: flushed when something is to reach the operator.
            request_id: the operator's request.
        """
        self._peer = peer
        self._outbox = outbox
        self._request_id = request_id
        # Alone: what servers tell their clients is not for operators.
        self._server_requests = ServerRequests(peer, (request_id,), {}, lambda _server, _why: None)

    def declare(self, capabilities: Raw) -> None:
        """Note what the operator can be asked (MCP, `ClientCapabilities`)."""
        self._server_requests.capabilities = capabilities

    def report(self, params: dict[str, Raw]) -> None:
        """Report the server's progress under the id of the operator's request."""
        told = msgspec.json.encode({**params, "progressToken": Raw(self._request_id)})
        self._peer.notify(PROGRESS, told, self._request_id)
        self._outbox.flush()

    def tell(self, method: str, params: object) -> None:
        """Tell the operator something while the command works; `params` is encoded as a JSON object."""
        self._peer.notify(method, msgspec.json.encode(params), self._request_id)
        self._outbox.flush()

    def ask(self, request: PeerRequest) -> None:
        """Put what the server asks to the operator, or answer it at once in place of one who cannot."""
        self._server_requests.ask(request, self._request_id)
        self._outbox.flush()


@attrs.frozen(kw_only=True)
class Counters:
    """Counters of this run of the daemon."""

    tally: Tally
    """Counts of calls, loads and lists."""
    mended: RepairCounts
    """How often arguments had to be repaired, by client."""
    summarizer: Callable[[], Mapping[str, object] | None]
    """Returns the state of the model that shortens descriptions, by field; None without such a model."""
    export: Callable[[], Awaitable[str]]
    """Returns all metrics as text; raises `InvalidArguments` where metrics are off."""
    recent: RecentCalls
    """The last calls, and the last errors of each server."""
    series: Series
    """What was measured in each minute of the last day."""


@attrs.frozen(kw_only=True)
class OperatorContext:
    """Everything that operators' commands work with."""

    facts: DaemonFacts
    """Constant facts about the daemon."""
    registry: CatalogWriter
    """The owner of the catalog."""
    upstreams: Mapping[str, ObservedUpstream]
    """Running servers by name, as callers see them."""
    actors: Mapping[str, ObservedActor]
    """What runs of them by its own name: servers that all clients share, and the instances of the others."""
    children: Mapping[str, Child]
    """The same, as the supervisor knows it."""
    reload: Callable[[], Awaitable[Plan]]
    """Reads the configuration and applies it (`actors.reloader`)."""
    archive: Archive
    """The state that outlives the daemon."""
    clients: Clients
    """The connected clients."""
    counters: Counters
    """Counters of this run."""
    means: Means
    """The context that surfaces work in."""
    redact: Redactors
    """Removes secrets from text that servers wrote."""
    outbox: Outbox
    """The daemon's outbox."""
    wall: Callable[[], float]
    """Returns the time in seconds since the epoch."""
    logins: LoginRuns
    """The logins at servers, those under way included."""
    history: History
    """What happened since the daemon started."""
    access: Tokens | None = None
    """The tokens that let clients in over HTTP; None if nobody comes in that way."""
    console: Callable[[], ConsoleAccess] | None = None
    """Makes the console, which nobody may have asked for yet; None: there is none."""
    summary_model: Callable[[], SummaryModel] | None = None
    """Returns the model that writes summaries, to be asked, always the same object; None if nobody can."""
    operator: OperatorPeer | None = None
    """Who gave this command, for what a server says and asks meanwhile; None if nobody could be told."""
    own_calls: dict[OperatorCall, None] = attrs.field(factory=dict, repr=False)
    """Operators' own requests that wait for an answer, oldest first."""
    switching: trio.Lock = attrs.field(factory=trio.Lock, repr=False)
    """Held during a switch, and while the configuration is edited: each must see what the one before did."""

    @property
    def catalog(self) -> Catalog:
        """The newest catalog."""
        return self.registry.catalog.value

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.catalog.config

    def instances_of(self, server: str) -> list[ObservedActor]:
        """The live instances of a server, the oldest first; none of one that all clients share."""
        return [each for each in self.actors.values() if each.of == server and each.server.instance is not None]

    def state_of(self, server: str) -> StateReport:
        """The state of a server or an instance, and its reason; both empty if none has that name."""
        child, entry = self.children.get(server), self.catalog.servers.get(server)
        if child is not None:
            status = child.status.value  # the catalog may not have its latest yet
        elif entry is not None:
            status = entry.status
        else:
            return {"state": "", "reason": ""}
        return {"state": str(status.state), "reason": self.redact.of(server)(status.reason)}

    def unknown(self, name: str) -> UnknownServer:
        """The error for a name that no running server has, and no instance of one."""
        servers = self.catalog.servers
        if name in servers:
            return UnknownServer(f'server {name} is switched off in the configuration ("enabled": false)')
        server = server_of(name)
        if server == name or server not in servers:
            return UnknownServer(f"no server is named {name!r}. {hint(server, servers)}")
        if server in self.actors:
            what = "All clients share it: leave out what follows its name."
        else:
            live = [each.name for each in self.instances_of(server)]
            what = hint(name, live) if live else "None runs now: each is started at its first use."
        return UnknownServer(f"server {server} has no instance {name!r}. {what}")
