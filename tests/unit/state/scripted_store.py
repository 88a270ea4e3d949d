"""A store in memory that fails, hangs and comes back on cue.

`Disk` outlives the stores that are opened on it, as a file does. Its operations are called by worker threads; a
test looks at what is on it with `until`.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from typing import TYPE_CHECKING, TypeVar

import attrs
import trio
import trio.testing

from daemon.catalog.loaded import is_anonymous
from daemon.state import sqlite, store
from daemon.state.event_rows import put_events
from daemon.state.sql import Batch, Changes, Recollection, StoreCause, StoreFault, Transaction, Written
from daemon.state.store import Store
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from daemon.catalog.loaded import LoadedStatus, LoadedTool, SessionRecord, Verdict
    from daemon.facts import ServerRecord
    from daemon.model import Approval

T = TypeVar("T")


WHERE = "scripted://disk"


async def calm() -> None:
    """Until every task waits and no thread works: only then is it known who waits for a clock."""
    while True:
        await trio.testing.wait_all_threads_completed()
        await trio.testing.wait_all_tasks_blocked()
        if not trio.testing.active_thread_count():
            return


class Disk:
    """What was written, and what is to go wrong."""

    def __init__(self) -> None:
        self.servers: dict[str, ServerRecord] = {}
        self.sessions: dict[str, SessionRecord] = {}
        self.off: set[tuple[str, str]] = set()
        self.tells_off = False
        """Whether another daemon has just changed what is off."""
        self.approvals: list[Approval] = []
        self.counted: Counter[str] = Counter()
        self.version = 0
        self.written: list[Batch] = []
        """Every batch, in order."""
        self.asked: Counter[str] = Counter()
        """How often each operation was begun."""
        self.open_stores = 0
        self.unreadable: tuple[str, ...] = ()
        self.epochs: dict[str, int] = {}
        """Epochs that are given whatever is asked for."""
        self.changes: list[Changes] = []
        """What others did, to be told one after the other."""
        self.asides = 0
        self.set_aside_leaves: StoreCause | None = None
        """How the place fails once the corrupt one is out of it."""
        self.tables = tables()
        """What other modules know of their own tables (`Store.within`)."""
        self._faults: dict[str, list[Exception]] = {}
        self._broken: dict[str, Exception] = {}
        self._hanging: dict[str, threading.Event] = {}

    def fails_once(self, operation: str, kind: StoreCause) -> None:
        """The next time, it fails so."""
        self._faults.setdefault(operation, []).append(fault(kind))

    def fails(self, operation: str, error: StoreCause | Exception) -> None:
        """From now on it fails so."""
        self._broken[operation] = fault(error) if isinstance(error, StoreCause) else error

    def works(self) -> None:
        """Nothing is wrong any more."""
        self._faults.clear()
        self._broken.clear()
        self.goes_on()

    def hangs(self, operation: str) -> None:
        """From now on it does not come back before `goes_on`."""
        self._hanging[operation] = threading.Event()

    def goes_on(self) -> None:
        """Whatever hangs comes back."""
        for event in list(self._hanging.values()):
            event.set()
        self._hanging.clear()

    def set_aside(self) -> str:
        """As `daemon.state.set_aside`."""
        self.begin("set_aside")
        self.wipe()
        self.works()
        if self.set_aside_leaves is not None:
            self.fails("open", self.set_aside_leaves)
        # Last: this is a worker's thread, and a test that waits for it says then what is to fail next.
        self.asides += 1
        return f"disk.corrupt-{self.asides}"

    def wipe(self) -> None:
        """Somebody takes everything away."""
        self.servers, self.sessions, self.off, self.approvals = {}, {}, set(), []
        self.counted.clear()
        self.tables = tables()

    def open(self) -> ScriptedStore:
        """As `Store.open`."""
        self.begin("open")
        self.open_stores += 1
        return ScriptedStore(self)

    def begin(self, operation: str) -> None:
        """Every operation begins with what is to go wrong."""
        self.asked[operation] += 1
        hanging = self._hanging.get(operation)
        if hanging is not None:
            assert hanging.wait(PATIENCE)
        if planned := self._faults.get(operation):
            raise planned.pop(0)
        if operation in self._broken:
            raise self._broken[operation]


class ScriptedStore(Store):
    """One opened store."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._closed = False

    def recall(self) -> Recollection:
        self._begin("recall")
        disk = self._disk
        return Recollection(
            version=max(1, disk.version),
            switched=frozenset(disk.off),
            servers=tuple(disk.servers.values()),
            approvals=tuple(disk.approvals),
            unreadable=disk.unreadable,
            counted=dict(disk.counted),
            counted_since=1.0 if disk.counted else 0.0,
        )

    def keep(self, batch: Batch) -> Written:
        self._begin("keep")
        disk = self._disk
        disk.version += 1
        for record in batch.servers:
            epoch = disk.epochs.get(record.server, record.epoch)
            disk.servers[record.server] = attrs.evolve(record, epoch=epoch)
        disk.sessions.update({record.key: record for record in batch.sessions})
        for key, at in batch.touched.items():
            if key in disk.sessions:
                disk.sessions[key] = attrs.evolve(disk.sessions[key], seen_at=at)
        disk.counted.update(batch.counted)
        put_events(disk.tables, batch.events)
        disk.off = (disk.off | batch.switched_off) - batch.switched_on
        disk.approvals += batch.approvals
        marked = self._mark(batch)
        disk.written.append(batch)
        given = {each.server: disk.epochs[each.server] for each in batch.servers if each.server in disk.epochs}
        return Written(version=disk.version, epochs=given, marked=marked)

    def session(self, key: str) -> SessionRecord | None:
        self._begin("session")
        return self._disk.sessions.get(key)

    def sessions(self, limit: int) -> tuple[SessionRecord, ...]:
        self._begin("sessions")
        newest = sorted(self._disk.sessions.values(), key=lambda record: -record.seen_at)
        return tuple(newest[:limit])

    def forget_sessions(
        self, before: float, sparing: Collection[str] = (), *, most: int, anonymous: float = 0.0
    ) -> int:
        self._begin("forget_sessions")
        sessions = self._disk.sessions
        oldest = sorted(sessions, key=lambda key: sessions[key].seen_at)
        idle = {
            key for key, each in sessions.items() if each.seen_at < (anonymous if is_anonymous(key) else before)
        }
        gone = [key for key in {*idle, *oldest[: max(0, len(oldest) - most)]} if key not in sparing]
        for key in gone:
            del sessions[key]
        return len(gone)

    def changes_since(
        self,
        version: int,
        keys: Collection[str] = (),
        *,
        heartbeat: bool = False,
        on_switched: Callable[[frozenset[tuple[str, str]]], None] = lambda _off: None,
    ) -> Changes:
        self._begin("heartbeat" if heartbeat else "changes_since")
        if version and self._disk.changes:
            if self._disk.tells_off:
                on_switched(frozenset(self._disk.off))
            return self._disk.changes.pop(0)
        return Changes(version=max(1, version))

    def within(self, work: Callable[[Transaction], T], *, writes: bool = False) -> T:
        self._begin("write within" if writes else "read within")
        return work(self._disk.tables)

    def check(self) -> None:
        self._begin("check")

    def close(self) -> None:
        self._begin("close")
        assert not self._closed
        self._closed = True
        self._disk.open_stores -= 1

    def _begin(self, operation: str) -> None:
        assert not self._closed, "used after it was closed"
        self._disk.begin(operation)

    def _mark(self, batch: Batch) -> dict[LoadedStatus, int]:
        judge = batch.judge
        marked: Counter[LoadedStatus] = Counter()

        def now(tool: LoadedTool) -> Verdict:
            if judge is None or tool.key[0] not in batch.judged:
                return tool.verdict
            verdict = judge(*tool.key, tool.schema_hash)
            marked[verdict.status] += verdict != tool.verdict
            return verdict

        for key, record in self._disk.sessions.items():
            self._disk.sessions[key] = attrs.evolve(record, loaded=record.loaded.judged(now, batch.at))
        return dict(+marked)


def tables() -> Transaction:
    """All tables, empty, in memory; for one thread at a time."""
    memory = sqlite3.connect(":memory:", check_same_thread=False)
    memory.row_factory = sqlite3.Row
    made = Transaction(memory.cursor(), sqlite.DIALECT)
    store.migrate(made, WHERE)
    return made


def fault(kind: StoreCause) -> StoreFault:
    """As the store says it."""
    return StoreFault(kind, WHERE, f"the test says so ({kind})")
