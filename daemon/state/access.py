"""Access to the store: it is opened, used and closed in one worker thread, and nobody waits for it in vain.

The library that speaks with the database blocks and may hang. None of its operations is started beside one
that does not come back, so a hang costs one thread however long it lasts. What was begun goes on when those who
wait for it give up. Nothing here holds the program: a thread that hangs is left behind when the loop ends.

There are two ways to use the store. Its owner waits as long as an operation takes, for a second one beside it
would hang, too; from the patience on everybody is told that it does not answer. Others wait for the patience,
and then hear why not.
"""

from __future__ import annotations

import contextlib
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import attrs
import trio
from loguru import logger

from daemon.state.faults import StoreCause, StoreFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.state.store import Store
    from daemon.state.values import Recollection

T = TypeVar("T")

KEPT_OPEN = frozenset({StoreCause.FULL, StoreCause.LOCKED, StoreCause.READ_ONLY})
"""After these the store is still the same, and can be read."""

THREAD = "mcpd-store"
"""The worker thread's name, for those who look at the process."""


class Broadcast:
    """Something that happens again and again, and can be waited for."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def notify(self) -> None:
        """It happens: wake everybody who waits."""
        self._event.set()
        self._event = trio.Event()

    async def wait(self) -> None:
        """Wait until it happens the next time."""
        await self._event.wait()


class Job(Generic[T]):
    """One piece of work for a worker thread: waiting, under way, or done."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self.done = trio.Event()
        """Set once the work has ended, whichever way."""
        self._result: T | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Do the work, in the thread; never raises."""
        try:
            self._result = self._work()
        except BaseException as error:  # noqa: BLE001 - it is the sender's, who may look at it or not
            self._error = error

    def fail(self, error: BaseException) -> None:
        """It cannot be done."""
        self._error = error

    def result(self) -> T:
        """What the work returned; only once it is done.

        Raises:
            BaseException: whatever the work raised.
        """
        if self._error is not None:
            raise self._error
        return cast("T", self._result)


class Worker:
    """Does jobs in a thread, in the order in which they were given, one at a time."""

    def __init__(self, name: str) -> None:
        """Begin with none.

        Args:
            name: the thread's.
        """
        self._name = name
        self._waiting: deque[Job[Any]] = deque()
        self._under_way: Job[Any] | None = None

    def send(self, work: Callable[[], T]) -> Job[T]:
        """Have work done in the thread, after all that was sent before; never blocks."""
        job = Job(work)
        self._waiting.append(job)
        self._next()
        return job

    def withdraw(self, job: Job[Any]) -> None:
        """Nobody wants it any more: it is not begun if it has not been. One that is under way goes on."""
        if job in self._waiting:
            self._waiting.remove(job)

    def _next(self) -> None:
        while self._under_way is None and self._waiting:
            job = self._under_way = self._waiting.popleft()
            try:
                self._start(job)
            except RuntimeError as error:
                # No thread could be started: at the limit of threads or memory.
                job.fail(error)
                self._under_way = None
                job.done.set()

    def _start(self, job: Job[Any]) -> None:
        token = trio.lowlevel.current_trio_token()

        def deliver(_outcome: object) -> None:
            # The daemon may have ended without it.
            with contextlib.suppress(trio.RunFinishedError):
                token.run_sync_soon(self._arrive, job)

        trio.lowlevel.start_thread_soon(job.run, deliver, self._name)

    def _arrive(self, job: Job[Any]) -> None:
        self._under_way = None
        job.done.set()
        self._next()


@attrs.frozen(kw_only=True)
class Opened:
    """A store that was opened, and what it remembers."""

    store: Store = attrs.field(repr=False)
    """The open store."""
    memory: Recollection = attrs.field(repr=False)
    """All but sessions."""
    replaces: bool = False
    """Whether it takes the place of one that was set aside."""


class Opener:
    """Opens the store, in the thread. One that is corrupt is set aside, once in the life of a daemon.

    Once: a disk that makes a corrupt file of each new one needs an operator, not a folder full of them.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        *,
        where: str,
        set_aside: Callable[[], str] | None = None,
        shared: bool = False,
    ) -> None:
        """Begin with nothing opened.

        Args:
            open_store: opens it; blocks.
            where: which store, for people: without a password.
            set_aside: renames a corrupt one and returns its new name; None where that cannot be done.
            shared: whether other daemons may write to it.
        """
        self.where = where
        self.shared = shared
        self._open = open_store
        self._set_aside = set_aside
        self._condemned: StoreFault | None = None
        self._replaces = False
        self.aside = ""
        """What the one that was corrupt is called now; empty if none was."""

    def condemn(self, fault: StoreFault) -> None:
        """It was found corrupt in use; it has been closed."""
        self._condemned = fault

    def __call__(self) -> Opened:
        """Open it and read what it remembers.

        Raises:
            StoreFault: it cannot be opened, or is corrupt and cannot be set aside.
        """
        if self._condemned is not None and self._set_aside is not None:
            self._put_aside(self._condemned)
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
            opened = Opened(store=store, memory=store.recall(), replaces=self._replaces)
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
        self._condemned, self._replaces = None, True


