"""Opens the store, and runs its operations in one worker thread with a bound on every caller's wait.

The database library may hang. An operation starts only after the last has returned, so a hang costs one thread.
The store's owner waits as long as an operation takes, with `on_overdue` called; other callers wait for
`patience` and then get the reason, while the operation continues.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import msgspec
import trio
from loguru import logger

from daemon.state.sql import StoreCause, StoreFault
from daemon.state.store import Store, listen, set_aside

if TYPE_CHECKING:
    from outcome import Outcome

    from daemon.config.state_url import StateUrl
    from daemon.state.postgres import PostgresNotifications
    from daemon.state.server_notes import Switches
    from daemon.state.sql import Recollection


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """An opened store and its content."""

    store: Store
    memory: Recollection
    switched: Switches
    """The switches of the store, or the trusted ones in their place (`TrustedSwitches`)."""
    replaces: bool = False
    """Whether the store replaces another one, which was set aside."""


class TrustedSwitches:
    """Operators' switches, which override those of a store that only this daemon should write.

    A server that runs as the daemon's user can rewrite the store's file. So the daemon's memory counts; without
    one, the previous daemon's handover, if no server could change it (`host.notify`); else the file.
    """

    def __init__(
        self, handed_over: bytes = b"", hand_over: Callable[[bytes], None] = lambda _content: None
    ) -> None:
        self.off: Switches | None = None
        """Everything that is switched off; None without a trusted source."""
        self._hand_over = hand_over
        if handed_over:
            self.off = frozenset(msgspec.json.decode(handed_over, type=list[tuple[str, str]]))

    def know(self, off: Switches) -> None:
        """Note everything that is now switched off, for this daemon and the next."""
        if off != self.off:
            self.off = off
            self._hand_over(msgspec.json.encode(sorted(off)))


class Opener:
    """Opens the store in the worker thread; sets a corrupt file aside once: a second means a bad disk."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        *,
        where: str,
        set_aside: Callable[[], str] | None = None,
        shared: bool = False,
        listen: Callable[[], PostgresNotifications] | None = None,
        trusted: TrustedSwitches | None = None,
    ) -> None:
        self.where = where
        self.shared = shared
        self.trusted = TrustedSwitches() if trusted is None or shared else trusted
        self.listen = listen
        self._open = open_store
        self._set_aside = set_aside
        self._corrupt: StoreFault | None = None
        self._replaces = False
        self.aside = ""
        """The corrupt store's new name; empty if no store was set aside."""

    def mark_corrupt(self, fault: StoreFault) -> None:
        """Note that the store was found corrupt in use, and has been closed."""
        self._corrupt = fault

    def __call__(self) -> Opened:
        """Open the store and read its content; raises `StoreFault`."""
        if self._corrupt is not None and self._set_aside is not None:
            self._put_aside(self._corrupt)
        try:
            return self._opened()
        except StoreFault as fault:
            if fault.cause is not StoreCause.CORRUPT:
                raise
            self._put_aside(fault)
            return self._opened()

    def _opened(self) -> Opened:
        store = self._open()
        try:
            memory, off = store.recall(), self.trusted.off
            switched = memory.switched if self.shared or off is None else off
            opened = Opened(store=store, memory=memory, switched=switched, replaces=self._replaces)
        except BaseException:
            with contextlib.suppress(Exception):
                store.close()
            raise
        self._replaces = False
        return opened

    def _put_aside(self, fault: StoreFault) -> None:
        if self._set_aside is None or self.aside:
            raise fault
        try:
            self.aside = self._set_aside()
        except (StoreFault, OSError) as error:
            why = f"and it cannot be set aside: {error}"
            raise StoreFault(StoreCause.CORRUPT, fault.where, why, "Move the file away by hand") from fault
        self._corrupt, self._replaces = None, True


def opener_of(place: StateUrl, *, writer: str, wall: Callable[[], float], trusted: TrustedSwitches) -> Opener:
    """The opener for a place: it may set a file aside, and a shared database sends it notifications."""
    return Opener(
        lambda: Store.open(place, writer=writer),
        where=place.where,
        set_aside=None if place.shared else lambda: set_aside(place, wall()),
        shared=place.shared,
        listen=partial(listen, place, writer=writer) if place.shared else None,
        trusted=trusted,
    )


T = TypeVar("T")

KEPT_OPEN = frozenset({StoreCause.FULL, StoreCause.LOCKED, StoreCause.READ_ONLY})
"""Causes after which the store is still the same and readable."""

THREAD = "mcpd-store"
"""The name of the worker thread, for tools that inspect the process."""


class Job(Generic[T]):
    """A piece of work for a worker thread: waiting, running, or done."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.work = work
        self.done = trio.Event()
        """Set when the work has ended, with a result or an error."""
        self.result: Callable[[], T]
        """Returns the work's result, or raises its error; call it only when `done` is set."""

    def end(self, result: Callable[[], T]) -> None:
        """Store the work's result, and wake the sender."""
        self.result = result
        self.done.set()


