"""Bytes into lines, in whatever portions they come."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    AnyBytes = TypeVar("AnyBytes", bytes, bytearray)

LONG_BYTES = 256 * 1024
"""A client's line up to this is passed on only when it is complete, and kept until its last byte is sent: so
that another daemon can be sent it whole. Real requests rarely reach it; a longer one passes in parts, as it
comes, for nobody says how long a client's may be."""

Piece = tuple[bytes, bool, bool]
"""Some bytes of a line, whether the line begins with them, whether it ends with them (in its newline)."""


def cut(lines: AnyBytes) -> list[AnyBytes]:
    """Whole lines, each with its newline."""
    if lines.find(b"\n") + 1 == len(lines):
        return [lines]
    return [line + b"\n" for line in lines.split(b"\n")[:-1]]


class Gatherer:
    """What a daemon says, in whole lines only.

    A client that was given the beginning of an answer, and never its end, would take what comes next for its
    end, and many break the connection then. So the beginning waits here; a daemon bounds how long it may get
    (`limits.messageBytes`).
    """

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[bytes] | list[bytearray]:
        """The lines that `data` ends, each with its newline."""
        end = data.rfind(b"\n") + 1
        if end == len(data) and not self._held:
            return cut(data)
        self._held += data[:end] if end else data
        if not end:
            return []
        whole, self._held = self._held, bytearray(data[end:])
        return cut(whole)

    @property
    def is_between(self) -> bool:
        """Whether the next byte begins a line."""
        return not self._held

    def clear(self) -> None:
        """Forget the line that was not finished."""
        self._held.clear()


class Cutter:
    """What a client says, long lines in parts."""

    def __init__(self) -> None:
        self.midway = False
        """Whether the beginning of a long line was given out, and its end was not."""
        self._held = bytearray()

    def feed(self, data: bytes) -> list[Piece]:
        """What can be passed on now that `data` has come."""
        end = data.find(b"\n") + 1
        if end == len(data) > 0 and self.is_between:
            return [(data, True, True)]
        pieces: list[Piece] = []
        start = 0
        while end:
            pieces.append(self._ended(data[start:end]))
            start, end = end, data.find(b"\n", end) + 1
        if start < len(data):
            self._held += data[start:] if start else data
            if self.midway or len(self._held) > LONG_BYTES:
                pieces.append((bytes(self._held), not self.midway, False))
                self._held.clear()
                self.midway = True
        return pieces

    @property
    def is_between(self) -> bool:
        """Whether the next byte begins a line."""
        return not self._held and not self.midway

    def rest(self) -> bytes:
        """Take what is held of a line that was not finished, and begin anew."""
        held = bytes(self._held)
        self._held.clear()
        self.midway = False
        return held

    def _ended(self, end: bytes) -> Piece:
        piece = bytes(self._held) + end if self._held else end
        begins = not self.midway
        self._held.clear()
        self.midway = False
        return piece, begins, True
