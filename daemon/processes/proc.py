"""What the kernel knows of sockets, locks and processes, read from /proc: it takes no lock and wakes nobody.

To connect to a socket that systemd holds would start the daemon, and to try a lock could keep a daemon from it
that starts at that moment. What cannot be read is None: another user's process, a kernel that hides it.
"""

from __future__ import annotations

import os
from pathlib import Path

PROC = Path("/proc")

_ACCEPTING = 1 << 16
"""__SO_ACCEPTCON: somebody has called listen(2) on it."""


def may(path: Path, mode: int) -> bool:
    """Whether this command may use a file so (`os.R_OK`, `os.W_OK`, `os.X_OK`), as open(2) would decide."""
    return os.access(path, mode, effective_ids=True)


def listens(path: Path) -> bool | None:
    """Whether somebody listens on a unix socket, in our network namespace."""
    table = _read(PROC / "net" / "unix")
    if table is None:
        return None
    # Num RefCount Protocol Flags Type St Inode Path
    rows = (line.split(None, 7) for line in table.splitlines()[1:])
    return any(len(row) == 8 and row[7] == str(path) and int(row[3], 16) & _ACCEPTING for row in rows)  # noqa: PLR2004


def lock_holder(lock: Path) -> int | None:
    """The process that holds the flock(2) of one of our lock files; None if nobody does."""
    table, named = _read(PROC / "locks"), _read(lock)
    if table is None or named is None:
        return None
    try:
        inode = str(lock.stat().st_ino)
    except OSError:
        return None
    # 1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE ...; the device is not compared: btrfs reports two for one.
    rows = (line.split() for line in table.splitlines() if " FLOCK " in line and "->" not in line)
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
