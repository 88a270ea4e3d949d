"""Protocols through which actors and rooms use each other without importing each other."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import attrs
import msgspec
from msgspec import Raw

from daemon.catalog.authorship import UnsafeQuestion
from daemon.catalog.snapshot import Catalog
from daemon.config.config_model import Config
from daemon.facts import Fact
from daemon.history.event import Event
from daemon.kit.waiting import Watch
from daemon.model import Era, Kind, StandingWishes
from daemon.wire.envelope import Buffer, RemoteError
from daemon.wire.requests import Exchange, GivenUp, PeerRequest


class CallToSend(Protocol):
    """A client's request on its way to a server, with an undecoded payload."""

    method: str
    params: tuple[Buffer, ...]
    """The raw members of `params` except `_meta`, without braces; the last part is the client's payload."""
    meta: Mapping[str, Raw]
    """The caller's `_meta` without keys of its own connection (progress token, era envelope)."""
    wants_progress: bool
    in_line: bool
    """Whether the call is queued at the server; set by `upstreams.call_admission`."""

    @property
    def envelope(self) -> Mapping[str, bytes]:
        """The client's raw `_meta` members for a modern server (MCP 2026-07-28): capabilities, log level."""

    @property
    def check(self) -> Callable[[], bool]:
        """Returns whether to send the call after it was queued; raises a `CallError` if it must not be sent."""


@attrs.define(kw_only=True)
class OwnCall:
    """A `CallToSend` that the daemon itself makes."""

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
    """Cancelled calls without an answer: they may still run at the server."""
    capabilities: Mapping[str, object]
    """The capabilities declared to the server (MCP, `ClientCapabilities`)."""

    @property
    def in_flight(self) -> int:
        """The number of unanswered calls."""

    def adopt(self, era: Era, version: str) -> None:
        """Use the era and version of the handshake from now on."""

    async def request(self, method: str, params: dict[str, object], *, timeout: float) -> bytes:  # noqa: ASYNC109 - the server learns about the cancellation, which an outer scope could not do
        """Send a request, return its result. Raises RemoteError, UpstreamTimeout, UpstreamLost, NeedsAuth."""

    def notify(self, method: str, params: dict[str, object] | None = None) -> None:
        """Send a notification, which a closing connection drops."""

    def call(self, call: CallToSend, exchange: Exchange) -> int:
        """Forward a request; its answer goes to `exchange`. Return a key for `cancel`. Raises `Overloaded`."""

    def cancel(self, key: int, reason: str) -> None:
        """Cancel a request: notify the server, and detach the exchange."""

    def expire(self, *, idle: float, total: float, alive: Iterable[int] = ()) -> Iterator[tuple[int, Exchange]]:
        """Cancel and yield calls older than `total`, or silent for `idle` seconds and not in `alive`."""

    async def wait_answered(self) -> None:
        """Return once all requests of the server to clients are answered."""

    async def run(self) -> None:
        """Receive until the connection ends; then report open exchanges as `lost`. Raises `ConnectionLost`."""


class ConnectionEvents(Protocol):
    """Receives the events of a connection, synchronously and in order."""

    def on_list_changed(self, kinds: tuple[Kind, ...] = tuple(Kind)) -> None:
        """Note that the server announced changed lists of these kinds."""

    def on_server_request(self, request: PeerRequest, cause: Exchange | None) -> None:
        """Take the server's request; `cause` is the call that led to it, if known."""

    def on_message(self, method: str, params: Raw, cause: Exchange | None) -> None:
        """Take a notification for clients; `cause` is the call that led to it, if known."""

    def on_noise(self, line: bytes, problem: str) -> None:
        """Take a message that is not JSON-RPC."""

    def on_child(self, pid: int, mark: int) -> None:
        """Note the server's child process; `mark` identifies its descendants (`processes.children`)."""

    def on_lost(self, reason: str) -> None:
        """Note the end of the connection, before open exchanges are reported as lost."""

    def on_log(self, said: bytes) -> None:
        """Take a line, of any length, of stderr or of a log notification."""


class TaskOwner(Protocol):
    """The client that created a task and gets the server's requests about it."""

    def asked(self, request: PeerRequest) -> None:
        """Pass a request to the client."""

    @property
    def asker(self) -> object:
        """The client (`wire.requests.Exchange.asker`)."""


