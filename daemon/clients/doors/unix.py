"""The door of a unix socket: each connection's descriptor becomes a link, and the kernel names its user.

Nothing is read from a peer before `processes.peers` has let it in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.clients.doors.listening import KEPT_DESCRIPTORS, Listener
from daemon.clients.identity import local_user
from daemon.wire.link import FdLink

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    from daemon.clients.identity import Principal
    from daemon.config.tuning import Limits
    from daemon.processes.peers import PeerCredentials, Peers
    from daemon.wire.outbox import Outbox

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
