"""Stops the daemon, whoever has started it."""

from __future__ import annotations

import os
import select
import signal
from typing import TYPE_CHECKING

from daemon.errors import McpdError
from daemon.setup.running.presence import who_listens
from daemon.setup.running.systemctl import HTTP_SOCKET, SCOPES, SERVICE, SOCKET, SystemdRefused, installed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from daemon.setup.running.systemctl import Systemctl

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
