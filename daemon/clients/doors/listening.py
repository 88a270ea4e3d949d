"""The accept loop of a door, the door of a unix socket, and the open connections of a door.

The opener owns the listening socket; the server of a connection owns the connection.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
from collections.abc import Awaitable, Callable
from typing import Generic, NoReturn, Protocol, TypeVar

import attrs
import trio
from loguru import logger

from daemon.clients.client import Principal, local_user
from daemon.config.tuning import Limits
from daemon.errors import RunError, leaf
from daemon.processes.peers import PeerCredentials, Peers
from daemon.wire.link import FdLink
from daemon.wire.outbox import Link, Outbox

BREATHER = 0.1
"""Seconds without accepting after a shortage: descriptors or memory may become free meanwhile (as in trio)."""

START_SECONDS = 0.01  # until the daemon knows the pid of a process that it has just started

SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

KEPT_DESCRIPTORS = 64
"""Descriptors kept free of clients: for 32 operators, and for starts of servers, which take ten each."""

SAY_SECONDS = 60.0  # seconds between two log lines about a shortage

REFUSALS = 8  # refusals between two pauses: each costs 0.1 to 0.4 ms, and a refused peer may retry endlessly

REFUSALS_PAUSE = 0.02
"""Seconds between groups of refusals: they get a tenth of the loop's time; a full backlog takes two seconds."""

V = TypeVar("V")


