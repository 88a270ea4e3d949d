"""Who may come in: which users, which processes, and how many connections each may have.

Both doors ask here, once for each connection and before anything is read from it. What is refused is counted by
reason and told to the log, at most once a minute for each.

Whether a process stems from us: a server's must not give its own daemon orders.

Everything that a server starts stays below us, as orphans come to us (prctl(2), PR_SET_CHILD_SUBREAPER): so the
way up from a process says it. Numbers of processes are used again: a parent that is younger than its child is
none, and the way is then walked anew.
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
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import attrs
from loguru import logger

from daemon.processes import marks, proc

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

PEERCRED = struct.Struct("3i")
"""pid, uid, gid (unix(7), SO_PEERCRED)."""

SO_PEERPIDFD = 77
"""Names the very process that has connected, not whoever got its number (asm-generic/socket.h, Linux 6.5)."""

USER_SHARE = 2
"""A user who is neither us nor root may have half of the places: `listen.uids` may name several."""

KEPT_SHARE = 4
"""Of a few places, a quarter is for processes that have none yet: so nobody who takes many locks others out."""

KEPT_MOST = 16
"""Of many places, no more need be kept: so many windows or commands come in although all else is taken. All but
these one process may have, for there are programs that speak for many."""

SAY_SECONDS = 60.0
"""Between two lines in the log for the same reason."""


class Refusal(StrEnum):
    """Why a peer is not let in."""

    USER = "user"
    """`listen.uids` does not name it."""
    SERVER = "server"
    """It is a process of a server, which `listen.servers` does not name."""
    GONE = "gone"
    """Nobody can say whose process it is."""
    USER_PLACES = "user_places"
    """Its user has as many connections as he may."""
    KEPT_PLACES = "kept_places"
    """What is left is for processes that have none."""


class PeerCredentials(NamedTuple):
    """The process at the other end."""

    pid: int
    """0 if it is in no pid namespace that we can see."""
    uid: int


@attrs.frozen
class Shares:
    """How many connections there may be."""

    places: int
    """Connections that all peers together may have."""
    of_user: int
    """Of one user who is neither us nor root."""
    kept: int
    """The last ones, of all and of each user's: for processes that have none yet."""


