"""Admission of connections: which users and processes may connect, and how many connections each may have.

A server's process must not control its own daemon, so mcpd follows its ancestors. Pids are reused: a parent
that is younger than its child is not its parent, and the walk up is then repeated.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from enum import StrEnum
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import attrs
import msgspec
import trio
from loguru import logger

from daemon.history.event import Event, EventKind
from daemon.processes import marks, proc

if TYPE_CHECKING:
    from daemon.history.event import Detail


PEERCRED = struct.Struct("3i")
"""The peer's pid, uid and gid (unix(7), SO_PEERCRED)."""

SO_PEERPIDFD = 77
"""The option for a descriptor of the connected process, safe from pid reuse (Linux 6.5)."""

USER_SHARE = 2
"""Divisor of the places: a user besides the daemon's and root gets half, as `listen.uids` may name several."""

KEPT_SHARE = 4
"""Divisor of the places: a quarter is for processes without a connection, so that none locks others out."""

KEPT_MOST = 16
"""Most reserved places. A single process may have all others: some programs act for many clients."""

SAY_SECONDS = 60.0
"""Seconds between two log lines about the same reason."""


class RefusalReason(StrEnum):
    """Why a connection is refused."""

    USER = "user"
    """The user is not in `listen.uids`."""
    SERVER = "server"
    """The peer is a process of a server that is not in `listen.servers`."""
    GONE = "gone"
    """The origin of the process cannot be determined."""
    USER_PLACES = "user_places"
    """The user has as many connections as allowed."""
    KEPT_PLACES = "kept_places"
    """The remaining places are reserved for processes without a connection."""


class PeerCredentials(NamedTuple):
    """The peer's process and user."""

    pid: int
    """The process id; 0 if it is in a pid namespace that is invisible here."""
    uid: int


class Shares(msgspec.Struct, frozen=True):
    """Limits on the number of connections."""

    places: int
    """Connections of all peers together."""
    of_user: int
    """Connections of one user other than the daemon's and root."""
    kept: int
    """Of each of these limits, the places reserved for processes without a connection."""


