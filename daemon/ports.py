"""The ports: Protocols through which actors and rooms meet without importing each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs
import msgspec

from daemon.model import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from msgspec import Raw

    from daemon.catalog.authorship import UnsafeQuestion
    from daemon.catalog.snapshot import Catalog
    from daemon.config.config_model import Config
    from daemon.kit.waiting import Watch
    from daemon.model import Era, StandingWishes
    from daemon.wire.envelope import Buffer
    from daemon.wire.requests import Exchange, GivenUp, PeerRequest, RemoteError


class CallToSend(Protocol):
    """A client's request on its way to a server, its payload not decoded."""

    method: str
    """The MCP method, as in `tools/call`."""
    params: tuple[Buffer, ...]
    """The raw members of `params` except `_meta`: joined and put in braces, they are an object. The last part
    is the payload as the client wrote it, and may be megabytes."""
    meta: Mapping[str, Raw]
    """The caller's `_meta`, without the keys that belong to a connection (progress token, era envelope)."""
    wants_progress: bool
    """Whether the caller gave a progress token."""
    in_line: bool
    """Whether it waits for a place at its server; `upstreams.call_admission` says so."""

    @property
    def envelope(self) -> Mapping[str, bytes]:
        """Members of `_meta`, raw, that a modern server is to get instead of the daemon's own.

        They are the client's capabilities, and the level of its log (MCP 2026-07-28).
        """

    @property
    def check(self) -> Callable[[], bool]:
        """Returns whether the call is still to be sent, asked when it leaves the line.

        False if its caller has cancelled it; raises a `CallError` if it must not be sent at all.
        """


@attrs.define(kw_only=True)
class OwnCall:
    """A `CallToSend` of the daemon itself, without a client's request behind it."""

    method: str
    params: tuple[Buffer, ...]
    meta: Mapping[str, Raw] = attrs.field(factory=dict)
    wants_progress: bool = False
    envelope: Mapping[str, bytes] = attrs.field(factory=dict)
    check: Callable[[], bool] = attrs.field(default=lambda: True, eq=False, repr=False)
    in_line: bool = attrs.field(default=False, eq=False, repr=False)


class UpstreamConnection(Protocol):
    """A live MCP connection to one server, over any transport."""

    last_heard: float
    """When the server last sent anything (seconds, trio's clock)."""
    given_up: GivenUp
    """Calls that were given up without an answer, and may still run at the server."""
    capabilities: Mapping[str, object]
    """What the server is told that its clients can do (MCP, `ClientCapabilities`)."""

    @property
    def in_flight(self) -> int:
        """The number of calls that wait for the server's answer."""

    def adopt(self, era: Era, version: str) -> None:
        """Use this era and protocol version, which the handshake agreed on, from now on."""

    async def request(self, method: str, params: dict[str, object], *, timeout: float) -> bytes:  # noqa: ASYNC109 - the server is told of the cancellation, which a scope outside could not do
        """Make a request, with the envelope of the modern era, and wait for the result as raw JSON.

        Raises:
            RemoteError: the server answered with a JSON-RPC error.
            UpstreamTimeout: no answer within `timeout` seconds.
            UpstreamLost: the connection ended first.
            NeedsAuth: the server answered 401 or 403.
        """

    def notify(self, method: str, params: dict[str, object] | None = None) -> None:
        """Send a notification; it is lost silently if the connection is ending."""

    def call(self, call: CallToSend, exchange: Exchange) -> int:
        """Forward a request; `exchange` gets the answer. Returns the key for `cancel`. Never blocks.

        Raises:
            Overloaded: too many bytes wait for the server already.
        """

    def cancel(self, key: int, reason: str) -> None:
        """Give up a forwarded request: the server is told, the exchange is no longer called."""

    def expire(self, *, idle: float, total: float, alive: Iterable[int] = ()) -> Iterator[tuple[int, Exchange]]:
        """Cancel and yield the calls without a sign of life for `idle` seconds, or older than `total`.

        Those with the keys in `alive` show life just now.
        """

    async def wait_answered(self) -> None:
        """Return once what the server has asked of clients so far is answered; at once if nothing is open."""

    async def run(self) -> None:
        """Receive until the connection ends; then every open exchange is `lost`.

        Raises:
            ConnectionLost: always, in the end, with the reason.
        """


