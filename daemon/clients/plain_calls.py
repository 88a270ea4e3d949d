"""How a plain `tools/call` is read.

Nearly all clients write one in one way, which is read in one look; everything else is left to `wire.envelope`.
What is found here is what the closer look would have found: a client that writes differently only pays for that
look.
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
"""Bytes of the longest call that is read in one look: beyond, the saving is nothing compared to the payload."""

SHALLOW_BYTES = 2 * (MAX_DEPTH - 2)
"""Bytes of arguments that are too short to be nested deeply, two levels down, whatever is in them."""


class PlainCall(Struct, frozen=True, gc=False):
    """A `tools/call` without `_meta`."""

    request_id: bytes
    """The request's id, raw JSON."""
    name: str
    """The tool's name."""
    arguments: bytes
    """The tool's arguments: a JSON object, raw."""

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
    """Read a `tools/call` as nearly all are written; None for every message that needs a closer look.

    Its members, compact and in any order, have a known length: a line of exactly that length has no room for a
    second `id`, an escaped key, a `_meta` or anything else.
    """
    if len(line) > MAX_PLAIN or not line.isascii():
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
        or (len(arguments) > SHALLOW_BYTES and opens_many(line))
    ):
        return None
    return PlainCall(request_id, name, arguments)
