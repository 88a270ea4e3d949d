"""What a daemon has started, written to a file that outlives it: the next one ends what it has left.

A daemon that is killed with SIGKILL ends nothing. So each has a file of its own in the state directory. Its
first line says which daemon it is and the series of its marks, which tells all that stems from it. One line per
start adds the server's name, and the child by its number and its time, for one that has taken its mark off. A
lock of flock(2) says whether the daemon lives: the kernel drops it with its holder. Lines are written by a
thread, as the disk may be slow; what is not written yet is told by its mark.
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
from loguru import logger

from daemon.processes import marks, proc

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = "starts"
"""Where the files are, in the state directory."""

SUFFIX = ".jsonl"

FULL_BYTES = 64 * 1024
"""A file that has grown by so much is written anew with the servers that live: 500 starts or so."""

READ_BYTES = 1024 * 1024
"""More than any file has: 50 servers take 5 kB."""

WAITING = 1000
"""Starts that may wait for a disk which does not answer; of further ones only the marks tell."""

FLUSH_SECONDS = 1.0
"""How long the end of the daemon waits for the disk."""

_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


@attrs.frozen(kw_only=True)
class Identity:
    """A daemon, told from any other by its pid and start time."""

    pid: int
    """The daemon's pid."""
    started: int
    """When it was started, in ticks since the machine came up."""
    series: int
    """What its marks begin with."""
    boot: str
    """Which run of the machine it belongs to."""
    namespace: int
    """In which namespace its numbers count (pid_namespaces(7))."""

    @property
    def is_of_this_boot(self) -> bool:
        """Whether the machine has not been started since: otherwise nothing of it is left."""
        return self.boot == boot()

    @property
    def is_of_this_namespace(self) -> bool:
        """Whether its numbers mean here what they meant to it."""
        return self.namespace == namespace()


@attrs.frozen(kw_only=True)
class Start:
    """One child that a daemon has started."""

    mark: int
    pid: int
    started: int
    """In ticks, as above: together with the number it means one process."""
    server: str
    """The server's name."""


class Starts:
    """The file of this daemon."""

    def __init__(self, path: Path, fd: int, identity: Identity) -> None:
        """Take a file that is ours; see `begin`."""
        self.path = path
        self.failure: OSError | None = None
        """Why the newest starts are not written, if they are not."""
        self._fd = fd
        self._head = _line(attrs.asdict(identity))
        self._lines: dict[int, bytes] = {}
        self._size = os.pwrite(fd, self._head, 0)
        self._notes: queue.Queue[tuple[int, int, str] | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._write, name="mcpd-starts", daemon=True)
        self._thread.start()

    @classmethod
    def begin(cls, state: Path) -> Self:
        """Make the file of this daemon, before it starts anything.

        Args:
            state: the state directory, which is private.

        Raises:
            OSError: it cannot be made; nobody will know what this daemon leaves if it is killed.
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
        # Under another name until it is locked: others take a file that nobody holds for a dead daemon's.
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
        """Have a start written down; never blocks."""
        with contextlib.suppress(queue.Full):
            self._notes.put_nowait((mark, pid, server))

    def end(self, *, keep: bool) -> None:
        """Write what waits, then remove the file.

        Args:
            keep: leave it, because something of ours may still be running.
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
            self._begin_anew()
        else:
            self._size += os.pwrite(self._fd, line, self._size)

    def _begin_anew(self) -> None:
        """Write over the file what still counts. Cut off in the middle it has old lines, and none is lost."""
        living = marks.living()
        self._lines = {mark: line for mark, line in self._lines.items() if mark in living}
        whole = b"".join([self._head, *self._lines.values()])
        self._size = os.pwrite(self._fd, whole, 0)
        os.ftruncate(self._fd, self._size)


def read(fd: int) -> tuple[Identity, list[Start]] | None:
    """What a file says; None if it does not say whose it is. Lines that were cut off are left out."""
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
    """Which run of the machine this is (proc(5), /proc/sys/kernel/random/boot_id)."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def namespace() -> int:
    """The namespace that numbers of processes count in, for us."""
    return Path("/proc/self/ns/pid").stat().st_ino


def _line(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def _numbers(line: bytes, text: str) -> dict[str, Any]:
    """The fields of a line: all are numbers but one.

    Raises:
        ValueError: it is no such line.
    """
    fields = json.loads(line)
    if not isinstance(fields, dict) or not all(
        isinstance(value, str if name == text else int) for name, value in fields.items()
    ):
        raise ValueError(line)
    return fields
