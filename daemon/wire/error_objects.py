"""JSON-RPC error objects: how those of others are read, however sloppy, and how ours are made."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct

from daemon.wire.envelope import ERROR_MEMBER, INTERNAL_ERROR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daemon.wire.envelope import Buffer

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
