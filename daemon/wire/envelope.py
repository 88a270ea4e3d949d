"""Decodes, validates and writes the envelope of JSON-RPC 2.0 messages (jsonrpc.org/specification).

Payloads stay raw bytes: 10 MB cost 2 ms instead of 3 s. msgspec skips them without checking UTF-8 or deep
nesting, which this module therefore checks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from daemon.protocol import decode_text, decoded
from daemon.wire.frames import MAX_ID_BYTES, NO_ID, Line, id_among_members, is_id

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

MAX_DEPTH = 128
"""Deepest nesting of a client's message. Real tool schemas reach 23; several JSON libraries give up at 254."""

LONG_BYTES = 4096  # length from which repeated searches for one byte are faster than counting it

MAX_CONTAINERS = 500_000
"""Objects and lists in a client's message: measuring the depth of more is slow. 4 MiB of pairs hold 400,000."""

MAX_MEMBERS = 100_000
"""Members of all objects in a client's message: a server that decodes a million blocks its own loop."""

MEMBER_BYTES = 5  # length of the shortest member, `"":0,`: shorter messages cannot reach `MAX_MEMBERS`

MAX_ENVELOPE_BYTES = 64 * 1024
"""Bytes outside `params` of a message that has to be parsed twice: an id, a method, a version."""

JOINED_BYTES = 4096
"""Longest payload that is copied into its frame: below it copying is cheaper than a second buffer."""

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
    """Reports a line that is not a JSON-RPC message, as the error response needs it."""

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
    """Decode a server's line: lenient, and raises BadMessage only for no object or a non-string `method`."""
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
    """Decode and check a line of a client; raises BadMessage with the code."""
    if not line.isascii():
        _require_utf8(line)
    envelope = decode(line)
    if opens_many(line):
        _require_shallow(line, envelope)
    if len(line) > MEMBER_BYTES * MAX_MEMBERS and _members(line) > MAX_MEMBERS:
        text = f"Invalid Request: more than {MAX_MEMBERS} members in its objects"
        raise BadMessage(INVALID_REQUEST, text, id_of(envelope))
    if not _is_compact(line, envelope):
        _require_single_members(line, envelope)
    if envelope.method is not UNSET and (envelope.result is not UNSET or envelope.error is not UNSET):
        text = "Invalid Request: both a request and an answer"
        raise BadMessage(INVALID_REQUEST, text, id_of(envelope))
    if envelope.id is not UNSET and not is_id(bytes(envelope.id)):
        text = f"Invalid Request: id must be a string or an integer of at most {MAX_ID_BYTES} bytes"
        raise BadMessage(INVALID_REQUEST, text)
    if envelope.jsonrpc != "2.0":
        raise BadMessage(INVALID_REQUEST, 'Invalid Request: "jsonrpc" must be "2.0"', id_of(envelope))
    if envelope.params is not UNSET and bytes(memoryview(envelope.params)[:1]) != b"{":
        raise BadMessage(INVALID_PARAMS, "Invalid params: params must be an object", id_of(envelope))
    return envelope


def is_utf8(line: Line) -> bool:
    """Whether a line is valid UTF-8; msgspec does not check the bytes that it skips."""
    if line.isascii():
        return True
    try:
        _require_utf8(line)
    except BadMessage:
        return False
    return True


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
    """The frame of an error. JSON-RPC errors report faults of the protocol only, never of a tool."""
    error: dict[str, object] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return refusal(request_id, msgspec.json.encode(error))


def refusal(request_id: bytes, error: Buffer) -> tuple[Buffer, ...]:
    """The frame of an encoded error object."""
    return (b'{"jsonrpc":"2.0","id":', request_id, ERROR_MEMBER, error, b"}")


def _require_utf8(line: Line) -> None:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise BadMessage(PARSE_ERROR, f"Parse error: not UTF-8 at byte {error.start}") from None


