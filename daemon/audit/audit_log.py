"""The audit of one daemon: takes decisions on the event loop, and writes them to a chain in a worker thread."""

from __future__ import annotations

import marshal
import os
import random
import re
import secrets
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import attrs
import msgspec
import trio
from loguru import logger

from daemon.audit.audit_files import backward, decoded, entries, files
from daemon.audit.record import AuditRecord, CallMembers, ChainHead, Decision, chained, digest, moment
from daemon.config.tuning import AuditFailure, AuditKeys
from daemon.host.private_files import own_file, try_to_take
from daemon.host.sockets import private_directory
from daemon.kit.waiting import RetryPolicy

FILE_BYTES = 64 * 1024 * 1024
"""Bytes after which a day gets a further file: editors can still open this much."""

CHAINS = 64
"""Most daemons that may write in one state directory."""

LOCK = "lock"
"""The file that the writer of a chain locks; it contains the chain's id."""


class Chain:
    """Writes one chain of records."""

    def __init__(self, root: Path, lines: Callable[..., tuple[bytes, int, str]] = chained) -> None:
        """Take the first chain that no other daemon writes, and find its end. Raises `OSError`."""
        self._lines = lines
        self.directory, self._lock = _taken(root)
        self.torn = 0
        """Bytes of the incomplete line that a killed daemon left, and that was removed."""
        self.turned = False
        """Whether a new file was begun; the reader resets this."""
        self.is_synced = True
        self._file, self._size, self._day, self._number = -1, 0, "", 0
        kept = os.pread(self._lock, 64, 0).decode("ascii", "replace")
        self.id = kept if re.fullmatch(r"[0-9a-f]{64}", kept) else secrets.token_hex(32)
        os.pwrite(self._lock, self.id.encode(), 0)
        self.head = ChainHead(chain=self.id, seq=0, digest=self.id)
        """The last record; before the first record, the chain's id."""
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

    def append(self, records: Sequence[bytes | CallMembers], day: str) -> None:
        """Append records to a day's file (`2026-11-29`). If this raises OSError, none was added."""
        self._turn(day)
        lines, seq, last = self._lines(records, self.head.seq, self.head.digest)
        written = memoryview(lines)
        size = self._size + len(written)
        try:
            while written:
                written = written[os.write(self._file, written) :]
        except OSError:
            # Half a batch would be taken for an edit.
            os.ftruncate(self._file, self._size)
            raise
        self.head, self._size, self.is_synced = ChainHead(chain=self.id, seq=seq, digest=last), size, False

    def sync(self) -> None:
        """Flush the added records to the disk. Raises `OSError`."""
        if not self.is_synced:
            os.fsync(self._file)
            self.is_synced = True

    def lacks(self, heads: Iterable[ChainHead]) -> ChainHead | None:
        """The first of these copied heads that belongs to this chain, but is missing in its files."""
        return next((each for each in heads if each.chain == self.id and not self._has(each)), None)

    def _has(self, head: ChainHead) -> bool:
        for entry in entries(self.directory, newest_first=True):
            if entry.record is not None and entry.record.seq <= head.seq:
                return entry.record.seq == head.seq and digest(entry.line[:-1]) == head.digest
        # If all are newer, it may have expired, which the check of the whole chain judges.
        return self.head.seq > 0

    def expired(self, before: str, most: int) -> Iterator[tuple[Path, ChainHead]]:
        """The files of days before `before`, or in excess of `most` bytes, each with its last record."""
        older = files(self.directory)[:-1]
        excess = sum(each.stat().st_size for each in older) + self._size - most
        for path in older:
            if path.name >= before and excess <= 0:
                return
            excess -= path.stat().st_size
            seq, last, _torn = _end_of(path)
            yield path, ChainHead(chain=self.id, seq=seq, digest=last)

    def close(self) -> None:
        """Sync and close the chain, for another daemon to take."""
        with suppress(OSError):
            self.sync()
        for each in (self._file, self._lock):
            if each >= 0:
                os.close(each)
        self._file = self._lock = -1

    def _turn(self, day: str) -> None:
        """Open the file for a day, unless the current file exists and has room."""
        # A clock that was set back must not put records before older ones.
        same = self._day >= day
        if same and self._file >= 0 and self._size < FILE_BYTES and os.fstat(self._file).st_nlink:
            return
        self.sync()
        day, number = (self._day, f".{self._number + 1}") if same else (day, "")
        self._open(self.directory / f"{day}{number}.jsonl")
        self.turned = True

    def _open(self, path: Path) -> None:
        opened = own_file(path, os.O_RDWR | os.O_APPEND)
        self._day, _, number = path.name.removesuffix(".jsonl").partition(".")
        self._number = int(number or 0)
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
    """The number and digest of a file's last complete line, and the bytes of an incomplete line after it."""
    lines = backward(path)
    last = next(lines, b"")
    torn = 0 if last.endswith(b"\n") else len(last)
    if not (line := next(lines, b"") if torn else last):
        return 0, "", torn
    record = decoded(line)
    # Somebody may have edited it: the check says so, and the chain goes on.
    return 0 if record is None else record.seq, digest(line[:-1]), torn


