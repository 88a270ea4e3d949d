"""Reads the files of the audit, oldest or newest record first, in bounded memory. Blocks."""

from __future__ import annotations

import contextlib
import heapq
import math
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from daemon.audit.record import AuditRecord
from daemon.host.private_files import safely
from daemon.kit.wording import DAY

BLOCK = 64 * 1024
"""Bytes of a read from the end: some screens of records."""

LONGEST = 4 * 1024 * 1024
"""Bytes of a line; a longer one is no record."""

FILE_NAME = re.compile(r"(\d{4}-\d\d-\d\d)(?:\.(\d{1,9}))?\.jsonl")
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")


class StoredRecord(AuditRecord, kw_only=True, rename="camel"):
    """A record with its place in the chain."""

    at: Annotated[datetime, msgspec.Meta(tz=True)]
    seq: int
    prev: str


class Entry(NamedTuple):
    """A line of a file, and its record unless it is malformed."""

    at: float
    """The record's time in seconds since the epoch; a malformed line has its neighbour's."""
    place: str
    """The file, and the line's number from the end that is read first."""
    line: bytes
    """With its end, unless a daemon is still writing it, or was killed meanwhile."""
    record: StoredRecord | None


class AuditQuery(NamedTuple):
    """The wanted records. Malformed lines fit every query of their time, since each hides a record."""

    members: Mapping[str, Collection[str]] = {}
    """The accepted values, by attribute of the record."""
    since: float = 0.0
    until: float = math.inf

    def fits(self, entry: Entry) -> bool:
        """Whether an entry is wanted, and whole."""
        wanted = ((getattr(entry.record, name), values) for name, values in self.members.items())
        is_wanted = entry.record is None or all(value in values for value, values in wanted)
        return is_wanted and self.since <= entry.at < self.until and entry.line.endswith(b"\n")


def query(server: str, tool: str, session: str, decisions: Collection[str], *times: float) -> AuditQuery:
    """The query of an operator; empty words fit everything. `session`: a key, or a connection's number."""
    number = session.removeprefix("#")
    members = {"server": [server], "tool": [tool], "session": [number, f"#{number}"], "decision": decisions}
    return AuditQuery({name: each for name, each in members.items() if any(filter("#".__ne__, each))}, *times)


def read(directory: Path, wanted: AuditQuery, *, newest_first: bool = False) -> Iterator[Entry]:
    """The entries that fit a query, of all chains in order of time."""
    streams = [entries(each, wanted.since, newest_first=newest_first) for each in chains(directory)]
    return filter(wanted.fits, heapq.merge(*streams, key=lambda entry: entry.at, reverse=newest_first))


def chains(directory: Path) -> list[Path]:
    """The chains' directories: this daemon's, and other daemons' on the same state."""
    return [each for each in (directory, *sorted(directory.glob("[0-9]*/"))) if files(each)]


def files(chain: Path) -> list[Path]:
    """The files of a chain, oldest first."""
    named = ((FILE_NAME.fullmatch(each.name), each) for each in chain.glob("*.jsonl"))
    return [each for *_, each in sorted((found[1], int(found[2] or 0), each) for found, each in named if found)]


_decode = msgspec.json.Decoder(StoredRecord).decode


def decoded(line: bytes) -> StoredRecord | None:
    """The record in a line; None for a malformed one."""
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decode(line)
    return None


def entries(chain: Path, since: float = 0.0, *, newest_first: bool = False) -> Iterator[Entry]:
    """All entries of a chain, without the files of days before `since`."""
    lines, step, begins = (backward, -1, DAY) if newest_first else (_forward, 1, 0.0)
    for file in files(chain)[::step]:
        day = datetime.fromisoformat(f"{file.name[:10]}T00:00Z").timestamp()
        at = day + begins
        # An expired file may be gone by now.
        with contextlib.suppress(FileNotFoundError):
            for number, line in enumerate(lines(file) if day + DAY > since else (), 1):
                if (record := decoded(line)) is not None:
                    at = record.at.timestamp()
                yield Entry(at, f"{file} line {number}", line, record)


def _forward(file: Path) -> Iterator[bytes]:
    with open(file, "rb", opener=safely) as opened:
        while line := opened.readline(LONGEST):
            yield line


def backward(file: Path) -> Iterator[bytes]:
    """The lines of a file with their ends, newest first, in blocks."""
    with open(file, "rb", opener=safely) as opened:
        left, rest = opened.seek(0, 2), b""
        while left:
            size = min(BLOCK, left)
            left = opened.seek(left - size)
            rest, *lines = _LINE.findall(opened.read(size) + rest)
            yield from reversed(lines)
            if len(rest) > LONGEST or not left:
                yield rest
                rest = b""
