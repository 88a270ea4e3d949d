"""Ports: Protocols that let actors and rooms meet without importing each other."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import attrs
import msgspec
from msgspec import Raw

from daemon.catalog.authorship import UnsafeQuestion
from daemon.catalog.snapshot import Catalog
from daemon.config.config_model import Config
from daemon.history.event import Event
from daemon.kit.waiting import Watch
from daemon.model import Definition, Era, Kind, StandingWishes
from daemon.wire.envelope import Buffer, RemoteError
from daemon.wire.requests import Exchange, GivenUp, PeerRequest


class CallToSend(Protocol):
    """A client's request on its way to a server, with an undecoded payload."""

    method: str
    params: tuple[Buffer, ...]
    """Raw members of `params` except `_meta`, an object in braces; the last part is the client's payload."""
    meta: Mapping[str, Raw]
    """The caller's `_meta` without its connection's keys (progress token, era envelope)."""
    wants_progress: bool
    in_line: bool
    """Whether it queues at the server; set by `upstreams.call_admission`."""

    @property
    def envelope(self) -> Mapping[str, bytes]:
        """The client's raw `_meta` members for a modern server (MCP 2026-07-28): capabilities, log level."""

    @property
    def check(self) -> Callable[[], bool]:
        """Returns whether to send the call after its queueing; raises a `CallError` if it must not be sent."""


@attrs.define(kw_only=True)
class OwnCall:
    """A `CallToSend` of the daemon itself."""

    method: str
    params: tuple[Buffer, ...]
    meta: Mapping[str, Raw] = attrs.field(factory=dict)
    wants_progress: bool = False
    envelope: Mapping[str, bytes] = attrs.field(factory=dict)
    check: Callable[[], bool] = attrs.field(default=lambda: True, eq=False, repr=False)
    in_line: bool = attrs.field(default=False, eq=False, repr=False)


class UpstreamConnection(Protocol):
    """A live MCP connection to a server, over any transport."""

    last_heard: float
    given_up: GivenUp
    """Unanswered calls that were given up and may still run."""
    capabilities: Mapping[str, object]
    """The capabilities declared to the server (MCP, `ClientCapabilities`)."""

    @property
    def in_flight(self) -> int:
        """The number of unanswered calls."""

    def adopt(self, era: Era, version: str) -> None:
        """Use the era and version of the handshake from now on."""

    async def request(self, method: str, params: dict[str, object], *, timeout: float) -> bytes:  # noqa: ASYNC109 - the server learns about the cancellation, which an outer scope could not do
        """Make a request. Raises RemoteError, UpstreamTimeout, UpstreamLost, NeedsAuth: there is no result."""

    def notify(self, method: str, params: dict[str, object] | None = None) -> None:
        """Send a notification; a closing connection drops it."""

    def call(self, call: CallToSend, exchange: Exchange) -> int:
        """Forward a request, answered to `exchange`; return the key for `cancel`. Raises `Overloaded`."""

    def cancel(self, key: int, reason: str) -> None:
        """Give up a request: notify the server, and detach the exchange."""

    def expire(self, *, idle: float, total: float, alive: Iterable[int] = ()) -> Iterator[tuple[int, Exchange]]:
        """Cancel and yield calls older than `total`, or silent for `idle` seconds and not in `alive`."""

    async def wait_answered(self) -> None:
        """Return once all requests of the server to clients are answered."""

    async def run(self) -> None:
        """Receive until the connection ends; then every open exchange is `lost`. Raises `ConnectionLost`."""


class ConnectionEvents(Protocol):
    """The events of a connection for its owner, synchronous and in order."""

    def on_list_changed(self, kinds: tuple[Kind, ...] = tuple(Kind)) -> None:
        """Note that the server announced changed lists of these kinds."""

    def on_server_request(self, request: PeerRequest, cause: Exchange | None) -> None:
        """Take the server's request; `cause` is the call that led to the request, if known."""

    def on_message(self, method: str, params: Raw, cause: Exchange | None) -> None:
        """Take a notification for clients; `cause` is the call that led to the notification, if known."""

    def on_noise(self, line: bytes, problem: str) -> None:
        """Take a message that is not JSON-RPC."""

    def on_child(self, pid: int, mark: int) -> None:
        """Learn the server's child process; `mark` identifies its descendants (`processes.children`)."""

    def on_lost(self, reason: str) -> None:
        """Note the end of the connection; called before open exchanges are lost."""

    def on_log(self, said: bytes) -> None:
        """Take a line, of any length, of stderr or of a log notification."""


class TaskOwner(Protocol):
    """The client that made a task and gets the server's requests about it."""

    def asked(self, request: PeerRequest) -> None:
        """Put a request to the client."""

    @property
    def asker(self) -> object:
        """The client (`wire.requests.Exchange.asker`)."""


