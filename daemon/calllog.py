"""A line in the log for every call, written off the hot path.

A call leaves a tuple; a task turns what has gathered into log lines a few times per second. (Formatting a line
costs about as much as forwarding the call itself.)
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import trio
from loguru import logger

if TYPE_CHECKING:
    from typing import TypeAlias

GATHERED = 10_000
"""Calls that may wait to be logged; older ones are dropped, and counted. More than one interval gathers."""

EVERY_SECONDS = 0.25
"""How long a line may lag behind its call."""

Note: TypeAlias = tuple[int, str, float, str]


class CallLogger:
    """Notes calls: session, category and name, latency, outcome (seed 001, §8)."""

    def __init__(self) -> None:
        """Begin with nothing noted."""
        self._notes: deque[Note] = deque(maxlen=GATHERED)
        self._some = trio.Event()
        self.dropped = 0

    def note(self, session: int, label: str, seconds: float, outcome: str) -> None:
        """Note a call that ended. Never blocks."""
        self.dropped += len(self._notes) == GATHERED
        self._notes.append((session, label, seconds, outcome))
        self._some.set()

    async def run(self) -> None:
        """Write what gathers, until cancelled; then the rest."""
        try:
            while True:
                await self._some.wait()
                await trio.sleep(EVERY_SECONDS)
                self._some = trio.Event()
                await trio.to_thread.run_sync(self._write)
        finally:
            self._write()

    def _write(self) -> None:
        if self.dropped:
            lost, self.dropped = self.dropped, 0
            logger.warning("{} calls were not logged: they came faster than they could be", lost)
        while self._notes:
            session, label, seconds, outcome = self._notes.popleft()
            logger.bind(session=session).info("call {} {:.1f} ms {}", label, seconds * 1000, outcome)
