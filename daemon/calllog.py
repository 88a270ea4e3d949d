"""A line in the log for every call, written off the hot path.

A call leaves a tuple; a few times per second, what has gathered becomes one record of the log with many lines,
in a worker thread. (A record for each cost more than forwarding the call itself.)
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING

import trio
from loguru import logger

from daemon.escape import visible

if TYPE_CHECKING:
    from typing import TypeAlias

GATHERED = 10_000
"""Calls that may wait to be logged; older ones are dropped, and counted. More than one interval gathers."""

EVERY_SECONDS = 0.25
"""How long a line may lag behind its call."""

LINES_PER_RECORD = 100
"""So many are written in one go, half a millisecond, before the event loop runs again."""

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
                try:
                    await trio.to_thread.run_sync(self._write)
                except RuntimeError as error:
                    # No thread to be had: the machine is at its limit of tasks, and these lines can wait.
                    logger.debug("no thread for the log of calls: {}", error)
                    self._some.set()
        finally:
            self._write()

    def _write(self) -> None:
        if self.dropped:
            lost, self.dropped = self.dropped, 0
            logger.warning("{} calls were not logged: they came faster than they could be", lost)
        while self._notes:
            notes = [self._notes.popleft() for _ in range(min(len(self._notes), LINES_PER_RECORD))]
            texts = [
                f"call {_shown(label)} {seconds * 1000:.1f} ms {outcome}"
                for _, label, seconds, outcome in notes
            ]
            sessions = tuple(session for session, *_ in notes)
            logger.bind(sessions=sessions).info("{}", "\n".join(texts))


@lru_cache(maxsize=1024)
def _shown(label: str) -> str:
    """A label as it may stand in a line: some are what a client called a tool that nobody has."""
    return visible(label)
