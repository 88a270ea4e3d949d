"""Runs all checks of `mcpd doctor`, checks the state directory, and redacts the findings."""

from __future__ import annotations

import importlib.util
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from daemon.checks import addresses, configuration, entries, host
from daemon.checks.findings import Finding, Level, Scene, found
from daemon.config.redaction import Redactors
from daemon.kit.wording import MIB
from daemon.processes import proc

FULL = 8 * MIB
"""Free bytes that a large catalog's transaction needs: with fewer, writes soon fail."""

SCARCE = 256 * MIB
"""Free bytes below which to warn: fifty servers take ten MiB, and the write-ahead log as many."""

_SERVERS = "\0"
"""Stands for the names of servers in a text: no name or message has a NUL."""

MAGIC = b"SQLite format 3\0"
"""The first bytes of an SQLite database (https://www.sqlite.org/fileformat.html)."""


def check(scene: Scene) -> Iterator[Finding]:
    """Findings on the state directory."""
    daemon, file = scene.running and scene.running.status["daemon"], scene.place.path
    kept = (daemon or {}).get("persistence") or {}
    what = [] if kept.get("state", "ok") == "ok" else [found("state-not-kept", reason=kept["reason"])]
    if file is not None:
        what += _file(file, scene)
    elif importlib.util.find_spec("psycopg") is None:  # the database server is not connected to from here
        what.append(found("state-driver-missing"))
    yield from what
    if not what and file is None:
        yield found("state-kept", where=scene.place.where)
    elif not what and file is not None:
        disk = os.statvfs(file.parent)
        yield found("state-kept-with-room", where=scene.place.where, free=disk.f_bavail * disk.f_frsize // MIB)


def _file(file: Path, scene: Scene) -> Iterator[Finding]:
    directory = file.parent
    if not directory.exists():
        above = next(parent for parent in directory.parents if parent.exists())
        if proc.may(above, os.W_OK | os.X_OK):
            yield found("state-directory-absent", path=directory)
        else:
            yield found("state-directory-impossible", path=directory, above=above)
        return
    try:
        yield from _directory(directory)
        yield from room(directory, os.statvfs(directory))
        if file.exists():
            yield from _database(file)
        if aside := ", ".join(sorted(path.name for path in directory.glob("*.corrupt-*"))):
            yield found("databases-set-aside", path=directory, names=aside)
        holder = proc.lock_holder(file.with_name(file.name + ".lock"))
        if holder is not None and (scene.running is None or holder != scene.running.pid):
            yield found("state-held", path=file, pid=holder)
    except OSError as error:
        yield found("state-closed", place=error.filename or directory, problem=error.strerror)


def _directory(directory: Path) -> Iterator[Finding]:
    status = directory.stat()
    if not stat.S_ISDIR(status.st_mode):
        yield found("state-directory-is-none", path=directory)
    elif not proc.may(directory, os.W_OK | os.X_OK):
        yield found("state-directory-read-only", path=directory, uid=status.st_uid)
    elif status.st_mode & (stat.S_IWOTH | stat.S_IWGRP) and not status.st_mode & stat.S_ISVTX:
        yield found("state-directory-open", path=directory)


def room(directory: Path, disk: os.statvfs_result) -> Iterator[Finding]:
    """Findings on a directory's free space."""
    if disk.f_flag & os.ST_RDONLY:
        yield found("disk-read-only", path=directory)
        return
    free = disk.f_bavail * disk.f_frsize
    if free < SCARCE:
        yield found("disk-full" if free < FULL else "disk-scarce", path=directory, free=free // MIB)
    # File systems without a fixed number of files report none at all.
    if disk.f_files and not disk.f_favail:
        yield found("disk-without-inodes", path=directory)


def _database(file: Path) -> Iterator[Finding]:
    if not proc.may(file, os.R_OK | os.W_OK):
        yield found("database-closed", path=file)
        return
    with file.open("rb") as opened:
        begin = opened.read(len(MAGIC))
    if begin and begin != MAGIC:
        yield found("database-is-none", path=file)


def examine(scene: Scene) -> dict[str, list[Finding]]:
    """The findings of all checks, by the checks' titles."""
    checks: dict[str, Callable[[Scene], Iterator[Finding]]] = {
        "configuration": configuration.check,
        "secrets": configuration.secrets,
        "sockets": addresses.sockets,
        "http": addresses.http_port,
        "state": check,
        "systemd": host.units,
        "limits": host.limits,
        "sandboxes": host.sandboxes,
        "servers": entries.check,
        "clients": configuration.clients,
        "leftovers": host.leavings,
    }
    return {title: list(_guarded(check, scene)) for title, check in checks.items()}


def _guarded(check: Callable[[Scene], Iterator[Finding]], scene: Scene) -> Iterator[Finding]:
    try:
        yield from check(scene)
    except OSError as error:
        place = error.filename or "the system"
        yield found("not-looked-at", place=place, problem=error.strerror or error)


def worded(report: Mapping[str, Sequence[Finding]], scene: Scene) -> list[Mapping[str, str]]:
    """The findings' texts, the worst first. Secrets are removed: outputs, paths and arguments may hold some.

    The same finding about several servers is one finding, unless its remedy sets a key of one server.
    """
    redactors = Redactors()
    if scene.config:
        redactors.learn(scene.config)
    rows = dict[tuple[str, ...], list[str]]()
    for title, findings in report.items():
        for each in findings:
            # Redacted per server: another one's password may be an ordinary word in what is said of this one.
            server = str(each.data.get("server", ""))
            of_a_server = scene.config is not None and server in scene.config.mcp_servers
            redact = redactors.of(server) if of_a_server else redactors
            is_single = not of_a_server or "`mcpd set" in each.do
            bare = each if is_single else each.about(_SERVERS)
            texts = map(redact, (bare.what, bare.why, bare.do))
            rows.setdefault((title, each.level, each.cause, *texts), []).append(server)
    worst_first = [*reversed(Level)]
    return [_row(*each) for each in sorted(rows.items(), key=lambda each: worst_first.index(Level(each[0][1])))]


def _row(texts: Sequence[str], servers: Sequence[str]) -> dict[str, str]:
    *about, what, why, do = texts
    listed = [text.replace(_SERVERS, ", ".join(servers)) for text in (what, why)]
    texts = (*about, *listed, do.replace(_SERVERS, " ".join(servers)))
    return dict(zip(("check", "level", "cause", "what", "why", "do"), texts, strict=True))
