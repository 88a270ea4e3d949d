"""The record of a daemon's starts, in a file that outlives it, so that the next daemon can end its leftovers.

A daemon killed by SIGKILL ends nothing. So each has its own file in the state directory. The first line
identifies the daemon and the series of its marks, by which its descendants are recognised. Each start adds a
line with the server's name, and with the child's pid and start time, in case the child removes its mark. A
flock(2) on the file tells whether the daemon is alive: the kernel releases it when its holder ends. Lines are
written by a thread, as the disk may be slow; a start that is not written yet is still known by its mark.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import queue
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import attrs
import msgspec
from loguru import logger

from daemon.processes import marks, proc

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = "starts"
"""The directory of the files, in the state directory."""

SUFFIX = ".jsonl"

FULL_BYTES = 64 * 1024
"""The size at which a file is rewritten with living servers only: about 500 starts."""

READ_BYTES = 1024 * 1024
"""Bytes that are read of a file, more than any has: 50 servers take 5 kB."""

WAITING = 1000
"""The most starts that wait for a slow disk; further ones are known by their marks only."""

FLUSH_SECONDS = 1.0
"""Seconds that the daemon waits for the disk at its end."""

_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


@attrs.frozen(kw_only=True)
class Identity:
    """A daemon, told from any other by its pid and start time."""

    pid: int
    """The daemon's pid."""
    started: int
    """When it was started, in ticks since boot."""
    series: int
    """The prefix of its marks."""
    boot: str
    """The boot id of the machine while it ran."""
    namespace: int
    """The inode of its pid namespace (pid_namespaces(7))."""

    @property
    def is_of_this_boot(self) -> bool:
        """Whether the machine was not rebooted since: otherwise nothing of it can be left."""
        return self.boot == boot()

    @property
    def is_of_this_namespace(self) -> bool:
        """Whether its pids are valid in our pid namespace."""
        return self.namespace == namespace()


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """One child that a daemon has started."""

    mark: int
    pid: int
    started: int
    """The start time in ticks since boot: with the pid it identifies one process."""
    server: str
    """The server's name."""


class Starts:
    """The record of this daemon's starts."""

    def __init__(self, path: Path, fd: int, identity: Identity) -> None:
        """Take ownership of an open file; see `begin`."""
        self.path = path
        self.failure: OSError | None = None
        """Why the newest starts could not be written; None if they were."""
        self._fd = fd
        self._head = _line(attrs.asdict(identity))
        self._lines: dict[int, bytes] = {}
        self._size = os.pwrite(fd, self._head, 0)
        self._notes: queue.Queue[tuple[int, int, str] | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._write, name="mcpd-starts", daemon=True)
        self._thread.start()

    @classmethod
    def begin(cls, state: Path) -> Self:
        """Create the file of this daemon, before it starts anything.

        Args:
            state: the private state directory.

        Raises:
            OSError: it cannot be created; leftovers of this daemon will not be found if it is killed.
        """
        own = proc.read(os.getpid())
        folder = state / FOLDER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        identity = Identity(
            pid=os.getpid(),
            started=own.started if own else 0,
            series=marks.series(),
            boot=boot(),
            namespace=namespace(),
        )
        path = folder / f"{identity.series:x}{SUFFIX}"
        # Under another name until it is locked: an unlocked file looks like a dead daemon's.
        new = path.with_suffix(".new")
        fd = os.open(new, _FLAGS | os.O_CREAT, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            begun = cls(path, fd, identity)
            new.rename(path)
        except BaseException:
            os.close(fd)
            raise
        return begun

    def note(self, mark: int, pid: int, server: str) -> None:
        """Record a start; never blocks."""
        with contextlib.suppress(queue.Full):
            self._notes.put_nowait((mark, pid, server))

    def end(self, *, keep: bool) -> None:
        """Write the queued starts, then remove the file.

        Args:
            keep: leave the file, because a descendant of ours may still be running.
        """
        with contextlib.suppress(queue.Full):
            self._notes.put(None, timeout=FLUSH_SECONDS)
        self._thread.join(FLUSH_SECONDS)
        if not keep:
            with contextlib.suppress(OSError):
                self.path.unlink()
        if not self._thread.is_alive():
            os.close(self._fd)

    def _write(self) -> None:
        while (note := self._notes.get()) is not None:
            try:
                self._add(*note)
            except OSError as error:
                if self.failure is None:
                    logger.warning("{}: what is started is not written down: {}", self.path, error)
                self.failure = error
            else:
                self.failure = None

    def _add(self, mark: int, pid: int, server: str) -> None:
        process = proc.read(pid)
        if process is None or process.parent != os.getpid():
            return
        line = _line({"mark": mark, "pid": pid, "started": process.started, "server": server})
        self._lines[mark] = line
        if self._size > FULL_BYTES:
            self._rewrite()
        else:
            self._size += os.pwrite(self._fd, line, self._size)

    def _rewrite(self) -> None:
        """Overwrite the file with the living servers. If interrupted, old lines remain and none is lost."""
        living = marks.living()
        self._lines = {mark: line for mark, line in self._lines.items() if mark in living}
        whole = b"".join([self._head, *self._lines.values()])
        self._size = os.pwrite(self._fd, whole, 0)
        os.ftruncate(self._fd, self._size)


def read(fd: int) -> tuple[Identity, list[Start]] | None:
    """Read a file; None if its first line is invalid. Truncated lines are left out."""
    head, *lines = os.pread(fd, READ_BYTES, 0).split(b"\n")
    try:
        identity = Identity(**_numbers(head, "boot"))
    except (ValueError, TypeError):
        return None
    found = []
    for line in lines:
        with contextlib.suppress(ValueError, TypeError):
            found.append(Start(**_numbers(line, "server")))
    return identity, found


def boot() -> str:
    """The boot id of the machine (proc(5), /proc/sys/kernel/random/boot_id)."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def namespace() -> int:
    """The inode of our pid namespace."""
    return Path("/proc/self/ns/pid").stat().st_ino


def _line(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def _numbers(line: bytes, text: str) -> dict[str, Any]:
    """Decode a line, whose fields are numbers except for one.

    Raises:
        ValueError: the line is invalid.
    """
    fields = json.loads(line)
    if not isinstance(fields, dict) or not all(
        isinstance(value, str if name == text else int) for name, value in fields.items()
    ):
        raise ValueError(line)
    return fields