class Subscribers(Protocol):
    """All clients, as receivers of servers' messages outside of calls."""

    def hear(self, server: str, method: str, params: Raw, cause: Exchange | None) -> None:
        """Deliver a notification to its clients (`ConnectionEvents.on_message`)."""

    def wishes(self, server: str) -> Watch[StandingWishes]:
        """The clients' standing demands on a server, up or down."""

    def settled(self, server: str, uri: str, refusal: RemoteError | None) -> None:
        """Note that a server announces a resource's updates from now on, or its refusal."""

    def owner_of(self, request: PeerRequest) -> TaskOwner | None:
        """The owner of the request's task, or None; the request then has the owner's task id."""

    def lost(self, server: str, *, wholly: bool = False) -> None:
        """Note the end of a connection; `wholly`: another server answers under this name from now on."""

    def uses(self, server: str) -> bool:
        """Whether a client follows a resource of the server, or has an open task there."""

    def gone(self, server: str) -> None:
        """Forget a server or instance that will not return."""

    def ask(self, request: PeerRequest) -> None:
        """Pass a request outside of any call to the only possible client, or refuse it."""

    def unsafe(self, server: str, why: UnsafeQuestion) -> None:
        """Note the refusal of a request that no user may see."""

    def refused_host(self, refusal: Event) -> None:
        """Note that a server's sandbox refused a host."""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """The client of an instance that is not shared."""

    session: Hashable | None
    """None: each request may be another user's (MCP 2026-07-28 over HTTP without `Mcpd-Session`)."""
    number: int
    """The connection's number, in the names of its session's instances: `playwright#12`."""
    owner: str = ""
    workspace: str | None = None
    fault: str = ""
    capabilities: Mapping[str, object] | None = None
    """The declared `ClientCapabilities` (MCP); None if they differ per request."""


class Instances(Protocol):
    """The instances of a server that clients do not share (`share`)."""

    begun: int
    ended: int

    def of(self, holder: Holder) -> Upstream:
        """The instance for a client, made if missing; raises NoWorkspace, NoSession, Overloaded."""

    def take_loss(self, holder: Holder) -> str:
        """The end of the session's former instance, once: "after N s without use", "to make room" or empty."""

    def session_ended(self, session: Hashable, *, soon: bool = False) -> None:
        """Note that a session is unused; its instances end after a while, or at once if `soon`."""


class CallRoute(Protocol):
    """A connection that takes a client's calls once it is up."""

    @property
    def can_wake(self) -> bool:
        """Whether `wake` can help: the server is starting, dormant or in backoff, not parked."""

    def send(self, call: CallToSend, exchange: Exchange, client: int = 0) -> int:
        """Forward a call; return the key for `cancel`. Raises UpstreamUnavailable, Overloaded: not sent."""

    async def wake(self) -> bool:
        """Cut a backoff, or await a first start, for the configured time; return whether calls are taken."""


class Upstream(CallRoute, Protocol):
    """A server, up or down, for sessions and operators."""

    name: str
    """The name for logs and errors: the server's, or an instance's."""
    of: str
    is_modern: bool
    """Whether it last spoke MCP 2026-07-28, whose results may ask for input."""
    has_resources: bool
    is_own: bool
    """Whether it is an instance of one session, declared that session's capabilities."""
    roots: bytes | None
    """An instance's workspace as a `roots/list` result, for a client without roots."""

    @property
    def is_gone(self) -> bool:
        """Whether it takes no more calls: an ended instance, or a replaced server."""

    @property
    def instances(self) -> Instances | None:
        """The instances that calls go to, if clients do not share one."""

    def cancel(self, key: int, reason: str) -> None:
        """Give up a call; keys of earlier connections are ignored."""

    def notify(self, method: str) -> None:
        """Send a notification without params, if the server is up."""

    async def wake_to_list(self, *, wholly: bool = False) -> bool:
        """Wake the server to list its tools, `wholly` for its whole first start; callers share a wait."""

    @property
    def second(self) -> CallRoute | None:
        """The separate connection for clients of the handshake era, if any (`upstreams.second`)."""

    @property
    def outlook(self) -> str:
        """The state in words, such as queued or starting, for waiting callers."""

    @property
    def is_stale(self) -> bool:
        """Whether its tools changed since it last listed them."""

    async def wait_current(self) -> None:
        """Return once the list is newer than every announced change. Raises `UpstreamUnavailable`."""

    def record(self, seconds: Sequence[float], *, ok: bool) -> None:
        """Count ended calls with their seconds."""

    def own_catalog(self, catalog: Catalog, /) -> Catalog:
        """The catalog for its clients' calls, with this instance's lists; the same object if none differ."""


class WatchedFile(Protocol):
    """The configuration's file; methods block, so call them in worker threads."""

    seen: tuple[object, object] | None

    def look(self) -> tuple[object, object] | None:
        """A fingerprint of the file and one of its variables; None if the file is inaccessible."""

    def read(self) -> Config:
        """Read the configuration, with the command line's additions. Raises `ConfigError`: it is faulty."""


class Approving(Protocol):
    """The part of `setup.approving.Approver` that a client's calls use."""

    async def approve(
        self, definitions: Sequence[Definition], by: str, where: Catalog | None = None
    ) -> list[Definition]:
        """Approve what is held in this form, in `where` if given; returns that. Raises CannotApprove."""