WAITING = 32_768
"""Most records that wait for the disk; others are lost. Two seconds at the highest call rate, some 100 MB."""

EVERY_SECONDS = 0.25
"""Most seconds from a decision to its line in the file."""

SYNC_SECONDS = 1.0
"""Most seconds until a written line is on the disk (fsync(2)): a crash of the machine may lose these lines."""

MANY = 512
"""Records written together. If so many wait (2,000 calls a second), a process makes their lines; else the
daemon does, in a millisecond, before its other threads run."""

IDLE_SECONDS = 30.0
"""Seconds without so many records after which that process ends, and after a fault none is started."""

LINE_PROCESS = (sys.executable, "-P", "-m", "daemon.audit.record")

LINES_SECONDS = 0.5
"""Seconds for an answer of that process; then the daemon makes the lines, before too many records wait."""

HEAD_SECONDS = 60.0
"""Seconds between two copies of the head: nobody can change a copied record in the files unnoticed."""

STALLED_SECONDS = 5.0
"""Seconds without an answer after which the disk counts as unwritable."""

STOP_SECONDS = 1.0
"""Seconds that a stop waits for the last records."""

NO_PLACE = Path()
"""Stands for the directory of a daemon without an audit."""

Made = Callable[..., AuditRecord | bytes]
"""Makes a record, or its JSON."""

_encode = msgspec.json.Encoder().encode


class LineMaker:
    """Makes lines as `chained` does; if they are many, in a process: a thread would hold up calls. Blocks."""

    def __init__(self, start: Callable[[Sequence[str]], Any] | None = None) -> None:
        """`start` starts a process (`processes.children.start_helper`); None: the caller's thread does all."""
        self._start, self.rests_at = start, -inf
        self._running: Any = None

    def lines(self, records: Sequence[bytes | CallMembers], seq: int, prev: str) -> tuple[bytes, int, str]:
        """The lines of records, with the number and digest of the last one."""
        now = time.monotonic()
        if len(records) >= MANY and self._start and (self._running or now > self.rests_at):
            self.rests_at = now + IDLE_SECONDS
            try:
                if self._running is None:
                    self._running = self._start(LINE_PROCESS)
                    self._running.connection.setblocking(False)
                connection = self._running.connection
                if not connection.gettimeout():
                    connection.recv(1)  # what it sends once it has started
                    connection.settimeout(LINES_SECONDS)
                message = marshal.dumps((list(records), seq, prev))
                connection.sendall(b"%d\n%b" % (len(message), message))
                with connection.makefile("rb") as told:
                    answer: tuple[bytes, int, str] = marshal.loads(told.read(int(told.readline())))  # noqa: S302
                    return answer
            except BlockingIOError:
                pass  # it starts
            except (OSError, ValueError, EOFError) as error:
                logger.info("the process that makes the audit's lines has ended: {}", error)
                self.end()
        return chained(records, seq, prev)

    @property
    def idle_left(self) -> float:
        """Seconds until the process is to end; infinite without one."""
        return inf if self._running is None else max(0.0, self.rests_at - time.monotonic())

    def end(self) -> None:
        """End the process, which keeps nothing."""
        running, self._running = self._running, None
        if running is not None:
            running.process.kill()
            running.wait()


async def _nowhere(_head: ChainHead) -> None:
    """Keep no copy of the head."""


