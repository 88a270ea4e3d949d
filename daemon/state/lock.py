"""One daemon for one state file: two would each overwrite what the other has learned.

The kernel drops a lock of flock(2) with its holder, however that died, so a file that is left over locks nobody
out. It is never removed: whoever waits for the old file and whoever makes a new one would both hold a lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

from daemon.errors import DaemonRunning
from daemon.sockets import private_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


@contextlib.contextmanager
def hold(path: Path) -> Iterator[None]:
    """Keep other daemons from the state in `path` as long as the block runs.

    Its directory is made, for us alone, if there is none.

    Raises:
        DaemonRunning: another process holds it; the text names its pid.
        OSError: the lock file beside it cannot be made, or others can write to its directory.
    """
    private_directory(path.parent)
    lock = os.open(path.with_name(path.name + ".lock"), _FLAGS, 0o600)
    try:
        _take(lock, path)
        yield
    finally:
        os.close(lock)


def _take(lock: int, path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
        raise DaemonRunning(
            f"another daemon, pid {holder}, keeps its state in {path}. Stop it, or give this one a --state-dir"
            " of its own."
        ) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, b"%d\n" % os.getpid(), 0)