class ConnectionEvents(Protocol):
    """The events that a connection reports to the actor that owns it, synchronously and in order."""

    def on_list_changed(self, kinds: tuple[Kind, ...] = tuple(Kind)) -> None:
        """The server announced that its lists of these kinds changed."""

    def on_server_request(self, request: PeerRequest, cause: Exchange | None) -> None:
        """The server asks a client something; answer now or later.

        Args:
            request: what it asks.
            cause: the call that it belongs to, if the transport says so.
        """

    def on_message(self, method: str, params: Raw, cause: Exchange | None) -> None:
        """The server sent a notification that is for clients: a line of its log, an updated resource, ...

        Args:
            method: its method.
            params: its params.
            cause: the call that it belongs to, if the transport says so.
        """

    def on_noise(self, line: bytes, problem: str) -> None:
        """The server sent something that is not a JSON-RPC message."""

    def on_child(self, pid: int, mark: int) -> None:
        """The server runs as this child process; `mark` identifies its descendants (`processes.children`)."""

    def on_lost(self, reason: str) -> None:
        """The connection has ended; called before open exchanges are lost. Nothing more can be sent."""

    def on_log(self, said: bytes) -> None:
        """The server wrote a line, of any length, to stderr, or sent a log notification."""


class TaskOwner(Protocol):
    """The client that has made a task, which its server's requests about that task are for."""

    def asked(self, request: PeerRequest) -> None:
        """Put a request to the client."""

    @property
    def asker(self) -> object:
        """The client (`wire.requests.Exchange.asker`)."""


