"""Where things are remembered: is it there, can it be written, is there room, who holds it."""

from __future__ import annotations

import importlib.util
import os
import stat
from typing import TYPE_CHECKING

from daemon.cli.checkup import kernel
from daemon.cli.checkup.scene import fault, fine, note, warning

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from daemon.cli.checkup.scene import Finding, Running, Scene

MIB = 1024 * 1024

FULL = 8 * MIB
"""Bytes left below which writing fails soon: one transaction of a large catalog takes as much."""

SCARCE = 256 * MIB
"""Bytes left below which to look: the database of fifty servers has ten MiB, its write-ahead log as many."""

MAGIC = b"SQLite format 3\0"
"""How a database begins (https://www.sqlite.org/fileformat.html)."""


def check(scene: Scene) -> Iterator[Finding]:
    """Everything about the state."""
    found = list(_of_the_daemon(scene.running)) if scene.running is not None else []
    file = scene.place.path
    found += _server() if file is None else _file(file, scene)
    yield from found
    if not found:
        yield fine(f"{scene.place.where}{'' if file is None else f', {_free(file)}'}")


def _of_the_daemon(running: Running) -> Iterator[Finding]:
    kept = running.status["daemon"].get("persistence") or {}
    if kept.get("state", "ok") != "ok":
        yield fault(
            f"The daemon keeps nothing now: {kept['reason']}",
            "What it learns and what sessions load is gone when it ends.",
            "Mend the cause; the daemon tries again by itself and loses nothing until it ends.",
        )


def _server() -> Iterator[Finding]:
    """A database of somebody else's, which is not asked from here."""
    if importlib.util.find_spec("psycopg") is None:
        yield fault(
            "State is to be kept in PostgreSQL, and its driver is not installed.",
            do="`pip install 'mcpd-supervisor[postgres]'`",
        )


def _file(file: Path, scene: Scene) -> Iterator[Finding]:
    directory = file.parent
    if not directory.exists():
        yield from _makeable(directory)
        return
    try:
        yield from _directory(directory)
        yield from room(directory, os.statvfs(directory))
        if file.exists():
            yield from _database(file)
        yield from _aside(directory)
        yield from _holder(file, scene)
    except OSError as error:
        yield warning(f"{error.filename or directory} cannot be looked at: {error.strerror}")


def _makeable(directory: Path) -> Iterator[Finding]:
    above = next(parent for parent in directory.parents if parent.exists())
    if kernel.may(above, os.W_OK | os.X_OK):
        yield note(f"{directory} is not there yet; the first daemon makes it.")
    else:
        yield fault(
            f"{directory} is not there and cannot be made in {above}.",
            "Without it nothing is remembered from one start to the next.",
            "Make it, or choose another with --state-dir, $XDG_STATE_HOME or `state.url`.",
        )


def _directory(directory: Path) -> Iterator[Finding]:
    found = directory.stat()
    if not stat.S_ISDIR(found.st_mode):
        yield fault(f"{directory} is no directory.", do="Move it away, or choose another one.")
    elif not kernel.may(directory, os.W_OK | os.X_OK):
        yield fault(
            f"This user may not write to {directory} (it belongs to uid {found.st_uid}).",
            do="Run this as the daemon's user, or `chown` it.",
        )
    elif found.st_mode & (stat.S_IWOTH | stat.S_IWGRP) and not found.st_mode & stat.S_ISVTX:
        yield fault(
            f"Others can write to {directory}.",
            "They could put tools into the catalog that no server has listed: the daemon keeps nothing there.",
            f"`chmod 700 {directory}`",
        )


def room(directory: Path, disk: os.statvfs_result) -> Iterator[Finding]:
    """What is left on the disk of a directory."""
    if disk.f_flag & os.ST_RDONLY:
        yield fault(f"{directory} is on a file system that is read-only.", do="Choose another --state-dir.")
        return
    free = disk.f_bavail * disk.f_frsize
    what = f"{free // MIB} MiB are left on the disk of {directory}."
    why = "When it is full the daemon serves on, and remembers nothing."
    if free < FULL:
        yield fault(what, why, "Make room.")
    elif free < SCARCE:
        yield warning(what, why, "Make room.")
    # File systems without a fixed number of files report none at all.
    if disk.f_files and not disk.f_favail:
        yield fault(f"The disk of {directory} has no room for another file.", why, "`df -i`; remove files.")


def _database(file: Path) -> Iterator[Finding]:
    if not kernel.may(file, os.R_OK | os.W_OK):
        yield fault(f"This user may not read and write {file}.", do="Run this as the daemon's user.")
        return
    with file.open("rb") as opened:
        begin = opened.read(len(MAGIC))
    if begin and begin != MAGIC:
        yield warning(
            f"{file} is no database of SQLite.",
            "The next daemon sets it aside by name and begins anew.",
            "Put it back from a backup if you have one.",
        )


def _aside(directory: Path) -> Iterator[Finding]:
    aside = sorted(path.name for path in directory.glob("*.corrupt-*"))
    if aside:
        yield note(
            f"Set aside in {directory} because they were corrupt: {', '.join(aside)}",
            do="Remove them when nothing in them is missed.",
        )


def _holder(file: Path, scene: Scene) -> Iterator[Finding]:
    holder = kernel.lock_holder(file.with_name(file.name + ".lock"))
    if holder is not None and (scene.running is None or holder != scene.running.pid):
        yield warning(
            f"Another daemon, pid {holder}, keeps its state in {file}.",
            "A second one on the same state does not start.",
            "Name that one's socket with --socket P, end it, or give this one a --state-dir of its own.",
        )


def _free(file: Path) -> str:
    disk = os.statvfs(file.parent)
    return f"{disk.f_bavail * disk.f_frsize // MIB} MiB left on its disk"