def shares(places: int) -> Shares:
    """How so many places are shared out."""
    kept = min(KEPT_MOST, places // KEPT_SHARE)
    return Shares(places, max(1, places // USER_SHARE), kept)


class Connections(TypedDict):
    """What operators are shown of a door."""

    open: int
    """Connections that are open."""
    places: int
    """How many there may be."""
    refused: dict[str, int]
    """How many were refused, by reason."""


class Peers:
    """Who is in, and who else may come in, through one door."""

    def __init__(
        self,
        door: str,
        places: Shares,
        *,
        uids: Collection[int],
        servers: Callable[[], Collection[int | None]] = frozenset,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with nobody.

        Args:
            door: "clients" or "operators", for the log.
            places: how many may come in.
            uids: users who may.
            servers: pids of the servers whose processes may.
            clock: seconds.
        """
        self.places = places
        self.refused: Counter[Refusal] = Counter()
        self.open = 0
        """Connections that are open."""
        self.door = door
        self._uids = uids
        self._servers = servers
        self._clock = clock
        self._by_pid: Counter[int] = Counter()
        self._by_uid: Counter[int] = Counter()
        self._said: dict[str, tuple[float, int]] = {}

    def admit(self, connection: socket.socket) -> PeerCredentials | None:
        """Let in who is at the other end, who then counts until he leaves; None: he may not come in.

        Raises:
            OSError: nobody can say who that is, as we have no descriptor left.
        """
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEERCRED.size)
        pid, uid, _gid = PEERCRED.unpack(raw)
        peer = PeerCredentials(pid, uid)
        why = self._why_not(peer, connection)
        if why is not None:
            self._refuse(peer, *why)
            return None
        self.open += 1
        self._by_pid[pid] += 1
        self._by_uid[uid] += 1
        return peer

    def leave(self, peer: PeerCredentials) -> None:
        """Somebody who was let in has gone."""
        self.open -= 1
        for counts, key in ((self._by_pid, peer.pid), (self._by_uid, peer.uid)):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]

    def report(self) -> Connections:
        """For operators: how many are in, and why how many others are not."""
        refused = {str(reason): count for reason, count in self.refused.items()}
        return {"open": self.open, "places": self.places.places, "refused": refused}

    def _why_not(self, peer: PeerCredentials, connection: socket.socket) -> tuple[Refusal, str] | None:
        if peer.uid not in self._uids:
            return Refusal.USER, f"only {sorted(self._uids)} may; add it to listen.uids to let it in"
        return self._too_many(peer) or _stems_from_server(peer, connection, self._servers)

    def _too_many(self, peer: PeerCredentials) -> tuple[Refusal, str] | None:
        shares, ours = self.places, peer.uid in {os.getuid(), 0}
        kept = shares.kept if peer.pid in self._by_pid else 0
        if not ours and self._by_uid[peer.uid] >= shares.of_user - kept:
            return Refusal.USER_PLACES, (
                f"its user has {self._by_uid[peer.uid]} of the {shares.of_user} connections that he may have"
                f"{_FEW if kept else ''}; raise limits.connections"
            )
        if self.open >= shares.places - (kept if ours else shares.kept):
            return Refusal.KEPT_PLACES, (
                f"{self.open} of {shares.places} places are taken{_FEW}, of the daemon's user or root;"
                " end clients that are not needed, or raise limits.connections"
            )
        return None

    def log_full(self) -> None:
        """Nobody else is accepted until somebody leaves."""
        self._say("full", f"all {self.places.places} connections are taken: further ones wait")

    def _refuse(self, peer: PeerCredentials, reason: Refusal, text: str) -> None:
        self.refused[reason] += 1
        self._say(reason, f"refused a connection of uid {peer.uid} (pid {peer.pid}): {text}")

    def _say(self, reason: str, text: str) -> None:
        at, unsaid = self._said.get(reason, (-SAY_SECONDS, 0))
        if self._clock() - at < SAY_SECONDS:
            self._said[reason] = at, unsaid + 1
            return
        self._said[reason] = self._clock(), 0
        more = f" (and {unsaid} times since this was last said)" if unsaid else ""
        logger.warning("{}: {}{}", self.door, text, more)


def _stems_from_server(
    peer: PeerCredentials, connection: socket.socket, servers: Callable[[], Collection[int | None]]
) -> tuple[Refusal, str] | None:
    """Why a peer is refused as a server's process.

    Who came from another pid namespace has no number here; whatever we start has one.
    """
    if not peer.pid:
        return None
    try:
        child = child_above(peer.pid)
        if not _is_still(connection):
            raise Untraceable(f"pid {peer.pid} is gone")
    except Untraceable as error:
        return Refusal.GONE, f"nobody can say whether it is a server's process: {error}"
    if child is None or child in servers() or not marks.is_a_servers(child):
        return None
    return Refusal.SERVER, (
        f"it stems from pid {child}, which mcpd has started or adopted: servers give no orders;"
        " listen.servers names those that may be clients"
    )


def _is_still(connection: socket.socket) -> bool:
    """Whether the process that connected is there, so that its number was nobody else's meanwhile."""
    try:
        fd = connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError as error:
        if error.errno in {errno.ESRCH, errno.EINVAL, errno.ENODATA}:
            return False
        # An older kernel knows the number only, which is as good but for who gets it right now.
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


_FEW = f", and the last {KEPT_MOST} at most are for processes that have none"


def own_and(uids: tuple[int, ...]) -> frozenset[int]:
    """The users who may connect: ourselves, root, and those that the configuration names."""
    return frozenset({os.getuid(), 0, *uids})


GENERATIONS = 64
"""Processes on the way up, at most: nobody's client stands so deep, and each step takes 15 µs of the loop."""

WALKS = 5
"""Times that a way is walked which changes under our feet: a process that ends hands its children on."""


class Untraceable(Exception):
    """Nobody can say where a process stems from: it is gone, or the way up has no end."""


def child_above(pid: int) -> int | None:
    """The child of ours that a process is or stems from; None if it does not stem from us.

    With the first process that is hidden from us (hidepid, systemd's ProtectProc=) the way ends: unless
    that is a child of ours, what the process has inherited decides.

    Raises:
        Untraceable: that cannot be said.
    """
    for _ in range(WALKS):
        try:
            return _climb(pid)
        except _Changed:
            continue
    raise Untraceable(f"the parents of pid {pid} change too fast")


class _Changed(Exception):
    """A process on the way has ended meanwhile."""


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
    raise Untraceable(f"pid {pid} stands more than {GENERATIONS} processes deep")


def _hidden(above: int, pid: int) -> int | None:
    """What can be said of a process whose way up ends at one that is hidden: maybe at itself.

    Hidden is another user's, as the login's above each of his programs, and any of ours that has chosen to be.
    """
    if above in proc.own_children():
        return above
    ours = marks.may_stem_from_us(pid)
    if ours or (ours is None and proc.may_signal(above)):
        raise Untraceable(f"pid {above} on its way up is hidden, and it may stem from us")
    return None
