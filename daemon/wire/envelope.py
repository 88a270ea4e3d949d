"""The JSON-RPC 2.0 envelope: decoded, refused with the right code, and written.

Rule: only the envelope is decoded. `params`, `result` and `error` stay the bytes they came as (`msgspec.Raw`),
so that what passes through is neither changed nor paid for: 10 MB cost 2 ms instead of 3 s. The price is that
msgspec merely skips over a payload; what it does not look at while skipping (UTF-8, nesting below its own
recursion limit) is checked here, once, at the edge.
Source: jsonrpc.org/specification; limits: reliability.md S8.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

MAX_DEPTH = 128
"""Nesting that we take from a client. Real tool schemas reach 23; several JSON libraries give up at 254."""

MAX_ENVELOPE_BYTES = 64 * 1024
"""What may stand beside `params` if it has to be read again: an id, a method, a version."""

Buffer = bytes | memoryview | Raw
"""What a link can write without copying it first."""


class Envelope(Struct):
    """One JSON-RPC message, its payload still raw."""

    jsonrpc: str | UnsetType = UNSET
    id: Raw | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class BadMessage(Exception):
    """A line that is no JSON-RPC message. Carries what a polite answer needs."""

    def __init__(self, code: int, message: str, request_id: bytes = b"null") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.request_id = request_id


_decode = msgspec.json.Decoder(Envelope).decode
_decode_any_object = msgspec.json.Decoder(dict[str, Raw]).decode
_ID = re.compile(rb'-?(?:0|[1-9]\d*)|"(?:[^"\\]|\\.)*"', re.DOTALL)
_ID_IN_HEAD = re.compile(
    rb'\s*\{\s*(?:"(?!id")[^"\\]*"\s*:\s*(?:"(?:[^"\\]|\\.)*"|[-+.\w]+)\s*,\s*)*'
    rb'"id"\s*:\s*(-?(?:0|[1-9]\d*)|"(?:[^"\\]|\\.)*")\s*[,}]',
    re.DOTALL,
)
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ENVELOPE_KEYS = (b'"id"', b'"method"', b'"params"', b'"jsonrpc"')
_STEP = {0x7B: 1, 0x5B: 1, 0x7D: -1, 0x5D: -1}


def decode(line: bytes) -> Envelope:
    """Decode one line from a server: strict enough to route it, lenient in what it may carry besides.

    Raises:
        BadMessage: it is not a JSON object, or its `method` is no string.
    """
    try:
        return _decode(line)
    except msgspec.ValidationError as error:
        raise BadMessage(INVALID_REQUEST, _explain(error), _salvage_id(line)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadMessage(PARSE_ERROR, f"Parse error: {error}") from None
    except RecursionError:
        raise BadMessage(PARSE_ERROR, "Parse error: nested too deeply") from None


def decode_strictly(line: bytes) -> Envelope:
    """Decode one line from a client: as `decode`, and everything that S8 of reliability.md asks.

    Raises:
        BadMessage: with the JSON-RPC code that says what is wrong with it.
    """
    if not line.isascii():
        _require_utf8(line)
    envelope = decode(line)
    if line.count(b"{") + line.count(b"[") > MAX_DEPTH and _depth(line) > MAX_DEPTH:
        raise BadMessage(
            INVALID_REQUEST, f"Invalid Request: nested deeper than {MAX_DEPTH} levels", _id_of(envelope)
        )
    _require_single_members(line, envelope)
    if envelope.method is not UNSET and (envelope.result is not UNSET or envelope.error is not UNSET):
        text = "Invalid Request: both a request and an answer"
        raise BadMessage(INVALID_REQUEST, text, _id_of(envelope))
    if envelope.id is not UNSET and _ID.fullmatch(bytes(envelope.id)) is None:
        raise BadMessage(INVALID_REQUEST, "Invalid Request: id must be a string or an integer")
    if envelope.jsonrpc != "2.0":
        raise BadMessage(INVALID_REQUEST, 'Invalid Request: "jsonrpc" must be "2.0"', _id_of(envelope))
    if envelope.params is not UNSET and bytes(envelope.params)[:1] != b"{":
        raise BadMessage(INVALID_PARAMS, "Invalid params: params must be an object", _id_of(envelope))
    return envelope


def is_utf8(line: bytes) -> bool:
    """Whether a line is valid UTF-8, which msgspec does not check inside what it skips."""
    try:
        _require_utf8(line)
    except BadMessage:
        return False
    return True


def id_in_head(head: bytes) -> bytes:
    """The id in the first bytes of a message that was too long to keep, or `null`.

    Only an id with nothing but plain members before it is believed: further in, it may be anybody's.
    """
    match = _ID_IN_HEAD.match(head)
    return match[1] if match else b"null"


def request(uid: int, method: str, params: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    """A request's frame, without its newline."""
    return (b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":' % (uid, method.encode()), *params, b"}")


