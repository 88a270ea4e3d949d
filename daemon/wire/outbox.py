"""The links that were written to since the last flush, and who is held because others are behind.

A client that reads more slowly than servers answer fills the daemon's memory. As long as there is room, nobody
else notices: its servers are read from, and others' calls to them pass. When too much waits for all clients
that are behind, the links whose lines go to one of them are not read from until it has caught up, or is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from daemon.wire.poll import Poll

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from daemon.wire.envelope import Buffer
    from daemon.wire.frames import Line

    OnLines = Callable[[list[Line]], None]
    OnOversized = Callable[[bytes], None]

MAX_WAITING = 512 * 1024 * 1024
"""Bytes that may wait for all clients that are behind: a fraction of what a machine has that runs dozens of
servers, and more than the calls that one client has in flight are usually answered with."""


class Link(Protocol):
    """A frame-by-frame connection to a peer, whatever carries it."""

    queued: int
    turns: int
    """How often the peer had said all that it had to say: what comes in between two of these was written before
    any of it was answered."""
    is_held: bool
    """Whether it is not read from because somebody is behind: its silence is ours."""

    def send(self, frame: Sequence[Buffer]) -> None:
        """Queue one frame, in parts. Never blocks; it is written at the next `Outbox.flush`, or by a task."""

    async def run(self, on_lines: OnLines, on_oversized: OnOversized) -> None:
        """Move bytes until the connection ends.

        Raises:
            ConnectionLost: always, in the end, with the reason.
        """


class Flushable(Protocol):
    """A link that is written when the outbox says so."""

    def flush(self) -> None:
        """Write what is queued, as far as the peer takes it now."""


class Sink(Protocol):
    """A link as those see it whose lines end up in its queue."""

    queued: int
    """Bytes that wait for its peer."""
    max_queue: int
    """How many may before it is behind."""


class Pausable(Protocol):
    """A link that is not read from while those are behind to whom its lines go."""

    def resume(self) -> None:
        """They have caught up."""


class Outbox:
    """The links that were written to since the last flush, and the poll that flushes them when it has read."""

    def __init__(self, max_waiting: int = MAX_WAITING) -> None:
        """Begin with no links; `max_waiting` is how many bytes may wait for those that are behind."""
        self.poll = Poll(after=self.flush)
        self.slow: set[Sink] = set()
        """Links that are behind and were written to since this was cleared: whoever reads does."""
        self.behind: set[Sink] = set()
        """All that are."""
        self.held: dict[Sink, set[Pausable]] = {}
        """Who is not read from, by the link that is behind."""
        self._max_waiting = max_waiting
        self._touched: list[Flushable] = []

    def __len__(self) -> int:
        """How many links were written to since the last flush."""
        return len(self._touched)

    def touch(self, link: Flushable) -> None:
        """Remember to flush a link."""
        self._touched.append(link)

    def flush(self) -> None:
        """Write every touched link once."""
        while self._touched:
            touched, self._touched = self._touched, []
            for link in touched:
                link.flush()

    def fall_behind(self, sink: Sink) -> None:
        """A link has been written to although much waits for it."""
        self.behind.add(sink)
        self.slow.add(sink)

    def hold(self, source: Pausable) -> bool:
        """Whether a source has to wait for those that it has just written to; `resume` ends that."""
        if not self._is_full():
            return False
        for sink in self.slow:
            self.held.setdefault(sink, set()).add(source)
        return bool(self.slow)

    def catch_up(self, sink: Sink) -> None:
        """Less waits for a link that was behind, or nothing: whoever need not wait any more goes on."""
        if sink.queued <= sink.max_queue:
            self.behind.discard(sink)
        if not self.held:
            return
        full = self._is_full()
        for each in list(self.held):
            if each not in self.behind or not full:
                sources = self.held.pop(each)
                for source in sources.difference(*self.held.values()):
                    source.resume()

    def forget(self, source: Pausable) -> None:
        """A source is gone."""
        for sources in self.held.values():
            sources.discard(source)

    def _is_full(self) -> bool:
        return sum(each.queued for each in self.behind) > self._max_waiting
