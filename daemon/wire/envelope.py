"""Cuts a byte stream into lines (MCP, stdio transport), and reads and writes the JSON-RPC 2.0 envelope in them.

Each byte is searched once, however slowly the peer sends, and payloads stay raw bytes: 10 MB cost 2 ms instead
of 3 s. msgspec skips payloads without checking UTF-8 or deep nesting, so this module checks both. It reads
the id even of malformed JSON, such as JavaScript's lone surrogates and Python's NaN: the call fails at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from daemon.protocol import brackets_of, decode_members, decode_text, decoded, depth_of

Line = bytes | bytearray  # A line without its newline, immutable from here on

HEAD_BYTES = 256  # bytes kept of an oversized line: enough for its `id`, so that the sender gets an answer

LONG_BYTES = 512 * 1024
"""Length from which a line is built in one array; joining a shorter one takes less than half a millisecond."""


def as_line(message: bytes) -> bytes:
    """Turn an unframed message into a line; line ends become spaces, as JSON allows (RFC 8259, 2)."""
    if b"\n" not in message and b"\r" not in message:
        return message
    return message.translate(_LINE_ENDS_AS_SPACES)


_LINE_ENDS_AS_SPACES = bytes.maketrans(b"\r\n", b"  ")


class LineBuffer:
    """Turns chunks into lines; a line over `max_line` bytes leaves only its head, in `oversized`."""

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
        """Forget the unfinished line; its remainder will count as a separate line."""
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
        """Drop the pieces and return their head, without joining them, which would double their memory."""
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
"""Longest invalid line that is searched for its id (20 ms); of a longer one, only the head is searched."""

MAX_ID_BYTES = 128 * 1024
"""Longest id, in bytes; it is examined several times. SDKs use counters, or a UUID of 36 bytes."""

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
    """Repair lone surrogates; None if the result is not JSON, or the repair changed its id."""
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
    """The id of an answer that is not JSON, or `null`; a peer's request has an id too, and gives `null`."""
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
    return decoded(decode_members, line) or {}


def _id_of(members: dict[str, Raw]) -> bytes:
    found = bytes(members.get("id", Raw(NO_ID)))
    return found if is_id(found) and _is_sound_id(found) else NO_ID


def _is_sound_id(found: bytes) -> bool:
    """Whether an undecoded id is valid JSON, which matters as mcpd writes the id back unchanged."""
    return not found.startswith(b'"') or decoded(decode_text, found) is not None


def _as_json(line: Line) -> bytes:
    """Replace NaN and Infinity by `null`; only the id may be read from the result."""
    if b"NaN" not in line and b"Infinity" not in line:
        return bytes(line)
    return _NOT_JSON.sub(lambda found: found[1] or b"null", line)


PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

MAX_DEPTH = 128
"""Deepest nesting of a client's message. Real tool schemas reach 23; several JSON libraries fail at 254."""

COUNTED_BYTES = 4096  # length from which repeated searches for one byte are faster than counting it

MAX_CONTAINERS = 500_000
"""Most objects and lists in a client's message: measuring more is slow, and 4 MiB of pairs hold 400,000."""

MAX_MEMBERS = 100_000
"""Most members of all objects in a client's message: a server that decodes a million blocks its own loop."""

MEMBER_BYTES = 5  # length of the shortest member, `"":0,`: shorter messages cannot reach `MAX_MEMBERS`

MAX_ENVELOPE_BYTES = 64 * 1024
"""Most bytes outside `params` of a message that is parsed twice: an id, a method, a version."""

JOINED_BYTES = 4096
"""Longest payload that is copied into its frame; for a longer one, a second buffer is cheaper."""

ERROR_MEMBER = b',"error":'

Buffer = bytes | memoryview | Raw  # bytes that a link writes without a copy


