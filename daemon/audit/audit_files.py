"""Reads the audit's files, oldest or newest record first, with little memory. Blocks."""

from __future__ import annotations

import contextlib
import heapq
import math
import re
from calendar import timegm
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from daemon.audit.record import AuditRecord
from daemon.host.private_files import safely
from daemon.kit.wording import DAY

BLOCK = 64 * 1024
"""Bytes per read from the end: some screens of records."""

LONGEST = 4 * 1024 * 1024
"""Most bytes of a line; a longer line is not a record."""

FILE_NAME = re.compile(r"([12]\d{3}-(?:0[1-9]|1[0-2])-\d\d)(?:\.(\d{1,9}))?\.jsonl", re.ASCII)
"""Matches the names of audit files: foreign files in the directory must not prevent reading the records."""

_LINE = re.compile(rb"[^\n]*\n|[^\n]+")


class StoredRecord(AuditRecord, kw_only=True, rename="camel"):
    """A record with its place in the chain."""

    at: Annotated[datetime, msgspec.Meta(tz=True)]
    seq: Annotated[int, msgspec.Meta(ge=1)]
    prev: str


class Entry(NamedTuple):
    """A line of a file, and its record unless it is malformed."""

    at: float
    """The record's time in seconds since the epoch; for a malformed line, its neighbour's."""
    place: str
    """The file and the number of the line, counted from the end at which reading began."""
    line: bytes
    """The line with its line end, which is missing if a daemon is still writing it or was killed."""
    record: StoredRecord | None
    ends: float
    """The end of its file's day, in seconds since the epoch."""


class AuditQuery(NamedTuple):
    """Selects records. A malformed line matches every query for its time, because it may hide a record."""

    members: Mapping[str, Collection[str]] = {}
    """The accepted values for each attribute of a record."""
    since: float = 0.0
    until: float = math.inf

    def fits(self, entry: Entry) -> bool:
        """Whether an entry matches the query and its line is complete."""
        wanted = ((getattr(entry.record, name), values) for name, values in self.members.items())
        is_wanted = entry.record is None or all(value in values for value, values in wanted)
        return is_wanted and self.since <= entry.at < self.until and entry.line.endswith(b"\n")


def query(server: str, tool: str, session: str, decisions: Collection[str], *times: float) -> AuditQuery:
    """An operator's query; empty arguments match everything. `session`: a key, or a connection's number."""
    number = session.removeprefix("#")
    members = {"server": [server], "tool": [tool], "session": [number, f"#{number}"], "decision": decisions}
    return AuditQuery({name: each for name, each in members.items() if any(filter("#".__ne__, each))}, *times)


def read(directory: Path, wanted: AuditQuery, *, newest_first: bool = False) -> Iterator[Entry]:
    """The entries of all chains that match a query, by time."""
    streams = [entries(each, wanted.since, newest_first=newest_first) for each in chains(directory)]
    return filter(wanted.fits, heapq.merge(*streams, key=lambda entry: entry.at, reverse=newest_first))


def chains(directory: Path) -> list[Path]:
    """The directories of chains: this daemon's, and those of other daemons with the same state directory."""
    return [each for each in (directory, *sorted(directory.glob("[0-9]*/"))) if files(each)]


def files(chain: Path) -> list[Path]:
    """The files of a chain, oldest first."""
    named = ((FILE_NAME.fullmatch(each.name), each) for each in chain.glob("*.jsonl"))
    return [each for *_, each in sorted((found[1], int(found[2] or 0), each) for found, each in named if found)]


_decode = msgspec.json.Decoder(StoredRecord).decode


def decoded(line: bytes) -> StoredRecord | None:
    """The record in a line; None if it is malformed."""
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decode(line)
    return None


def entries(chain: Path, since: float = 0.0, *, newest_first: bool = False) -> Iterator[Entry]:
    """All entries of a chain, except those in files of days before `since`."""
    lines, step, begins = (backward, -1, DAY) if newest_first else (_forward, 1, 0.0)
    for file in files(chain)[::step]:
        day = timegm((*map(int, file.name[:10].split("-")), 0, 0, 0))
        at, ends = day + begins, day + DAY
        # An expired file may be gone by now.
        with contextlib.suppress(FileNotFoundError):
            for number, line in enumerate(lines(file) if ends > since else (), 1):
                if (record := decoded(line)) is not None:
                    at = record.at.timestamp()
                yield Entry(at, f"{file} line {number}", line, record, ends)


def _forward(file: Path) -> Iterator[bytes]:
    with open(file, "rb", opener=safely) as opened:
        while line := opened.readline(LONGEST):
            yield line


def backward(file: Path) -> Iterator[bytes]:
    """The lines of a file with their line ends, newest first, read in blocks."""
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
