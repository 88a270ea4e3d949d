"""Checks the two sockets: can they be bound, who listens, would clients find them. Connects to neither."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from daemon import __version__
from daemon.cli.doctor.findings import found
from daemon.host import paths
from daemon.processes import proc

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path

    from daemon.cli.doctor.findings import Finding
    from daemon.cli.doctor.scene import Running, Scene

LONGEST = 107
"""Longest path of a unix socket, in bytes (unix(7): sun_path has 108, including the final NUL)."""


def check(scene: Scene) -> Iterator[Finding]:
    """Findings about where the daemon is reached."""
    if scene.running is not None:
        yield from _daemon(scene.running)
    elif scene.silence:
        yield _silent(scene)
    else:
        yield found("daemon-absent", path=scene.control)
    for users, path in (("clients", scene.front), ("operators", scene.control)):
        problems = list(_socket(path, scene))
        yield from problems or [_sound(path, users)]
    looked = paths.client_socket(scene.environ)
    if looked != scene.front and not _same(looked, scene.front):
        yield found("clients-look-elsewhere", looked=looked, path=scene.front)


def _daemon(running: Running) -> Iterator[Finding]:
    version = running.status["daemon"]["version"]
    yield found("daemon-runs", version=version, pid=running.pid)
    if version != __version__:
        yield found("daemon-version", version=version, own=__version__)
    if running.uid not in {None, os.geteuid()}:
        yield found("daemon-user", uid=running.uid, own=os.geteuid())


def _silent(scene: Scene) -> Finding:
    if proc.listens(scene.control) is False:
        return found("daemon-ended", path=scene.control)
    holder = proc.lock_holder(scene.control.with_name(scene.control.name + ".lock"))
    who = f"pid {holder}" if holder else "the process that listens there"
    return found("daemon-silent", silence=scene.silence, who=who)


def _socket(path: Path, scene: Scene) -> Iterator[Finding]:
    length = len(os.fsencode(path))
    if length > LONGEST:
        yield found("socket-path-too-long", path=path, length=length, longest=LONGEST)
        return
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            yield found("socket-is-none", path=path)
    except FileNotFoundError:
        pass
    except OSError as error:
        yield found("socket-closed", path=path, problem=error.strerror)
    yield from _directory(path.parent, {0, os.geteuid(), scene.running and scene.running.uid})


def _directory(directory: Path, owners: Container[object]) -> Iterator[Finding]:
    """Findings about a directory that `host.sockets.bind` would refuse."""
    try:
        status = directory.stat()
    except FileNotFoundError:
        above = next(parent for parent in directory.parents if parent.exists())
        if not proc.may(above, os.W_OK | os.X_OK):
            yield found("socket-directory-impossible", path=directory, above=above)
        return
    except OSError:
        return
    if not stat.S_ISDIR(status.st_mode):
        yield found("socket-directory-is-none", path=directory)
    elif status.st_uid not in owners:
        yield found("socket-directory-of-another-user", path=directory, uid=status.st_uid)
    elif status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        yield found("socket-directory-open", path=directory)


def _sound(path: Path, users: str) -> Finding:
    """The state of a socket that has no problem."""
    if not os.path.lexists(path):
        return found("socket-absent", path=path, users=users)
    listens = proc.listens(path)
    if listens is None:
        return found("socket-present", path=path, users=users)
    return found("socket-served" if listens else "socket-left-over", path=path, users=users)


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