class Worker:
    """Runs jobs in a thread, one at a time, in order."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: deque[Job[Any]] = deque()
        self._under_way: Job[Any] | None = None

    def send(self, work: Callable[[], T]) -> Job[T]:
        """Queue work for the thread; never blocks."""
        job = Job(work)
        self._waiting.append(job)
        self._next()
        return job

    def withdraw(self, job: Job[Any]) -> None:
        """Drop a job that has not started; a running one continues."""
        if job in self._waiting:
            self._waiting.remove(job)

    def _next(self) -> None:
        while self._under_way is None and self._waiting:
            job = self._under_way = self._waiting.popleft()
            try:
                self._start(job)
            except RuntimeError as error:
                # No thread could be started: the limit of threads or memory is reached.
                self._under_way = None
                job.end(partial(_raise, error))

    def _start(self, job: Job[Any]) -> None:
        token = trio.lowlevel.current_trio_token()

        def deliver(result: Outcome[Any]) -> None:
            # The loop may have ended already.
            with contextlib.suppress(trio.RunFinishedError):
                token.run_sync_soon(self._arrive, job, result.unwrap)

        trio.lowlevel.start_thread_soon(job.work, deliver, self._name)

    def _arrive(self, job: Job[Any], result: Callable[[], Any]) -> None:
        self._under_way = None
        job.end(result)
        self._next()


def _raise(error: BaseException) -> NoReturn:
    raise error


class StoreAccess:
    """Holds the open store, or the reason why there is none."""

    def __init__(self, opener: Opener, *, patience: float, on_overdue: Callable[[StoreFault], None]) -> None:
        self.opener = opener
        self.store: Store | None = None
        self.suspicion: StoreFault | None = None
        """A reader's fault that may mean the store is unusable; the owner has to examine the store."""
        self.ends_at = math.inf
        """The daemon's end, on trio's clock, which ends every wait for an operation."""
        self.moved = trio.lowlevel.ParkingLot()
        """Wakes its tasks whenever the store is opened, closed, given up or written to."""
        self._patience = patience
        self._on_overdue = on_overdue
        self._worker = Worker(THREAD)
        self._opening: Job[Opened] | None = None
        self._hanging = False
        self._why_not: StoreFault | None = None

    @property
    def being_opened(self) -> bool:
        """Whether an attempt to open the store is running, or its result was not taken."""
        return self._opening is not None

    async def open(self) -> Opened:
        """Open the store and read its content, or wait for a running attempt; raises `StoreFault`."""
        if self._opening is None:
            self._opening = self._worker.send(self.opener)
        await self._wait(self._opening)
        job, self._opening = self._opening, None
        opened = job.result()
        self.store, self._why_not = opened.store, None
        self.moved.unpark_all()
        return opened

    async def use(self, work: Callable[[Store], T]) -> T:
        """Use the open store as its owner, however long it takes; raises `StoreFault`."""
        assert self.store is not None
        job = self._worker.send(partial(work, self.store))
        # Shielded: the work is done anyway, and a caller that does not learn so would repeat it.
        await self._wait(job, shield=True)
        return job.result()

    async def ask(self, work: Callable[[Store], T]) -> T:
        """Use the store for at most `patience` seconds; raises `StoreFault`."""
        with trio.move_on_after(self._patience):
            while self.store is None and self._why_not is None and not self._hanging:
                await self.moved.park()
            if self.store is None or self._hanging:
                raise self._why_not or self._slow()
            job = self._worker.send(partial(work, self.store))
            try:
                await job.done.wait()
                return job.result()
            except StoreFault as fault:
                if fault.cause not in KEPT_OPEN and self.store is not None:
                    self.suspicion = fault
                    self.moved.unpark_all()
                raise
            except Exception as error:
                logger.exception("internal error in mcpd while reading from the store")
                raise own_fault(self.opener.where) from error
            finally:
                self._worker.withdraw(job)
        raise self._slow()

    def give_up(self, fault: StoreFault) -> None:
        """Note why the store cannot be used until it is opened again."""
        self._why_not = fault
        self.moved.unpark_all()

    def close(self) -> Job[None] | None:
        """Close the store after the queued operations; callers need not wait for the job."""
        store, self.store, self.suspicion, self._why_not = self.store, None, None, None
        return None if store is None else self._worker.send(partial(_close, store))

    def overdue(self) -> None:
        """Report that an operation takes longer than the patience."""
        self._hanging = True
        self._on_overdue(self._slow())
        self.moved.unpark_all()

    async def _wait(self, job: Job[T], *, shield: bool = False) -> None:
        patient_until = min(trio.current_time() + self._patience, self.ends_at)
        with trio.move_on_at(patient_until, shield=shield):
            await job.done.wait()
        if not job.done.is_set():
            self.overdue()
            await job.done.wait()
        self._hanging = False

    def _slow(self) -> StoreFault:
        why = f"it has not answered for {self._patience:g} s"
        return StoreFault(StoreCause.UNAVAILABLE, self.opener.where, why)


def own_fault(where: str) -> StoreFault:
    """The fault for an unexpected exception, which has been logged."""
    return StoreFault(StoreCause.UNAVAILABLE, where, "internal error in mcpd, see its log")


def _close(store: Store) -> None:
    try:
        store.close()
    except Exception as error:  # noqa: BLE001 - the store is no longer used
        logger.warning("the store did not close cleanly: {}", error)
