"""Doors: the accept loop of each, the door of a unix socket, and the open connections behind one.

A door decides who may come in before anything is read, and what serves a connection. The listening socket
belongs to whatever opened it; a connection belongs to what serves it. Nothing is read from a peer of a unix
socket before `processes.peers` has let it in.
"""

from __future__ import annotations

import errno
import os
import resource
from typing import TYPE_CHECKING, Generic, NoReturn, Protocol, TypeVar

import trio
from loguru import logger

from daemon.clients.client import local_user
from daemon.errors import RunError, leaf
from daemon.wire.link import FdLink

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    from daemon.clients.client import Principal
    from daemon.config.tuning import Limits
    from daemon.processes.peers import PeerCredentials, Peers
    from daemon.wire.outbox import Link, Outbox


BREATHER = 0.1
"""Seconds without accepting when descriptors or memory run out: some may be freed meanwhile (as trio does)."""

SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

KEPT_DESCRIPTORS = 64
"""Descriptors that clients leave free: for 32 operators, and for starts of servers, which take ten each."""

SAY_SECONDS = 60.0
"""Seconds between two log lines about a shortage."""

REFUSALS = 8
"""Refusals after which the loop pauses: each costs it 0.1 to 0.4 ms, and a refused peer may try again and
again."""

REFUSALS_PAUSE = 0.02
"""Seconds of that pause: refusals take a tenth of the loop's time, and a full backlog is refused in two
seconds."""

V = TypeVar("V")


class Listener(Generic[V]):
    """Accepts connections on one socket and has each served in a task of its own."""

    def __init__(
        self,
        door: str,
        listener: socket.socket,
        *,
        places: int,
        admit: Callable[[socket.socket], V | None],
        serve: Callable[[socket.socket, V], Awaitable[None]],
        vet: Callable[[socket.socket], Awaitable[bool]] | None = None,
        log_full: Callable[[], None] = lambda: None,
        keeps: int = KEPT_DESCRIPTORS,
    ) -> None:
        """Prepare to accept.

        Args:
            door: the door's name, for the log.
            listener: bound, listening and non-blocking.
            places: how many connections there may be; further ones wait in the kernel's backlog.
            admit: returns who is at the other end, or None to refuse; a shortage that it raises is waited out.
            serve: takes the connection over, closes it, and contains its faults: what it raises ends `run`.
            vet: says whether an admitted connection is served, where that takes longer than the loop may wait.
            log_full: called when no place is left, before waiting for one.
            keeps: how many descriptors of the process are left to others; 0 for operators.
        """
        self._door = door
        self._listener = listener
        self._room = trio.Semaphore(places)
        self._admit = admit
        self._serve = serve
        self._vet = vet
        self._tell_full = log_full
        self._keeps = keeps
        self._said = -SAY_SECONDS
        self._refused = 0
        self._accepting = trio.CancelScope()

    async def run(self) -> NoReturn:
        """Accept and serve until cancelled.

        Raises:
            OSError: the listening socket is broken.
        """
        async with trio.open_nursery() as nursery:
            with self._accepting:
                while True:
                    if not self._room.value:
                        self._tell_full()
                    await self._room.acquire()
                    nursery.start_soon(self._serve_in_place, *await self._accept())
            await trio.sleep_forever()

    def stop_accepting(self) -> None:
        """Accept no further connections; the open ones go on."""
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
        """Check that enough descriptors are left to others, by the lowest that is free.

        Raises:
            OSError: there are not (EMFILE).
        """
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
                    await self._wait_out(error)
                except BaseException:
                    connection.close()
                    raise

    async def _pause(self) -> None:
        """After a refusal, let other tasks run: a peer in a loop has its next connection ready."""
        self._refused += 1
        if self._refused % REFUSALS:
            await trio.lowlevel.checkpoint()
        else:
            await trio.sleep(REFUSALS_PAUSE)

    async def _wait_out(self, error: OSError) -> None:
        """Wait a moment if a resource has run out; re-raise anything else."""
        if error.errno not in SHORTAGES:
            raise error
        if trio.current_time() - self._said >= SAY_SECONDS:
            self._said = trio.current_time()
            logger.warning("{}: cannot accept a connection: {}", self._door, error.strerror)
        await trio.sleep(BREATHER)


class Strangers:
    """The connections of one door whose clients it has not let in; with one too many the oldest is ended.

    So whoever only connects keeps nobody out.
    """

    def __init__(self, most: int) -> None:
        """Start with none.

        Args:
            most: how many there may be.
        """
        self._most = most
        self._scopes: dict[trio.CancelScope, None] = {}

    def join(self) -> trio.CancelScope:
        """Count one more; it is to be served in the scope, which is cancelled when others take its place."""
        while len(self._scopes) >= self._most:
            oldest = next(iter(self._scopes))
            del self._scopes[oldest]
            oldest.cancel()
        scope = trio.CancelScope()
        self._scopes[scope] = None
        return scope

    def leave(self, scope: trio.CancelScope) -> None:
        """Count one no longer, which is let in or has ended. Idempotent."""
        self._scopes.pop(scope, None)


PAUSE_SHARE = 8
"""Reading from a client pauses while an eighth of its queue limit is waiting for it: it is slow, not dead."""


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
    """Make a door for local processes.

    Args:
        listener: bound, listening and non-blocking.
        peers: decides who may come in, and how many.
        serve: serves a link, given who is at its other end, until it ends; what it raises ends the door.
        outbox: the daemon's outbox.
        limits: how long a message may be, and how much may wait for a client that does not read.
        workspaces: the directories that other users may name (`listen.workspaces`).
        keeps: how many descriptors of the process are left to others.
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
            await serve(link, local_user(peer.uid, workspaces))
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
    """Serves each connection, and knows which are open."""

    def __init__(self, make: Callable[[Link, int, Principal], R]) -> None:
        """Start without connections; `make` makes what serves one, given its link, its number and who it is."""
        self.sessions: dict[int, R] = {}
        """The sessions of the open connections, by number."""
        self.count = 0
        """Connections so far."""
        self._make = make

    async def serve(self, link: Link, visitor: Principal) -> None:
        """Serve a connection until it ends, and contain its faults. Its door closes the link."""
        self.count += 1
        number = self.count
        try:
            session = self.sessions[number] = self._make(link, number, visitor)
            await session.run()
        except RunError as error:
            logger.bind(session=number).debug("ended: {}", error)
        except Exception as error:  # noqa: BLE001 - the boundary of each connection
            plain = leaf(error) if isinstance(error, BaseExceptionGroup) else error
            logger.bind(session=number).opt(exception=plain).error("a fault of mcpd's own ended a session")
        finally:
            self.sessions.pop(number, None)