def _require_json(line: Line) -> None:
    """Parse the whole line: msgspec reports a member of the wrong type before it has read the rest."""
    try:
        _skip(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadMessage(PARSE_ERROR, f"Parse error: {error}") from None
    except RecursionError:
        raise BadMessage(PARSE_ERROR, "Parse error: nested too deeply") from None


def opens_many(line: Line) -> bool:
    """Whether a line has more opening brackets than `MAX_DEPTH`."""
    if len(line) < LONG_BYTES:
        return line.count(b"{") + line.count(b"[") > MAX_DEPTH
    opened = 0
    for bracket in (b"{", b"["):
        at = line.find(bracket)
        while at >= 0 and opened <= MAX_DEPTH:
            opened += 1
            at = line.find(bracket, at + 1)
    return opened > MAX_DEPTH


def _is_compact(line: Line, envelope: Envelope) -> bool:
    """Whether a request is exactly as long as its four members, so that no member can occur twice."""
    request_id, method, params = envelope.id, envelope.method, envelope.params
    if request_id is UNSET or method is UNSET or params is UNSET or envelope.jsonrpc != "2.0":
        return False
    members = len(bytes(request_id)) + len(method) + len(bytes(params))
    return len(line) == _COMPACT_BYTES + members and method.isascii()


def _require_single_members(line: Line, envelope: Envelope) -> None:
    """Refuse a duplicate envelope key, of which readers would pick different ones; payloads may repeat keys."""
    suspects = [key for key in _ENVELOPE_KEYS if line.count(key) > 1]
    if not suspects and b"\\" not in line:
        return
    payload = b"" if envelope.params is UNSET else bytes(envelope.params)
    is_plain = line.count(b"\\") == payload.count(b"\\")
    if is_plain and all(line.count(key) - payload.count(key) <= 1 for key in suspects):
        return
    if len(line) - len(payload) > MAX_ENVELOPE_BYTES:
        raise BadMessage(INVALID_REQUEST, "Invalid Request: too much beside params", id_of(envelope))
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
        return "Invalid Request: batches are not supported (MCP has none since 2025-06-18)"
    return f"Invalid Request: {text}"


def id_of(envelope: Envelope) -> bytes:
    """The id for the answer; `null` if the message has no valid one, so that the answer stays well-formed."""
    return bytes(envelope.id) if envelope.id is not UNSET and is_id(bytes(envelope.id)) else NO_ID


def _members(line: Line) -> int:
    """Count object members as colons outside strings: 0 if there are few, an estimate far above the limit."""
    if line.count(b":") <= MAX_MEMBERS:
        return 0
    marks = line.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NOT_MARKS)
    # Removing two adjacent quotes moves no colon into or out of a string.
    marks = marks.replace(b'""', b"")
    quotes = marks.count(b'"')
    # Colons separate the remaining quotes; every second group of them is outside a string.
    return quotes // 2 if quotes > 2 * MAX_MEMBERS + 2 else sum(map(len, marks.split(b'"')[::2]))


def _require_shallow(line: Line, envelope: Envelope) -> None:
    brackets = _brackets(line)
    if len(brackets) > 2 * MAX_CONTAINERS:
        text = f"Invalid Request: more than {MAX_CONTAINERS} objects and lists"
        raise BadMessage(INVALID_REQUEST, text, id_of(envelope))
    if _depth(brackets) > MAX_DEPTH:
        text = f"Invalid Request: nested deeper than {MAX_DEPTH} levels"
        raise BadMessage(INVALID_REQUEST, text, id_of(envelope))


def _brackets(line: Line) -> bytes:
    """The structure of valid JSON: all brackets outside strings, each as a square one."""
    if b"\\" in line:
        line = line.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Two adjacent quotes do not change the inside and the outside of strings.
    marks = line.translate(_AS_LISTS, _NOT_NESTING).replace(b'""', b"")
    return b"".join(marks.split(b'"')[::2])


def _depth(brackets: bytes) -> int:
    """Measure the nesting: fold innermost pairs away while there are many, then step from pair to pair."""
    folded = 0
    while brackets.count(b"[]") * _WORTH_FOLDING > len(brackets):
        brackets = brackets.replace(b"[]", b"")
        folded += 1
    if not brackets:
        return folded
    valleys = brackets.split(b"[]")
    return folded + 1 + max(accumulate(len(valley) - 2 * valley.count(b"]") for valley in valleys))


_WORTH_FOLDING = 12  # brackets per innermost pair; above this, stepping costs less than folding
_AS_LISTS = bytes.maketrans(b"{}", b"[]")
_NOT_NESTING = bytes(set(range(256)) - set(b'{}[]"'))
_NOT_MARKS = bytes(set(range(256)) - set(b'":'))


MAX_ERROR_BYTES = 128 * 1024
"""Bytes read of an error's message and data: `safety.redact.SHOWN` plus the longest secret (`FARTHEST`)."""


class ErrorObject(Struct):
    """A JSON-RPC error with raw members: each may have any type and length."""

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
    """Code, message and data of a JSON-RPC error object, however malformed; cut at `MAX_ERROR_BYTES`."""
    found = decoded(_decode_error, error)
    if found is None:
        return INTERNAL_ERROR, "an error object that is not one", b"null"
    code, message, data = (
        bytes(memoryview(raw)[:MAX_ERROR_BYTES]) for raw in (found.code, found.message, found.data)
    )
    return int(code) if _CODE.fullmatch(code) else 0, _as_text(message), data


def made_error(code: int, message: str) -> bytes:
    """Encode a JSON-RPC error object of mcpd's own."""
    return msgspec.json.encode({"code": code, "message": message})


def error_line(uid: int, error: Buffer) -> bytes:
    """A peer's answer to one of our requests with this error object."""
    return b'{"jsonrpc":"2.0","id":%d,"error":%b}' % (uid, bytes(error))


def is_error_object(error: Buffer) -> bool:
    """Whether this is a JSON-RPC error object: it has a code and a message."""
    return decoded(_decode_complete, error) is not None


def error_code(frame: Sequence[Buffer]) -> int | None:
    """The code in an error's frame; None for any other frame."""
    return read_error(frame[3])[0] if tuple(frame[2:3]) == (ERROR_MEMBER,) else None


def _as_text(raw: bytes) -> str:
    """Decode a JSON string; return anything else, or a cut one, as written."""
    text = decoded(decode_text, raw)
    return raw.decode(errors="replace").removeprefix('"') if text is None else text
