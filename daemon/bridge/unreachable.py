"""Explains why nobody answers on a socket, and what to do about it. Standard library only."""

from __future__ import annotations

import errno
from typing import NamedTuple

from daemon.host.paths import CONTROL

_NAME = "name its socket with --socket P or $MCPD_SOCKET"


class Door(NamedTuple):
    """One of the daemon's two sockets, as messages name it."""

    unit: str
    """The systemd unit that brings the socket into being."""
    name: str
    """How to name another socket."""


CLIENTS = Door("mcpd.socket", _NAME)

OPERATORS = Door(
    "mcpd.service",
    f"{_NAME} ({CONTROL} lies beside it; where `listen.controlSocket` says otherwise, --control P names that)",
)
"""The control socket. The daemon binds it itself, so it does not exist before the service runs."""

_START = (
    "Start the daemon with `mcpd start` (`mcpd run` in the foreground, `systemctl --user start {unit}`); if it"
    " listens elsewhere, {name}."
)
_ALLOW = (
    "Run this as the daemon's user, or let yours in (the socket's group, `listen.uids` in the configuration);"
    " for a daemon of your own `mcpd run --socket P` or `systemctl --user start {unit}`, and {name}."
)
_FIX = "Check the path: {name}. `mcpd run` and `systemctl --user start {unit}` start a daemon."
_WAIT = "Try again; if it stays so, restart it: `systemctl --user restart mcpd`, or `mcpd run` again."

_REASONS = {
    errno.ENOENT: ("there is no such socket (ENOENT): the daemon is not running, or listens elsewhere", _START),
    errno.ECONNREFUSED: (
        "nobody listens on it (ECONNREFUSED): the daemon that made it has ended, or it is no socket",
        _START,
    ),
    errno.EACCES: ("this user may not connect to it (EACCES)", _ALLOW),
    errno.EPERM: ("this user may not connect to it (EPERM)", _ALLOW),
    errno.ENOTDIR: ("a part of the path is no directory (ENOTDIR)", _FIX),
    errno.EAGAIN: ("too many others are waiting for it (EAGAIN): the daemon is overloaded or hangs", _WAIT),
}


def explain(path: str, error: OSError, door: Door) -> tuple[str, str]:
    """Which socket was tried and why that failed, as a clause; and what to do, in sentences."""
    # A path over 107 bytes is refused by Python itself, without an errno.
    reason, remedy = _REASONS.get(error.errno or 0, (error.strerror or str(error), _FIX))
    return f"cannot reach the daemon at {path}: {reason}", remedy.format(unit=door.unit, name=door.name)
