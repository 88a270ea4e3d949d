"""The log of calls: a line for each, off the hot path; and who keeps the last of them is told.

A call leaves a tuple, and a few times per second a worker thread makes one record of all that have gathered,
which is formatted as a line for each (`host.logs`). (A record for each call cost more than forwarding it; so
did redacting whole lines: only the label of a call may hold a secret.)
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import trio
from loguru import logger

if TYPE_CHECKING:
    from collections.abc import Sequence

GATHERED = 10_000
"""The most calls that wait to be logged, more than arrive in one interval; older ones are dropped and
counted."""

EVERY_SECONDS = 0.25
"""How long a line may lag behind its call, in seconds."""

CALLS_PER_RECORD = 250
"""Calls formatted at once, which takes a third of a millisecond, before the event loop runs again."""


class ShownToken(Protocol):
    """How a client was let in."""

    @property
    def token(self) -> str:
        """The name of the token that it has shown; empty if none was, or if it has no name."""


class Caller(Protocol):
    """The client of a call."""

    number: int
    """The number of its connection."""
    name: str
    """The name and version that it gives."""

    @property
    def visitor(self) -> ShownToken:
        """How it was let in."""


EndedCall: TypeAlias = tuple[Caller, str | None, str, float, str, str, str, float]
"""Client, key of the session, label, seconds, outcome; the server that the call went to and that server's own
name of the tool, or nothing; and when the call ended, in seconds since the epoch. The label may be any name
that a client has sent, unchecked and of any length."""


class EndedCalls(Protocol):
    """Keeps what it is told of calls that have ended (`counting.recent_calls`)."""

    def digest(self, notes: Sequence[EndedCall], /) -> Any:
        """What is to be kept of them; for a worker thread."""

    def publish(self, digest: Any, /) -> None:
        """Keep it; on the event loop."""


class CallLogger:
    """Logs calls: session, category and name, latency, outcome."""

    def __init__(self, ended: EndedCalls) -> None:
        """Start without any calls; `ended` is told of each, whether it is logged or not."""
        self._ended = ended
        self._notes: deque[EndedCall] = deque(maxlen=GATHERED)
        self._some = trio.Event()
        self._rests = True
        self.dropped = 0

    def note(self, ended: EndedCall) -> None:
        """Note a call that has ended. Never blocks."""
        notes = self._notes
        if len(notes) == GATHERED:
            self.dropped += 1
        notes.append(ended)
        if self._rests:
            self._rests = False
            self._some.set()

    async def run(self) -> None:
        """Log the noted calls until cancelled; then the remaining ones."""
        try:
            while True:
                await self._some.wait()
                await trio.sleep(EVERY_SECONDS)
                self._some = trio.Event()
                self._rests = True
                try:
                    self._ended.publish(await trio.to_thread.run_sync(self._write))
                except RuntimeError as error:
                    # No thread can be started: the machine is at its limit of tasks, and these lines can wait.
                    logger.debug("no thread for the log of calls: {}", error)
                    self._rests = False
                    self._some.set()
        finally:
            self._write()

    def _write(self) -> object:
        written: list[EndedCall] = []
        if self.dropped:
            lost, self.dropped = self.dropped, 0
            logger.warning("{} calls were not logged: they came faster than they could be", lost)
        while self._notes:
            notes = [self._notes.popleft() for _ in range(min(len(self._notes), CALLS_PER_RECORD))]
            lines = [
                (caller.number, label, seconds, outcome, at)
                for caller, _, label, seconds, outcome, _, _, at in notes
            ]
            logger.bind(calls=lines).info("{} calls", len(lines))
            written += notes
        return self._ended.digest(written)
