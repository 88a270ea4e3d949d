"""Checks whether the listener on a socket can be the daemon: anybody can make one in a directory like /tmp.

An untrusted peer gets no prompt, no argument and no password, and none of its answers is passed on. Standard
library only, and light: `mcpd connect` is started for every window of every agent.
"""

from __future__ import annotations

import _socket
import os
from stat import S_ISLNK
from sys import byteorder

OTHERS_WRITE = 0o022
"""Mode bits of a directory in which others can create a socket, even if it is sticky."""


def distrust(link: _socket.socket, path: str) -> str:
    """Why the listener at the other end is not trusted, and what to do about it; empty if it is.

    Trusted are this user, root, and a user whose socket is in a place where only these could have put it, or
    that user in a directory that they gave to it: the user of the system service is one.

    Args:
        link: a connected socket.
        path: the path that it is connected to.
    """
    # pid, uid, gid (unix(7), SO_PEERCRED) of the process that called listen(2).
    raw = link.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    uid = int.from_bytes(raw[4:8], byteorder)
    if uid in {os.geteuid(), 0} or is_vouched_for(path, uid):
        return ""
    return (
        f"uid {uid} listens on {path}, and anybody could have put a socket there: nothing was sent. If that is"
        f" your daemon, let it listen in a directory that only it, you or root can write to, or run this as"
        f" that user (`sudo -u '#{uid}' …`); else somebody pretends to be it, and the path is to be removed"
    )


def is_vouched_for(path: str, uid: int) -> bool:
    """Whether only we, root and this user could have created the file at a path."""
    path = os.path.abspath(path)  # noqa: PTH100 - pathlib takes 7 ms
    return all(_leads_on(each, uid) for each in {path, os.path.realpath(path)})


def _leads_on(path: str, uid: int) -> bool:
    """Whether each directory above belongs to us or root or, below one of theirs, to this user."""
    ours, given = {os.geteuid(), 0}, False
    for place in _above(path):
        try:
            found = os.lstat(place)
        except OSError:
            return False
        if found.st_uid == uid and uid not in ours:
            given = True
        elif given or found.st_uid not in ours or _is_open(found.st_mode):
            return False
    return True


def _is_open(mode: int) -> bool:
    # A link has no mode of its own; its target is checked separately.
    return bool(mode & OTHERS_WRITE) and not S_ISLNK(mode)


def _above(path: str) -> list[str]:
    """The directories above a path, from the root down."""
    found: list[str] = []
    while (above := os.path.dirname(path)) != path:  # noqa: PTH120 - as above
        found.append(above)
        path = above
    return found[::-1]
