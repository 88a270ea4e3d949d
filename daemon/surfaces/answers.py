"""Makes the results, errors and lists of all surfaces, and keeps them within the room for one answer.

An answer holds `structuredContent` and text; a client shows its model one of the two. The longer one counts
against the profile's `answerTokens`, at four bytes a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from daemon.catalog.snapshot import ServerEntry
from daemon.causes import CURED_BY_LOGIN, Reason
from daemon.errors import CallError, InvalidArguments
from daemon.kit.wording import BYTES_PER_TOKEN, closest, log_in, meant, some
from daemon.protocol import UNREADABLE, decode_members
from daemon.safety.escape import legible
from daemon.safety.legible import legible_json
from daemon.surfaces.surface import View

T = TypeVar("T")

MAX_NAMED = 20
"""Names in an error: enough to choose from, and too few to fill a context."""

MAX_QUOTED = 200
"""Bytes of a wrong name in an error, encoded as JSON: a real name has at most 128."""

MAX_CHOICES = 1000
"""Bytes of the names in an error where no profile limits the answer."""

MAX_REASON = 1000
"""Characters of the reason why a server is down, which has room for the last lines of its stderr."""

MAX_LINES = 60
"""Most entries of an initial list."""

MAX_LINE = 160
"""Characters of the longest line about one entry."""

MAX_NAME = 20
"""Characters of a line reserved for the entry's name."""

LONGEST_LINE = 260
"""Most characters about one server's tools in a short list: some thirty tools."""

SHORT_LIST = 2000
"""Characters of a list that still counts as short: 500 tokens."""


def result(structured: object, text: str | None = None) -> bytes:
    """Make a successful result, raw JSON; without `text`, `structured` is repeated as compact JSON."""
    encoded = msgspec.json.encode(structured)
    shown = msgspec.json.encode(encoded.decode() if text is None else text)
    return b'{"content":[{"type":"text","text":%b}],"structuredContent":%b,"isError":false}' % (shown, encoded)


def error_result(error: CallError) -> bytes:
    """Make a result of an error, raw JSON. Hidden characters become visible: the error may quote a server."""
    details = {"code": error.code, "message": error.message, **error.details}
    # Claude Code and OpenCode show their models nothing but the text of an error.
    repeated = [key for key in ("definition", "schema", "printed") if key in details]
    told = [f"{key}: {msgspec.json.encode(details[key]).decode()}" for key in repeated]
    text = "\n".join([f"{error.code}: {error.message}", *told])
    answer = {"content": [{"type": "text", "text": text}], "structuredContent": {"error": details}}
    return legible_json(msgspec.json.encode({**answer, "isError": True}))


def decode_arguments(arguments: bytes, shape: type[T], example: str) -> T:
    """Decode a meta-tool's arguments; nulls count as missing. Raises `InvalidArguments`."""
    try:
        members = decode_members(arguments)
        given = {key: value for key, value in members.items() if bytes(value) != b"null"}
        return msgspec.json.decode(msgspec.json.encode(given), type=shape, strict=False)
    except UNREADABLE as error:
        # The message repeats an unknown member's name, which may have any length.
        raise InvalidArguments(f"{one_line(str(error), MAX_QUOTED)}. Call it like this: {example}") from None


def choices(
    names: Iterable[str], wanted: str, near: list[str] | None = None, *, room: int = MAX_CHOICES
) -> str:
    """The end of an error about an unknown name: the closest names, then others, within `room` bytes."""
    known = list(names)
    close = closest(wanted, known) if near is None else near
    shown = some(known, len(some_of(known, room)))
    hint = f"{meant(close)} " if close else ""
    return f"{hint}There are: {shown}." if known else f"{hint}There are none."


def instead(view: View, names: Iterable[str], wanted: str, near: list[str] | None = None) -> str:
    """`choices`, within the room of this view."""
    return choices(names, wanted, near, room=share_of(view))


def some_of(names: Iterable[str], room: int) -> list[str]:
    """The first `MAX_NAMED` names that fit in `room` bytes; at least one."""
    return names_within(islice(names, MAX_NAMED), room)


def quoted(name: str) -> str:
    """Quote a foreign name in an error, cut to `MAX_QUOTED` bytes."""
    shown = repr(name[:MAX_QUOTED])
    if len(name) <= MAX_QUOTED and size_of(shown) <= MAX_QUOTED:
        return shown
    return cut(f"{shown[:-1]}…", MAX_QUOTED) + shown[0]


def size_of(value: object) -> int:
    """The bytes of a value as JSON."""
    return len(msgspec.json.encode(value))


def written(call: Mapping[str, Any]) -> str:
    """A call's arguments as JSON text, to quote in an answer."""
    return msgspec.json.encode(call["arguments"]).decode()


