"""The progress of a call: a bar that is drawn over on a terminal, lines elsewhere."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TextIO

from daemon.safety.escape import visible

if TYPE_CHECKING:
    from collections.abc import Callable

BAR = 24
"""Columns of the bar itself."""

REDRAW_SECONDS = 0.1
"""Seconds between two drawings of a bar: eyes see no more, and servers may report thousands."""

LINE_SECONDS = 2.0
"""Seconds between two lines where a bar cannot be drawn over, as in a log."""

_CLEAR = "\r\x1b[K"


class Progress:
    """What a server reports of one call, on one stream."""

    def __init__(self, stream: TextIO, *, columns: int | None, clock: Callable[[], float]) -> None:
        """Begin with nothing shown.

        Args:
            stream: where it is shown.
            columns: the width of the terminal; None where a line cannot be drawn over.
            clock: seconds.
        """
        self._stream = stream
        self._columns = columns
        self._clock = clock
        self._next = -math.inf
        self._drawn = False

    def show(self, report: dict[str, Any]) -> None:
        """Show the params of a `notifications/progress`, unless it comes too soon after the one before."""
        done, total = _number(report.get("progress")), _number(report.get("total"))
        message, now = report.get("message"), self._clock()
        ended = done is not None and total is not None and done >= total
        if now < self._next and not ended:
            return
        words = visible(message) if isinstance(message, str) else ""
        if self._columns is None:
            self._next = now + LINE_SECONDS
            said = "  ".join(each for each in (_counted(done, total), words) if each)
            self._write(f"mcpd: {said}\n" if said else "")
            return
        self._next, self._drawn = now + REDRAW_SECONDS, True
        self._write(_CLEAR + _cut(_drawn(done, total, words), self._columns - 1))

    def clear(self) -> None:
        """Take the bar away: something else is shown now."""
        if self._drawn:
            self._drawn = False
            self._write(_CLEAR)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _drawn(done: float | None, total: float | None, words: str) -> str:
    if done is None or total is None or total <= 0:
        return "  ".join(each for each in (_counted(done, total), words) if each) or "..."
    share = min(max(done / total, 0.0), 1.0)
    full = int(share * BAR)
    return f"[{'#' * full}{'-' * (BAR - full)}] {int(share * 100):3d} %  {words}".rstrip()


def _counted(done: float | None, total: float | None) -> str:
    if done is None:
        return ""
    return f"{done:g}" if total is None or total <= 0 else f"{done:g} of {total:g}"


def _cut(text: str, columns: int) -> str:
    """A text in one line of the terminal; wide characters count as two columns."""
    import unicodedata  # noqa: PLC0415 - only for what is not ASCII

    if text.isascii():
        return text if len(text) <= columns else text[: max(0, columns - 1)] + "…"
    used, kept = 0, ""
    for character in text:
        used += 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if used >= columns:
            return kept + "…"
        kept += character
    return kept


def _number(value: object) -> float | None:
    """A number that a server reports; None if it is none, or none that can be counted with."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
