"""A door: accepts connections on a unix socket and gives each a session behind a boundary of its own.

Nothing is read from a peer before `processes.peers` has let it in. The listening socket belongs to whoever made
it; connections belong to their links.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import trio
from loguru import logger

from daemon.errors import RunError, leaf
from daemon.wire.link import FdLink

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from daemon.processes.peers import PeerCredentials, Peers
    from daemon.wire.outbox import Outbox

BREATHER = 0.1
"""Seconds to stop accepting when descriptors or memory run out: others may give some back (as trio does)."""

SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

REFUSALS = 8
"""After so many the door pauses: each costs the loop 0.1 to 0.4 ms, and whoever is refused can try for ever."""

REFUSALS_PAUSE = 0.02
"""Seconds of that pause: refusals take a tenth of the loop, and a full backlog is through in two seconds."""

PAUSE_SHARE = 8
"""A client is not read from while an eighth of its queue limit waits for it: it is slow, not dead."""


class Guest(Protocol):
    """What a door makes of a connection."""

    async def run(self) -> None:
        """Serve until the connection ends."""


G = TypeVar("G", bound=Guest)


class Front(Generic[G]):
    """Accepts on one socket."""

    def __init__(
        self,
        listener: socket.socket,
        welcome: Callable[[FdLink, int, int], G],
        *,
        outbox: Outbox,
        peers: Peers,
        max_line: int,
        max_queue: int,
    ) -> None:
        """Prepare to accept.

        Args:
            listener: bound, listening and non-blocking.
            welcome: makes the session of a connection, given its link, its number and its user.
            outbox: the daemon's outbox.
            peers: who may come in, and how many; further ones wait in the kernel's backlog.
            max_line: bytes of a client's longest message.
            max_queue: bytes that may wait for a client that does not read.
        """
        self.guests: dict[int, G] = {}
        self._listener = listener
        self._welcome = welcome
        self._outbox = outbox
        self.peers = peers
        self._room = trio.Semaphore(peers.places.places)
        self._max_line = max_line
        self._max_queue = max_queue
        self._count = 0
        self._refused = 0
        self._accepting = trio.CancelScope()

    async def run(self) -> None:
        """Accept and serve until cancelled."""
        async with trio.open_nursery() as nursery:
            with self._accepting:
                while True:
                    if not self._room.value:
                        self.peers.tell_full()
                    await self._room.acquire()
                    connection, peer = await self._accept()
                    nursery.start_soon(self._serve, connection, peer)
            await trio.sleep_forever()

    def stop_accepting(self) -> None:
        """Take no further connections; those that are open go on."""
        self._accepting.cancel()

    async def _accept(self) -> tuple[socket.socket, PeerCredentials]:
        while True:
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._listener)
            except OSError as error:
                if error.errno != errno.ECONNABORTED:
                    await _breathe(error)
            else:
                peer = await self._admit(connection)
                if peer is not None:
                    return connection, peer
                connection.close()
                await self._pause()

    async def _pause(self) -> None:
        """After a refusal, let others go on: whoever connects in a loop has the next connection ready."""
        self._refused += 1
        if self._refused % REFUSALS:
            await trio.lowlevel.checkpoint()
        else:
            await trio.sleep(REFUSALS_PAUSE)

    async def _admit(self, connection: socket.socket) -> PeerCredentials | None:
        while True:
            try:
                return self.peers.admit(connection)
            except OSError as error:
                try:
                    await _breathe(error)
                except BaseException:
                    connection.close()
                    raise

    async def _serve(self, connection: socket.socket, peer: PeerCredentials) -> None:
        self._count += 1
        number = self._count
        connection.setblocking(False)
        fd = connection.detach()
        link = FdLink(
            fd,
            fd,
            outbox=self._outbox,
            max_line=self._max_line,
            max_queue=self._max_queue,
            pause_at=self._max_queue // PAUSE_SHARE,
        )
        try:
            guest = self.guests[number] = self._welcome(link, number, peer.uid)
            await guest.run()
        except RunError as error:
            logger.bind(session=number).debug("ended: {}", error)
        except Exception as error:  # noqa: BLE001 - the boundary: one client's fault is nobody else's
            plain = leaf(error) if isinstance(error, BaseExceptionGroup) else error
            logger.bind(session=number).opt(exception=plain).error("a fault of mcpd's own ended a session")
        finally:
            link.close()
            self.guests.pop(number, None)
            self.peers.leave(peer)
            self._room.release()


async def _breathe(error: OSError) -> None:
    """Wait a moment if something has run out; anything else is a fault."""
    if error.errno not in SHORTAGES:
        raise error
    logger.warning("cannot accept a connection: {}", error.strerror)
    await trio.sleep(BREATHER)