class StoreAccess:
    """Holds the store, or the reason why there is none."""

    def __init__(self, opener: Opener, *, patience: float, on_overdue: Callable[[StoreFault], None]) -> None:
        """Begin with nothing opened.

        Args:
            opener: opens the store.
            patience: seconds that anybody waits for one operation.
            on_overdue: told when an operation takes longer.
        """
        self.opener = opener
        self.store: Store | None = None
        """The store while it is open."""
        self.suspicion: StoreFault | None = None
        """A fault that a reader met and that costs the store; for its owner to look at."""
        self.moved = Broadcast()
        """Whenever it is opened, closed or given up, and something was written."""
        self._patience = patience
        self._on_overdue = on_overdue
        self._worker = Worker(THREAD)
        self._opening: Job[Opened] | None = None
        self._hanging = False
        self._why_not: StoreFault | None = None

    @property
    def being_opened(self) -> bool:
        """Whether an attempt to open it has not come back, or was not looked at."""
        return self._opening is not None

    async def open(self) -> Opened:
        """Open it, and read what it remembers. An attempt that is under way is waited for.

        Raises:
            StoreFault: it cannot be opened.
        """
        if self._opening is None:
            self._opening = self._worker.send(self.opener)
        await self._wait(self._opening)
        job, self._opening = self._opening, None
        opened = job.result()
        self.store, self._why_not = opened.store, None
        self.moved.notify()
        return opened

    async def use(self, work: Callable[[Store], T]) -> T:
        """Use the open store, for its owner: however long it takes.

        Raises:
            StoreFault: it failed.
        """
        assert self.store is not None
        job = self._worker.send(partial(work, self.store))
        # What is cancelled meanwhile is done all the same: who did not hear of it would count it again.
        await self._wait(job, shield=True)
        return job.result()

    async def ask(self, work: Callable[[Store], T]) -> T:
        """Use it for somebody who waits no longer than the patience.

        Raises:
            StoreFault: it failed, does not answer, or is not open.
        """
        with trio.move_on_after(self._patience):
            while self.store is None and self._why_not is None and not self._hanging:
                await self.moved.wait()
            if self.store is None or self._hanging:
                raise self._why_not or self._slow()
            job = self._worker.send(partial(work, self.store))
            try:
                await job.done.wait()
                return job.result()
            except StoreFault as fault:
                if fault.cause not in KEPT_OPEN and self.store is not None:
                    self.suspicion = fault
                    self.moved.notify()
                raise
            except Exception as error:
                logger.exception("a fault of mcpd's own while reading from the store")
                raise own_fault(self.opener.where) from error
            finally:
                self._worker.withdraw(job)
        raise self._slow()

    def give_up(self, fault: StoreFault) -> None:
        """Until it is opened again, this is why nobody can use it."""
        self._why_not = fault
        self.moved.notify()

    def close(self) -> Job[None] | None:
        """Close it, in its turn; nobody has to wait for the job."""
        store, self.store, self.suspicion, self._why_not = self.store, None, None, None
        return None if store is None else self._worker.send(partial(_close, store))

    def overdue(self) -> None:
        """An operation takes longer than anybody waits for one."""
        self._hanging = True
        self._on_overdue(self._slow())
        self.moved.notify()

    async def _wait(self, job: Job[T], *, shield: bool = False) -> None:
        with trio.move_on_after(self._patience, shield=shield):
            await job.done.wait()
        if not job.done.is_set():
            self.overdue()
            await job.done.wait()
        self._hanging = False

    def _slow(self) -> StoreFault:
        why = f"it has not answered for {self._patience:g} s"
        return StoreFault(StoreCause.UNAVAILABLE, self.opener.where, why)


def own_fault(where: str) -> StoreFault:
    """What others are told of an exception that should not have been raised, and was logged."""
    return StoreFault(StoreCause.UNAVAILABLE, where, "a fault of mcpd's own, see its log")


def _close(store: Store) -> None:
    try:
        store.close()
    except Exception as error:  # noqa: BLE001 - it is of no use any more
        logger.warning("the store did not close well: {}", error)