def shares(places: int) -> Shares:
    """Divide a door's places."""
    kept = min(KEPT_MOST, places // KEPT_SHARE)
    return Shares(places, max(1, places // USER_SHARE), kept)


class Connections(TypedDict):
    """The report on a door: its open connections, its places, and refusals by reason."""

    open: int
    places: int
    refused: dict[str, int]


def connections(doors: Iterable[Peers]) -> dict[str, Connections]:
    """The open and the refused connections of each door, by its name."""
    return {each.door: each.report() for each in doors}


@attrs.define(eq=False)
class Peers:
    """Counts the connections through one door, and decides about further ones."""

    door: str
    places: Shares
    _uids: Collection[int] = attrs.field(kw_only=True)
    servers: Callable[[], Collection[int | None]] = attrs.field(default=frozenset, kw_only=True)
    """Returns the pids of servers that may connect."""
    _clock: Callable[[], float] = attrs.field(default=time.monotonic, kw_only=True)
    _gather: Callable[[Event], None] = attrs.field(default=lambda _event: None, kw_only=True)
    refused: Counter[RefusalReason] = attrs.field(factory=Counter, init=False)
    open: int = attrs.field(default=0, init=False)
    _by_pid: Counter[int] = attrs.field(factory=Counter, init=False)
    _by_uid: Counter[int] = attrs.field(factory=Counter, init=False)
    _said: dict[str, tuple[float, int]] = attrs.field(factory=dict, init=False)

    def admit(self, connection: socket.socket) -> PeerCredentials | None:
        """Admit a connection's peer until `leave`; None if refused. Raises `OSError`: it cannot be told yet."""
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEERCRED.size)
        pid, uid, _gid = PEERCRED.unpack(raw)
        peer = PeerCredentials(pid, uid)
        why = self._why_not(peer, connection)
        if why is not None:
            self.refuse(peer, *why)
            return None
        self.open += 1
        self._by_pid[pid] += 1
        self._by_uid[uid] += 1
        return peer

    def leave(self, peer: PeerCredentials) -> None:
        """Note that an admitted peer has disconnected."""
        self.open -= 1
        for counts, key in ((self._by_pid, peer.pid), (self._by_uid, peer.uid)):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]

    def report(self) -> Connections:
        """Report the open and the refused connections."""
        refused = {str(reason): count for reason, count in self.refused.items()}
        return {"open": self.open, "places": self.places.places, "refused": refused}

    def _why_not(self, peer: PeerCredentials, connection: socket.socket) -> tuple[RefusalReason, str] | None:
        if peer.uid not in self._uids:
            return RefusalReason.USER, f"only uids {sorted(self._uids)} may connect; listen.uids can add it"
        return self._too_many(peer) or _stems_from_server(peer, connection, self.servers)

    def _too_many(self, peer: PeerCredentials) -> tuple[RefusalReason, str] | None:
        shares, ours = self.places, peer.uid in {os.getuid(), 0}
        kept = shares.kept if peer.pid in self._by_pid else 0
        if not ours and self._by_uid[peer.uid] >= shares.of_user - kept:
            return RefusalReason.USER_PLACES, (
                f"its user has {self._by_uid[peer.uid]} of the {shares.of_user} connections allowed to a user"
                f"{_FEW if kept else ''}; raise limits.connections"
            )
        if self.open >= shares.places - (kept if ours else shares.kept):
            return RefusalReason.KEPT_PLACES, (
                f"{self.open} of {shares.places} places are taken{_FEW}, of the daemon's user or root;"
                " end clients that are not needed, or raise limits.connections"
            )
        return None

    def log_full(self) -> None:
        """Log that no more connections are accepted until one is closed."""
        self._say("full", f"all {self.places.places} connections are taken: further ones wait")

    def refuse(self, peer: PeerCredentials, reason: RefusalReason, text: str) -> None:
        """Count and report a refusal."""
        self.refused[reason] += 1
        who: dict[str, Detail] = {"uid": peer.uid, "pid": peer.pid}
        details = {"door": self.door, "reason": str(reason), **who}
        self._gather(Event(kind=EventKind.REFUSED, text=text, details=details))
        self._say(reason, f"refused a connection of uid {peer.uid} (pid {peer.pid}): {text}")

    def _say(self, reason: str, text: str) -> None:
        at, unsaid = self._said.get(reason, (-SAY_SECONDS, 0))
        if self._clock() - at < SAY_SECONDS:
            self._said[reason] = at, unsaid + 1
            return
        self._said[reason] = self._clock(), 0
        more = f" (and {unsaid} times since this was last logged)" if unsaid else ""
        logger.warning("{}: {}{}", self.door, text, more)


def _stems_from_server(
    peer: PeerCredentials, connection: socket.socket, servers: Callable[[], Collection[int | None]]
) -> tuple[RefusalReason, str] | None:
    """The refusal if the peer is a server's process; None if not, or if it is in another pid namespace."""
    if not peer.pid:
        return None
    try:
        child = child_above(peer.pid)
        if not _is_still(connection):
            raise Untraceable(f"pid {peer.pid} is gone")
        if child is not None and marks.is_starting(child):
            raise BlockingIOError
    except Untraceable as error:
        return RefusalReason.GONE, f"mcpd cannot tell whether it is a server's process: {error}"
    return origin_refusal(child, servers())


def origin_refusal(child: int | None, servers: Collection[int | None]) -> tuple[RefusalReason, str] | None:
    """The refusal of a process below this child of mcpd (`child_above`), unless its server may connect."""
    if child is None or child in servers or not marks.is_a_servers(child):
        return None
    return RefusalReason.SERVER, (
        f"it descends from pid {child}, which mcpd has started or adopted: servers may not control mcpd. To let"
        " a server be a client, add it to listen.servers"
    )


def _is_still(connection: socket.socket) -> bool:
    """Whether the connected process is still alive, so that its pid was not reused."""
    try:
        fd = connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError as error:
        if error.errno in {errno.ESRCH, errno.EINVAL, errno.ENODATA}:
            return False
        # An older kernel knows the pid only, which is as good unless it is being reused right now.
        if error.errno == errno.ENOPROTOOPT:
            return True
        raise
    try:
        with contextlib.suppress(PermissionError):
            signal.pidfd_send_signal(fd, 0)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True


_FEW = f", and the last places, up to {KEPT_MOST}, are kept for processes without a connection"


def own_and(uids: tuple[int, ...]) -> frozenset[int]:
    """The users who may connect: the daemon's, root, and those in the configuration."""
    return frozenset({os.getuid(), 0, *uids})


GENERATIONS = 64
"""Most ancestors read: no real client is nested so deep, and each takes 15 µs on the event loop."""

WALKS = 5
"""Most walks if ancestors change meanwhile: when a process ends, its children get another parent."""


class Untraceable(Exception):
    """The origin of a process is unknown: it is gone, or has too many ancestors."""


def child_above(pid: int) -> int | None:
    """The child of mcpd that a process is or descends from; None if it does not descend from mcpd.

    The walk up ends at the first hidden process (hidepid, systemd's ProtectProc=): unless that is a child of
    mcpd, the inherited limit decides. Raises `Untraceable`: the origin cannot be determined.
    """
    for _ in range(WALKS):
        try:
            return _climb(pid)
        except _Changed:
            continue
    raise Untraceable(f"the parents of pid {pid} change too fast")


class _Changed(Exception):
    """An ancestor has ended during the walk."""


def _climb(pid: int) -> int | None:
    own = os.getpid()
    below = proc.read(pid)
    if below is None:
        if not proc.exists(pid):
            raise Untraceable(f"pid {pid} is gone")
        return _hidden(pid, pid)
    for _ in range(GENERATIONS):
        if below.parent in {0, below.pid}:
            return None
        if below.parent == own:
            return below.pid
        above = proc.read(below.parent)
        if above is None and proc.exists(below.parent):
            return _hidden(below.parent, pid)
        if above is None or above.started > below.started:
            raise _Changed
        below = above
    raise Untraceable(f"pid {pid} has more than {GENERATIONS} ancestors")


def _hidden(above: int, pid: int) -> int | None:
    """The child of mcpd above a process whose ancestor `above`, or itself, is hidden; raises `Untraceable`."""
    if above in proc.own_children():
        return above
    ours = marks.may_stem_from_us(pid)
    if ours or (ours is None and proc.may_signal(above)):
        raise Untraceable(f"its ancestor pid {above} is hidden, and it may descend from mcpd")
    return None


NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLMSG_ERROR = 2
"""Numbers of linux/netlink.h and linux/sock_diag.h."""

_HEADER = struct.Struct("=IHHII")
"""`struct nlmsghdr`: length, type, flags, sequence, port."""

_WANTED = struct.Struct("=BBBBIHH16s16sIII")
"""`struct inet_diag_req_v2`: family, protocol, extensions, padding, states; then ports and addresses in network
order, the peer's own first; interface; cookie (two words, all ones for any)."""

_OWNER = struct.Struct("=II")
_OWNER_AT = 16 + 4 + 48 + 12
"""Offset of uid and inode, after header, state, socket, timer and queues (`struct inet_diag_msg`)."""

ANY = 0xFFFFFFFF

REMEMBERED = 16
"""Most processes searched first, the holders of the last connections: a client opens several."""

UNSEEN = (
    "mcpd sees no process of this user at the other end, so it cannot tell whether a server connects:"
    " the process hung up, hides its descriptors or is in a container. Use `mcpd connect`"
)


PROXIED = (
    "a server connects through its sandbox's proxy: servers may not control mcpd. To let a server be a client,"
    " add it to listen.servers"
)


class End(NamedTuple):
    """The socket at the other end of a connection."""

    uid: int
    inode: int
    """The socket's inode; 0 if its process has closed it."""


def other_end(connection: socket.socket) -> End | None:
    """The other end of a TCP connection on this machine, or None. Raises `OSError`: the kernel cannot tell."""
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
    """Refuses connections over TCP from servers' processes."""

    def __init__(self, peers: Peers, is_proxied: Callable[[int], bool] = lambda _inode: False) -> None:
        """`is_proxied` tells whether this process holds a socket for a server that may not connect."""
        self._peers, self._is_proxied = peers, is_proxied
        self._wanted: set[int] = set()
        self._found: dict[int, int] = {}
        self._turn = trio.Lock()
        self._recent: dict[int, None] = {}

    async def admit(self, connection: socket.socket) -> bool:
        """Whether the process at the other end may connect."""
        try:
            end = other_end(connection)
        except OSError as error:
            self._refuse(0, RefusalReason.GONE, f"the kernel does not say who connects: {error.strerror}")
            return False
        # Of another user's processes nothing can be read, unless we are root.
        if end is None or (end.inode and os.getuid() not in {end.uid, 0}):
            return True
        is_proxied = self._is_proxied(end.inode)  # now, as a proxy may close its socket during the search
        pid = await self._holder(end.inode) if end.inode else None
        if pid is None:
            self._refuse(0, RefusalReason.GONE, UNSEEN)
            return False
        if pid == os.getpid():
            if not is_proxied:
                return True  # A server that the configuration reaches by our own URL.
            self._refuse(pid, RefusalReason.SERVER, PROXIED)
            return False
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
        """The process that holds a socket. One pass through /proc serves all waiting callers."""
        self._wanted.add(inode)
        async with self._turn:
            if inode in self._wanted:
                wanted, self._wanted = self._wanted, set()
                self._found = await trio.to_thread.run_sync(proc.socket_holders, wanted, list(self._recent))
            pid = self._found.pop(inode, None)
        if pid is not None:
            self._recent = {pid: None, **dict.fromkeys([*self._recent][: REMEMBERED - 1])}
        return pid
