"""Who besides us can write a configuration: it names the programs that run as us, so nobody may.

As sshd's StrictModes, of the file and of every directory above it. Unlike there, owners are not looked at: a
container's root reads its user's file; and a group may write that is our own or the owner's own, for many
distributions make one for each user. `mcpd doctor` warns of owners and of groups that are shared.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from daemon.config.trail import ROOT
from daemon.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def open_to_others(path: Path) -> list[Fault]:
    """What others can write, of a file and of the directories that lead to it.

    Raises:
        OSError: it cannot be looked at.
    """
    why = "and with it have mcpd run any program as this user, so nothing was read:"
    return [
        Fault(path=ROOT, message=f"{who} can write {each}, {why} `chmod {mode} {each}`")
        for each in _way_to(path)
        for who, mode in _writers(each)
    ]


def _way_to(path: Path) -> Iterator[Path]:
    """The file and its directories, as it is named and as it is found behind symbolic links."""
    found = path.resolve()
    yield from dict.fromkeys((found, *path.absolute().parents, *found.parents))


def _writers(path: Path) -> Iterator[tuple[str, str]]:
    """Who else can write a file, or replace what is in a directory, and the mode that ends it."""
    found = path.stat()
    mode = found.st_mode
    # In a sticky directory such as /tmp others can write, but not replace what is ours.
    if not (stat.S_ISREG(mode) or (stat.S_ISDIR(mode) and not mode & stat.S_ISVTX)):
        return
    ours = {0, found.st_uid, os.getegid(), *os.getgroups()}
    everybody, group = mode & stat.S_IWOTH, mode & stat.S_IWGRP and found.st_gid not in ours
    # A ConfigMap of Kubernetes is a directory with mode 777 that nobody can write.
    if not (everybody or group) or os.statvfs(path).f_flag & os.ST_RDONLY:
        return
    yield ("every user of this machine", "o-w") if everybody else (f"group {found.st_gid}", "g-w")