def with_text(text: str, answered: bytes | memoryview | msgspec.Raw) -> bytes:
    """Append a text to the content of a tool's result, if it has content."""
    try:
        members = decode_members(answered)
        content = _decode_items(members["content"])
    except (KeyError, *UNREADABLE):
        return bytes(answered)
    added = msgspec.Raw(msgspec.json.encode({"type": "text", "text": text}))
    return msgspec.json.encode({**members, "content": [*content, added]})


_decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


def cut(text: str, room: int) -> str:
    """Cut a text so that it takes at most `room` bytes as JSON."""
    if size_of(text) <= room:
        return text
    shorter = text[:room]
    while shorter and size_of(shorter) > room:
        shorter = shorter[: len(shorter) * room // size_of(shorter) - 1]
    return f"{shorter[:-1]}…"


def one_line(text: str, width: int = MAX_LINE) -> str:
    """Join a text into one line, and cut it to `width` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def roomy_lines(entries: Callable[[int], Sequence[tuple[str, str]]], characters: int, rest: str) -> str:
    """`index_lines`, with longer lines if the list is short; `entries` is given the characters for tools."""
    whole = entries(LONGEST_LINE)
    if sum(len(name) + len(text) for name, text in whole) <= min(characters, SHORT_LIST):
        return index_lines(whole, characters, rest, LONGEST_LINE + MAX_LINE)
    return index_lines(entries(MAX_LINE - MAX_NAME), characters, rest)


def index_lines(entries: Iterable[tuple[str, str]], characters: int, rest: str, width: int = MAX_LINE) -> str:
    """A list of limited length with a line per entry; `rest` follows "- and 7 more: "."""
    lines: list[str] = []
    size = 0
    known = list(entries)
    for number, (name, text) in enumerate(known):
        line = one_line(f"- {name}: {text}" if text else f"- {name}", width)
        size += len(line) + 1
        if number >= MAX_LINES or size > characters:
            lines.append(f"- and {len(known) - number} more: {rest}")
            break
        lines.append(line)
    return "\n".join(lines)


def told(why: Reason) -> str:
    """Words for a model on why a server is down and on its last output, without a full stop."""
    found = why.remedy
    return f"{why.text}. {found.happened.rstrip('.')}" if found and found.by_words else why.text


def what_helps(server: str, why: Reason) -> str:
    """Advise a model about a server that is down, in whole sentences; empty if nothing is known."""
    if why.cause in CURED_BY_LOGIN:
        return f"{log_in(server)}."
    return f"What helps (tell the user): {why.remedy.helps}" if why.remedy else ""


def unavailable_entry(entry: ServerEntry, now: float) -> dict[str, object]:
    """A server's entry in `meta.unavailableServers`; `since` is epoch seconds."""
    status = entry.status
    described: dict[str, object] = {
        "state": str(status.state),
        "reason": one_line(legible(status.reason), MAX_REASON),
        "since": round(status.since, 3),
        "attempt": status.attempt,
    }
    if status.cause is not None:
        described["cause"] = str(status.cause)
    described |= {word: one_line(legible(text), MAX_REASON) for word, text in status.why.diagnosis.items()}
    if status.next_retry_at is not None:
        described["nextRetryInMs"] = max(0, round((status.next_retry_at - now) * 1000))
    return described


SHORT_LINE = 30
"""Characters of the shortest line about a tool: the beginning of a sentence tells two tools apart."""

WIDTHS = (MAX_LINE, 120, 90, 70, 55, 40, SHORT_LINE)
"""Widths of lines; the widest that fits is used: another page would cost another call."""

SHARE = 4
"""Each kind of information other than tools gets at most a quarter of an answer."""

MEMBER_BYTES = 2
"""Bytes of the colon and the comma of a member."""


def room_of(view: View) -> int:
    """Bytes of one answer."""
    return view.profile.answer_tokens * BYTES_PER_TOKEN


def share_of(view: View) -> int:
    """Bytes for each kind of information other than tools in an answer."""
    return room_of(view) // SHARE


def fitting(members: Iterable[tuple[str, object]], room: int) -> dict[str, object]:
    """The first members that fit into an object of `room` bytes; at least one, of any size. Lazy."""
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
    """The first names that fit into a list of `room` bytes; at least one."""
    return list(fitting(((name, 0) for name in names), room))


def lines_within(
    names: Sequence[str], line_of: Callable[[int], str], room: int, frame: int = MEMBER_BYTES
) -> dict[str, str]:
    """A line per name, all cut to the largest of `WIDTHS` at which they fit into `room` bytes.

    Names that do not fit even at `SHORT_LINE` are left out, except the first; `frame` bytes surround each line.
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
