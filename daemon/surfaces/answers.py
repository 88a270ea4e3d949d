"""How results, errors and lists are written, on every surface alike, and how much fits one answer (design.md).

An answer says the same twice, as `structuredContent` and as text, and a client shows its model one of them: the
longer one counts against the profile's `answerTokens`. A token is taken for four bytes, as everywhere here.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Raw

from daemon.errors import CallError, InvalidArguments
from daemon.kit.wording import BYTES_PER_TOKEN, closest, meant
from daemon.safety.escape import legible
from daemon.safety.legible import legible_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from daemon.catalog.snapshot import ServerEntry
    from daemon.surfaces.base import View


T = TypeVar("T")

MAX_NAMED = 20
"""How many names an error lists: enough to choose from, not enough to fill a context."""

MAX_QUOTED = 200
"""Bytes of a wrong name that are repeated, as JSON writes it: a real one has at most 128."""

MAX_CHOICES = 1000
"""Bytes of the names that an error lists where no profile says how long an answer may be."""

MAX_REASON = 1000
"""Characters of the reason why a server is down: its last words fit many times over."""

MAX_LINES = 60
"""Most entries in a list that is shown from the start."""

MAX_LINE = 160
"""Longest line about one entry, in characters."""


def result(structured: object, text: str | None = None) -> bytes:
    """A successful result: `structuredContent`, and one text item.

    Args:
        structured: what the answer is.
        text: the same in prose, where a seed shows prose; None is the same as compact JSON.
    """
    encoded = msgspec.json.encode(structured)
    said = msgspec.json.encode(encoded.decode() if text is None else text)
    return b'{"content":[{"type":"text","text":%b}],"structuredContent":%b,"isError":false}' % (said, encoded)


def error_result(error: CallError) -> bytes:
    """A refusal that a model can act on (design.md §6, "Errors of a meta-tool").

    It may quote a server, down to its schemas: nothing in it is hidden.
    """
    return legible_json(
        msgspec.json.encode(
            {
                "content": [{"type": "text", "text": f"{error.code}: {error.message}"}],
                "structuredContent": {"error": {"code": error.code, "message": error.message, **error.details}},
                "isError": True,
            }
        )
    )


def decode_arguments(arguments: bytes, shape: type[T], example: str) -> T:
    """Read a meta-tool's arguments.

    Raises:
        InvalidArguments: they do not fit `shape`; the text shows `example`.
    """
    try:
        members = msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
        said = {key: value for key, value in members.items() if bytes(value) != b"null"}
        return msgspec.json.decode(msgspec.json.encode(said), type=shape, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        # It repeats a name that nobody knows, whatever its length.
        raise InvalidArguments(f"{one_line(str(error), MAX_QUOTED)}. Call it like this: {example}") from None


def choices(
    names: Iterable[str], wanted: str, near: list[str] | None = None, *, room: int = MAX_CHOICES
) -> str:
    """What an error says after an unknown name: the closest ones, then all, within `MAX_NAMED` and the room.

    Args:
        names: all that there are.
        wanted: the unknown one.
        near: the closest ones, if that is known already.
        room: bytes of all that are listed, one at least.
    """
    known = list(names)
    close = closest(wanted, known) if near is None else near
    listed = some_of(known, room)
    shown = ", ".join(listed) + (f" and {len(known) - len(listed)} more" if len(known) > len(listed) else "")
    hint = f"{meant(close)} " if close else ""
    return f"{hint}There are: {shown}." if known else f"{hint}There are none."


def some_of(names: Iterable[str], room: int) -> list[str]:
    """The first of these names, at most `MAX_NAMED` and so many bytes; one at least."""
    some: list[str] = []
    for name in islice(names, MAX_NAMED):
        room -= size_of(name)
        if some and room < 0:
            break
        some.append(name)
    return some


def quoted(name: str) -> str:
    """A name that somebody else wrote, for an error text: at most `MAX_QUOTED` bytes of it."""
    shown = repr(name[:MAX_QUOTED])
    if len(name) <= MAX_QUOTED and size_of(shown) <= MAX_QUOTED:
        return shown
    return cut(f"{shown[:-1]}…", MAX_QUOTED) + shown[0]


def size_of(value: object) -> int:
    """Bytes of a value as it is sent."""
    return len(msgspec.json.encode(value))


def cut(text: str, room: int) -> str:
    """A text of at most so many bytes, as JSON writes it."""
    if size_of(text) <= room:
        return text
    shorter = text[:room]
    while shorter and size_of(shorter) > room:
        shorter = shorter[: len(shorter) * room // size_of(shorter) - 1]
    return f"{shorter[:-1]}…"


def one_line(text: str, width: int = MAX_LINE) -> str:
    """A text on one line, cut to so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def index_lines(entries: Iterable[tuple[str, str]], characters: int, rest: str) -> str:
    """A bounded list, a line for each entry.

    Args:
        entries: names with what is said of them.
        characters: how long it may become.
        rest: what to say of those that are left out: "- and 7 more: " and this.
    """
    lines: list[str] = []
    size = 0
    known = list(entries)
    for number, (name, text) in enumerate(known):
        line = one_line(f"- {name}: {text}" if text else f"- {name}")
        size += len(line) + 1
        if number >= MAX_LINES or size > characters:
            lines.append(f"- and {len(known) - number} more: {rest}")
            break
        lines.append(line)
    return "\n".join(lines)


def unavailable_entry(entry: ServerEntry, now: float) -> dict[str, object]:
    """How a server that is down is described in `meta.unavailableServers`; `since` in epoch seconds."""
    status = entry.status
    described: dict[str, object] = {
        "state": str(status.state),
        "reason": one_line(legible(status.reason), MAX_REASON),
        "since": round(status.since, 3),
        "attempt": status.attempt,
    }
    if status.cause is not None:
        described["cause"] = str(status.cause)
    if status.next_retry_at is not None:
        described["nextRetryInMs"] = max(0, round((status.next_retry_at - now) * 1000))
    return described


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
