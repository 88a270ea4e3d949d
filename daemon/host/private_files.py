"""Private files that are replaced as a whole and changed under a lock, possibly by several programs. Blocks."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

FORK_SECONDS = 10.0
"""Seconds to wait for the lock of a dead holder: a child that a killed daemon was starting holds it until its
program begins, which takes a while on a slow disk."""

_LOOK_SECONDS = 0.02


def take(lock: int) -> str | None:
    """Take the flock(2) on an open file and write this pid into it; return None, or the holder's pid."""
    until = time.monotonic() + FORK_SECONDS
    while not try_to_take(lock):
        holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
        if not is_gone(holder) or time.monotonic() > until:
            return holder or "unknown"
        time.sleep(_LOOK_SECONDS)
    os.ftruncate(lock, 0)
    os.pwrite(lock, b"%d\n" % os.getpid(), 0)
    return None


def is_gone(pid: str) -> bool:
    """Whether a process has ended, reaped or not; False if unknown."""
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


def try_to_take(lock: int) -> bool:
    """Take the lock on an open file unless another process has it; returns whether it was taken."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


LOOKS = 100
"""Most attempts to take a lock while waiting for it."""


def safely(path: str, flags: int) -> int:
    """An opener for `open` that follows no link, and does not wait for a pipe's writer."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def own_file(path: str | Path, flags: int = os.O_RDWR) -> int:
    """Open a regular file of mcpd, created with private access if it is missing; never waits.

    Raises `OSError` with a reason: it is something else, such as a link or a pipe, or cannot be used.
    """
    number = errno.EINVAL
    try:
        opened = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        if stat.S_ISREG(os.fstat(opened).st_mode):
            return opened
        os.close(opened)
    except OSError as error:
        # A link, what nobody reads, and a directory.
        if error.errno not in {errno.ELOOP, errno.ENXIO, errno.EISDIR}:
            raise
        number = error.errno
    raise OSError(number, f"{path} is not a regular file: remove it")


def content(path: Path, most: int, shut: int = 0o077, *others: int) -> bytes | None:
    """The first bytes of a private file; None if it does not exist. Raises `OSError` as `refuse_open` does."""
    try:
        with open(path, "rb", opener=safely) as file:
            refuse_open(os.fstat(file.fileno()), path, stat.S_ISREG, shut, *others)
            return file.read(most)
    except FileNotFoundError:
        return None


def refuse_open(
    found: os.stat_result, path: Path, fits: Callable[[int], bool], shut: int = 0o077, *others: int
) -> None:
    """Raise `OSError` unless kind (`fits`), owner (this user, or `others`) and mode (not `shut`) are right."""
    if not fits(found.st_mode):
        raise OSError(errno.EINVAL, f"{path} is a link, or not of the expected kind: remove it")
    if found.st_uid not in {os.geteuid(), *others}:
        text = f"{path} belongs to uid {found.st_uid}, not to this user: remove it, or run this as that user"
        raise PermissionError(errno.EACCES, text)
    if found.st_mode & shut:
        mended = f"chmod {found.st_mode & 0o700:o} {path}, and renew the secrets that they may have read"
        raise PermissionError(errno.EACCES, f"others can read or write {path}: {mended}")


def replace(path: Path, content: bytes) -> None:
    """Replace a private file in one step, with its lock held. Raises `OSError` if unchanged."""
    # One name is enough: only the holder of the lock writes, and a rest of somebody killed is no loss.
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    made = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(made, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


@contextlib.contextmanager
def locked(path: Path, seconds: float) -> Iterator[None]:
    """Hold a file's lock, which is a permanent file next to it: removing it could let two holders in.

    Raises `TimeoutError`: another process has held it for all these seconds; `OSError`: it cannot be created.
    """
    lock = own_file(path.with_name(f"{path.name}.lock"))
    until = time.monotonic() + seconds
    try:
        while not try_to_take(lock):
            if time.monotonic() > until:
                raise TimeoutError
            time.sleep(seconds / LOOKS)
        yield
    finally:
        os.close(lock)
