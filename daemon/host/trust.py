"""Whether what listens on a socket may be the daemon: anybody can make one in a directory such as /tmp.

A peer that is not trusted gets no prompt, no argument and no password, and none of its answers is passed on.
Standard library only, and light: `mcpd connect` is started for every window of every agent.
"""

from __future__ import annotations

import _socket
import os
from stat import S_ISLNK
from sys import byteorder

OTHERS_WRITE = 0o022
"""Modes of a directory in which somebody else can put a socket, also if it is sticky."""


def distrust(link: _socket.socket, path: str) -> str:
    """Why the peer that listens at the other end is not to be trusted, and what to do; empty if it is.

    Trusted are this user, root, and a user whose socket lies where only these, or that user in a directory that
    they gave to it, could have put it: the user of the system service is one.

    Args:
        link: connected.
        path: what it was connected to.
    """
    # pid, uid, gid (unix(7), SO_PEERCRED): of whoever called listen(2).
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
    """Whether nobody but us, root and a user could have put something at a path."""
    path = os.path.abspath(path)  # noqa: PTH100 - pathlib takes 7 ms
    return all(_leads_on(each, uid) for each in {path, os.path.realpath(path)})


def _leads_on(path: str, uid: int) -> bool:
    """Whether each directory on the way belongs to us, to root, or from one of these on to this user."""
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
    # A link has no mode of its own; what it leads to is looked at by itself.
    return bool(mode & OTHERS_WRITE) and not S_ISLNK(mode)


def _above(path: str) -> list[str]:
    """The directories that a path goes through, from the root on."""
    found: list[str] = []
    while (above := os.path.dirname(path)) != path:  # noqa: PTH120 - as above
        found.append(above)
        path = above
    return found[::-1]
