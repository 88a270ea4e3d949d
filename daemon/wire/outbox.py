"""The links that were written to since the last flush, and who is held because some of them are behind.

A client that reads more slowly than servers answer would fill the daemon's memory. So while a link reads, those
that its lines go to and that are behind are noted (`slow`); if one of them must not grow any more, the link is
not read from again until that one has caught up, or is gone. Below that nobody waits, and others' calls to the
same server pass.
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
"""Bytes that may wait for all slow peers together before whoever writes to one of them is held: a fraction of
what a machine has that runs dozens of servers, and eight of the longest queues of the default configuration."""


class Link(Protocol):
    """A frame-by-frame connection to a peer, whatever carries it."""

    queued: int
    lulls: int
    """How often the peer had said all that it had to say: what comes in between two of these was written before
    any of it was answered."""
    is_held: bool
    """Whether it is not read from because somebody is behind: its silence is ours."""

    def send(self, frame: Sequence[Buffer]) -> None:
        """Queue one frame, in parts. Never blocks; it is written at the next `Outbox.flush`."""

    def flush(self) -> None:
        """Write what is queued, as far as the peer takes it now."""

    async def run(self, on_lines: OnLines, on_oversized: OnOversized) -> None:
        """Move bytes until the connection ends.

        Raises:
            ConnectionLost: always, in the end, with the reason.
        """


class Sink(Protocol):
    """A link as those see it whose lines end up in its queue."""

    queued: int
    """Bytes that wait for its peer."""
    max_queue: int
    """How many may before its sources are held."""


class Source(Protocol):
    """A link that is not read from while those are behind to whom its lines go."""

    def resume(self) -> None:
        """They have caught up."""


class Outbox:
    """The links that were written to since the last flush, and the poll that flushes them when it has read."""

    def __init__(self) -> None:
        self.poll = Poll(after=self.flush)
        self.slow: set[Sink] = set()
        """Links for which much waits, and that were written to since this was cleared: whoever reads does."""
        self.held: dict[Sink, set[Source]] = {}
        """Who is not read from, by the link that is behind."""
        self._waiting: set[Sink] = set()
        self._touched: list[Link] = []

    def touch(self, link: Link) -> None:
        """Remember to flush a link."""
        self._touched.append(link)

    def flush(self) -> None:
        """Write every touched link once."""
        while self._touched:
            touched, self._touched = self._touched, []
            for link in touched:
                link.flush()

    def note_waiting(self, sink: Sink, *, much: bool) -> None:
        """Whether much waits for a link now."""
        (self._waiting.add if much else self._waiting.discard)(sink)

    def hold(self, source: Source) -> bool:
        """Whether a source has to wait for one of those that it has just written to; `resume` ends that."""
        crowded = [sink for sink in self.slow if self._is_crowded(sink)]
        for sink in crowded:
            self.held.setdefault(sink, set()).add(source)
        return bool(crowded)

    def release(self, sink: Sink) -> None:
        """Less waits for a link, or nothing: who waited for it alone is read from again."""
        if sink in self.held and not self._is_crowded(sink):
            sources = self.held.pop(sink)
            for source in sources.difference(*self.held.values()):
                source.resume()

    def forget(self, source: Source) -> None:
        """A source is gone."""
        for sources in self.held.values():
            sources.discard(source)

    def _is_crowded(self, sink: Sink) -> bool:
        if sink.queued > sink.max_queue:
            return True
        return sink in self._waiting and sum(each.queued for each in self._waiting) > MAX_WAITING
