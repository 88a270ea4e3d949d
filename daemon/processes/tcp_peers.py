"""Refuses the processes of servers that connect over TCP from this machine, whatever token they show.

A TCP socket has no SO_PEERCRED. The kernel names the owner and the inode of the other end (sock_diag(7), asked
for one connection: 20 µs, however many there are), and a thread finds the process that holds this inode in
/proc. The processes of other users and machines show a token, and nothing else.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

import trio

from daemon.processes import proc
from daemon.processes.peers import PeerCredentials, RefusalReason, Untraceable, child_above, origin_refusal

if TYPE_CHECKING:
    from daemon.processes.peers import Peers

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLMSG_ERROR = 2
"""Numbers of linux/netlink.h and linux/sock_diag.h."""

_HEADER = struct.Struct("=IHHII")
"""`struct nlmsghdr`: length, type, flags, sequence, port."""

_WANTED = struct.Struct("=BBBBIHH16s16sIII")
"""`struct inet_diag_req_v2`: family, protocol, extensions, padding, states; then the socket: ports and
addresses in network order, its own first, interface, cookie (two words; all ones: any)."""

_OWNER = struct.Struct("=II")
_OWNER_AT = 16 + 4 + 48 + 12
"""uid and inode, and where they stand in the answer: behind header, state, socket, timer and queues (`struct
inet_diag_msg`)."""

ANY = 0xFFFFFFFF

REMEMBERED = 16
"""Processes that are looked at first, since they held the last connections: a client opens several."""

UNSEEN = (
    "no process of this user is seen to hold the other end, so nobody can say whether it is a server's: it has"
    " hung up, hides its descriptors, or runs in a container; `mcpd connect` goes by the unix socket instead"
)


class End(NamedTuple):
    """The socket at the other end of a connection."""

    uid: int
    inode: int
    """0 if its process has closed it."""


def other_end(connection: socket.socket) -> End | None:
    """The other end of a TCP connection; None if it is on another machine.

    Raises:
        OSError: the kernel does not say.
    """
    host, port, *rest = connection.getpeername()
    own_host, own_port = connection.getsockname()[:2]
    mine, its = (ip_address(each.partition("%")[0]) for each in (own_host, host))
    family = socket.AF_INET if its.version == 4 else socket.AF_INET6  # noqa: PLR2004
    ports, addresses = (socket.htons(port), socket.htons(own_port)), (its.packed, mine.packed)
    interface = rest[1] if rest else 0
    wanted = _WANTED.pack(family, socket.IPPROTO_TCP, 0, 0, ANY, *ports, *addresses, interface, ANY, ANY)
    header = _HEADER.pack(_HEADER.size + len(wanted), SOCK_DIAG_BY_FAMILY, 1, 0, 0)
    kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    with socket.socket(socket.AF_NETLINK, kind, NETLINK_SOCK_DIAG) as asked:
        asked.sendto(header + wanted, (0, 0))
        # The kernel has answered before sendto(2) returns.
        answer = asked.recv(4096)
    if _HEADER.unpack_from(answer)[1] != NLMSG_ERROR:
        return End(*_OWNER.unpack_from(answer, _OWNER_AT))
    number = -struct.unpack_from("=i", answer, _HEADER.size)[0]
    if number != errno.ENOENT:
        raise OSError(number, os.strerror(number))
    is_here = its == mine or its.is_loopback or getattr(its, "ipv4_mapped", None) == ip_address("127.0.0.1")
    return End(os.getuid(), 0) if is_here else None


class TcpPeers:
    """Refuses the processes of servers that connect over TCP."""

    def __init__(self, peers: Peers) -> None:
        """Start with no process known.

        Args:
            peers: counts and tells refusals, and knows which servers may be clients.
        """
        self._peers = peers
        self._wanted: set[int] = set()
        self._found: dict[int, int] = {}
        self._turn = trio.Lock()
        self._recent: dict[int, None] = {}

    async def admit(self, connection: socket.socket) -> bool:
        """Whether the process at the other end may come in."""
        try:
            end = other_end(connection)
        except OSError as error:
            self._refuse(0, RefusalReason.GONE, f"the kernel does not say who connects: {error.strerror}")
            return False
        # Of another user's processes nothing can be read, unless we are root.
        if end is None or (end.inode and os.getuid() not in {end.uid, 0}):
            return True
        pid = await self._holder(end.inode) if end.inode else None
        if pid is None:
            self._refuse(0, RefusalReason.GONE, UNSEEN)
            return False
        if pid == os.getpid():
            return True  # A server that the configuration reaches by our own URL.
        try:
            child = await trio.to_thread.run_sync(child_above, pid)
            if end.inode not in proc.sockets(pid):
                raise Untraceable(f"pid {pid} is gone")
        except Untraceable as error:
            why: tuple[RefusalReason, str] | None = RefusalReason.GONE, str(error)
        else:
            why = origin_refusal(child, self._peers.servers())
        if why is not None:
            self._refuse(pid, *why)
        return why is None

    def _refuse(self, pid: int, reason: RefusalReason, text: str) -> None:
        self._peers.refuse(PeerCredentials(pid, os.getuid()), reason, text)

    async def _holder(self, inode: int) -> int | None:
        """The process that holds a socket. One look through /proc serves all who wait for one."""
        self._wanted.add(inode)
        async with self._turn:
            if inode in self._wanted:
                wanted, self._wanted = self._wanted, set()
                self._found = await trio.to_thread.run_sync(proc.socket_holders, wanted, list(self._recent))
            pid = self._found.pop(inode, None)
        if pid is not None:
            self._recent = {pid: None, **dict.fromkeys([*self._recent][: REMEMBERED - 1])}
        return pid
