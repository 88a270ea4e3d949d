"""Newline-delimited frames from a byte stream (MCP, stdio transport), and what malformed ones still tell.

Goals: every byte is looked at once however slowly it arrives, so that a peer that drips or that sends one
enormous line costs linear time; a line over the limit costs no more memory than the limit and an eighth; no
single chunk costs much more than its share. Therefore the unfinished tail is kept apart and never searched
again: as a list of pieces, which are joined when the newline comes, and beyond `LONG_BYTES` as one growing
array. (Growing a buffer and splitting it again took 62.7 s of CPU for one 100 MB line; this takes 0.1 s.
Joining 10 MB at once blocks the loop for 5 ms, most of which the kernel spends on giving us fresh memory.)

A line that is not JSON may still hold the id of a request, whose caller then need not wait for its timeout.
JavaScript's `slice()` through an emoji leaves one half of a surrogate pair, which JSON can spell and not every
decoder takes (RFC 8259, section 8.2); Python's `json` writes NaN and Infinity, which are not JSON (section 6).
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Raw

Line = bytes | bytearray
"""One line without its newline; no longer changed."""

HEAD_BYTES = 256
"""How much of an oversized line is kept: enough to find its `id`, so that its sender gets an answer."""

LONG_BYTES = 512 * 1024
"""Length from which a line grows in one array: joining less takes less than half a millisecond."""


def as_line(message: bytes) -> bytes:
    """Turn a message that came without framing into a line: line ends are whitespace in JSON (RFC 8259, 2)."""
    if b"\n" not in message and b"\r" not in message:
        return message
    return message.translate(_LINE_ENDS_AS_SPACES)


_LINE_ENDS_AS_SPACES = bytes.maketrans(b"\r\n", b"  ")


class LineBuffer:
    """Turns chunks into lines, without their newline.

    A line of more than `max_line` bytes is swallowed up to its newline; its first `HEAD_BYTES` bytes are put
    on `oversized`, which the owner empties.
    """

    grown = 0
    """Lines of this process that grew in an array, ever: freed, they leave unused space in the heap."""

    def __init__(self, max_line: int) -> None:
        self.max_line = max_line
        self.oversized: list[bytes] = []
        self._pieces: list[bytes | bytearray] = []
        self._held = 0
        self._swallowing = False

    def feed(self, chunk: bytes) -> list[Line]:
        """Add a chunk; return the lines that it completed, oldest first."""
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

    @property
    def held(self) -> int:
        """Bytes of the unfinished line in memory."""
        return self._held

    def drop(self) -> None:
        """Forget the unfinished line; what is left of it is taken for a line of its own."""
        self._pieces.clear()
        self._held = 0

    def _join(self, last: Line) -> Line:
        first = self._pieces[0]
        if isinstance(first, bytearray):
            first += last
            line: Line = first
        else:
            line = b"".join((*self._pieces, last))
        self._pieces.clear()
        self._held = 0
        return line

    def _hold(self, piece: Line) -> None:
        if self._swallowing:
            return
        self._held += len(piece)
        if self._pieces and isinstance(self._pieces[0], bytearray):
            self._pieces[0] += piece
        elif self._held > LONG_BYTES:
            self._pieces = [bytearray().join((*self._pieces, piece))]
            LineBuffer.grown += 1
        else:
            self._pieces.append(piece)
        if self._held > self.max_line:
            self.oversized.append(self._give_up())
            self._swallowing = True

    def _give_up(self) -> bytes:
        """Drop the pieces and return their head; joining all of them would take their size once more."""
        head = b""
        for piece in self._pieces:
            head += piece[: HEAD_BYTES - len(head)]
            if len(head) == HEAD_BYTES:
                break
        self._pieces.clear()
        self._held = 0
        return head

    def _without_oversized(self, lines: list[Line]) -> list[Line]:
        self.oversized += [bytes(line[:HEAD_BYTES]) for line in lines if len(line) > self.max_line]
        return [line for line in lines if len(line) <= self.max_line]


MAX_SURROGATES = 1_000
"""Escaped surrogates examined in one line, three milliseconds: a line with more is refused."""

MAX_READ_AGAIN = 64 * 1024
"""Longest line, in bytes, that is searched for what is not JSON, twenty milliseconds at most; in a longer one
the id must be in its head."""

MAX_ID_BYTES = 128 * 1024
"""Longest id, in bytes, as it is examined more than once: SDKs count, or use a UUID of 36 bytes."""

_SURROGATES = re.compile(rb"\\u[dD](?:[89abAB][\da-fA-F]{2}\\u[dD][c-fC-F]|[89a-fA-F])[\da-fA-F]{2}")
_PAIR_BYTES = len(rb"\ud83d\ude00")
_UNKNOWN = rb"\ufffd"
_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+'
# A string without an end matches to the end of the line: starting again at each quote would be quadratic.
_NOT_JSON = re.compile(rb'(%b(?:"|\\?\Z))|-?Infinity|NaN' % _TEXT, re.DOTALL)
_ID = re.compile(rb'-?(?:0|[1-9]\d*)|%b"' % _TEXT, re.DOTALL)
_HEAD = (
    rb'\s*\{\s*(?:"(?!id")[^"\\]*"\s*:\s*(?:"(?:[^"\\]|\\.)*"|[-+.\w]+)\s*,\s*)*'
    rb'"id"\s*:\s*(-?(?:0|[1-9]\d*)|"(?:[^"\\]|\\.)*")\s*'
)
_ID_IN_HEAD = re.compile(_HEAD + rb"[,}]", re.DOTALL)
_ANSWER_IN_HEAD = re.compile(_HEAD + rb',\s*"(?:result|error)"', re.DOTALL)
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode

NO_ID = b"null"
"""The id of an answer to a message whose own is not known (JSON-RPC 2.0, section 5)."""


def with_whole_characters(line: Line) -> bytes | None:
    """The line with U+FFFD for each half of a surrogate pair; None if it has none, or over `MAX_SURROGATES`."""
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
    """The message with whole characters; None if it is still not JSON, or would have another id.

    A caller that has half a character in its id would not recognise the answer.
    """
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
    """The id of an answer that is not JSON, or `null`; the id of a request from the peer is not one of ours."""
    head = bytes(line[:HEAD_BYTES])
    if _ANSWER_IN_HEAD.match(head):
        return id_in_head(head)
    members = _members(_as_json(line)) if len(line) <= MAX_READ_AGAIN else {}
    return NO_ID if "method" in members else _id_of(members)


def id_among_members(line: Line) -> bytes:
    """The id of a message that is of no other use, or `null`."""
    return _id_of(_members(line))


def id_in_head(head: bytes) -> bytes:
    """The id in the first bytes of a message that was too long to keep, or `null`.

    Only an id preceded by nothing but plain members is believed: further in, it may belong to something else.
    """
    match = _ID_IN_HEAD.match(head)
    return match[1] if match and _is_sound_id(match[1]) else NO_ID


def _members(line: Line) -> dict[str, Raw]:
    """The members of a message, each still raw; none if it is not an object."""
    try:
        return _decode_members(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}


def _id_of(members: dict[str, Raw]) -> bytes:
    found = bytes(members.get("id", Raw(NO_ID)))
    return found if is_id(found) and _is_sound_id(found) else NO_ID


def _is_sound_id(found: bytes) -> bool:
    """Whether an id that was not decoded yet is valid JSON: it is going to be written as it came."""
    if not found.startswith(b'"'):
        return True
    try:
        _decode_text(found)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _as_json(line: Line) -> bytes:
    """The line with `null` in place of NaN and Infinity; good for reading its id only."""
    if b"NaN" not in line and b"Infinity" not in line:
        return bytes(line)
    return _NOT_JSON.sub(lambda found: found[1] or b"null", line)