class Subscribers(Protocol):
    """All clients, as receivers of servers' messages outside of calls."""

    def hear(self, server: str, method: str, params: Raw, cause: Exchange | None) -> None:
        """Deliver a notification to its clients (`ConnectionEvents.on_message`)."""

    def wishes(self, server: str) -> Watch[StandingWishes]:
        """The lasting requests of clients to a server, which may be up or down."""

    def settled(self, server: str, uri: str, refusal: RemoteError | None) -> None:
        """Note that the server now announces a resource's updates, or refuses to."""

    def owner_of(self, request: PeerRequest) -> TaskOwner | None:
        """The owner of the task that a request names, or None; sets the owner's task id in the request."""

    def lost(self, server: str, *, wholly: bool = False) -> None:
        """Note that a connection ended; `wholly`: another server answers under this name from now on."""

    def uses(self, server: str) -> bool:
        """Whether a client follows a resource of the server, or has an open task there."""

    def gone(self, server: str) -> None:
        """Forget a server or instance that will not return."""

    def ask(self, request: PeerRequest) -> None:
        """Pass a request that belongs to no call to the only possible client, or refuse it."""

    def unsafe(self, server: str, why: UnsafeQuestion) -> None:
        """Note the refusal of a question that no user may see."""

    def refused_host(self, refusal: Event) -> None:
        """Note that a server's sandbox refused a host."""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """The client for which an instance runs."""

    session: Hashable | None
    """The session; None if each request may be another user's (HTTP without `Mcpd-Session`, MCP 2026-07-28)."""
    number: int
    """The connection's number, used in the names of its session's instances: `playwright#12`."""
    owner: str = ""
    workspace: str | None = None
    fault: str = ""
    capabilities: Mapping[str, object] | None = None
    """The declared `ClientCapabilities` (MCP); None if they differ per request."""


class Instances(Protocol):
    """The instances of a divided server (`share`)."""

    begun: int
    ended: int

    def of(self, holder: Holder) -> Upstream:
        """The client's instance, created if missing; raises NoWorkspace, NoSession, Overloaded."""

    def take_loss(self, holder: Holder) -> str:
        """Why the session's last instance ended, told once: "after N s without use", "to make room" or ""."""

    def session_ended(self, session: Hashable, *, soon: bool = False) -> None:
        """Note that a session has no connection; its instances end after a while, or at once if `soon`."""


class CallRoute(Protocol):
    """A connection that takes a client's calls while it is up."""

    @property
    def can_wake(self) -> bool:
        """Whether `wake` can help: the server is starting, dormant or in backoff, not parked."""

    def send(self, call: CallToSend, exchange: Exchange, client: int = 0) -> int:
        """Forward a call; return the key for `cancel`. Raises UpstreamUnavailable, Overloaded: not sent."""

    async def wake(self) -> bool:
        """Cut a backoff short, or wait for a first start, within limits; return whether calls are taken."""


class Upstream(CallRoute, Protocol):
    """A server, up or down, as sessions and operators use it."""

    name: str
    """The name for logs and errors: the server's, or an instance's."""
    of: str
    is_modern: bool
    """Whether the server last spoke MCP 2026-07-28, whose results may ask for input."""
    has_resources: bool
    is_own: bool
    """Whether this is an instance for one session, to which that session's capabilities were declared."""
    roots: bytes | None
    """An instance's workspace as a `roots/list` result, for a client that has no roots."""

    @property
    def is_gone(self) -> bool:
        """Whether the server takes no more calls: an ended instance, or a replaced server."""

    @property
    def instances(self) -> Instances | None:
        """The instances that take the calls; None for a shared server."""

    def cancel(self, key: int, reason: str) -> None:
        """Cancel a call; keys of earlier connections are ignored."""

    def notify(self, method: str) -> None:
        """Send a notification without params, if the server is up."""

    async def wake_to_list(self, *, wholly: bool = False) -> bool:
        """Wake the server to list its tools (`wholly`: wait for its whole first start); callers share it."""

    @property
    def second(self) -> CallRoute | None:
        """The separate connection for clients of the handshake era, if any (`upstreams.second`)."""

    @property
    def outlook(self) -> str:
        """The state in words, such as queued or starting, for callers that wait."""

    @property
    def is_stale(self) -> bool:
        """Whether the server's tools changed since it last listed them."""

    async def wait_current(self) -> None:
        """Return once the list is newer than every announced change. Raises `UpstreamUnavailable`."""

    def record(self, seconds: Sequence[float], *, ok: bool) -> None:
        """Count ended calls with their seconds."""

    def own_catalog(self, catalog: Catalog, /) -> Catalog:
        """The catalog for this instance's calls, with its own lists; the same object if none differ."""


class WatchedFile(Protocol):
    """The configuration file; the methods block, so call them in worker threads."""

    seen: tuple[object, object] | None

    def look(self) -> tuple[object, object] | None:
        """Fingerprints of the file and of its variables; None if the file is inaccessible."""

    def read(self) -> Config:
        """Read the configuration, with the command line's additions. Raises `ConfigError` if faulty."""


class CatalogWriter(Protocol):
    """The part of the registry that commands and approvals use (`actors.registry`)."""

    catalog: Watch[Catalog]

    def tell(self, fact: Fact) -> None:
        """Queue a fact for the registry."""

    async def settle(self) -> None:
        """Return once the catalog contains every fact queued so far."""
