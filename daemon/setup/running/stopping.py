"""Stops the daemon, whoever has started it."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING

import attrs

from daemon.errors import McpdError
from daemon.host import paths
from daemon.host.paths import distrust
from daemon.processes import proc
from daemon.setup.running.systemctl import HTTP_SOCKET, SCOPES, SERVICE, SOCKET, SystemdRefused, installed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from daemon.setup.running.systemctl import Systemctl


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


ACTIVE = frozenset({"active", "activating", "reloading"})
"""States of a unit that runs, or listens."""


class NotStopped(McpdError):
    """A daemon goes on running; the text says why and what to do."""


def stop(environ: Mapping[str, str], control: Path, seconds: float) -> int | None:
    """End the daemon, and wait until it has ended.

    Args:
        environ: the environment, which says where systemd is.
        control: the operators' socket.
        seconds: how long to wait.

    Returns:
        The process that has ended; 0 if that was systemd's; None: none ran.

    Raises:
        NotStopped: it goes on running, or whoever listens is not trusted.
    """
    pid, distrusted = who_listens(control)
    if distrusted:
        raise NotStopped(distrusted)
    for scope in SCOPES:
        manager = installed(environ, scope)
        if manager is not None and _is_of(manager, pid):
            try:
                manager.tell("stop", SOCKET, *([HTTP_SOCKET] if manager.show(HTTP_SOCKET) else []), SERVICE)
            except SystemdRefused as error:
                raise NotStopped(f"the {scope}'s systemd did not stop it: {error}") from None
            return 0
    if pid is None:
        return None
    end(pid, seconds)
    return pid


def _is_of(manager: Systemctl, pid: int | None) -> bool:
    """Whether the daemon that runs is this manager's, or none runs and its user's socket would start one."""
    if pid is None:
        # Nobody's `mcpd stop` means the system's, unless that is what runs.
        states = (manager.show(unit).get("ActiveState") for unit in (SERVICE, SOCKET))
        return manager.scope == "user" and not ACTIVE.isdisjoint(states)
    return manager.pid() == pid


def end(pid: int, seconds: float) -> None:
    """End a daemon, and wait until it has ended.

    Raises:
        NotStopped: it has not, or is another user's.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        ended, _, _ = select.select([pidfd], [], [], seconds)
    except PermissionError:
        raise NotStopped(
            f"pid {pid} belongs to another user: the system's daemon is stopped with `sudo systemctl stop"
            f" {SOCKET} {SERVICE}`"
        ) from None
    finally:
        os.close(pidfd)
    if not ended:
        raise NotStopped(f"pid {pid} has not ended within {seconds:g} s; `kill -9 {pid}` ends it at once")
