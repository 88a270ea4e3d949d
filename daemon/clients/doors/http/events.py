"""Server-sent events: how a message becomes one, and which of a session are kept for a client that comes back.

Source: WHATWG HTML, 9.2; MCP 2025-11-25, "Resumability and Redelivery".
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from daemon.wire.frames import as_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daemon.wire.envelope import Buffer

HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}
"""The headers of a stream; the last keeps nginx from collecting events before it passes them on."""

COMMENT = b": mcpd\n\n"
"""An event that says nothing: it shows balancers and clients that the stream is alive."""

COMMENT_SECONDS = 15.0
"""Seconds without an event after which a comment is sent; balancers cut after 30 to 60 s of silence."""

RETRY_MS = 1000
"""Milliseconds after which a client is asked to come back when its stream has broken."""

MAX_KEPT = 256
"""Events of one session that are kept: more than a client misses in the seconds before it comes back."""

MAX_KEPT_BYTES = 1024 * 1024
"""Bytes of them: a longer event is sent and not kept."""

LISTENING = 0
"""The number of the stream that belongs to no request."""


class UnknownEvent(Exception):
    """A `Last-Event-ID` was never given out in this session."""


def event(frame: Sequence[Buffer], event_id: bytes = b"") -> list[Buffer]:
    """A message as an event, in parts.

    Args:
        frame: the parts of the message; line ends in it become spaces.
        event_id: the event's id; empty for none.
    """
    head = b"id: %b\ndata: " % event_id if event_id else b"data: "
    return [head, *(part if _is_plain(part) else as_line(bytes(part)) for part in frame), b"\n\n"]


def priming(event_id: bytes) -> bytes:
    """An event without data, which gives a client the id to come back with (MCP 2025-11-25)."""
    return b"id: %b\nretry: %d\ndata: \n\n" % (event_id, RETRY_MS)


def _is_plain(part: Buffer) -> bool:
    raw = part if isinstance(part, bytes) else bytes(part)
    return b"\r" not in raw and b"\n" not in raw


class EventLog:
    """The latest events of one session, by the stream that they were sent on."""

    def __init__(self) -> None:
        """Begin without any."""
        self._kept: deque[tuple[int, int, bytes]] = deque()
        self._bytes = 0
        self._last = 0
        self._streams = LISTENING

    def open_stream(self) -> int:
        """The number of a new stream that belongs to a request."""
        self._streams += 1
        return self._streams

    def add(self, stream: int, frame: Sequence[Buffer] = ()) -> bytes:
        """Keep an event, if it is not too long; return its id. An empty frame only takes an id."""
        self._last += 1
        message = b"".join(map(bytes, frame))
        if message and len(message) <= MAX_KEPT_BYTES:
            self._kept.append((stream, self._last, message))
            self._bytes += len(message)
            while len(self._kept) > MAX_KEPT or self._bytes > MAX_KEPT_BYTES:
                self._bytes -= len(self._kept.popleft()[2])
        return b"%d-%d" % (stream, self._last)

    def after(self, event_id: str) -> tuple[int, list[tuple[bytes, bytes]]]:
        """The stream of an event, and what is kept of it since, as ids and messages.

        Raises:
            UnknownEvent: this id was never given out.
        """
        stream_text, _, last_text = event_id.partition("-")
        stream, last = _number(stream_text), _number(last_text)
        if not (0 <= stream <= self._streams and 0 < last <= self._last):
            raise UnknownEvent(event_id)
        missed = [(b"%d-%d" % (of, at), said) for of, at, said in self._kept if of == stream and at > last]
        return stream, missed


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1  # noqa: PLR2004 - below 10^18
