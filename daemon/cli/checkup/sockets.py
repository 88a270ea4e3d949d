"""The two sockets: can they be bound, who listens, would clients find them. Connects to neither."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from daemon import __version__, paths
from daemon.cli.checkup import kernel
from daemon.cli.checkup.scene import fault, fine, note, warning

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path

    from daemon.cli.checkup.scene import Finding, Running, Scene

LONGEST = 107
"""Bytes of a unix socket's path (unix(7): sun_path has 108, and a NUL ends it)."""


def check(scene: Scene) -> Iterator[Finding]:
    """Everything about where the daemon is reached."""
    if scene.running is not None:
        yield from _daemon(scene.running)
    elif scene.silence:
        yield _silent(scene)
    else:
        yield note(
            f"No daemon answers on {scene.control}.",
            do="`mcpd run` or `systemctl --user start mcpd.service` starts one; --socket P or $MCPD_SOCKET"
            " names one that listens elsewhere.",
        )
    for name, path in (("clients", scene.front), ("operators", scene.control)):
        problems = list(_socket(path, scene))
        yield from problems
        if not problems:
            yield fine(f"{path}, for {name}: {_state(path)}")
    yield from _found_by_clients(scene)


def _daemon(running: Running) -> Iterator[Finding]:
    daemon = running.status["daemon"]
    yield fine(f"mcpd {daemon['version']} is running, pid {running.pid}.")
    if daemon["version"] != __version__:
        yield note(
            f"The daemon is version {daemon['version']}, this command {__version__}.",
            do="Restart the daemon: `systemctl --user restart mcpd.service`, or `mcpd run` anew.",
        )
    if running.uid not in {None, os.geteuid()}:
        yield note(
            f"The daemon runs as uid {running.uid}, this command as uid {os.geteuid()}.",
            "What one of the two may read, write and start, the other may not.",
            "`sudo -u` runs this command as the daemon's user.",
        )


def _silent(scene: Scene) -> Finding:
    if kernel.listens(scene.control) is False:
        return note(
            f"{scene.control} is left over from a daemon that has ended.",
            "The next one takes it over.",
            "`mcpd run` or `systemctl --user start mcpd.service` starts one.",
        )
    holder = kernel.lock_holder(scene.control.with_name(scene.control.name + ".lock"))
    who = f"pid {holder}" if holder else "whoever listens there"
    return fault(
        f"A daemon seems to be there, and does not answer: {scene.silence}",
        do=f"See its log; end {who} if it hangs, or run this as its user.",
    )


def _socket(path: Path, scene: Scene) -> Iterator[Finding]:
    length = len(os.fsencode(path))
    if length > LONGEST:
        yield fault(
            f"The path of a socket is too long: {path}",
            f"It has {length} bytes, the kernel takes {LONGEST}.",
            "Choose a shorter one: `listen` in the configuration, $MCPD_SOCKET and $MCPD_CONTROL, or"
            " $XDG_RUNTIME_DIR.",
        )
        return
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            yield fault(f"{path} is no socket.", "The daemon does not overwrite it.", "Move it away.")
    except FileNotFoundError:
        pass
    except OSError as error:
        yield fault(f"{path} cannot be looked at: {error.strerror}", do="Correct the path, or its directories.")
    yield from _directory(path.parent, {0, os.geteuid(), scene.running and scene.running.uid})


def _directory(directory: Path, owners: Container[object]) -> Iterator[Finding]:
    """As `sockets.bind` demands it."""
    try:
        found = directory.stat()
    except FileNotFoundError:
        yield from _makeable(directory)
        return
    except OSError:
        return
    if not stat.S_ISDIR(found.st_mode):
        yield fault(f"{directory} is no directory.", do="Move it away, or choose another path.")
    elif found.st_uid not in owners:
        yield fault(
            f"{directory} belongs to another user (uid {found.st_uid}).",
            "The daemon binds sockets only where nobody else can replace them.",
            "Choose another directory, or run this as that user.",
        )
    elif found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        yield fault(
            f"{directory} can be written by others.",
            "They could put a socket of their own in the daemon's place: it does not start.",
            f"`chmod 700 {directory}`",
        )


def _makeable(directory: Path) -> Iterator[Finding]:
    above = next(parent for parent in directory.parents if parent.exists())
    if not kernel.may(above, os.W_OK | os.X_OK):
        yield fault(
            f"{directory} is not there and cannot be made in {above}.",
            do="Choose another one: `listen` in the configuration, or $XDG_RUNTIME_DIR.",
        )


def _state(path: Path) -> str:
    if not os.path.lexists(path):
        return "nobody has made it yet"
    listens = kernel.listens(path)
    if listens is None:
        return "it is there"
    return "somebody listens" if listens else "left over, the next daemon takes it over"


def _found_by_clients(scene: Scene) -> Iterator[Finding]:
    looked = paths.client_socket(scene.environ)
    if looked != scene.front and not _same(looked, scene.front):
        yield warning(
            f"`mcpd connect` looks for the daemon at {looked}, not at {scene.front}.",
            do=f"Give clients `mcpd connect --socket {scene.front}`, or set MCPD_SOCKET for them.",
        )


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
