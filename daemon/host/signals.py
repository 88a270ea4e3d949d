"""The signals that the daemon handles, from its first moment to its last.

Their default would kill us halfway through starting or stopping, and leave the socket file behind. There is one
handler for the whole time: a separate one for the event loop would have to be replaced while signals arrive.
Python's handlers interrupt each other, and a burst of signals ends in a RecursionError: so the second signal
that asks us to stop is the last one handled.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ENDING = frozenset({signal.SIGTERM, signal.SIGINT})
"""Signals that end the daemon."""

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that the daemon handles."""


class Signals:
    """Handles signals; to be made in the main thread."""

    def __init__(self) -> None:
        """Handle signals from now on, and keep them until `listen`."""
        self._pending: list[int] = []
        self._deliver: Callable[[int], None] = self._pending.append
        self._ends = 0
        self._before = {number: signal.signal(number, self._take) for number in HANDLED}

    def listen(self, deliver: Callable[[int], None]) -> None:
        """Deliver the signals received so far, and every later one.

        Args:
            deliver: called within a signal handler: may only schedule work, as `TrioToken.run_sync_soon` does.
        """
        self._deliver = deliver
        pending, self._pending = self._pending, []
        for number in pending:
            deliver(number)

    def ignore(self) -> None:
        """Ignore signals from now on, so that nothing cuts short the interpreter's own shutdown."""
        for number in HANDLED:
            signal.signal(number, signal.SIG_IGN)

    def restore(self) -> None:
        """Restore the previous handlers: for a process that goes on without a daemon."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, _frame: object) -> None:
        if number in ENDING:
            self._ends += 1
            if self._ends > 1:
                for each in ENDING:
                    signal.signal(each, signal.SIG_IGN)
        self._deliver(number)
