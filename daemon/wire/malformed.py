"""What can be saved of a line that is no JSON: its half characters, or at least the id of who waits for it.

JavaScript's `slice()` through an emoji leaves one half of a surrogate pair, which JSON can spell and not every
decoder takes (RFC 8259, section 8.2); Python's `json` writes NaN and Infinity, which are not JSON (section 6).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from daemon.wire.frames import HEAD_BYTES

if TYPE_CHECKING:
    from daemon.wire.frames import Line

MAX_SURROGATES = 1_000
"""Escaped surrogates that are looked at in one line, three milliseconds: beyond, it is refused as it is."""

MAX_READ_AGAIN = 64 * 1024
"""Bytes of a line that is searched for what is no JSON, twenty milliseconds at most; of a longer one the id
must stand in its head."""

MAX_ID_BYTES = 128 * 1024
"""Of an id, which is looked through more than once: SDKs count, or make one of 36 bytes."""

_SURROGATES = re.compile(rb"\\u[dD](?:[89abAB][\da-fA-F]{2}\\u[dD][c-fC-F]|[89a-fA-F])[\da-fA-F]{2}")
_PAIR_BYTES = len(rb"\ud83d\ude00")
_UNKNOWN = rb"\ufffd"
_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+'
# A string without an end is taken to the end of the line: begun anew at each quote, the search is quadratic.
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
"""What is answered to a message whose id is not known (JSON-RPC 2.0, section 5)."""


def with_whole_characters(line: Line) -> bytes | None:
    """The line with U+FFFD for each half of a surrogate pair; None if it has none, or too many to look at."""
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
    """The message with whole characters; None if that makes no message of it, or another id.

    Whoever asked with half a character in the id would not know the answer for its own.
    """
    whole = with_whole_characters(line)
    if whole is None:
        return None
    members = _members(whole)
    request_id = bytes(members.get("id", Raw(NO_ID)))
    return whole if members and (_UNKNOWN not in request_id or request_id in line) else None


def is_id(found: bytes) -> bool:
    """Whether raw JSON is an id: a string or an integer, of a length that somebody could mean."""
    return len(found) <= MAX_ID_BYTES and _ID.fullmatch(found) is not None


def id_of_unreadable(line: Line) -> bytes:
    """The id of a message that is no JSON, or `null`."""
    found = id_in_head(bytes(line[:HEAD_BYTES]))
    if found == NO_ID and len(line) <= MAX_READ_AGAIN:
        return id_among_members(_as_json(line))
    return found


def id_answered(line: Line) -> bytes:
    """The id of an answer that is no JSON, or `null`: a request of the other side's has an id of its own."""
    head = bytes(line[:HEAD_BYTES])
    if _ANSWER_IN_HEAD.match(head):
        return id_in_head(head)
    members = _members(_as_json(line)) if len(line) <= MAX_READ_AGAIN else {}
    return NO_ID if "method" in members else _id_of(members)


def id_among_members(line: Line) -> bytes:
    """The id of a message of which only that is of use, or `null`."""
    return _id_of(_members(line))


def id_in_head(head: bytes) -> bytes:
    """The id in the first bytes of a message that was too long to keep, or `null`.

    Only an id with nothing but plain members before it is believed: further in, it may be anybody's.
    """
    match = _ID_IN_HEAD.match(head)
    return match[1] if match and _is_sound_id(match[1]) else NO_ID


def _members(line: Line) -> dict[str, Raw]:
    """The members of a message, those of its payload unread; none if it is no object."""
    try:
        return _decode_members(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}


def _id_of(members: dict[str, Raw]) -> bytes:
    found = bytes(members.get("id", Raw(NO_ID)))
    return found if is_id(found) and _is_sound_id(found) else NO_ID


def _is_sound_id(found: bytes) -> bool:
    """Whether an id that nobody has decoded yet is JSON: it is going to be written as it came."""
    if not found.startswith(b'"'):
        return True
    try:
        _decode_text(found)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _as_json(line: Line) -> bytes:
    """The line with `null` in place of numbers that are none, for its id alone."""
    if b"NaN" not in line and b"Infinity" not in line:
        return bytes(line)
    return _NOT_JSON.sub(lambda found: found[1] or b"null", line)
