"""The JSON-RPC 2.0 envelope: decoding, refusing with the right code, and writing.

Rule: only the envelope is decoded. `params`, `result` and `error` stay the bytes they came as (`msgspec.Raw`),
so that what passes through is neither changed nor decoded: 10 MB cost 2 ms instead of 3 s. The price is that
msgspec merely skips over a payload; what it does not check while skipping (UTF-8, nesting below its own
recursion limit) is checked here, once, at the edge. Error objects of others are read however sloppy they are.
Source: jsonrpc.org/specification; limits: reliability.md S8.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from daemon.wire.frames import MAX_ID_BYTES, NO_ID, id_among_members, is_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daemon.wire.frames import Line


PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

MAX_DEPTH = 128
"""Deepest nesting taken from a client. Real tool schemas reach 23; several JSON libraries give up at 254."""

LONG_BYTES = 4096
"""Length from which searching for one byte repeatedly is quicker than counting it."""

MAX_CONTAINERS = 500_000
"""Objects and lists in one message from a client: how deep more are nested takes too long to find out. 4 MiB of
pairs of numbers are 400,000."""

MAX_MEMBERS = 100_000
"""Members of all objects in one message from a client (reliability.md S8): a server that decodes a million of
them blocks its own loop."""

MEMBER_BYTES = 5
"""Bytes of the shortest member, `"":0,`: a message too short for `MAX_MEMBERS` need not be counted."""

MAX_ENVELOPE_BYTES = 64 * 1024
"""Bytes beside `params` of a message that has to be read again: an id, a method, a version."""

JOINED_BYTES = 4096
"""Longest payload that is copied into its frame: that costs less than keeping the two apart."""

ERROR_MEMBER = b',"error":'
"""What stands before the error object in the frame of an error."""

Buffer = bytes | memoryview | Raw
"""Bytes that a link can write without copying them first."""


class Envelope(Struct):
    """One JSON-RPC message, its payload still raw."""

    jsonrpc: str | UnsetType = UNSET
    id: Raw | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class BadMessage(Exception):
    """A line is not a JSON-RPC message. Carries what the error response needs."""

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
    """Decode one line from a server: strict enough to route it, lenient in everything else.

    Raises:
        BadMessage: it is not a JSON object, or its `method` is not a string.
    """
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
    """Decode one line from a client: as `decode`, with all checks of reliability.md S8.

    Raises:
        BadMessage: with the JSON-RPC code that says what is wrong with it.
    """
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
    """Whether a line is valid UTF-8, which msgspec does not check inside what it skips."""
    if line.isascii():
        return True
    try:
        _require_utf8(line)
    except BadMessage:
        return False
    return True


def request(uid: int, method: str, params: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    """A request's frame, without its newline."""
    return (b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":' % (uid, method.encode()), *params, b"}")


def notification(method: str, params: bytes) -> tuple[Buffer, ...]:
    """A notification's frame."""
    return (b'{"jsonrpc":"2.0","method":"%b","params":' % method.encode(), params, b"}")


def response(request_id: bytes, result: Buffer) -> tuple[Buffer, ...]:
    """A result's frame; `request_id` is written as it came, byte for byte."""
    if len(result) <= JOINED_BYTES:
        return (b"".join((b'{"jsonrpc":"2.0","id":', request_id, b',"result":', result, b"}")),)
    return (b'{"jsonrpc":"2.0","id":', request_id, b',"result":', result, b"}")


def error_response(request_id: bytes, code: int, message: str, data: object = None) -> tuple[Buffer, ...]:
    """An error's frame. JSON-RPC errors are for faults of the protocol only (design.md §6)."""
    error: dict[str, object] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return refusal(request_id, msgspec.json.encode(error))


def refusal(request_id: bytes, error: Buffer) -> tuple[Buffer, ...]:
    """The frame of an error object that is written already."""
    return (b'{"jsonrpc":"2.0","id":', request_id, ERROR_MEMBER, error, b"}")


def _require_utf8(line: Line) -> None:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise BadMessage(PARSE_ERROR, f"Parse error: not UTF-8 at byte {error.start}") from None