class Subscribers(Protocol):
    """All clients, as the messages of servers reach them that belong to no call."""

    def hear(self, server: str, method: str, params: Raw, cause: Exchange | None) -> None:
        """Take a server's notification to the clients that it is for (`ConnectionEvents.on_message`)."""

    def wishes(self, server: str) -> Watch[StandingWishes]:
        """What clients want of a server beside answers, whether it is up or not."""

    def settled(self, server: str, uri: str, refusal: RemoteError | None) -> None:
        """Learn that a server tells of updates of a resource from now on, or why it does not."""

    def owner_of(self, request: PeerRequest) -> TaskOwner | None:
        """Who has made the task that a server's request belongs to; None if it belongs to none.

        The request then names the task as its owner knows it.
        """

    def lost(self, server: str) -> None:
        """Learn that a connection to a server has ended, and with it what the server had of us."""

    def uses(self, server: str) -> bool:
        """Whether a client follows a resource of a server, or has a task there that has not ended."""

    def gone(self, server: str) -> None:
        """Forget a server, or an instance of one, that will never be again: nothing of it is kept."""

    def ask(self, request: PeerRequest) -> None:
        """Take a request that no call has caused to the client that alone can be meant, or refuse it."""

    def unsafe(self, server: str, why: UnsafeQuestion) -> None:
        """Learn that a server's request was refused since no user is to be shown it."""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Whom an instance of a server is for, where clients do not share one."""

    session: Hashable | None
    """Identifies the client's session as long as that lasts; None if it has none, and each request may be of
    somebody else (MCP 2026-07-28 over HTTP without `Mcpd-Session`)."""
    number: int
    """The number of its connection, which names an instance of its session: `playwright#12`."""
    owner: str = ""
    """Whose it is (`clients.client.Principal.owner`)."""
    workspace: str | None = None
    """The directory that it works in, absolute and normalised; None if it has named none."""
    fault: str = ""
    """Why what it has named as its workspace cannot be used, and what to do; empty if nothing is wrong."""
    capabilities: Mapping[str, object] | None = None
    """What it has declared that servers may ask of it (MCP, `ClientCapabilities`); None if that differs from
    one request to the next."""


class Instances(Protocol):
    """The instances of one server, where clients do not share one (`share`)."""

    begun: int
    """How many there have been."""
    ended: int
    """How many of these are no more."""

    def of(self, holder: Holder) -> Upstream:
        """The instance for a client: made if there is none, and not started before it is woken.

        Raises:
            NoWorkspace: it needs a workspace, and the client has none, or one that cannot be used.
            NoSession: it needs a session, and the client has none.
            Overloaded: there are as many as may be, and all are at work.
        """

    def take_loss(self, holder: Holder) -> str:
        """Why the instance has ended that a client's session used before its present one, told once.

        Returns:
            "after N s without use" or "to make room"; empty if the session has lost nothing, or knows.
        """

    def session_ended(self, session: Hashable, *, soon: bool = False) -> None:
        """Note that nobody is left of a session: what it has for itself waits for it a while, and then ends.

        Args:
            session: identifies it (`Holder.session`).
            soon: whether it does not come back: nothing waits for it.
        """


class Upstream(Protocol):
    """A server as sessions and operators see it, whether it is up or down."""

    name: str
    """What logs and errors call it: the name of the server, or of one of its instances."""
    of: str
    """The name of the server in the configuration."""
    is_modern: bool
    """Whether it speaks MCP 2026-07-28, or has when it was last up: its results may ask for input."""
    has_resources: bool
    """Whether the server declares resources, to which its results may then link."""
    roots: bytes | None
    """The result of `roots/list` for an instance whose client declares none: its workspace, if it has one."""

    @property
    def is_gone(self) -> bool:
        """Whether it takes no new calls, ever: an instance that has ended, or a server that was replaced."""

    @property
    def instances(self) -> Instances | None:
        """Its instances, if clients do not share one: a call then goes to one of them."""

    def send(self, call: CallToSend, exchange: Exchange, client: int = 0) -> int:
        """Forward a call to the live connection. Returns the key for `cancel`.

        Args:
            call: what to send.
            exchange: gets the answer.
            client: the number of the client's connection: clients take turns.

        Raises:
            UpstreamUnavailable: there is no live connection; nothing was sent.
            Overloaded: too much is in flight; nothing was sent.
        """

    def cancel(self, key: int, reason: str) -> None:
        """Give up a call; keys of an earlier connection are ignored."""

    def notify(self, method: str) -> None:
        """Tell the server something that needs no params; nothing happens while it is down."""

    async def wake(self) -> bool:
        """Cut a backoff short and wait, for at most the configured time; return whether calls are taken.

        For a server that was never tried before it waits until the first start has ended.
        """

    async def wake_to_list(self, *, wholly: bool = False) -> bool:
        """As `wake`, for a caller that wants to know its tools: all share one wait for each of its runs.

        Args:
            wholly: whether its whole first start is worth waiting for, since a client has chosen it.
        """

    @property
    def second(self) -> Upstream | None:
        """The same server over a connection in the handshake era, for clients of that era.

        None where it has only one connection (`upstreams.second`).
        """

    @property
    def outlook(self) -> str:
        """The state of the server in words, such as queued or starting, for a caller that waits for it."""

    @property
    def is_stale(self) -> bool:
        """Whether the server has announced that its tools changed, and has not listed them since."""

    async def wait_current(self) -> None:
        """Return once its list is current, or is newer than every change announced before this call.

        Raises:
            UpstreamUnavailable: there is no such list within a bounded wait.
        """

    @property
    def can_wake(self) -> bool:
        """Whether `wake` makes sense: the server is starting, dormant or in backoff, not parked."""

    def record(self, seconds: Sequence[float], *, ok: bool) -> None:
        """Count calls that have ended, each after so many seconds."""

    def own_catalog(self, catalog: Catalog, /) -> Catalog:
        """The catalog by which its clients' calls are judged: with what this instance lists.

        The same object if it lists nothing else, and always the same one for a catalog.
        """


class WatchedFile(Protocol):
    """The file that holds the configuration; its methods block, and are for worker threads."""

    seen: tuple[object, object] | None
    """What `look` returned before the file was last read."""

    def look(self) -> tuple[object, object] | None:
        """Return a pair: the first differs whenever the file does, the second whenever the variables beside do.

        None if the file cannot be looked at.
        """

    def read(self) -> Config:
        """Read the configuration, with what the command line adds.

        Raises:
            ConfigError: it is faulty.
        """