@attrs.define(eq=False)
class Audit:
    """Takes decisions, each as a function that makes its record, and writes the records in order."""

    root: Path = NO_PLACE
    keys: AuditKeys = attrs.field(factory=AuditKeys)
    _daemon: str = ""
    _keep_head: Callable[[ChainHead], Awaitable[None]] = _nowhere
    _version: str = ""
    now: Callable[[], float] = time.time
    """Returns seconds since the epoch."""
    _maker: LineMaker = attrs.field(factory=LineMaker)
    on: bool = attrs.field(init=False)
    problem: str = attrs.field(default="", init=False)
    """Why the last records could not be written; empty if they were."""
    dropped: int = attrs.field(default=0, init=False)
    """Decisions of this daemon that were dropped because the queue was full."""
    chain: Chain | None = attrs.field(default=None, init=False)
    _told: int = attrs.field(default=0, init=False)
    """Dropped decisions that a record has reported."""
    _faulty: int = attrs.field(default=0, init=False)
    _waiting: deque[tuple[Any, ...]] = attrs.field(factory=deque, init=False)
    _bodies: list[bytes | CallMembers] = attrs.field(factory=list, init=False)
    _some: trio.Event = attrs.field(factory=trio.Event, init=False)
    _busy_since: float | None = attrs.field(default=None, init=False)
    _synced_at: float = attrs.field(default=-inf, init=False)
    _kept_at: float = attrs.field(default=-inf, init=False)
    _kept: ChainHead | None = attrs.field(default=None, init=False)
    _thread: trio.CapacityLimiter = attrs.field(factory=partial(trio.CapacityLimiter, 1), init=False)

    def __attrs_post_init__(self) -> None:
        self.on = self.keys.enabled and self.root != NO_PLACE

    @property
    def lost(self) -> int:
        """Records of this daemon that are missing from the files."""
        return self.dropped + self._faulty

    @property
    def refuses(self) -> str:
        """The reason why calls are refused while no record can be written; empty if calls are accepted."""
        if self.keys.fail is not AuditFailure.CLOSED or not self.on:
            return ""
        since = self._busy_since
        if since is not None and trio.current_time() - since > STALLED_SECONDS:
            return f"the disk has not answered for {STALLED_SECONDS:g} s"
        # The calls in flight need room, too.
        return self.problem or ("the disk is too slow" if len(self._waiting) > WAITING // 2 else "")

    def note(self, *noted: Any) -> None:
        """Note a record, `CallMembers`, or a `Made` to call with its arguments in a worker thread."""
        if self.on and len(self._waiting) < WAITING:
            self._waiting.append(noted)
            self._some.set()
        elif self.on:
            self.dropped += 1

    def made(self, decision: Decision, **members: object) -> AuditRecord:
        """A record of this daemon, with the current time unless `at` is given."""
        return AuditRecord(
            **{"at": moment(self.now()), "daemon": self._daemon, "decision": decision, **members}  # type: ignore[arg-type]
        )

    def configure(self, keys: AuditKeys) -> None:
        """Apply a new configuration."""
        if self.on and not keys.enabled:
            self.note(self.made(Decision.ENDED, details={"because": "switched off"}))
        was, self.keys, self.on = self.on, keys, keys.enabled and self.root != NO_PLACE
        if self.on and not was:
            self.note(self._began)

    async def open(self, heads: Sequence[ChainHead] = ()) -> None:
        """Find the chain's end, compare it with `heads`, record the start; `run` does so if the disk hangs."""
        self.note(self._began, heads)
        if self.on:
            with trio.move_on_after(STOP_SECONDS):
                await self._round(opening=True)

    async def run(self) -> None:
        """Write the noted decisions until cancelled."""
        delays, failures = RetryPolicy(EVERY_SECONDS, 2 * SYNC_SECONDS, random.random), 0
        while True:
            if failures:
                await trio.sleep(delays.delay(failures - 1))
            else:
                with trio.move_on_after(self._next_look()):
                    await self._some.wait()
                    await trio.sleep(EVERY_SECONDS)
            failures = 0 if await self._round() else failures + 1

    async def finish(self) -> None:
        """Write the remaining decisions and the end, within `STOP_SECONDS`; accepts none afterwards."""
        self.note(self.made(Decision.ENDED))
        self.on = False
        with trio.move_on_after(STOP_SECONDS):
            await self._round(last=True)
        if self._waiting or self._bodies:
            logger.error("{} records of the audit are lost", len(self._waiting) + len(self._bodies))

    def _next_look(self) -> float:
        """Seconds until a sync to disk, a copy of the head or the end of the idle process is due."""
        if self.chain is None or self.chain.head == self._kept:
            return self._maker.idle_left
        due = self._kept_at + HEAD_SECONDS if self.chain.is_synced else self._synced_at + SYNC_SECONDS
        return min(self._maker.idle_left, max(0.0, due - trio.current_time()))

    async def _round(self, *, opening: bool = False, last: bool = False) -> bool:
        """Write, sync and copy whatever is due; returns whether the disk accepted it. `opening`: only write."""
        now = self._busy_since = trio.current_time()
        self._some = trio.Event()
        if self.dropped > self._told and (last or not self.problem):
            self._waiting.append((self._lost, self.dropped - self._told, "the disk was too slow"))
            self._told = self.dropped
        keep = not opening and (last or now >= self._kept_at + HEAD_SECONDS)
        sync = keep or (not opening and now >= self._synced_at + SYNC_SECONDS)
        write = partial(self._write, sync=sync, last=last)
        try:
            await trio.to_thread.run_sync(write, limiter=self._thread, abandon_on_cancel=True)
        except (OSError, RuntimeError) as error:
            # RuntimeError: no thread can be started, as the machine is at its limit of tasks.
            self._failed(getattr(error, "strerror", None) or str(error))
            return False
        finally:
            self._busy_since = None
        if self.problem:
            logger.info("mcpd writes the audit again")
            self.problem = ""
        if sync:
            self._synced_at = now
        if self.chain is not None and keep and self.chain.head != self._kept:
            self._kept_at, self._kept = now, self.chain.head
            await self._keep_head(self._kept)
        return True

    def _write(self, *, sync: bool, last: bool) -> None:
        if self.chain is None:
            if not self._waiting:
                return  # it is off, and makes no files
            self.chain = Chain(self.root, self._maker.lines)
        chain = self.chain
        while self._waiting or self._bodies:
            while self._waiting and len(self._bodies) < MANY:
                noted = self._waiting.popleft()
                self._bodies.append(noted if isinstance(noted[0], bytes) else self._body(*noted))
            chain.append(self._bodies, self._day())
            self._bodies = []
        if sync:
            chain.sync()
        if chain.turned:
            # Once: what cannot be deleted is tried again with the next file, not with each record.
            chain.turned = False
            self._expire(chain)
        if last or time.monotonic() > self._maker.rests_at:
            self._maker.end()
        if last:
            chain.close()

    def _day(self, ago: int = 0) -> str:
        return moment(self.now() - ago * 86_400).date().isoformat()

    def _body(self, noted: AuditRecord | Made, *args: object) -> bytes:
        try:
            made = noted if isinstance(noted, AuditRecord) else noted(*args)
            return made if isinstance(made, bytes) else _encode(made)
        except Exception as error:  # noqa: BLE001 - the boundary: a bug costs this record, and is recorded
            logger.opt(exception=error).error("internal error in mcpd while recording a decision")
            self._faulty += 1
            return _encode(self._lost(1, f"internal error: {type(error).__name__}"))

    def _lost(self, count: int, because: str) -> AuditRecord:
        return self.made(Decision.LOST, details={"count": count, "because": because})

    def _began(self, heads: Sequence[ChainHead] = ()) -> AuditRecord:
        chain = self.chain
        assert chain is not None, "the chain is open before the first record"
        details: dict[str, object] = {"chain": chain.id, "version": self._version}
        if chain.torn:
            details["torn"] = chain.torn
        if (head := chain.lacks(heads)) is not None:
            logger.error("records of the audit were changed or removed: `mcpd audit verify` says more")
            details |= {"lacks": head.seq, "digest": head.digest}
        return self.made(Decision.BEGAN, details=details)

    def _expire(self, chain: Chain) -> None:
        for path, head in chain.expired(self._day(self.keys.days), self.keys.max_bytes):
            details = {"file": path.name, "through": head.seq, "head": head.digest}
            # On disk before the file is gone: this record vouches for the beginning of the next file.
            chain.append([_encode(self.made(Decision.EXPIRED, details=details))], self._day())
            chain.sync()
            path.unlink(missing_ok=True)

    def _failed(self, because: str) -> None:
        if not self.problem:
            logger.error("the audit cannot be written below {}: {}", self.root, because)
        self.problem = because