def _require_json(line: Line) -> None:
    """Check the rest as well: a member of the wrong type is reported before what follows it was read."""
    try:
        _skip(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadMessage(PARSE_ERROR, f"Parse error: {error}") from None
    except RecursionError:
        raise BadMessage(PARSE_ERROR, "Parse error: nested too deeply") from None


def opens_many(line: Line) -> bool:
    """Whether there are more opening brackets than `MAX_DEPTH`."""
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
    """Whether a request is exactly as long as its four members, so that none of them can be there twice."""
    request_id, method, params = envelope.id, envelope.method, envelope.params
    if request_id is UNSET or method is UNSET or params is UNSET or envelope.jsonrpc != "2.0":
        return False
    members = len(bytes(request_id)) + len(method) + len(bytes(params))
    return len(line) == _COMPACT_BYTES + members and method.isascii()


def _require_single_members(line: Line, envelope: Envelope) -> None:
    """Refuse a message with a duplicate envelope key: readers would disagree which one counts.

    Keys inside the payload do not matter, so a message is read again only if some may be outside it.
    """
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
    """The names of a message's members, duplicates included."""
    if len(payload) > MAX_ENVELOPE_BYTES:
        # Names within the payload do not matter, and a million of them would take half a second.
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
    """The id to answer under, `null` if the message has no valid one: the answer must not be malformed, too."""
    return bytes(envelope.id) if envelope.id is not UNSET and is_id(bytes(envelope.id)) else NO_ID


def _members(line: Line) -> int:
    """Count the members of all objects in valid JSON, as colons outside strings; above the limit roughly."""
    if line.count(b":") <= MAX_MEMBERS:
        return 0
    marks = line.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NOT_MARKS)
    # Removing a pair of quotes with no colon between them moves no colon into or out of a string.
    marks = marks.replace(b'""', b"")
    quotes = marks.count(b'"')
    # Between any two quotes that are left there are colons, every second time outside a string.
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
    # Two adjacent quotes do not change what is inside quotes and what is outside.
    marks = line.translate(_AS_LISTS, _NOT_NESTING).replace(b'""', b"")
    return b"".join(marks.split(b'"')[::2])


def _depth(brackets: bytes) -> int:
    """The depth of nesting: folds innermost pairs away while there are many, then walks from pair to pair."""
    folded = 0
    while brackets.count(b"[]") * _WORTH_FOLDING > len(brackets):
        brackets = brackets.replace(b"[]", b"")
        folded += 1
    if not brackets:
        return folded
    valleys = brackets.split(b"[]")
    return folded + 1 + max(accumulate(len(valley) - 2 * valley.count(b"]") for valley in valleys))


_WORTH_FOLDING = 12
"""Brackets for each innermost pair below which folding all pairs costs less than a step for each."""
_AS_LISTS = bytes.maketrans(b"{}", b"[]")
_NOT_NESTING = bytes(set(range(256)) - set(b'{}[]"'))
_NOT_MARKS = bytes(set(range(256)) - set(b'":'))


MAX_ERROR_BYTES = 128 * 1024
"""Bytes of an error's message, and of its data, that are read: what is shown at most (`safety.redact.SHOWN`),
and the longest secret that is looked for at its end (`FARTHEST`)."""


class ErrorObject(Struct):
    """A JSON-RPC error, its members still raw: each may be as long as a message, or of any type."""

    code: Raw = Raw(b"0")
    message: Raw = Raw(b'""')
    data: Raw = Raw(b"null")


class _CompleteError(Struct):
    code: int
    message: str


_decode_text = msgspec.json.Decoder(str).decode
_decode_error = msgspec.json.Decoder(ErrorObject).decode
_decode_complete = msgspec.json.Decoder(_CompleteError).decode
_CODE = re.compile(rb"-?[0-9]{1,18}")


def read_error(error: Buffer) -> tuple[int, str, bytes]:
    """Code, message and data of a JSON-RPC error object, however sloppy.

    Message and data are cut at `MAX_ERROR_BYTES`, so that cut data is not valid JSON.
    """
    try:
        found = _decode_error(error)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return INTERNAL_ERROR, "an error object that is not one", b"null"
    code, message, data = (
        bytes(memoryview(raw)[:MAX_ERROR_BYTES]) for raw in (found.code, found.message, found.data)
    )
    return int(code) if _CODE.fullmatch(code) else 0, _as_text(message), data


def made_error(code: int, message: str) -> bytes:
    """A JSON-RPC error object of ours, in place of one that a peer should have sent."""
    return msgspec.json.encode({"code": code, "message": message})


def error_line(uid: int, error: Buffer) -> bytes:
    """The answer to a request of ours that holds this error object."""
    return b'{"jsonrpc":"2.0","id":%d,"error":%b}' % (uid, bytes(error))


def is_error_object(error: Buffer) -> bool:
    """Whether this is what JSON-RPC has for an error: an object with a code and a message."""
    try:
        _decode_complete(error)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def error_code(frame: Sequence[Buffer]) -> int | None:
    """The code in an error's frame; None for every other frame."""
    return read_error(frame[3])[0] if tuple(frame[2:3]) == (ERROR_MEMBER,) else None


def _as_text(raw: bytes) -> str:
    """Decode a JSON string; what is not one, or has no end, is returned as it is written."""
    try:
        return _decode_text(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return raw.decode(errors="replace").removeprefix('"')
