"""Explains why a connection to one of the daemon's sockets failed, and the remedy."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import NamedTuple

from daemon.host.paths import CONTROL

_PLACES = (
    "/etc/systemd/user",
    "/run/systemd/user",
    "/usr/local/lib/systemd/user",
    "/usr/lib/systemd/user",
)  # directories of user units of administrators and packages

_NAME = "name its socket with --socket P or $MCPD_SOCKET"


class Door(NamedTuple):
    """One of the daemon's two sockets, as messages name it."""

    unit: str  # the systemd unit that creates the socket
    name: str  # the way to name another socket


CLIENTS = Door("mcpd.socket", _NAME)

OPERATORS = Door(
    "mcpd.service",
    f"{_NAME} ({CONTROL} is next to it; if `listen.controlSocket` names another one, pass it with --control P)",
)  # the daemon binds the control socket itself, so it does not exist before the service runs

_START = (
    "Start the daemon with `mcpd start` (`mcpd run` in the foreground{unit}); if it listens elsewhere, {name}."
)
_ALLOW = (
    "Run this as the daemon's user, or give your user access (the socket's group, `listen.uids` in the"
    " configuration); for a daemon of your own `mcpd run --socket P`{unit}, and {name}."
)
_FIX = "Check the path: {name}. To start a daemon: `mcpd start`, `mcpd run`{unit}."
_WAIT = "Try again; if that does not help, start it again: `mcpd stop` and `mcpd run`{unit}."

_REASONS = {
    errno.ENOENT: ("there is no such socket (ENOENT): the daemon is not running, or listens elsewhere", _START),
    errno.ECONNREFUSED: (
        "nobody listens on it (ECONNREFUSED): the daemon that made it has ended, or it is not a socket",
        _START,
    ),
    errno.EACCES: ("this user may not connect to it (EACCES)", _ALLOW),
    errno.EPERM: ("this user may not connect to it (EPERM)", _ALLOW),
    errno.ENOTDIR: ("a part of the path is not a directory (ENOTDIR)", _FIX),
    errno.EAGAIN: ("too many others are waiting for it (EAGAIN): the daemon is overloaded or hangs", _WAIT),
}


def explain(path: str, error: OSError, door: Door) -> tuple[str, str]:
    """Explain a failed connection: the socket and the failure as a clause, and the remedy as sentences."""
    # Python refuses a path over 107 bytes without an errno.
    reason, remedy = _REASONS.get(error.errno or 0, (error.strerror or str(error), _FIX))
    unit = f", `systemctl --user start {door.unit}`" if is_installed(door.unit, os.environ) else ""
    return f"cannot reach the daemon at {path}: {reason}", remedy.format(unit=unit, name=door.name)


def is_installed(unit: str, environ: Mapping[str, str]) -> bool:
    """Whether systemd would find this user unit (systemd.unit(5), user unit search path)."""
    home = environ.get("HOME", "/")
    own = (
        environ.get("XDG_CONFIG_HOME") or f"{home}/.config",
        environ.get("XDG_DATA_HOME") or f"{home}/.local/share",
    )
    places = (*(f"{each}/systemd/user" for each in own), *_PLACES)
    return any(os.path.lexists(f"{place}/{unit}") for place in places)
