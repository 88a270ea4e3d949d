"""Large results: both ends for the client, and `read_result` for the rest.

The text of a result is that of its text and embedded resources, a newline between two; without any, it is the
JSON of `structuredContent`. Offsets count its bytes in UTF-8; pieces are of whole characters.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from daemon.errors import InvalidArguments
from daemon.kit.wording import some
from daemon.protocol import decode_members
from daemon.surfaces.answers import decode_arguments, one_line, room_of, size_of, some_of
from daemon.surfaces.surface import MetaTool, ReadResult, View

SCHEME = "mcpd://results/"
_URI = re.compile(SCHEME + "([0-9a-f]{32})", re.IGNORECASE)

FRAME = 800  # bytes of an answer besides the text of a result and its other parts

_CONTINUES = bytes(range(0x80, 0xC0))  # what continues a character of UTF-8


class _Item(Struct):
    type: str = ""
    text: str = ""
    uri: str = ""
    mimeType: str = ""  # noqa: N815 - the wire's name
    resource: _Item | None = None


_decode_item = msgspec.json.Decoder(_Item).decode
_decode_items = msgspec.json.Decoder(list[Raw]).decode


def result_in(uri: str) -> str:
    """The id in the URI of a kept result; empty if it is another URI."""
    found = _URI.fullmatch(uri)
    return found[1].lower() if found else ""


def start_of(text: bytes, room: int, *, end: bool = False) -> str:
    """The start (or end) of a text in `room` bytes of JSON, of whole characters."""
    piece = (text[-room:] if end else text[:room]).decode(errors="ignore")
    while (size := size_of(piece)) > room:
        most = len(piece) * (room - 2) // size
        piece = piece[len(piece) - most :] if end else piece[:most]
    return piece


def taken_apart(whole: bytes) -> tuple[bytes, list[str], dict[str, Raw]]:
    """The text of a result, words about what is no text, and its other members. Raises `UNREADABLE`."""
    members, texts, rest = decode_members(whole), [], []
    for raw in _decode_items(members.pop("content", b"[]")):
        block = _decode_item(raw)
        about = block.resource or block
        if about.text:
            texts.append(about.text)
        else:
            rest.append(one_line(f"{block.type} {about.mimeType} {about.uri}") + f" ({len(raw):,} bytes)")
    if (structured := members.pop("structuredContent", None)) is not None:
        rest.append(f"structuredContent ({len(structured):,} bytes)")
        texts = texts or [bytes(structured).decode()]
    return "\n".join(texts).encode(), rest, members


def cut_result(whole: bytes, room: int, result_id: str) -> bytes:
    """The parts of a result that its client gets, in `room` bytes. Raises `UNREADABLE`."""
    text, left, members = taken_apart(whole)
    start, end, shown = text.decode(), "", room - FRAME - room // 8
    if size_of(start) > shown:
        start, end = start_of(text, shown * 2 // 3), start_of(text, shown // 3, end=True)
        missing = len(text) - len(f"{start}{end}".encode())
        left.insert(0, f"{missing:,} of {len(text):,} bytes of the text here")
    names = some(left, len(some_of(left, room // 8))) or "nothing"
    note = (
        f"[mcpd: this result is too long for a context. Left out: {names}."
        f' read_result {{"id": "{result_id}", "offset": {len(start.encode())}}} goes on; "grep" or "jq" finds.]'
    )
    link = {"type": "resource_link", "uri": SCHEME + result_id, "name": "the whole result", "size": len(whole)}
    told = [{"type": "text", "text": each} for each in (start, note, end) if each]
    return msgspec.json.encode({"content": [*told, link], **members})


def answer(text: str, note: str) -> bytes:
    """An answer with a part of a result."""
    blocks = [{"type": "text", "text": each} for each in (text, f"[mcpd: {note}]")]
    return msgspec.json.encode({"content": blocks, "isError": False})


def read_from(whole: bytes, asked: ReadResult) -> bytes:
    """The answer with a piece of a result's text; without room, the whole result as a resource."""
    if not asked.room:
        contents = {"uri": SCHEME + asked.id, "mimeType": "application/json", "text": whole.decode()}
        return msgspec.json.encode({"contents": [contents]})
    text = taken_apart(whole)[0]
    rest = text[asked.offset :].lstrip(_CONTINUES)
    piece, begin = start_of(rest[: asked.limit], asked.room - FRAME), len(text) - len(rest)
    if not piece:
        raise InvalidArguments(f"the text of this result has {len(text)} bytes, none at {asked.offset}")
    end = begin + len(piece.encode())
    more = f"; go on with offset {end}" if end < len(text) else ""
    return answer(piece, f"bytes {begin} to {end} of {len(text)}{more}")


def _read_result(view: View, arguments: bytes, *, patient: bool) -> ReadResult:  # noqa: ARG001 - as any meta-tool
    asked = decode_arguments(arguments, ReadResult, '{"id": "0123…", "offset": 24000}')
    return replace(asked, id=result_in(asked.id) or asked.id, room=room_of(view))


READ_RESULT = MetaTool(
    name="read_result",
    describe="Read on in a result that was cut: its text from `offset` on, at most `limit` bytes; lines that"
    " match `grep` (RE2), as LINE:OFFSET:TEXT; or what a `jq` program gives for a text of JSON.",
    properties={name: {"type": "string"} for name in ("id", "grep", "jq")}
    | {name: {"type": "integer"} for name in ("offset", "limit")},
    required=("id",),
    does=_read_result,
)
