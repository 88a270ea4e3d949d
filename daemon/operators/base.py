"""The type of an operator's command (docs/operators.md), and the context that all commands share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import attrs
import msgspec
import trio
from msgspec import Raw

from daemon.audit.audit_log import Audit
from daemon.audit.record import ChainHead
from daemon.clients.server_requests import ServerRequests
from daemon.config.labels import server_of
from daemon.errors import CallError, Fault, McpdError, UnknownServer
from daemon.kit.wording import hint
from daemon.protocol import PROGRESS

if TYPE_CHECKING:
    from pathlib import Path

    from daemon.authorization.login_runs import LoginRuns
    from daemon.catalog.loaded import SessionRecord
    from daemon.catalog.snapshot import Catalog, ServerEntry
    from daemon.clients.calls import CallsInFlight, ClientCall
    from daemon.clients.context import SessionStatistics
    from daemon.clients.doors.http.valid_tokens import Tokens
    from daemon.clients.sessions import Grants
    from daemon.config.config_model import Config
    from daemon.config.parse import CheckedConfig, Plan
    from daemon.config.redaction import Redactors
    from daemon.counting.measures import RepairCounts
    from daemon.counting.recent_calls import RecentCalls, Series
    from daemon.counting.tally import Tally
    from daemon.history.journal import History
    from daemon.kit.waiting import Watch
    from daemon.model import ToolKey
    from daemon.operators.reports import StateReport
    from daemon.ports import CatalogWriter, OwnCall, Upstream
    from daemon.processes.children import Children
    from daemon.processes.peers import Connections
    from daemon.sandbox.launch import Lesson
    from daemon.setup.approving import Approver
    from daemon.state.health import Persistence
    from daemon.state.notes import Totals
    from daemon.supervision.supervisor import Child
    from daemon.surfaces.surface import Services
    from daemon.upstreams.servers import InstancedServer
    from daemon.upstreams.upstream_access import UpstreamAccess
    from daemon.wire.outbox import Outbox
    from daemon.wire.requests import Peer, PeerRequest


P = TypeVar("P", bound=msgspec.Struct)


OUTCOME_SECONDS = 5.0
"""Seconds that an answer waits for servers to start or stop, which then carry on; a stop takes up to 4 s."""


class Refused(McpdError):
    """A command that cannot be carried out; the text says why, and how to proceed instead."""


class Command(msgspec.Struct, Generic[P], frozen=True):
    """An operator's command, as the control socket serves it."""

    name: str
    """The JSON-RPC method that runs it."""
    params: type[P]
    run: Callable[[OperatorContext, P], Awaitable[object]]
    """Returns the answer, which msgspec encodes as a JSON object; raises an `McpdError` to refuse."""
    reads: bool = False
    """Whether the command changes nothing. The audit then records only the command's requests to servers."""


class NoParams(msgspec.Struct):
    """The parameters of a command without parameters."""


class OneServer(msgspec.Struct):
    """The server or instance that a command works on."""

    server: str


class ServerOrAll(msgspec.Struct):
    """The server or instance that a command works on; None for all."""

    server: str | None = None


@attrs.frozen(kw_only=True)
class DaemonFacts:
    """Facts about the daemon that do not change while it runs."""

    version: str
    pid: int
    started_at: float
    """Seconds since the epoch."""
    socket: str
    control_socket: str
    """The path of the operators' socket."""
    config: str
    directory: str = ""
    state: str = ""
    log: str = ""
    """The path of the log; empty for stderr."""
    unrecorded: str = ""
    """Why started children are not recorded (`processes.leftovers`); empty if they are."""
    environ: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """The daemon's environment; reports show its variables' names, and the values that every server gets."""
    replaced: Callable[[], bool] = lambda: False
    """Returns whether the installed program differs from the running one. Blocks."""
    warnings: Callable[[CheckedConfig, Path, Mapping[str, str]], Sequence[Fault]] = attrs.field(
        default=lambda *_told: (), repr=False
    )
    """Returns the warnings of `mcpd check` for a configuration, its file and an environment. Blocks."""


class Archive(Protocol):
    """The part of the recorder that commands use (`actors.recorder`)."""

    persistence: Watch[Persistence]
    totals: Totals
    """Counts that survive restarts of the daemon."""

    async def kept(self) -> bool:
        """Wait a bounded time, and return whether operators' switches and approvals are on disk."""

    async def sessions(self, limit: int) -> tuple[SessionRecord, ...]:
        """The most recently used sessions, newest first; raises `McpdError` if the store cannot be read."""

    @property
    def hours(self) -> Callable[[float], Awaitable[Mapping[str, Sequence[tuple[int, int]]]]]:
        """Returns hourly counts of all daemons since a time, oldest first (`counting.tally.hourly`).

        Each is the hour's start in seconds since the epoch, with its count, never 0; 90 days are kept. Raises
        `McpdError` without a store.
        """

    async def heads(self) -> list[ChainHead]:
        """The heads of the audit's chains in the store; raises `McpdError` if the store cannot be read."""

    async def recall(self, key: str) -> SessionRecord | None:
        """The session with this key, or None; raises `McpdError` if the store cannot be read."""


