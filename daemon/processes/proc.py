"""What the kernel knows of sockets, locks and processes, read from /proc: it takes no lock and wakes nobody.

To connect to a socket that systemd holds would start the daemon, and to try a lock could keep a daemon from it
that starts at that moment. What cannot be read is None: another user's process, a kernel that hides it.
"""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path
from typing import NamedTuple

from daemon.kit.wording import KIB

RLIMIT_LOCKS = 10
"""The resource that carries a server's mark (asm-generic/resource.h); Python's module has no name for it."""

STAT_BYTES = 1024
"""More than a line of /proc/PID/stat has: 52 numbers and a name of at most 64 bytes."""

PAGE = os.sysconf("SC_PAGE_SIZE")
"""Bytes of a page of memory."""

TICKS = os.sysconf("SC_CLK_TCK")
"""Of the kernel's clock in a second: what `Process.started` and `Process.ticks` count."""

_DEAD = frozenset("ZXx")
_WORKING = frozenset("RD")
_HIDDEN = "?"
"""The state of a child that lives and is hidden."""
_STATE, _PARENT, _STARTED = 0, 1, 19
_TIMES = slice(11, 15)
"""Where fields stand behind the name (proc(5), /proc/PID/stat)."""


class Process(NamedTuple):
    """One process as it was a moment ago."""

    pid: int
    parent: int
    """Who started it, or adopted it when that one ended."""
    state: str
    """One letter, as in proc(5)."""
    started: int
    """When, in clock ticks since the machine came up."""
    ticks: int = 0
    """CPU that it has used, with the children that it has waited for, in clock ticks."""

    @property
    def is_dead(self) -> bool:
        """Whether it has ended, and at most waits to be reaped."""
        return self.state in _DEAD

    @property
    def is_working(self) -> bool:
        """Whether it runs, or would if it got a CPU or what it reads from the disk (its first thread)."""
        return self.state in _WORKING


def read(pid: int) -> Process | None:
    """A process; None if there is none of this number, or it is hidden.

    Raises:
        OSError: nobody can say, as we have no descriptor left.
    """
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            raw = os.read(fd, STAT_BYTES)
        finally:
            os.close(fd)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # The name may itself hold parentheses and blanks.
    fields = raw.rpartition(b")")[2].split()
    return Process(
        pid,
        int(fields[_PARENT]),
        fields[_STATE].decode(),
        int(fields[_STARTED]),
        sum(map(int, fields[_TIMES])),
    )


def read_child(pid: int) -> Process | None:
    """A child of ours, also one that is hidden: whether it lives says wait(2), since when nobody.

    Raises:
        OSError: nobody can say, as we have no descriptor left.
    """
    seen = read(pid)
    if seen is not None:
        return seen
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return Process(pid, os.getpid(), _HIDDEN if ended is None else "Z", 0)


def exists(pid: int) -> bool:
    """Whether there is a process of this number, hidden or not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def may_signal(pid: int) -> bool:
    """Whether we may send a signal to a process: it is of our user, or we are root."""
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def numbers() -> list[int]:
    """The numbers of all processes but ourselves."""
    own = os.getpid()
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if pid != own]  # noqa: PTH208


def limit(pid: int) -> tuple[int, int] | None:
    """The soft and the hard RLIMIT_LOCKS of a process; None if it is gone, or another user's."""
    try:
        return resource.prlimit(pid, RLIMIT_LOCKS)
    except (OSError, ValueError):
        return None


def own_children() -> set[int]:
    """The children of all our threads: those that we started and those that came to us as orphans."""
    found: set[int] = set()
    for task in os.listdir("/proc/self/task"):  # noqa: PTH208 - only names are needed
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/children", "rb") as children:  # noqa: PTH123
            found.update(map(int, children.read().split()))
    return found


def alive() -> tuple[dict[int, Process], dict[int, tuple[int, int]]]:
    """All processes of our user that live, and all limits (`limit`), by pid. Reads all of /proc.

    What is hidden is not seen unless it is a child of ours.
    """
    own = own_children()
    # The limits are read first: a child that is started meanwhile is not among them, and so nobody's stray.
    limits = {pid: found for pid in own.union(numbers()) if (found := limit(pid)) is not None}
    seen = (read_child(pid) if pid in own else read(pid) for pid in limits)
    return {each.pid: each for each in seen if each is not None and not each.is_dead}, limits


def resident(pid: int) -> int:
    """Bytes of a process in memory, shared ones in full; 0 if it is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", "rb") as sizes:  # noqa: PTH123
        return int(sizes.read().split()[1]) * PAGE
    return 0


def proportional(pid: int) -> int:
    """Bytes in memory, those shared with n processes by 1/n; all of them where the kernel does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * KIB
    return resident(pid)


PROC = Path("/proc")

_ACCEPTING = 1 << 16
"""__SO_ACCEPTCON: somebody has called listen(2) on it."""


def may(path: Path, mode: int) -> bool:
    """Whether this command may use a file so (`os.R_OK`, `os.W_OK`, `os.X_OK`), as open(2) would decide."""
    return os.access(path, mode, effective_ids=True)


def listens(path: Path) -> bool | None:
    """Whether somebody listens on a unix socket, in our network namespace."""
    listed = _read(PROC / "net" / "unix")
    if listed is None:
        return None
    # Num RefCount Protocol Flags Type St Inode Path
    rows = (line.split(None, 7) for line in listed.splitlines()[1:])
    return any(len(row) == 8 and row[7] == str(path) and int(row[3], 16) & _ACCEPTING for row in rows)  # noqa: PLR2004


def lock_holder(lock: Path) -> int | None:
    """The process that holds the flock(2) of one of our lock files; None if nobody does."""
    listed, named = _read(PROC / "locks"), _read(lock)
    if listed is None or named is None:
        return None
    try:
        inode = str(lock.stat().st_ino)
    except OSError:
        return None
    # 1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE ...; the device is not compared: btrfs reports two for one.
    rows = (line.split() for line in listed.splitlines() if " FLOCK " in line and "->" not in line)
    pids = {row[4] for row in rows if row[5].rpartition(":")[2] == inode}
    return int(named.strip()) if named.strip() in pids else None


def environment(pid: int) -> dict[str, str] | None:
    """The environment that a process was started with; None also for one that is closed to its user."""
    try:
        raw = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    pairs = (item.decode(errors="surrogateescape").partition("=") for item in raw.split(b"\0") if item)
    return {name: value for name, _, value in pairs}


def command_line(pid: int) -> list[str]:
    """The words that a process was started with; none if it is gone."""
    return (_read(PROC / str(pid) / "cmdline") or "").split("\0")


def directory(pid: int) -> Path | None:
    """The directory that a process is in."""
    try:
        return (PROC / str(pid) / "cwd").readlink()
    except OSError:
        return None


def user(pid: int) -> int | None:
    """The user that a process runs as; its directory is root's if it is closed to its user."""
    for line in (_read(PROC / str(pid) / "status") or "").splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[2])
    return None


def open_files(pid: int | str = "self") -> tuple[float, float] | None:
    """The soft and the hard limit of open files of a process."""
    for line in (_read(PROC / str(pid) / "limits") or "").splitlines():
        if line.startswith("Max open files"):
            soft, hard = line.split()[3:5]
            return _limit(soft), _limit(hard)
    return None


def _limit(word: str) -> float:
    return float("inf") if word == "unlimited" else float(word)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="surrogateescape")
    except OSError:
        return None
