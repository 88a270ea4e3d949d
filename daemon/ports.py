"""The openings between rooms: Protocols, so that actors meet without importing each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from msgspec import Raw

    from daemon.config.model import Config
    from daemon.model import Era
    from daemon.wire.envelope import Buffer
    from daemon.wire.requests import Exchange


class CallToSend(Protocol):
    """A request of a client's on its way to a server, payload unopened."""

    method: str
    """Of MCP, as in `tools/call`."""
    params: tuple[Buffer, ...]
    """The members of `params` but `_meta`, raw: joined and put in braces, they are an object. The last part is
    the payload, as the client wrote it, and may be megabytes."""
    meta: Mapping[str, Raw]
    """The caller's `_meta`, without the keys that belong to a connection (progress token, era envelope)."""
    wants_progress: bool
    """Whether the caller gave a progress token."""

    @property
    def check(self) -> Callable[[], bool]:
        """Whether the call is still to be sent as it is, asked when it leaves a line.

        False if its caller has taken it back; raises a `CallError` if it must not be sent at all.
        """


@attrs.define(kw_only=True)
class OwnCall:
    """A `CallToSend` of the daemon's own: no client's request stands behind it."""

    method: str
    params: tuple[Buffer, ...]
    meta: Mapping[str, Raw] = attrs.field(factory=dict)
    wants_progress: bool = False
    check: Callable[[], bool] = attrs.field(default=lambda: True, eq=False, repr=False)


class UpstreamConnection(Protocol):
    """A live MCP connection to one server, whatever carries it."""

    last_heard: float
    """When the server last said anything, on trio's clock (seconds)."""

    @property
    def in_flight(self) -> int:
        """Calls that wait for the server's answer."""

    def adopt(self, era: Era, version: str) -> None:
        """Speak this era and protocol version from now on: the handshake found out."""

    async def request(self, method: str, params: dict[str, object], *, timeout: float) -> bytes:  # noqa: ASYNC109 - cancelled requests are told to the server, a scope outside could not
        """Ask, and wait for the result as raw JSON. The modern era's envelope is added here.

        Raises:
            RemoteError: the server answered with a JSON-RPC error.
            UpstreamTimeout: no answer within `timeout` seconds.
            UpstreamLost: the connection ended first.
            NeedsAuth: the server answered 401 or 403.
        """

    def notify(self, method: str, params: dict[str, object] | None = None) -> None:
        """Send a notification; lost silently if the connection is ending."""

    def call(self, call: CallToSend, exchange: Exchange) -> int:
        """Forward a request; `exchange` gets the answer. Returns the key for `cancel`. Never blocks.

        Raises:
            Overloaded: the server does not take what is already waiting for it.
        """

    def cancel(self, key: int, reason: str) -> None:
        """Give a forwarded request up: the server is told, the exchange hears nothing more."""

    def expire(self, *, idle: float, total: float) -> Iterator[tuple[int, Exchange]]:
        """Cancel and yield the calls without a sign of life for `idle` seconds, or older than `total`."""

    async def run(self) -> None:
        """Receive until the connection ends; every open exchange is then `lost`.

        Raises:
            ConnectionLost: always, in the end, with the reason.
        """


class ConnectionEvents(Protocol):
    """What a connection tells the actor that owns it, synchronously and in order."""

    def on_list_changed(self) -> None:
        """The server says that its tools changed."""

    def on_noise(self, line: bytes, problem: str) -> None:
        """The server sent something that is no JSON-RPC message."""

    def on_child(self, pid: int, mark: int) -> None:
        """The server runs as this child process; `mark` tells its descendants (`processes.children`)."""

    def on_lost(self, reason: str) -> None:
        """The connection is over, before anybody who waits on it is told: send nothing more."""

    def on_log(self, said: bytes) -> None:
        """A line of the server's stderr, or a log notification; of any length."""


class Upstream(Protocol):
    """A server as sessions and operators see it, up or down."""

    name: str

    def send(self, call: CallToSend, exchange: Exchange, client: int = 0) -> int:
        """Forward a call to the live connection. Returns the key for `cancel`.

        Args:
            call: what to send.
            exchange: gets the answer.
            client: the number of the connection that it came over: clients take turns.

        Raises:
            UpstreamUnavailable: there is no live connection; nothing was sent.
            Overloaded: too much is in flight; nothing was sent.
        """

    def cancel(self, key: int, reason: str) -> None:
        """Give a call up; late keys of an earlier connection are ignored."""

    async def wake(self) -> bool:
        """Cut a backoff short and wait, for at most the configured time; True once calls are taken.

        A server that was never tried before is waited for until its start is over.
        """

    async def wake_to_list(self) -> bool:
        """As `wake`, for one who wants to know its tools: all wait together, once for each of its runs."""

    @property
    def outlook(self) -> str:
        """How it is, for one who waits for it: that it is queued, or starting."""

    @property
    def is_stale(self) -> bool:
        """Whether the server has said that its tools changed, and has not listed them since."""

    async def wait_current(self) -> None:
        """Return once its list is current, or is later than all that was announced before this was asked.

        Raises:
            UpstreamUnavailable: there was no such list within a bounded wait.
        """

    @property
    def can_wake(self) -> bool:
        """Whether waiting makes sense: the server is starting, dormant or in backoff, not parked."""

    def record(self, seconds: float, *, ok: bool) -> None:
        """Count a call that ended after `seconds`."""


class WatchedFile(Protocol):
    """The file that the configuration comes from; its methods are for worker threads."""

    seen: object
    """What `look` said before it was last read."""

    def look(self) -> object:
        """Something that is another whenever the file is."""

    def read(self) -> Config:
        """The configuration as it stands there now, with all that the command line adds.

        Raises:
            ConfigError: it is faulty.
        """
