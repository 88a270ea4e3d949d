"""The only reader of /proc: processes, sockets, locks and limits, each None if unreadable; and prctl(2).

A hidden process (hidepid, systemd's ProtectProc=) seems not to exist; `exists` tells. The kernel always shows a
process its own children and their limits.
"""

from __future__ import annotations

import contextlib
import os
import resource
import stat
import sys
from collections.abc import Collection, Iterable
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from daemon.kit.later import later
from daemon.kit.wording import KIB

ctypes = later("ctypes")

PR_SET_DUMPABLE = 4

RLIMIT_LOCKS = 10
"""The resource limit that carries a server's mark (asm-generic/resource.h); Python has no name for it."""

STAT_BYTES = 1024
"""Bytes read of /proc/PID/stat: enough for 52 numbers and a name of at most 64 bytes."""

PAGE = os.sysconf("SC_PAGE_SIZE")
"""Bytes of a page of memory."""

TICKS = os.sysconf("SC_CLK_TCK")
"""Ticks of the kernel's clock per second: the unit of `Process.started` and `Process.ticks`."""

_DEAD = frozenset("ZXx")
_WORKING = frozenset("RD")
_HIDDEN = "?"
"""The state of a living child that is hidden."""
_STATE, _PARENT, _STARTED = 0, 1, 19
_TIMES, _ARGUMENTS = slice(11, 15), slice(45, 47)
"""The positions of fields after the name (proc(5), /proc/PID/stat)."""


def prctl(option: int, value: int) -> bool:
    """Set an attribute of this process; false if it fails, with `ctypes.get_errno()`."""
    return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)


def hide() -> bool:
    """Keep servers of the same user from reading this process's memory and environment; false if it fails."""
    return prctl(PR_SET_DUMPABLE, 0)


class Process(NamedTuple):
    """A process as it was when read."""

    pid: int
    parent: int
    """The process that started this one, or that adopted it later."""
    state: str
    """One letter (proc(5))."""
    started: int
    """Clock ticks since boot."""
    ticks: int = 0
    """CPU time in clock ticks, including children that it has waited for."""

    @property
    def is_dead(self) -> bool:
        """Whether the process has ended, even if it has not been reaped yet."""
        return self.state in _DEAD

    @property
    def is_working(self) -> bool:
        """Whether the process's first thread runs, or waits for a CPU or the disk."""
        return self.state in _WORKING


def read(pid: int) -> Process | None:
    """A process; None if it does not exist or is hidden. Raises `OSError`: no descriptor is left."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            raw = os.read(fd, STAT_BYTES)
        finally:
            os.close(fd)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # The name itself may contain parentheses and blanks.
    fields = raw.rpartition(b")")[2].split()
    return Process(
        pid, int(fields[_PARENT]), fields[_STATE].decode(), int(fields[_STARTED]), sum(map(int, fields[_TIMES]))
    )


def read_child(pid: int) -> Process | None:
    """A child, even a hidden one, without its start time. Raises `OSError`: no descriptor is left."""
    seen = read(pid)
    if seen is not None:
        return seen
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return Process(pid, os.getpid(), _HIDDEN if ended is None else "Z", 0)


def exists(pid: int) -> bool:
    """Whether a process with this pid exists, hidden or not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def may_signal(pid: int) -> bool:
    """Whether this process may signal another: same user, or root."""
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def numbers() -> list[int]:
    """The pids of all processes except this one."""
    own = os.getpid()
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if pid != own]  # noqa: PTH208


def limit(pid: int) -> tuple[int, int] | None:
    """The soft and hard RLIMIT_LOCKS of a process; None if it is gone or another user's."""
    try:
        return resource.prlimit(pid, RLIMIT_LOCKS)
    except (OSError, ValueError):
        return None


def own_children() -> set[int]:
    """The children of all threads of this process, adopted orphans included."""
    found: set[int] = set()
    for task in os.listdir("/proc/self/task"):  # noqa: PTH208 - only names are needed
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/children", "rb") as children:  # noqa: PTH123
            found.update(map(int, children.read().split()))
    return found


def alive() -> tuple[dict[int, Process], dict[int, tuple[int, int]]]:
    """The user's living processes and limits, by pid; hidden ones only if children. Reads all of /proc."""
    own = own_children()
    # The limits are read first: a child started meanwhile is not among them, and so not taken for a stray.
    limits = {pid: found for pid in own.union(numbers()) if (found := limit(pid)) is not None}
    seen = (read_child(pid) if pid in own else read(pid) for pid in limits)
    return {each.pid: each for each in seen if each is not None and not each.is_dead}, limits


