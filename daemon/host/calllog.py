"""A line in the log for every call, written off the hot path.

A call leaves a tuple; a few times per second, what has gathered becomes a record of the log for many calls, in
a worker thread, and whoever writes the log makes lines of it. (A record for each cost more than forwarding the
call itself; so did a line that was looked through for secrets: only its label may hold one.)
"""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

import trio
from loguru import logger

GATHERED = 10_000
"""Calls that may wait to be logged; older ones are dropped, and counted. More than one interval gathers."""

EVERY_SECONDS = 0.25
"""How long a line may lag behind its call."""

CALLS_PER_RECORD = 250
"""So many are written in one go, a third of a millisecond, before the event loop runs again."""

Note: TypeAlias = tuple[int, str, float, str]
"""Number of the connection, label, seconds, outcome. The label may be what a client called a tool that nobody
has: as it came, and as long as it was."""


class CallLogger:
    """Notes calls: session, category and name, latency, outcome (seed 001, §8)."""

    def __init__(self) -> None:
        """Begin with nothing noted."""
        self._notes: deque[Note] = deque(maxlen=GATHERED)
        self._some = trio.Event()
        self._rests = True
        self.dropped = 0

    def note(self, session: int, label: str, seconds: float, outcome: str) -> None:
        """Note a call that ended. Never blocks."""
        notes = self._notes
        if len(notes) == GATHERED:
            self.dropped += 1
        notes.append((session, label, seconds, outcome))
        if self._rests:
            self._rests = False
            self._some.set()

    async def run(self) -> None:
        """Write what gathers, until cancelled; then the rest."""
        try:
            while True:
                await self._some.wait()
                await trio.sleep(EVERY_SECONDS)
                self._some = trio.Event()
                self._rests = True
                try:
                    await trio.to_thread.run_sync(self._write)
                except RuntimeError as error:
                    # No thread to be had: the machine is at its limit of tasks, and these lines can wait.
                    logger.debug("no thread for the log of calls: {}", error)
                    self._rests = False
                    self._some.set()
        finally:
            self._write()

    def _write(self) -> None:
        if self.dropped:
            lost, self.dropped = self.dropped, 0
            logger.warning("{} calls were not logged: they came faster than they could be", lost)
        while self._notes:
            notes = [self._notes.popleft() for _ in range(min(len(self._notes), CALLS_PER_RECORD))]
            logger.bind(calls=notes).info("{} calls", len(notes))
