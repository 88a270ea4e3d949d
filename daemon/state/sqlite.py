"""SQLite: one file, one connection, one writer. Only SQLite itself opens the file.

If a process closes any descriptor of a file, it loses all its POSIX locks on that file, including SQLite's. So
this module never reads the file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path

import msgspec

from daemon.errors import DaemonRunning
from daemon.host.private_files import own_file, take
from daemon.host.sockets import private_directory
from daemon.state.sql import SqlDialect, StoreCause, StoreFault, Transaction, unused

BUSY_SECONDS = 1.0
"""Seconds that SQLite waits for another process's lock until the store counts as locked; callers wait 1.5 s."""

LARGEST_LEFT_LOG = 4 * 1024 * 1024
"""Bytes to which a checkpoint truncates the write-ahead log after a large batch."""


BESIDE = ("-wal", "-shm")
"""Suffixes of the other files that SQLite keeps with a database."""

BEFORE = "before-0.1.0"
"""The suffix of a store made before mcpd 0.1.0 that was moved aside."""

DIALECT = SqlDialect(
    bytes_type="BLOB",
    tables="SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite@_%' ESCAPE '@'",
    migrate_alone="SELECT 1",  # a writer is alone anyway
    spelled=str,
)


class SqliteDatabase:
    """The single connection to a file."""

    errors: tuple[type[Exception], ...] = (sqlite3.Error,)

    def __init__(self, path: Path) -> None:
        """Open the file, creating it with private access; raises `OSError` or `sqlite3.Error`."""
        self._path = path
        self.raw = _connected(path)

    @contextlib.contextmanager
    def transaction(self, *, writes: bool) -> Iterator[Transaction]:
        """A transaction for the block, begun as a writer if `writes`; raises `sqlite3.Error`."""
        self.raw.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        try:
            # A cursor that failed half-way would keep the database's files open.
            with contextlib.closing(self.raw.cursor()) as cursor:
                yield Transaction(cursor, DIALECT)
            self.raw.execute("COMMIT")
        except BaseException:
            # Some errors have rolled it back already.
            if self.raw.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    self.raw.execute("ROLLBACK")
            raise

    def prepare(self, where: str) -> None:
        """Switch to the write-ahead log and check the file; raises `StoreFault` (CORRUPT)."""
        # A read-only file stays in its mode.
        self.raw.execute("PRAGMA journal_mode = WAL").fetchall()
        (verdict,) = self.raw.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise StoreFault(StoreCause.CORRUPT, where, str(verdict).replace("\n", " "))

    def move_aside(self, tables: Callable[[Transaction], Collection[str]]) -> str:
        """Rename the file of a store made before mcpd 0.1.0, not that of another program; open a new one."""
        with self.transaction(writes=False) as transaction:
            if not tables(transaction):
                return ""
        self.close()
        aside = set_aside(self._path, BEFORE)
        self.raw = _connected(self._path)
        return aside

    def close(self) -> None:
        """Close the file, even if it is gone."""
        with contextlib.suppress(sqlite3.Error):
            self.raw.close()


class FileIdentity(msgspec.Struct, frozen=True):
    """Identifies opened files, to notice when they are removed or replaced."""

    inodes: tuple[tuple[int, int] | None, ...]
    """Device and inode of the file and its log; None for a file that does not exist."""
    path: Path

    @classmethod
    def now(cls, path: Path) -> FileIdentity:
        """The identity of the files that have this path now."""
        return cls((_inode(path), _inode(path.with_name(path.name + "-wal"))), path)

    def lost(self) -> str:
        """The change of the files since `now` identified them, in words; empty if they are the same."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return "somebody has removed the file"
        if (found.st_dev, found.st_ino) != self.inodes[0]:
            return "somebody has put another file in its place"
        if found.st_size == 0:
            return "somebody has emptied the file"
        if self.inodes[1] is not None and FileIdentity.now(self.path).inodes[1] != self.inodes[1]:
            return "somebody has removed its write-ahead log"
        return ""


@contextlib.contextmanager
def hold(path: Path) -> Iterator[None]:
    """Lock the state in `path` during the block against other daemons, which would overwrite it.

    The lock of flock(2) ends with its holder. The file is never removed, or two daemons could hold a lock.
    Raises `DaemonRunning` with the holder's pid, or `OSError`: for a directory that others can write, too.
    """
    private_directory(path.parent)
    lock = own_file(path.with_name(path.name + ".lock"))
    try:
        holder = take(lock)
        if holder is not None:
            raise DaemonRunning(
                f"another daemon, pid {holder}, keeps its state in {path}. Stop it, or start this one with"
                " another --state-dir."
            )
        yield
    finally:
        os.close(lock)


def set_aside(path: Path, why: str) -> str:
    """Rename a closed file and its log to a new name that ends with the reason; returns the name.

    The log is renamed first: left alone, it would be deleted when the file is next opened. Raises `OSError`.
    """
    files = (*BESIDE, "")

    def is_used(name: str) -> bool:
        return any(os.path.lexists(path.with_name(name + end)) for end in files)

    name = unused(f"{path.name}.{why}", "-", is_used)
    for end in files:
        source = path.with_name(path.name + end)
        if source.exists():
            source.rename(path.with_name(name + end))
    return str(path.with_name(name))


def _connected(path: Path) -> sqlite3.Connection:
    _private(path)
    raw = sqlite3.connect(path, timeout=BUSY_SECONDS, check_same_thread=False, isolation_level=None)
    try:
        # NORMAL loses nothing to kill -9, and to a power cut the last moments, which servers report again.
        raw.execute("PRAGMA synchronous = NORMAL")
        raw.execute(f"PRAGMA journal_size_limit = {LARGEST_LEFT_LOG}")
    except BaseException:
        raw.close()
        raise
    # Text that was edited into invalid UTF-8 costs its row, not the query.
    raw.text_factory = _text
    raw.row_factory = sqlite3.Row
    return raw


def _private(path: Path) -> None:
    private_directory(path.parent)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, f"{path} is a directory") from None
        # In a directory such as /tmp another user may have created the file, or a link to one of this user.
        if (owner := path.lstat().st_uid) not in {os.getuid(), 0}:
            text = f"{path} belongs to uid {owner}, not to this user: remove it, or choose another --state-dir"
            raise PermissionError(errno.EACCES, text) from None
        # Root's file, or a read-only file system: using it will show what is possible.
        with contextlib.suppress(OSError):
            path.chmod(path.stat().st_mode & 0o700)


_text = partial(str, encoding="utf-8", errors="replace")
"""Reads a cell, even one that was edited into invalid UTF-8; a large store has tens of thousands."""


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