def resident(pid: int) -> int:
    """Resident bytes of a process, with shared memory counted in full; 0 if it is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", "rb") as sizes:  # noqa: PTH123
        return int(sizes.read().split()[1]) * PAGE
    return 0


def proportional(pid: int) -> int:
    """Resident bytes of a process, with memory shared by n processes counted as 1/n; else as `resident`."""
    words = _words_after("Pss:", PROC / str(pid) / "smaps_rollup")
    return int(words[0]) * KIB if words else resident(pid)


PROC = Path("/proc")

_ACCEPTING = 1 << 16
"""The flag of a listening socket (__SO_ACCEPTCON)."""


def may(path: Path, mode: int) -> bool:
    """Whether this process may access a file (`os.R_OK`, `os.W_OK`, `os.X_OK`), as open(2) would decide."""
    return os.access(path, mode, effective_ids=True)


def listens(path: Path) -> bool | None:
    """Whether a process in this network namespace listens on a unix socket; None if unreadable."""
    listed = _read(PROC / "net" / "unix")
    if listed is None:
        return None
    # Num RefCount Protocol Flags Type St Inode Path
    rows = (line.split(None, 7) for line in listed.splitlines()[1:])
    return any(len(row) == 8 and row[7] == str(path) and int(row[3], 16) & _ACCEPTING for row in rows)  # noqa: PLR2004


_LISTENING = "0A"
"""The state of a listening TCP socket (include/net/tcp_states.h)."""


def port_holders(port: int) -> list[int]:
    """The pids of other visible processes that listen on a TCP port, at any address."""
    inodes: set[str] = set()
    for name in ("tcp", "tcp6"):
        # sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode ...
        for row in map(str.split, (_read(PROC / "net" / name) or "").splitlines()[1:]):
            if row[3] == _LISTENING and int(row[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{row[9]}]")
    return [pid for pid in numbers() if not inodes.isdisjoint(_descriptors(pid))] if inodes else []


def socket_holders(inodes: Collection[int], first: Iterable[int] = ()) -> dict[int, int]:
    """The visible processes that hold sockets, this one included, by inode; those in `first` are read first."""
    left, found = set(inodes), dict[int, int]()
    for pid in chain(first, [os.getpid()], reversed(numbers())):
        for inode in left & sockets(pid):
            found[inode] = pid
        left -= found.keys()
        if not left:
            break
    return found


def sockets(pid: int) -> set[int]:
    """The inodes of a process's sockets; empty if it hides its descriptors."""
    return {int(each[8:-1]) for each in _descriptors(pid) if each.startswith("socket:[")}


def _descriptors(pid: int) -> list[str]:
    """The targets of a process's descriptors; empty if it hides them."""
    folder, found = f"/proc/{pid}/fd", list[str]()
    with contextlib.suppress(OSError):
        for each in os.listdir(folder):  # noqa: PTH208 - of every process: pathlib takes ten times as long
            with contextlib.suppress(OSError):
                found.append(os.readlink(f"{folder}/{each}"))  # noqa: PTH115
    return found


def lock_holder(lock: Path) -> int | None:
    """The pid of the process that holds the flock(2) of a lock file; None if it is free."""
    try:
        found = lock.stat()
    except OSError:
        return None
    # Of a pipe in its place nobody knows when it can be read.
    if not stat.S_ISREG(found.st_mode):
        return None
    listed, named = _read(PROC / "locks"), _read(lock)
    if listed is None or named is None:
        return None
    inode = str(found.st_ino)
    # 1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE ...; the device is not compared: btrfs reports two for one.
    rows = (line.split() for line in listed.splitlines() if " FLOCK " in line and "->" not in line)
    pids = {row[4] for row in rows if row[5].rpartition(":")[2] == inode}
    return int(named.strip()) if named.strip() in pids else None


def environment(pid: int) -> dict[str, str] | None:
    """The environment that a process was started with; None if it cannot be read."""
    try:
        raw = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    pairs = (item.decode(errors="surrogateescape").partition("=") for item in raw.split(b"\0") if item)
    return {name: value for name, _, value in pairs}


def command_line(pid: int) -> list[str]:
    """The arguments that a process was started with; empty strings only if it is gone."""
    return (_read(PROC / str(pid) / "cmdline") or "").split("\0")


def name(pid: int) -> str:
    """The name of a process, which it may change itself (`comm` of proc(5)); empty if it has ended."""
    return (_read(Path(f"/proc/{pid}/comm")) or "").strip()


def show_as(word: str, instead: str) -> None:
    """Make `ps` show another word in this process's command line, which must not be longer."""
    was, now = (
        b"".join(os.fsencode(instead if each == replaced else each) + b"\0" for each in sys.orig_argv)
        for replaced in (None, word)
    )
    start, end = map(int, (PROC / "self" / "stat").read_bytes().rpartition(b")")[2].split()[_ARGUMENTS])
    if len(now) <= len(was) == end - start:
        with (PROC / "self" / "mem").open("r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(now.ljust(len(was), b"\0"))


def directory(pid: int) -> Path | None:
    """The working directory of a process."""
    try:
        return (PROC / str(pid) / "cwd").readlink()
    except OSError:
        return None


def user(pid: int) -> int | None:
    """The effective uid of a process; the owner of its /proc directory is root if it is not dumpable."""
    words = _words_after("Uid:", PROC / str(pid) / "status")
    return int(words[1]) if words else None


def open_files(pid: int | str = "self") -> tuple[float, float] | None:
    """The soft and the hard limit on open files of a process."""
    words = _words_after("Max open files", PROC / str(pid) / "limits")
    limits = [float("inf" if word == "unlimited" else word) for word in words[:2]]
    return (limits[0], limits[1]) if limits else None


def _words_after(start: str, path: Path) -> list[str]:
    lines = (_read(path) or "").splitlines()
    return next((line.removeprefix(start).split() for line in lines if line.startswith(start)), [])


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="surrogateescape")
    except OSError:
        return None
