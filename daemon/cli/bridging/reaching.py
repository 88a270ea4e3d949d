"""The way to the daemon: a connection, or why there is none. Standard library only."""

from __future__ import annotations

import _socket

from daemon.cli.trust import distrust

TURNED_AWAY = (
    "the daemon at {path} closed the connection before it said anything: it may not accept this user"
    " (listen.uids), this may be a process of one of its servers (listen.servers names those that may be"
    " clients), or its configuration may be faulty. See `mcpd check` and the daemon's log."
)
"""Somebody listens, and hangs up on us at once."""

HUNG_UP = (
    "the daemon at {path} closed the connection. Its log says why; if it does not come back, start it:"
    " `mcpd run`, or `systemctl --user start mcpd`."
)
"""It was there."""

SILENT = (
    "the daemon at {path} took the connection and has not answered yet: it is starting, hangs, or is too"
    " busy. If that lasts, see its log; `systemctl --user restart mcpd`, or `mcpd run` anew, restarts it."
)
"""It is connected, and that is all we know."""

MUTE = (
    "the daemon at {path} took the connection and said nothing for {seconds:.0f} s: it hangs, or is overloaded."
    " See its log; `systemctl --user restart mcpd`, or `mcpd run` anew, restarts it."
)
"""It may be there."""


def reach(path: str) -> tuple[_socket.socket | None, str]:
    """Connect, without waiting, to whoever listens and may be the daemon.

    Returns:
        The connection, which never blocks; if there is none, why, and what to do.
    """
    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    link.setblocking(False)
    try:
        link.connect(path)
        reason = distrust(link, path)
        trouble = f"{reason}." if reason else ""
    except OSError as error:
        from daemon.cli.unreachable import CLIENTS, explain  # noqa: PLC0415 - only a failure pays for it

        trouble = ".\n".join(explain(path, error, CLIENTS))
    if trouble:
        link.close()
        return None, trouble
    return link, ""
