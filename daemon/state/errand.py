"""Errands: blocking work done in one worker thread, one piece after another.

For a library that blocks and may hang: none is started beside one that does not come back, so a hang costs one
thread however long it lasts. What was sent goes on when whoever waits for it gives up, and what it brings stays
with the errand. Nothing here holds the program: a thread that hangs is left behind when the loop ends.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Errand(Generic[T]):
    """One piece of work: waiting, under way, or back."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self.back = trio.Event()
        """Set once the work has ended, whichever way."""
        self._result: T | None = None
        self._error: BaseException | None = None

    def do(self) -> None:
        """Do the work, in the thread; never raises."""
        try:
            self._result = self._work()
        except BaseException as error:  # noqa: BLE001 - it is the sender's, who may look at it or not
            self._error = error

    def fail(self, error: BaseException) -> None:
        """It cannot be done."""
        self._error = error

    def result(self) -> T:
        """What it brought; only once it is back.

        Raises:
            BaseException: whatever the work raised.
        """
        if self._error is not None:
            raise self._error
        return cast("T", self._result)


class Errands:
    """Sends errands, in the order in which they were given, one at a time."""

    def __init__(self, name: str) -> None:
        """Begin with none.

        Args:
            name: the thread's, for those who look at the process.
        """
        self._name = name
        self._waiting: deque[Errand[Any]] = deque()
        self._under_way: Errand[Any] | None = None

    def send(self, work: Callable[[], T]) -> Errand[T]:
        """Have work done in the thread, after all that was sent before; never blocks."""
        errand = Errand(work)
        self._waiting.append(errand)
        self._next()
        return errand

    def withdraw(self, errand: Errand[Any]) -> None:
        """Nobody wants it any more: it is not begun if it has not been. One that is under way goes on."""
        if errand in self._waiting:
            self._waiting.remove(errand)

    def _next(self) -> None:
        while self._under_way is None and self._waiting:
            errand = self._under_way = self._waiting.popleft()
            try:
                self._start(errand)
            except RuntimeError as error:
                # No thread could be started: at the limit of threads or memory.
                errand.fail(error)
                self._under_way = None
                errand.back.set()

    def _start(self, errand: Errand[Any]) -> None:
        token = trio.lowlevel.current_trio_token()

        def deliver(_outcome: object) -> None:
            try:
                token.run_sync_soon(self._arrive, errand)
            except trio.RunFinishedError:
                # The daemon has ended without it.
                return

        trio.lowlevel.start_thread_soon(errand.do, deliver, self._name)

    def _arrive(self, errand: Errand[Any]) -> None:
        self._under_way = None
        errand.back.set()
        self._next()