class SummaryModel(Protocol):
    """The model that writes summaries (`summaries.endpoint`)."""

    prompt: str
    """The fixed instructions for the model."""
    sends: str
    """A sentence that says which data leaves the machine."""
    tested: Mapping[str, object] | None
    """The last test question with the model's answer; None before the first."""

    @property
    def offered(self) -> Sequence[str] | None:
        """The models that the endpoint last listed; None before it was first asked."""

    async def models(self) -> tuple[str, ...]:
        """The names of the endpoint's models; raises `McpdError`."""

    async def test(self, question: str) -> Mapping[str, object]:
        """Put a question to the model; returns the answer and its cost by field. Raises `McpdError`."""


class LiveSession(Protocol):
    """An open connection of a client (`actors.session`)."""

    number: int
    """Counts connections from 1 since the daemon started."""

    calls: CallsInFlight

    @property
    def key(self) -> str | None:
        """The key of the connection's session; None if the session ends with the connection."""

    def statistics(self) -> SessionStatistics:
        """The connection's statistics."""

    def move(self, profile: str) -> None:
        """Serve another profile to the client from now on, and notify it."""


class Clients(msgspec.Struct, frozen=True, kw_only=True):
    """The connected clients, by session and by listening socket."""

    live: Callable[[], Iterable[LiveSession]]
    """Returns the open connections."""
    in_use: Callable[[], Iterable[tuple[SessionRecord, int]]]
    """Returns each keyed session in use with the number of its connections."""
    moves: dict[str, str]
    """The profile that an operator gave a session, by the session's key."""
    change_grants: Callable[[str, Callable[[Grants], object]], None]
    """Changes the tools that the session with a key may call without asking its user again."""
    unload: Callable[[Hashable, Collection[ToolKey]], Awaitable[bool]]
    """Unloads tools from a session, as `clients.sessions.unload` does."""
    parked: Callable[[], Iterable[ClientCall]]
    """Returns the calls that wait until their client answers a question."""
    connections: Callable[[], Mapping[str, Connections]]
    """Returns the connections that each listening socket has accepted and refused."""

    def statistics(self) -> list[SessionStatistics]:
        """The statistics of each open connection."""
        return [session.statistics() for session in self.live()]


class OperatorCall(msgspec.Struct, kw_only=True, eq=False):
    """A request that an operator sent and a server has not answered yet (`operators.own_requests`)."""

    sent: OwnCall
    tool: str
    """The server's own name of the tool; empty for another request."""
    upstream: Upstream
    started: float
    """Seconds on trio's clock."""
    lose: Callable[[CallError], None]
    """Ends the request with an error."""
    waiting: trio.CancelScope = msgspec.field(default_factory=trio.CancelScope)
    """The scope of the wait for the server to come up, or for the task that the call has become."""
    key: int | None = None
    """The number by which the server's connection can cancel it; None until it is sent."""
    shown_as: tuple[int, float] | None = None
    """Number and start (seconds since the epoch) in `mcpd calls`; None until an operator lists the call."""


class ConsoleAccess(Protocol):
    """The console's entrance (`console.console`)."""

    async def link(self, who: str, *, may_change: bool) -> str:
        """Make a link that lets one browser in as `who`, once; raises `OSError`: nothing can serve it."""

    def end_all(self) -> int:
        """End all sessions; returns their number."""


class OperatorPeer:
    """The operator's connection, during a command that a server works on."""

    def __init__(self, peer: Peer, outbox: Outbox, request_id: bytes, uid: int | None = None) -> None:
        self.uid = uid  # of the operator's user, if known
        self._peer = peer
        self._outbox = outbox
        self._request_id = request_id
        # Alone: what servers tell their clients is not for operators.
        self._server_requests = ServerRequests(peer, (request_id,), {}, lambda _server, _why: None)

    def declare(self, capabilities: Raw) -> None:
        """Note the requests that the operator can answer (MCP, `ClientCapabilities`)."""
        self._server_requests.capabilities = capabilities

    def report(self, params: dict[str, Raw]) -> None:
        """Report the server's progress under the id of the operator's request."""
        encoded = msgspec.json.encode({**params, "progressToken": Raw(self._request_id)})
        self._peer.notify(PROGRESS, encoded, self._request_id)
        self._outbox.flush()

    def tell(self, method: str, params: object) -> None:
        """Notify the operator while the command works; `params` is encoded as a JSON object."""
        self._peer.notify(method, msgspec.json.encode(params), self._request_id)
        self._outbox.flush()

    def ask(self, request: PeerRequest) -> None:
        """Pass the server's request to the operator, or refuse it if the operator lacks the capability."""
        self._server_requests.ask(request, self._request_id)
        self._outbox.flush()


