"""Calls of a tool as nearly all clients write them, read in one look; all else is left to `wire.envelope`.

What is found here is what a closer look would have found: whoever writes another way only pays for that look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct

from daemon.protocol import CALL_TOOL
from daemon.wire.envelope import MAX_DEPTH, opens_many

if TYPE_CHECKING:
    from daemon.wire.frames import Line

MAX_PLAIN = 64 * 1024
"""Bytes of the longest call that is read in one look: beyond, what it saves is nothing beside the payload."""

SHALLOW_BYTES = 2 * MAX_DEPTH
"""One this short is not nested deeply, whatever is in it."""


class PlainCall(Struct, frozen=True, gc=False):
    """A `tools/call` without `_meta`."""

    request_id: bytes
    """As it came."""
    name: str
    """The tool's."""
    arguments: bytes
    """A JSON object."""

    def __repr__(self) -> str:
        """Without arguments: they may hold a secret."""
        return f"<PlainCall {self.name}>"


class _PlainParams(Struct, gc=False):
    name: str
    arguments: Raw


class _PlainRequest(Struct, gc=False):
    jsonrpc: str
    id: int
    method: str
    params: _PlainParams


_decode_call = msgspec.json.Decoder(_PlainRequest).decode
_BRACE = ord("{")
_PLAIN_BYTES = len(b'{"jsonrpc":"2.0","id":,"method":"tools/call","params":{"name":"","arguments":}}')


def plain_call(line: Line) -> PlainCall | None:
    """A `tools/call` as nearly all are written, in one look; None for all that is worth a closer one.

    Its members, compact and in any order, take so many bytes: a line of just that length has no room for a
    second `id`, an escaped key, a `_meta` or anything else.
    """
    if not line.isascii() or (len(line) > SHALLOW_BYTES and (len(line) > MAX_PLAIN or opens_many(line))):
        return None
    try:
        asked = _decode_call(line)
    except (msgspec.MsgspecError, RecursionError):
        return None
    params = asked.params
    name = params.name
    request_id, arguments = b"%d" % asked.id, bytes(params.arguments)
    if (
        len(line) != _PLAIN_BYTES + len(request_id) + len(name) + len(arguments)
        or asked.method != CALL_TOOL
        or asked.jsonrpc != "2.0"
        or arguments[0] != _BRACE
    ):
        return None
    return PlainCall(request_id, name, arguments)