@attrs.define(eq=False, repr=False)
class Listener(Generic[V]):
    """Accepts connections on one socket, and serves each in its own task."""

    _door: str  # for the log
    _listener: socket.socket  # bound, listening and non-blocking
    _places: int = attrs.field(kw_only=True)
    """The most connections; more wait in the kernel's backlog."""
    _admit: Callable[[socket.socket], V | None] = attrs.field(kw_only=True)
    """Returns the peer, or None to refuse. The loop waits while `_admit` raises an error for a shortage."""
    _serve: Callable[[socket.socket, V], Awaitable[None]] = attrs.field(kw_only=True)
    """Serves and closes a connection, and contains its faults: an exception ends `run`."""
    _vet: Callable[[socket.socket], Awaitable[bool]] | None = attrs.field(default=None, kw_only=True)
    """A second, slower check of an admitted connection."""
    _log_full: Callable[[], None] = attrs.field(default=lambda: None, kw_only=True)
    _keeps: int = attrs.field(default=KEPT_DESCRIPTORS, kw_only=True)
    """Descriptors of the process that this door leaves free; 0 for the operators' door."""
    _room: trio.Semaphore = attrs.field(init=False)
    _warned_at: float = attrs.field(default=-SAY_SECONDS, init=False)
    _refused: int = attrs.field(default=0, init=False)
    _accepting: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    def __attrs_post_init__(self) -> None:
        self._room = trio.Semaphore(self._places)

    async def run(self) -> NoReturn:
        """Accept and serve until cancelled; raises OSError for a broken listening socket."""
        async with trio.open_nursery() as nursery:
            with self._accepting:
                while True:
                    if not self._room.value:
                        self._log_full()
                    await self._room.acquire()
                    nursery.start_soon(self._serve_in_place, *await self._accept())
            await trio.sleep_forever()

    def stop_accepting(self) -> None:
        """Accept no more connections; the open ones continue."""
        self._accepting.cancel()

    async def _serve_in_place(self, connection: socket.socket, visitor: V) -> None:
        try:
            if self._vet is None or await self._vet(connection):
                await self._serve(connection, visitor)
            else:
                connection.close()
        finally:
            self._room.release()

    async def _accept(self) -> tuple[socket.socket, V]:
        while True:
            try:
                self._leave_some()
                connection, _ = self._listener.accept()
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._listener)
            except OSError as error:
                if error.errno != errno.ECONNABORTED:
                    await self._wait_out(error)
            else:
                visitor = await self._identify(connection)
                if visitor is not None:
                    connection.setblocking(False)
                    return connection, visitor
                connection.close()
                await self._pause()

    def _leave_some(self) -> None:
        """Raise OSError (EMFILE) if too few descriptors are free for others, judged by the lowest free one."""
        if self._keeps:
            fd = os.dup(self._listener.fileno())
            os.close(fd)
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            if fd >= max(most - self._keeps, most // 2):
                text = f"{fd} of {most} descriptors are open, the rest is kept for operators and servers"
                raise OSError(errno.EMFILE, f"{text}; raise the limit (LimitNOFILE=, ulimit -Hn)")

    async def _identify(self, connection: socket.socket) -> V | None:
        while True:
            try:
                return self._admit(connection)
            except OSError as error:
                try:
                    if isinstance(error, BlockingIOError):
                        await trio.sleep(START_SECONDS)
                    else:
                        await self._wait_out(error)
                except BaseException:
                    connection.close()
                    raise

    async def _pause(self) -> None:
        """Let other tasks run after a refusal: a refused peer may reconnect in a loop."""
        self._refused += 1
        if self._refused % REFUSALS:
            await trio.lowlevel.checkpoint()
        else:
            await trio.sleep(REFUSALS_PAUSE)

    async def _wait_out(self, error: OSError) -> None:
        """Wait if the error is a shortage of resources; re-raise any other error."""
        if error.errno not in SHORTAGES:
            raise error
        if trio.current_time() - self._warned_at >= SAY_SECONDS:
            self._warned_at = trio.current_time()
            logger.warning("{}: cannot accept a connection: {}", self._door, error.strerror)
        await trio.sleep(BREATHER)


class Strangers:
    """The unauthenticated connections of a door; above the limit a new one ends the oldest."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._scopes: dict[trio.CancelScope, None] = {}

    def join(self) -> trio.CancelScope:
        """Count a connection and return its scope, which is cancelled when a newer one needs the place."""
        while len(self._scopes) >= self._most:
            oldest = next(iter(self._scopes))
            del self._scopes[oldest]
            oldest.cancel()
        scope = trio.CancelScope()
        self._scopes[scope] = None
        return scope

    def leave(self, scope: trio.CancelScope) -> None:
        """Stop counting a connection that was authenticated or has ended. Idempotent."""
        self._scopes.pop(scope, None)


PAUSE_SHARE = 8
"""mcpd stops reading from a client for which an eighth of its queue limit waits: it is slow, not dead."""


def unix_door(
    listener: socket.socket,
    peers: Peers,
    serve: Callable[[FdLink, Principal], Awaitable[None]],
    *,
    outbox: Outbox,
    limits: Limits,
    workspaces: tuple[str, ...] = (),
    keeps: int = KEPT_DESCRIPTORS,
) -> Listener[PeerCredentials]:
    """Make a door for local processes, which `peers` admits or refuses; an exception of `serve` ends the door.

    `workspaces` are those of `listen.workspaces`; `keeps` is the number of descriptors left free for others.
    """
    queue = limits.client_queue_bytes

    async def serve_peer(connection: socket.socket, peer: PeerCredentials) -> None:
        fd = connection.detach()
        link = FdLink(
            fd,
            fd,
            outbox=outbox,
            max_line=limits.client_message_bytes,
            max_queue=queue,
            pause_at=queue // PAUSE_SHARE,
        )
        try:
            await serve(link, local_user(peer.uid, workspaces, peer.pid))
        finally:
            link.close()
            peers.leave(peer)

    return Listener(
        peers.door,
        listener,
        places=peers.places.places,
        admit=peers.admit,
        serve=serve_peer,
        log_full=peers.log_full,
        keeps=keeps,
    )


class Runnable(Protocol):
    """Serves one connection: a client's session, or an operator's."""

    async def run(self) -> None:
        """Serve until the connection ends."""


R = TypeVar("R", bound=Runnable)


class Front(Generic[R]):
    """Serves each connection of a door, and knows which are open."""

    def __init__(self, make: Callable[[Link, int, Principal], R]) -> None:
        self.sessions: dict[int, R] = {}  # by number
        self.count = 0  # connections so far
        self._make = make

    async def serve(self, link: Link, visitor: Principal) -> None:
        """Serve a connection until it ends, and contain its faults. The door closes the link."""
        self.count += 1
        number = self.count
        try:
            session = self.sessions[number] = self._make(link, number, visitor)
            await session.run()
        except RunError as error:
            logger.bind(session=number).debug("ended: {}", error)
        except Exception as error:  # noqa: BLE001 - the boundary of each connection
            bound = logger.bind(session=number).opt(exception=leaf(error))
            bound.error("an internal error in mcpd ended a session")
        finally:
            self.sessions.pop(number, None)
