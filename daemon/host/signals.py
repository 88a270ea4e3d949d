"""The signals that concern the daemon, taken from its first moment to its last.

Their default would kill us half-way through starting or ending, and leave the socket file behind. One handler
for the whole time: another one for the event loop alone would have to be put back while signals come, and a
handler of Python's that is interrupted by the next signal, and that by the next, ends in a RecursionError. So
the second signal that asks for the end is the last that is heard.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ENDING = frozenset({signal.SIGTERM, signal.SIGINT})
"""Signals that end the daemon."""

HEARD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that the daemon handles."""


class Signals:
    """Takes signals; only for the main thread."""

    def __init__(self) -> None:
        """Take them from now on, and keep them until somebody listens."""
        self._unheard: list[int] = []
        self._deliver: Callable[[int], None] = self._unheard.append
        self._ends = 0
        self._before = {number: signal.signal(number, self._take) for number in HEARD}

    def listen(self, deliver: Callable[[int], None]) -> None:
        """Hand over those that have come, and each that comes from now on.

        Args:
            deliver: called within a signal handler: may only leave a note, as `TrioToken.run_sync_soon` does.
        """
        self._deliver = deliver
        unheard, self._unheard = self._unheard, []
        for number in unheard:
            deliver(number)

    def ignore(self) -> None:
        """All is done: not even the interpreter's own end, which restores defaults, is to be cut short."""
        for number in HEARD:
            signal.signal(number, signal.SIG_IGN)

    def restore(self) -> None:
        """Put back what was there before: for a process that goes on without a daemon."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, _frame: object) -> None:
        if number in ENDING:
            self._ends += 1
            if self._ends > 1:
                for each in ENDING:
                    signal.signal(each, signal.SIG_IGN)
        self._deliver(number)
