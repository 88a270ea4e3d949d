"""How much fits one answer: what a profile's `answerTokens` means, and what to do about more.

An answer says the same twice, as `structuredContent` and as text, and a client shows its model one of them: the
longer one counts. A token is taken for four bytes, as everywhere here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from daemon.surfaces.answers import MAX_LINE, one_line, size_of
from daemon.wording import BYTES_PER_TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from daemon.surfaces.base import View

SHORT_LINE = 30
"""Characters of a line at the least, however many there are: how a sentence begins tells two tools apart."""

WIDTHS = (MAX_LINE, 120, 90, 70, 55, 40, SHORT_LINE)
"""How long lines may be: the first width counts at which all of them fit, as another page is another call."""

SHARE = 4
"""What is said beside an answer's tools may take one part in so many of it, of each kind."""

MEMBER_BYTES = 2
"""What stands between a member's name, its value and the next one: a colon and a comma."""


def room_of(view: View) -> int:
    """Bytes that a model may be given to read in one answer."""
    return view.profile.answer_tokens * BYTES_PER_TOKEN


def share_of(view: View) -> int:
    """Bytes of what is said beside an answer's tools, of each kind."""
    return room_of(view) // SHARE


def fitting(members: Iterable[tuple[str, object]], room: int) -> dict[str, object]:
    """The first of these members as an object of so many bytes; one at least, whatever its size.

    Members that do not fit are not made: they may come from a generator.
    """
    fitted: dict[str, object] = {}
    size = len(b"{}")
    for name, value in members:
        raw = msgspec.json.encode(value)
        size += size_of(name) + len(raw) + MEMBER_BYTES
        if fitted and size > room:
            break
        fitted[name] = Raw(raw)
    return fitted


def names_within(names: Iterable[str], room: int) -> list[str]:
    """The first of these names, as a list of at most so many bytes; one at least."""
    return list(fitting(((name, 0) for name in names), room))


def lines_within(
    names: Sequence[str], line_of: Callable[[int], str], room: int, frame: int = MEMBER_BYTES
) -> dict[str, str]:
    """A line for each of these names, as long as they all fit with, and no shorter than `SHORT_LINE`.

    Args:
        names: whose lines; those that do not fit even so are left out, all but the first.
        line_of: the line that belongs to a number in `names`.
        room: bytes for all of it.
        frame: bytes that each one takes besides its name and its line.
    """
    least = sum(size_of(name) + frame + SHORT_LINE for name in names)
    widths = WIDTHS if least <= room else WIDTHS[-1:]
    whole = [line_of(number) for number in range(len(names))] if least <= room else None
    lines: dict[str, str] = {}
    for width in widths:
        lines, size = {}, len(b"{}")
        for number, name in enumerate(names):
            line = one_line(line_of(number) if whole is None else whole[number], width)
            size += size_of(name) + size_of(line) + frame
            if lines and size > room:
                break
            lines[name] = line
        if len(lines) == len(names):
            break
    return lines
