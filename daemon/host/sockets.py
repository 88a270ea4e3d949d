"""Binds mcpd's unix sockets: with private access, safely over a stale file, never over a running daemon.

A lock file next to the socket decides who serves it (flock(2)). Standard library only: sockets are bound before
anything large is imported.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from daemon.errors import DaemonRunning
from daemon.host.private_files import own_file, take


def reason(error: BaseException) -> str:
    """The root cause of a failure in words, as libraries wrap the one useful message in several others."""
    text = ""
    for cause in causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return cause.verify_message
        if isinstance(cause, ssl.SSLError | socket.gaierror):
            text = cause.strerror or text
        elif isinstance(cause, OSError) and cause.errno:
            # Not its strerror: trio puts the address in front, and our text has it already.
            text = os.strerror(cause.errno)
    return text or str(error) or type(error).__name__


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error, its causes and contexts, outermost first."""
    waiting, seen = [error], set[int]()
    while waiting:
        here = waiting.pop(0)
        if id(here) in seen:
            continue
        seen.add(id(here))
        yield here
        if isinstance(here, BaseExceptionGroup):
            waiting += here.exceptions
        # Even a suppressed context: the HTTP library hides the cause behind `from None`.
        waiting += [inner for inner in (here.__cause__, here.__context__) if inner is not None]


BACKLOG = 512
"""Most connections that the kernel queues while the daemon starts or is busy (listen(2))."""

DYING_SECONDS = 0.5
"""Seconds to wait for a socket that is still served although its lock is free: the descriptors of a killed
process, and of its child before exec, are closed one by one, the lock before the socket."""

_held: list[int] = []


def bind(path: Path) -> socket.socket:
    """Listen on a unix socket with mode 0600, in a directory of this user with mode 0700.

    Raises `DaemonRunning`: another process serves it already; `OSError`: the directory or file cannot be used.
    """
    private_directory(path.parent)
    _lock(path)
    if _stays_served(path):
        raise DaemonRunning(f"{path} is served by another program. Stop it, or choose another --socket.")
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    old = os.umask(0o177)
    try:
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        # Python itself refuses a path over 107 bytes, without an errno.
        number, reason = error.errno or errno.ENAMETOOLONG, error.strerror or str(error)
        raise OSError(number, f"cannot bind {path}: {reason}") from None
    finally:
        os.umask(old)
    listener.listen(BACKLOG)
    return listener


def unbind(listener: socket.socket, path: Path) -> None:
    """Close the socket and remove its file; the lock file stays, so that the next start is safe."""
    listener.close()
    path.unlink(missing_ok=True)


def private_directory(directory: Path) -> None:
    """Create or check a private directory; raises `OSError`: another user's, open to others, or impossible."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.stat()
    if found.st_uid not in {os.geteuid(), 0}:
        raise PermissionError(
            errno.EACCES, f"{directory} belongs to uid {found.st_uid}, not to this user: choose another"
        )
    # In a sticky directory such as /tmp others can write, but not replace our file.
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        raise PermissionError(errno.EACCES, f"{directory} is writable by others: chmod 700 {directory}")


def _remove_stale(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(errno.EEXIST, f"{path} exists and is not a socket: choose another --socket")
        path.unlink()


def _lock(path: Path) -> None:
    lock = own_file(path.with_name(path.name + ".lock"))
    holder = take(lock)
    if holder is not None:
        os.close(lock)
        raise DaemonRunning(
            f"a daemon is already running: pid {holder} serves {path}. Stop it, or choose another --socket."
        )
    _held.append(lock)


def _stays_served(path: Path) -> bool:
    until = time.monotonic() + DYING_SECONDS
    while _is_served(path):
        if time.monotonic() > until:
            return True
        time.sleep(DYING_SECONDS / 50)
    return False


def _is_served(path: Path) -> bool:
    """Whether anything serves a socket: a daemon without this lock, or another program."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError as error:
            return error.errno == errno.EAGAIN
    return True
