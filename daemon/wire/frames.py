"""Splits a byte stream into newline-delimited frames and reads ids from malformed ones (MCP, stdio transport).

Each byte is searched once, however slowly the peer drips: one buffer took 62.7 s for a 100 MB line; this takes
0.1 s. The id of malformed JSON lets its caller fail at once: JavaScript's `slice()` leaves lone surrogates (RFC
8259, 8.2), and Python's `json` writes NaN and Infinity.
"""

from __future__ import annotations

import re

from msgspec import Raw

from daemon.protocol import decode_members, decode_text, decoded

Line = bytes | bytearray  # A line without its newline, immutable from here on

HEAD_BYTES = 256  # bytes kept of an oversized line: enough for its `id`, so that the sender gets an answer

LONG_BYTES = 512 * 1024
"""Length from which a line grows in one array; joining less takes below half a millisecond."""


def as_line(message: bytes) -> bytes:
    """Turn an unframed message into a line: line ends are whitespace in JSON (RFC 8259, 2)."""
    if b"\n" not in message and b"\r" not in message:
        return message
    return message.translate(_LINE_ENDS_AS_SPACES)


_LINE_ENDS_AS_SPACES = bytes.maketrans(b"\r\n", b"  ")


class LineBuffer:
    """Turns chunks into lines; of a line over `max_line` bytes only the head is kept, in `oversized`."""

    grown = 0  # lines of this process that grew in an array: freed, they leave unused space in the heap

    def __init__(self, max_line: int) -> None:
        self.max_line = max_line
        self.oversized: list[bytes] = []
        self._pieces: list[bytes | bytearray] = []
        self.held = 0  # bytes of the unfinished line in memory
        self._swallowing = False

    def feed(self, chunk: bytes) -> list[Line]:
        """Add a chunk; return the completed lines, oldest first."""
        lines: list[Line] = []
        lines += chunk.split(b"\n")
        tail = lines.pop()
        if not lines:
            self._hold(tail)
            return lines
        if self._swallowing:
            self._swallowing = False
            del lines[0]
        elif self._pieces:
            lines[0] = self._join(lines[0])
        if (lines and len(lines[0]) > self.max_line) or len(chunk) > self.max_line:
            lines = self._without_oversized(lines)
        if tail:
            self._hold(tail)
        return lines

    def drop(self) -> None:
        """Forget the unfinished line; its remainder will count as a line of its own."""
        self._pieces.clear()
        self.held = 0

    def _join(self, last: Line) -> Line:
        first = self._pieces[0]
        if isinstance(first, bytearray):
            first += last
            line: Line = first
        else:
            line = b"".join((*self._pieces, last))
        self.drop()
        return line

    def _hold(self, piece: Line) -> None:
        if self._swallowing:
            return
        self.held += len(piece)
        if self._pieces and isinstance(self._pieces[0], bytearray):
            self._pieces[0] += piece
        elif self.held > LONG_BYTES:
            self._pieces = [bytearray().join((*self._pieces, piece))]
            LineBuffer.grown += 1
        else:
            self._pieces.append(piece)
        if self.held > self.max_line:
            self.oversized.append(self._give_up())
            self._swallowing = True

    def _give_up(self) -> bytes:
        """Drop the pieces and return their head; joining them would double their memory."""
        head = b""
        for piece in self._pieces:
            head += piece[: HEAD_BYTES - len(head)]
            if len(head) == HEAD_BYTES:
                break
        self.drop()
        return head

    def _without_oversized(self, lines: list[Line]) -> list[Line]:
        self.oversized += [bytes(line[:HEAD_BYTES]) for line in lines if len(line) > self.max_line]
        return [line for line in lines if len(line) <= self.max_line]


MAX_SURROGATES = 1_000  # escaped surrogates examined in one line, 3 ms: a line with more is refused

MAX_READ_AGAIN = 64 * 1024
"""Longest line that is searched for invalid JSON (20 ms); a longer one must have its id in its head."""

MAX_ID_BYTES = 128 * 1024
"""Longest id, in bytes; it is examined several times. SDKs count, or use a UUID of 36 bytes."""

