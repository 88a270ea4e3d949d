"""Who besides us can write a configuration: it names the programs that run as us, so nobody may.

As sshd's StrictModes, of the file, of every link that leads to it and of every directory above. Unlike there,
owners are looked at in sticky directories only, for a container's root reads its user's file; and a group may
write that is our own or the owner's own, for many distributions make one for each user. `mcpd doctor` warns of
owners and of groups that are shared.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.config.jsonc import ROOT
from daemon.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_LINKS = 40
"""Symbolic links that are followed: as many as the kernel follows (path_resolution(7))."""

_WHY = "and with it have mcpd run any program as this user, so nothing was read:"


def open_to_others(path: Path) -> list[Fault]:
    """What others can write or replace, of all that decides which file is read.

    Raises:
        OSError: it cannot be looked at.
    """
    way = reversed(dict.fromkeys(_way_to(path)))
    return [Fault(path=ROOT, message=message) for each in way for message in _openings(each)]


def _way_to(path: Path) -> Iterator[Path]:
    """Every directory, every symbolic link and the file, in the order in which the kernel comes by them."""
    at, links = Path("/"), 0
    ahead = [*reversed(path.absolute().parts[1:])]
    yield at
    while ahead:
        name = ahead.pop()
        step = at.parent if name == ".." else at / name
        yield step
        if not step.is_symlink():
            at = step
            continue
        links += 1
        if links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = step.readlink()
        at = Path("/") if target.is_absolute() else at
        ahead += reversed(target.parts[target.is_absolute() :])


def _openings(path: Path) -> Iterator[str]:
    """How others can write a file, or replace what is in a directory, and what ends it."""
    found = path.lstat()
    above = path.parent.stat().st_mode
    shared = above & stat.S_ISVTX and above & stat.S_IWOTH
    if shared and found.st_uid not in {0, os.geteuid()} and not _is_fixed(path.parent):
        owner = f"user {found.st_uid} owns {path} in a directory that every user can write"
        yield f"{owner}, may replace it {_WHY} move it to a directory of your own"
    for who, change in _writers(path, found):
        yield (
            f"{who} can write {path}, {_WHY} `chmod {change} {path}`, or where modes are fixed"
            " (WSL's /mnt/c, vfat) move the configuration to your home directory"
        )


def _writers(path: Path, found: os.stat_result) -> Iterator[tuple[str, str]]:
    """Who else can write, and the mode that ends it."""
    mode = found.st_mode
    # In a sticky directory such as /tmp others can write, but not replace what is ours.
    if not (stat.S_ISREG(mode) or (stat.S_ISDIR(mode) and not mode & stat.S_ISVTX)):
        return
    ours = {0, found.st_uid, os.getegid(), *os.getgroups()}
    everybody, group = mode & stat.S_IWOTH, mode & stat.S_IWGRP and found.st_gid not in ours
    if not (everybody or group) or _is_fixed(path):
        return
    yield ("every user of this machine", "o-w") if everybody else (f"group {found.st_gid}", "g-w")


def _is_fixed(path: Path) -> bool:
    """Whether nobody can write there: a ConfigMap of Kubernetes is such a directory with mode 777."""
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
