"""Who serves the daemon's sockets, and what commands say of that."""

from __future__ import annotations

import socket
import sys
import time
from typing import TYPE_CHECKING

import attrs

from daemon.errors import McpdError
from daemon.host import paths
from daemon.host.trust import distrust
from daemon.processes import proc

if TYPE_CHECKING:
    from pathlib import Path

EX_FAULT, EX_CONFIG = 1, 78
"""Exit statuses of commands: not done, and a faulty configuration."""

EX_NOT_FOR_WINDOW = 77
"""Exit status of a daemon that the configuration keeps from the window that asked for it (EX_NOPERM)."""

SHOW_LOG = "mcpd logs --daemon"
"""How the daemon's log is shown."""

LOOK_SECONDS = 0.05
"""Interval between two looks at a lock that somebody else holds."""

CONNECT_SECONDS = 2.0
"""How long a listener has to let us in; the kernel does that at once."""


class NotStarted(McpdError):
    """No daemon came to run; the text says why and what to do, `status` is an exit status."""

    def __init__(self, text: str, status: int = EX_FAULT) -> None:
        super().__init__(text)
        self.status = status


class NotForWindow(NotStarted):
    """A window asked for a daemon that it is not to have; with an empty text, its own words say why."""


@attrs.frozen(kw_only=True)
class RunningDaemon:
    """A daemon that runs."""

    how: str
    """Who runs it: `systemd`, `detached`, or `other` for one that was there already."""
    started: bool
    """Whether it was started for this."""
    pid: int | None
    """Its process; None if that cannot be seen from here."""
    socket: str
    """The path of the socket that clients connect to."""
    log: str
    """How its log is shown: a command."""


def found(front: Path) -> RunningDaemon | None:
    """The daemon that serves a socket; None if nobody listens.

    Raises:
        NotStarted: whoever listens cannot be the daemon, or does not let us in.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(CONNECT_SECONDS)
        try:
            link.connect(str(front))
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        except BlockingIOError:
            # Its queue is full, so somebody serves it.
            return RunningDaemon(how="other", started=False, pid=None, socket=str(front), log=SHOW_LOG)
        except OSError as error:
            raise NotStarted(f"cannot reach {front}: {error.strerror or error}") from None
        if reason := distrust(link, str(front)):
            raise NotStarted(reason)
    pid = listener(paths.control_beside(front))
    return RunningDaemon(how="other", started=False, pid=pid, socket=str(front), log=SHOW_LOG)


def listener(path: Path) -> int | None:
    """The process of ours that listens on a socket; None if there is none."""
    return who_listens(path)[0]


def who_listens(path: Path) -> tuple[int | None, str]:
    """The process of ours that listens on a socket, or why its listener is not trusted; None and "": nobody."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(CONNECT_SECONDS)
        try:
            link.connect(str(path))
        except OSError:
            return None, ""
        if reason := distrust(link, str(path)):
            return None, reason
        # pid, uid, gid (unix(7), SO_PEERCRED); 0 in another namespace of processes.
        raw = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(raw[:4], sys.byteorder) or None, ""


def holder(front: Path) -> int | None:
    """The daemon that holds a socket, also while it does not serve it yet or any more."""
    return proc.lock_holder(front.with_name(front.name + ".lock"))


def pause(deadline: float, why: str) -> None:
    """Wait until it is time to look again.

    Raises:
        NotStarted: the deadline, on the clock `time.monotonic`, is over; `why` says what was waited for.
    """
    if time.monotonic() >= deadline:
        raise NotStarted(why)
    time.sleep(LOOK_SECONDS)
