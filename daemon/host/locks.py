"""Locks that a daemon holds for its life, in files that name the holder; the kernel releases them when it ends.

Standard library only: the first are taken before anything heavy is imported.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

FORK_SECONDS = 10.0
"""How long, in seconds, to wait for the lock of a holder that is gone. A child that a killed daemon was just
starting has the lock until its program begins: on a slow disk or a busy machine that takes a while, and whoever
starts the daemon again at once would be told that it is running."""

_LOOK_SECONDS = 0.02


def take(lock: int) -> str | None:
    """Take the flock(2) on an open file, and write our pid into it.

    Returns:
        None, or the pid of whoever has it.
    """
    until = time.monotonic() + FORK_SECONDS
    while not _taken(lock):
        holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
        if not is_gone(holder) or time.monotonic() > until:
            return holder or "unknown"
        time.sleep(_LOOK_SECONDS)
    os.ftruncate(lock, 0)
    os.pwrite(lock, b"%d\n" % os.getpid(), 0)
    return None


def is_gone(pid: str) -> bool:
    """Whether a process has ended, which may not have been waited for; False if that cannot be told."""
    if not pid.isdecimal():
        return False
    try:
        # After the name, which may have brackets itself.
        state = (Path("/proc") / pid / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    except OSError:
        return False
    return state in {"Z", "X"}


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