class Envelope(Struct):
    """A JSON-RPC message with a raw payload."""

    jsonrpc: str | UnsetType = UNSET
    id: Raw | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class BadMessage(Exception):
    """A line that is not a JSON-RPC message, with everything that the error response needs."""

    def __init__(self, code: int, message: str, request_id: bytes = b"null") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.request_id = request_id


_decode = msgspec.json.Decoder(Envelope).decode
_skip = msgspec.json.Decoder(Raw).decode
_ENVELOPE_KEYS = (b'"id"', b'"method"', b'"params"', b'"jsonrpc"')
_COMPACT_BYTES = len(b'{"jsonrpc":"2.0","id":,"method":"","params":}')


def decode(line: Line) -> Envelope:
    """Decode a server's line leniently; raises BadMessage only if it is no object, or `method` no string."""
    try:
        return _decode(line)
    except msgspec.ValidationError as error:
        _require_json(line)
        raise BadMessage(INVALID_REQUEST, _explain(error), id_among_members(line)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadMessage(PARSE_ERROR, f"Parse error: {error}") from None
    except RecursionError:
        raise BadMessage(PARSE_ERROR, "Parse error: nested too deeply") from None


def decode_strictly(line: Line) -> Envelope:
    """Decode and check a client's line; raises BadMessage with the error code."""
    if not line.isascii():
        _require_utf8(line)
    envelope = decode(line)
    if opens_many(line):
        _require_shallow(line, envelope)
    if len(line) > MEMBER_BYTES * MAX_MEMBERS and _member_count(line) > MAX_MEMBERS:
        raise _refused(envelope, f"more than {MAX_MEMBERS} members in its objects")
    if not _is_compact(line, envelope):
        _require_single_members(line, envelope)
    if envelope.method is not UNSET and (envelope.result is not UNSET or envelope.error is not UNSET):
        raise _refused(envelope, "both a request and an answer")
    if envelope.id is not UNSET and not is_id(bytes(envelope.id)):
        raise _refused(envelope, f"id must be a string or an integer of at most {MAX_ID_BYTES} bytes")
    if envelope.jsonrpc != "2.0":
        raise _refused(envelope, '"jsonrpc" must be "2.0"')
    if envelope.params is not UNSET and bytes(memoryview(envelope.params)[:1]) != b"{":
        raise BadMessage(INVALID_PARAMS, "Invalid params: params must be an object", id_of(envelope))
    return envelope


def _refused(envelope: Envelope, text: str) -> BadMessage:
    return BadMessage(INVALID_REQUEST, f"Invalid Request: {text}", id_of(envelope))


def is_utf8(line: Line) -> bool:
    """Whether a line is valid UTF-8, which msgspec does not check in bytes that it skips."""
    return line.isascii() or decoded(bytes.decode, bytes(line)) is not None


def request(uid: int, method: str, params: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    """The frame of a request, without a newline."""
    return (b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":' % (uid, method.encode()), *params, b"}")


def notification(method: str, params: bytes) -> tuple[Buffer, ...]:
    """The frame of a notification."""
    return (b'{"jsonrpc":"2.0","method":"%b","params":' % method.encode(), params, b"}")


def response(request_id: bytes, result: Buffer) -> tuple[Buffer, ...]:
    """The frame of a result; `request_id` is copied byte for byte."""
    if len(result) <= JOINED_BYTES:
        return (b"".join((b'{"jsonrpc":"2.0","id":', request_id, b',"result":', result, b"}")),)
    return (b'{"jsonrpc":"2.0","id":', request_id, b',"result":', result, b"}")


def error_response(request_id: bytes, code: int, message: str, data: object = None) -> tuple[Buffer, ...]:
    """The frame of an error response. JSON-RPC errors report protocol faults only, never a tool's."""
    return refusal(request_id, made_error(code, message, data))


def refusal(request_id: bytes, error: Buffer) -> tuple[Buffer, ...]:
    """The frame of an encoded error object."""
    return (b'{"jsonrpc":"2.0","id":', request_id, ERROR_MEMBER, error, b"}")


def _require_utf8(line: Line) -> None:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise BadMessage(PARSE_ERROR, f"Parse error: not UTF-8 at byte {error.start}") from None


def _require_json(line: Line) -> None:
    """Parse the whole line, as msgspec reports a member of the wrong type before it has read the rest."""
    try:
        _skip(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadMessage(PARSE_ERROR, f"Parse error: {error}") from None
    except RecursionError:
        raise BadMessage(PARSE_ERROR, "Parse error: nested too deeply") from None


def opens_many(line: Line) -> bool:
    """Whether a line has more opening brackets than `MAX_DEPTH`."""
    if len(line) < COUNTED_BYTES:
        return line.count(b"{") + line.count(b"[") > MAX_DEPTH
    opened = 0
    for bracket in (b"{", b"["):
        at = line.find(bracket)
        while at >= 0 and opened <= MAX_DEPTH:
            opened += 1
            at = line.find(bracket, at + 1)
    return opened > MAX_DEPTH


def _is_compact(line: Line, envelope: Envelope) -> bool:
    """Whether a request is exactly as long as its four members, so that no member can be repeated."""
    request_id, method, params = envelope.id, envelope.method, envelope.params
    if request_id is UNSET or method is UNSET or params is UNSET or envelope.jsonrpc != "2.0":
        return False
    members = len(bytes(request_id)) + len(method) + len(bytes(params))
    return len(line) == _COMPACT_BYTES + members and method.isascii()


def _require_single_members(line: Line, envelope: Envelope) -> None:
    """Refuse a repeated envelope key: readers would choose different values; payloads may repeat keys."""
    suspects = [key for key in _ENVELOPE_KEYS if line.count(key) > 1]
    if not suspects and b"\\" not in line:
        return
    payload = b"" if envelope.params is UNSET else bytes(envelope.params)
    is_plain = line.count(b"\\") == payload.count(b"\\")
    if is_plain and all(line.count(key) - payload.count(key) <= 1 for key in suspects):
        return
    if len(line) - len(payload) > MAX_ENVELOPE_BYTES:
        raise _refused(envelope, "too much beside params")
    names = _names(line, payload)
    for name in ("id", "method", "params", "jsonrpc"):
        if names.count(name) > 1:
            text = f"Invalid Request: {name} is given twice"
            raise BadMessage(INVALID_REQUEST, text, b"null" if name == "id" else id_of(envelope))


def _names(line: Line, payload: bytes) -> list[str]:
    if len(payload) > MAX_ENVELOPE_BYTES:
        # A million names within the payload, which do not matter, would take half a second.
        with suppress(ValueError):
            return _read_names(line.replace(payload, b"{}", 1))
    return _read_names(line)


def _read_names(line: Line) -> list[str]:
    # Numbers stay text: Python refuses to convert very long ones.
    names: list[str] = json.loads(
        line, object_pairs_hook=lambda pairs: [name for name, _ in pairs], parse_int=str, parse_float=str
    )
    return names


def _explain(error: msgspec.ValidationError) -> str:
    text = str(error)
    if text.startswith("Expected `object`, got `array`"):
        return "Invalid Request: batches are not supported (MCP dropped them in 2025-06-18)"
    return f"Invalid Request: {text}"


def id_of(envelope: Envelope) -> bytes:
    """The id for the answer; `null` if the message has no valid id, so that the answer is well-formed."""
    return bytes(envelope.id) if envelope.id is not UNSET and is_id(bytes(envelope.id)) else NO_ID


def _member_count(line: Line) -> int:
    """Count object members as colons outside strings: 0 if there are few, an estimate if far too many."""
    if line.count(b":") <= MAX_MEMBERS:
        return 0
    marks = line.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NOT_MARKS)
    # Removing two adjacent quotes moves no colon into or out of a string.
    marks = marks.replace(b'""', b"")
    quotes = marks.count(b'"')
    # Colons separate the remaining quotes; every second group of them is outside a string.
    return quotes // 2 if quotes > 2 * MAX_MEMBERS + 2 else sum(map(len, marks.split(b'"')[::2]))


def _require_shallow(line: Line, envelope: Envelope) -> None:
    brackets = brackets_of(line)
    if len(brackets) > 2 * MAX_CONTAINERS:
        raise _refused(envelope, f"more than {MAX_CONTAINERS} objects and lists")
    if depth_of(brackets) > MAX_DEPTH:
        raise _refused(envelope, f"nested deeper than {MAX_DEPTH} levels")


_NOT_MARKS = bytes(set(range(256)) - set(b'":'))


MAX_ERROR_BYTES = 128 * 1024
"""Most bytes read of an error's message and data: `safety.redact.SHOWN` plus the longest secret."""


class ErrorObject(Struct):
    """A JSON-RPC error with raw members, each of which may have any type and length."""

    code: Raw = Raw(b"0")
    message: Raw = Raw(b'""')
    data: Raw = Raw(b"null")


class _CompleteError(Struct):
    code: int
    message: str


_decode_error = msgspec.json.Decoder(ErrorObject).decode
_decode_complete = msgspec.json.Decoder(_CompleteError).decode
_CODE = re.compile(rb"-?[0-9]{1,18}")


def read_error(error: Buffer) -> tuple[int, str, bytes]:
    """Code, message and data of a JSON-RPC error object, even a malformed one; cut at `MAX_ERROR_BYTES`."""
    found = decoded(_decode_error, error)
    if found is None:
        return INTERNAL_ERROR, "an error whose object is malformed", b"null"
    code, message, data = (
        bytes(memoryview(raw)[:MAX_ERROR_BYTES]) for raw in (found.code, found.message, found.data)
    )
    return int(code) if _CODE.fullmatch(code) else 0, _as_text(message), data


def made_error(code: int, message: str, data: object = None) -> bytes:
    """Encode a JSON-RPC error object, without a `data` that is None."""
    error = {"code": code, "message": message, "data": data}
    return msgspec.json.encode({key: value for key, value in error.items() if value is not None})


def error_line(uid: int, error: Buffer) -> bytes:
    """A peer's error answer to one of mcpd's requests, as a line."""
    return b'{"jsonrpc":"2.0","id":%d,"error":%b}' % (uid, bytes(error))


def is_error_object(error: Buffer) -> bool:
    """Whether this is a JSON-RPC error object: it has a code and a message."""
    return decoded(_decode_complete, error) is not None


def error_code(frame: Sequence[Buffer]) -> int | None:
    """The code in an error's frame; None for any other frame."""
    return read_error(frame[3])[0] if tuple(frame[2:3]) == (ERROR_MEMBER,) else None


def _as_text(raw: bytes) -> str:
    text = decoded(decode_text, raw)
    return raw.decode(errors="replace").removeprefix('"') if text is None else text


class RemoteError(Exception):
    """A JSON-RPC error with which the peer answered one of mcpd's requests."""

    def __init__(self, code: int, message: str, data: bytes = b"null") -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.data = data  # the error's `data` as JSON; cut if long

    @classmethod
    def from_wire(cls, error: Buffer) -> RemoteError:
        """Read a JSON-RPC error object (`envelope.read_error`)."""
        return cls(*read_error(error))

    def encoded(self) -> bytes:
        """The JSON-RPC error object, without `data` if the data was cut."""
        return made_error(self.code, self.message, decoded(msgspec.json.decode, self.data))


class HttpRefusal(RemoteError):
    """An HTTP error without a JSON-RPC error; a separate class, as peers may write anything into `data`."""

    def __init__(self, code: int, message: str, *, status: int, place: str) -> None:
        super().__init__(code, message)
        self.status = status
        self.place = place  # the peer's host and port