@attrs.define(eq=False)
class OwnLines:
    """Runs mcpd's own command lines one at a time (`operators.own_lines`)."""

    children: Children
    running: str = ""
    """The running sub-command; empty if none runs."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """Cancels the running command line."""


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """Counters since this daemon started."""

    tally: Tally
    mended: RepairCounts
    """Counts of repaired calls by client."""
    summarizer: Callable[[], Mapping[str, object] | None]
    """Returns the state of the summary model by field; None without a model."""
    export: Callable[[], Awaitable[str]]
    """Returns all metrics as text; raises `InvalidArguments` where metrics are off."""
    recent: RecentCalls
    series: Series
    """The measurements of each minute of the last day."""


@attrs.define(eq=False)
class ShownSizes:
    """The surface of each profile, and the sizes of the tools for an unknown client, under one catalog."""

    catalog: Catalog | None = None
    offered_tools: int = 0
    offered_bytes: int = 0
    surface_bytes: int = 0
    surfaces: dict[str, str] = attrs.field(factory=dict)


class OperatorContext(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that operators' commands use."""

    facts: DaemonFacts
    registry: CatalogWriter
    upstreams: Mapping[str, UpstreamAccess | InstancedServer]
    """Running servers by name, as clients' calls reach them."""
    actors: Mapping[str, UpstreamAccess]
    """Running actors by name: one for each shared server, and one for each instance of a divided server."""
    children: Mapping[str, Child]
    """The supervisor's view of `actors`."""
    reload: Callable[[], Awaitable[Plan]]
    """Reads the configuration and applies it (`actors.reloader`)."""
    approver: Approver
    archive: Archive
    clients: Clients
    counters: Counters
    services: Services
    redact: Redactors
    outbox: Outbox
    wall: Callable[[], float]
    """Returns the time in seconds since the epoch."""
    logins: LoginRuns
    history: History
    audit: Audit = msgspec.field(default_factory=Audit)
    access: Tokens | None = None
    """The HTTP tokens; None if the daemon serves no HTTP."""
    console: Callable[[], ConsoleAccess] | None = None
    """Returns the console, made at its first use; None without a console."""
    lines: OwnLines | None = None
    """Runs mcpd's own command lines; None where that is impossible."""
    summary_model: Callable[[], SummaryModel] | None = None
    """Returns the model that writes summaries; None if the daemon cannot use one."""
    operator: OperatorPeer | None = None
    """The operator behind this command, for a server's questions and progress; None if unreachable."""
    principal: str = "an operator"
    """The operator, as records name them (`audit.record.acting`)."""
    pid: int = 0
    """The operator's process; 0 in the console."""
    recorded: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Additional members of the audit's records about this command's requests."""
    lessons: dict[str, Lesson] = msgspec.field(default_factory=dict)
    """Servers that run unconfined and watched, by name; not stored."""
    own_calls: dict[OperatorCall, None] = msgspec.field(default_factory=dict)
    """Operators' requests that have no answer yet, oldest first."""
    sizes: ShownSizes = msgspec.field(default_factory=ShownSizes)
    switching: trio.Lock = msgspec.field(default_factory=trio.Lock)
    """Held while a switch or the configuration is changed, so that each change sees the one before."""

    @property
    def catalog(self) -> Catalog:
        """The newest catalog."""
        return self.registry.catalog.value

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.catalog.config

    def instances_of(self, server: str) -> list[UpstreamAccess]:
        """The live instances of a divided server, oldest first; empty for a shared server."""
        return [each for each in self.actors.values() if each.of == server and each.server.instance is not None]

    def state_of(self, server: str) -> StateReport:
        """The state and reason of a server or an instance; both empty for an unknown name."""
        child, entry = self.children.get(server), self.catalog.servers.get(server)
        if child is not None:
            status = child.status.value  # the catalog may not have its latest yet
        elif entry is not None:
            status = entry.status
        else:
            return {"state": "", "reason": ""}
        return {"state": str(status.state), "reason": self.redact.of(server)(status.reason)}

    def entry_of(self, server: str) -> ServerEntry:
        """The catalog's entry of a server; raises `UnknownServer`."""
        if (entry := self.catalog.servers.get(server)) is None:
            raise self.unknown(server)
        return entry

    def unknown(self, name: str) -> UnknownServer:
        """The error for a name that no running server or instance has."""
        servers = self.catalog.servers
        if name in servers:
            return UnknownServer(f"server {name} is switched off in the configuration: `mcpd enable {name}`")
        server = server_of(name)
        if server == name or server not in servers:
            return UnknownServer(f"no server is named {name!r}. {hint(server, servers)}")
        if server in self.actors:
            what = f"All clients share the server: write {server} alone."
        else:
            live = [each.name for each in self.instances_of(server)]
            what = hint(name, live) if live else "No instance runs now: one starts at its first use."
        return UnknownServer(f"server {server} has no instance {name!r}. {what}")