_SURROGATES = re.compile(rb"\\u[dD](?:[89abAB][\da-fA-F]{2}\\u[dD][c-fC-F]|[89a-fA-F])[\da-fA-F]{2}")
_PAIR_BYTES = len(rb"\ud83d\ude00")
_UNKNOWN = rb"\ufffd"
_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+'
# A string without an end matches up to the end of the line: restarting at each quote would be quadratic.
_NOT_JSON = re.compile(rb'(%b(?:"|\\?\Z))|-?Infinity|NaN' % _TEXT, re.DOTALL)
_ID = re.compile(rb'-?(?:0|[1-9]\d*)|%b"' % _TEXT, re.DOTALL)
_HEAD = (
    rb'\s*\{\s*(?:"(?!id")[^"\\]*"\s*:\s*(?:"(?:[^"\\]|\\.)*"|[-+.\w]+)\s*,\s*)*'
    rb'"id"\s*:\s*(-?(?:0|[1-9]\d*)|"(?:[^"\\]|\\.)*")\s*'
)
_ID_IN_HEAD = re.compile(_HEAD + rb"[,}]", re.DOTALL)
_ANSWER_IN_HEAD = re.compile(_HEAD + rb',\s*"(?:result|error)"', re.DOTALL)

NO_ID = b"null"  # the id of an answer to a message without a known id (JSON-RPC 2.0, section 5)


def with_whole_characters(line: Line) -> bytes | None:
    """Replace each lone surrogate by U+FFFD; None if there is none, or more than `MAX_SURROGATES`."""
    mended = bytearray(line)
    end = 0
    for count, found in enumerate(_SURROGATES.finditer(line)):
        if count == MAX_SURROGATES:
            return None
        start, before = found.start(), line[end : found.start()]
        is_text = (len(before) - len(before.rstrip(b"\\"))) % 2 == 1
        end = found.end()
        if end - start == _PAIR_BYTES:
            start = end - len(_UNKNOWN) if is_text else end
        elif is_text:
            start = end
        mended[start:end] = _UNKNOWN[: end - start]
    return None if mended == line else bytes(mended)


def mended(line: Line) -> bytes | None:
    """Repair lone surrogates; None if the result is not JSON, or has an id unknown to its caller."""
    whole = with_whole_characters(line)
    if whole is None:
        return None
    members = _members(whole)
    request_id = bytes(members.get("id", Raw(NO_ID)))
    return whole if members and (_UNKNOWN not in request_id or request_id in line) else None


def is_id(found: bytes) -> bool:
    """Whether raw JSON is an id: a string or an integer of at most `MAX_ID_BYTES`."""
    return len(found) <= MAX_ID_BYTES and _ID.fullmatch(found) is not None


def id_of_unreadable(line: Line) -> bytes:
    """The id of a message that is not JSON, or `null`."""
    found = id_in_head(bytes(line[:HEAD_BYTES]))
    if found == NO_ID and len(line) <= MAX_READ_AGAIN:
        return id_among_members(_as_json(line))
    return found


def id_answered(line: Line) -> bytes:
    """The id of an answer that is not JSON, or `null`; a request of the peer has an id of its own."""
    head = bytes(line[:HEAD_BYTES])
    if _ANSWER_IN_HEAD.match(head):
        return id_in_head(head)
    members = _members(_as_json(line)) if len(line) <= MAX_READ_AGAIN else {}
    return NO_ID if "method" in members else _id_of(members)


def id_among_members(line: Line) -> bytes:
    """The id of an otherwise useless message, or `null`."""
    return _id_of(_members(line))


def id_in_head(head: bytes) -> bytes:
    """The id in the head of an oversized message, or `null`; only plain members may precede it."""
    match = _ID_IN_HEAD.match(head)
    return match[1] if match and _is_sound_id(match[1]) else NO_ID


def _members(line: Line) -> dict[str, Raw]:
    """The raw members of a message; empty if it is not an object."""
    return decoded(decode_members, line) or {}


def _id_of(members: dict[str, Raw]) -> bytes:
    found = bytes(members.get("id", Raw(NO_ID)))
    return found if is_id(found) and _is_sound_id(found) else NO_ID


def _is_sound_id(found: bytes) -> bool:
    """Whether an undecoded id is valid JSON: it is going to be written as it came."""
    return not found.startswith(b'"') or decoded(decode_text, found) is not None


def _as_json(line: Line) -> bytes:
    """Put `null` in place of NaN and Infinity; the result is good for reading the id only."""
    if b"NaN" not in line and b"Infinity" not in line:
        return bytes(line)
    return _NOT_JSON.sub(lambda found: found[1] or b"null", line)
