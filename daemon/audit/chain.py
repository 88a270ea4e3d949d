"""The files of one chain of records: appended to by one daemon; a new one begins by day and size. Blocks."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from daemon.audit.audit_files import FILE_NAME, backward, decoded, entries, files
from daemon.audit.record import ChainHead, chained, digest
from daemon.host.private_files import own_file, try_to_take
from daemon.host.sockets import private_directory

FILE_BYTES = 64 * 1024 * 1024
"""Bytes after which a day gets another file: what an editor still opens."""

CHAINS = 64
"""Daemons that may write on one state directory."""

LOCK = "lock"
"""The file that the writer of a chain holds; it contains the chain's id."""


class Chain:
    """The writer of a chain."""

    def __init__(self, root: Path) -> None:
        """Take the first chain that no other daemon writes, and find its end. Raises `OSError`."""
        self.directory, self._lock = _taken(root)
        self.torn = 0
        """Bytes of half a line, left by a killed daemon, that were cut off."""
        self.turned = False
        """Whether another file was begun; reset by the reader."""
        self.is_synced = True
        self._file, self._size = -1, 0
        self._day, self._number = "", 0
        kept = os.pread(self._lock, 64, 0).decode("ascii", "replace")
        self.id = kept if re.fullmatch(r"[0-9a-f]{64}", kept) else secrets.token_hex(32)
        os.pwrite(self._lock, self.id.encode(), 0)
        self.head = ChainHead(chain=self.id, seq=0, digest=self.id)
        """The last record; before the first one, the chain's id."""
        try:
            # An empty file, from a disk that was full, does not hide the one before.
            for path in reversed(files(self.directory)):
                self._open(path)
                if self._size:
                    break
        except OSError:
            # The next try must find the chain free, or each would begin another.
            self.close()
            raise

    def append(self, bodies: Sequence[bytes], day: str) -> None:
        """Add records, given as JSON, to the file of a day (`2026-11-29`); raises OSError: none was added."""
        self._turn(day)
        seq, prev, lines = self.head.seq, self.head.digest, []
        for body in bodies:
            seq += 1
            line = chained(body, seq, prev)
            prev = digest(line)
            lines.append(line)
        written = memoryview(b"\n".join((*lines, b"")))
        size = self._size + len(written)
        try:
            while written:
                written = written[os.write(self._file, written) :]
        except OSError:
            # Half a batch would be taken for an edit.
            os.ftruncate(self._file, self._size)
            raise
        self.head, self._size, self.is_synced = ChainHead(chain=self.id, seq=seq, digest=prev), size, False

    def sync(self) -> None:
        """Have the disk keep what was added. Raises `OSError`."""
        if not self.is_synced:
            os.fsync(self._file)
            self.is_synced = True

    def lacks(self, heads: Iterable[ChainHead]) -> ChainHead | None:
        """A head of this chain, copied elsewhere before, that the files do not have."""
        return next((each for each in heads if each.chain == self.id and not self._has(each)), None)

    def _has(self, head: ChainHead) -> bool:
        record = None
        for entry in entries(self.directory, newest_first=True):
            record = entry.record or record
            if entry.record is not None and entry.record.seq <= head.seq:
                return entry.record.seq == head.seq and digest(entry.line[:-1]) == head.digest
        # All are newer: it may have expired, which the check of the whole chain judges.
        return record is not None

    def expired(self, before: str, most: int) -> Iterator[tuple[Path, ChainHead]]:
        """The files of days before one, or in excess of a number of bytes, each with its last record."""
        older = files(self.directory)[:-1]
        excess = sum(each.stat().st_size for each in older) + self._size - most
        for path in older:
            if path.name >= before and excess <= 0:
                return
            excess -= path.stat().st_size
            seq, last, _torn = _end_of(path)
            yield path, ChainHead(chain=self.id, seq=seq, digest=last)

    def close(self) -> None:
        """Give the chain up."""
        with suppress(OSError):
            self.sync()
        for each in (self._file, self._lock):
            if each >= 0:
                os.close(each)
        self._file = self._lock = -1

    def _turn(self, day: str) -> None:
        """Go on in the file of the day, unless the present one has room and is there."""
        # A clock that was set back must not put records before older ones.
        same = self._day >= day
        if same and self._file >= 0 and self._size < FILE_BYTES and os.fstat(self._file).st_nlink:
            return
        if self._file >= 0:
            self.sync()
        day, number = (self._day, f".{self._number + 1}") if same else (day, "")
        self._open(self.directory / f"{day}{number}.jsonl")
        self.turned = True

    def _open(self, path: Path) -> None:
        opened = own_file(path, os.O_RDWR | os.O_APPEND)
        named = FILE_NAME.fullmatch(path.name)
        assert named is not None, "files are named by us"
        self._day, self._number = named[1], int(named[2] or 0)
        if self._file >= 0:
            os.close(self._file)
        self._file = opened
        seq, last, torn = _end_of(path)
        self._size = os.fstat(opened).st_size
        if torn:
            self._size -= torn
            os.ftruncate(opened, self._size)
            self.torn += torn
        if last:
            self.head = ChainHead(chain=self.id, seq=seq, digest=last)


def _taken(root: Path) -> tuple[Path, int]:
    for number in range(1, CHAINS + 1):
        directory = root if number == 1 else root / str(number)
        private_directory(directory)
        lock = own_file(directory / LOCK)
        if try_to_take(lock):
            return directory, lock
        os.close(lock)
    raise OSError(f"{CHAINS} daemons write below {root} already")


def _end_of(path: Path) -> tuple[int, str, int]:
    """The number and digest of a file's last line, if any, and the bytes of half a line after it."""
    lines = backward(path)
    last = next(lines, b"")
    torn = 0 if last.endswith(b"\n") else len(last)
    if not (line := next(lines, b"") if torn else last):
        return 0, "", torn
    record = decoded(line)
    # Somebody may have edited it: the check says so, and the chain goes on.
    return 0 if record is None else record.seq, digest(line[:-1]), torn