def notification(method: str, params: bytes) -> tuple[Buffer, ...]:
    """A notification's frame."""
    return (b'{"jsonrpc":"2.0","method":"%b","params":' % method.encode(), params, b"}")


def response(request_id: bytes, result: Buffer) -> tuple[Buffer, ...]:
    """A result's frame; `request_id` is written as it came, byte for byte."""
    return (b'{"jsonrpc":"2.0","id":', request_id, b',"result":', result, b"}")


def error_response(request_id: bytes, code: int, message: str, data: object = None) -> tuple[Buffer, ...]:
    """An error's frame. JSON-RPC errors are for faults of the protocol only (design.md §6)."""
    error: dict[str, object] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return (b'{"jsonrpc":"2.0","id":', request_id, b',"error":', msgspec.json.encode(error), b"}")


def _require_utf8(line: bytes) -> None:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise BadMessage(PARSE_ERROR, f"Parse error: not UTF-8 at byte {error.start}") from None


def _require_single_members(line: bytes, envelope: Envelope) -> None:
    """Refuse a message that says something of the envelope twice: readers would disagree which one counts.

    Keys inside the payload do not matter, so a message is read again only if some are left outside of it.
    """
    suspects = [key for key in _ENVELOPE_KEYS if line.count(key) > 1]
    if not suspects and b"\\" not in line:
        return
    payload = b"" if envelope.params is UNSET else bytes(envelope.params)
    is_plain = line.count(b"\\") == payload.count(b"\\")
    if is_plain and all(line.count(key) - payload.count(key) <= 1 for key in suspects):
        return
    if len(line) - len(payload) > MAX_ENVELOPE_BYTES:
        raise BadMessage(INVALID_REQUEST, "Invalid Request: too much beside params", _id_of(envelope))
    # Numbers stay text: a payload may hold some that Python refuses to convert.
    names = json.loads(
        line, object_pairs_hook=lambda pairs: [name for name, _ in pairs], parse_int=str, parse_float=str
    )
    for name in ("id", "method", "params", "jsonrpc"):
        if names.count(name) > 1:
            text = f"Invalid Request: {name} is given twice"
            raise BadMessage(INVALID_REQUEST, text, b"null" if name == "id" else _id_of(envelope))


def _explain(error: msgspec.ValidationError) -> str:
    text = str(error)
    if text.startswith("Expected `object`, got `array`"):
        return "Invalid Request: batches are not supported (MCP has none since 2025-06-18)"
    return f"Invalid Request: {text}"


def _salvage_id(line: bytes) -> bytes:
    try:
        found = bytes(_decode_any_object(line).get("id", Raw(b"null")))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return b"null"
    return found if _ID.fullmatch(found) else b"null"


def _id_of(envelope: Envelope) -> bytes:
    return b"null" if envelope.id is UNSET else bytes(envelope.id)


def _depth(line: bytes) -> int:
    """The nesting of valid JSON. Leaf pairs are folded away first: wide is common, deep is not."""
    brackets = _STRING.sub(b"", line).translate(None, _NOT_BRACKETS)
    folded = 0
    while folded < _FOLDS and brackets:
        # The mark keeps a pair that becomes a leaf only now for the next fold.
        brackets = brackets.replace(b"{}", b"-").replace(b"[]", b"-").translate(None, b"-")
        folded += 1
    if len(brackets) > _MAX_WALKED:
        return MAX_DEPTH + 1
    return folded + max(accumulate(map(_STEP.__getitem__, brackets)), default=0)


_FOLDS = 8
"""Each fold is one fast pass over the brackets; what survives eight is walked one by one."""
_MAX_WALKED = 200_000
"""Brackets that survive the folds beyond this are refused unwalked: half a second of everybody's time."""
_NOT_BRACKETS = bytes(set(range(256)) - set(_STEP))
