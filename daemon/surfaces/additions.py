"""Meta-tools that several surfaces add: `read_resource`, `read_result`, and a call tool for read-only tools.

The text of a large result is that of its text blocks and resources, joined by newlines, or else the JSON of
`structuredContent`. Offsets count its bytes in UTF-8; pieces hold whole characters.
"""

from __future__ import annotations

import re
import shlex
import sys

import attrs
import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from daemon.catalog.kinds import switch_of
from daemon.catalog.naming import Template, fitting, read_mcpd_uri, skill_with
from daemon.catalog.permissions import annotations_of
from daemon.catalog.shown import locate
from daemon.catalog.trust import HeldDefinition
from daemon.errors import InvalidArguments, ToolHeld, UnknownResource
from daemon.history.event_words import of_held
from daemon.kit.wording import some
from daemon.model import Kind, ToolKey
from daemon.protocol import UNREADABLE, decode_members
from daemon.surfaces import answers
from daemon.surfaces.answers import MAX_QUOTED, cut, decode_arguments, one_line, room_of, size_of, some_of
from daemon.surfaces.surface import READS, Action, Forward, MetaTool, ReadResult, RunScript, View

SCHEME = "mcpd://results/"
_URI = re.compile(SCHEME + "([0-9a-f]{32})", re.IGNORECASE)

FRAME = 800  # bytes of an answer besides the text of a result and its other parts

MAX_BLOCKS = 10_000
"""Blocks of a result that are examined: a million would hold up all calls for seconds."""

NEAR = 4
"""A piece of a text ends at its last line end, if at most a quarter of the piece is lost."""

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
    """The id in a kept result's URI; empty for another URI."""
    found = _URI.fullmatch(uri)
    return found[1].lower() if found else ""


def start_of(text: bytes, room: int, *, end: bool = False, most: int = sys.maxsize) -> str:
    """The start (or end) of a text within `room` bytes of JSON and `most` of text; whole lines if possible."""
    part = min(room, most)
    piece = (text[-part:] if end else text[:part]).decode(errors="ignore")
    while (size := size_of(piece)) > room:
        shorter = len(piece) * (room - 2) // size
        piece = piece[len(piece) - shorter :] if end else piece[:shorter]
    at = (piece.find("\n") if end else piece.rfind("\n")) + 1
    beyond = at if end else len(piece) - at
    if not at or beyond * NEAR > len(piece) or len(piece.encode()) == len(text):
        return piece
    return piece[at:] if end else piece[:at]


def taken_apart(whole: bytes) -> tuple[bytes, list[str], dict[str, Raw]]:
    """A result's text, descriptions of its parts without text, and its other members. Raises `UNREADABLE`."""
    members, texts, rest = decode_members(whole), [], []
    blocks = _decode_items(members.pop("content", b"[]"))
    if len(blocks) > MAX_BLOCKS:
        rest.append(f"{len(blocks) - MAX_BLOCKS:,} further blocks")
    for raw in blocks[:MAX_BLOCKS]:
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
    """Cut a result to the parts that fit in `room` bytes for its client. Raises `UNREADABLE`."""
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
    blocks = [{"type": "text", "text": each} for each in (start, note, end) if each]
    return msgspec.json.encode({"content": [*blocks, link], **members})


def answer(text: str, note: str) -> bytes:
    """Make the answer that holds a part of a result, and a note."""
    blocks = [{"type": "text", "text": each} for each in (text, f"[mcpd: {note}]")]
    return msgspec.json.encode({"content": blocks, "isError": False})


def read_from(whole: bytes, asked: ReadResult) -> bytes:
    """Answer with a piece of a result's text; without `room`, with the whole result as a resource."""
    if not asked.room:
        contents = {"uri": SCHEME + asked.id, "mimeType": "application/json", "text": whole.decode()}
        return msgspec.json.encode({"contents": [contents]})
    text = taken_apart(whole)[0]
    rest = text[asked.offset :].lstrip(_CONTINUES)
    piece, begin = start_of(rest, asked.room - FRAME, most=asked.limit), len(text) - len(rest)
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


_PLAIN = re.compile(r"[\w.-]{1,40}", re.ASCII)
"""Matches a name that a model may see unchanged."""


def refuse_held(view: View, kind: Kind, key: ToolKey | None, name: str) -> None:
    """Raise `ToolHeld` if the definition that has or had this name is held and the profile shows it."""
    if key is not None and (entry := view.catalog.servers.get(key[0])) is not None:
        known = entry.list_of(kind)
        own = key[1] if key[1] in known.all else known.renamed.get(key[1], "")
        if own in known.held and _would_offer(view, kind, (key[0], own)):
            raise _held_error(view, known.held[own], name)


def _would_offer(view: View, kind: Kind, key: ToolKey) -> bool:
    server, offer = key[0], view.offer
    if kind is not Kind.TOOL:
        return (
            server in offer.servers_of(kind) and (server, switch_of(kind, key[1])) not in view.catalog.switched
        )
    is_for_client = view.apps or not offer.rules.hides(key)
    return is_for_client and offer.rules.allows(key) and not view.catalog.servers[server].disabled


def _held_error(view: View, held: HeldDefinition, name: str) -> ToolHeld:
    """The error about a held definition that was requested by `name`."""
    plain = {what: list(filter(_PLAIN.fullmatch, names)) for what, names in held.change.items()}
    it, why, asked = held.definition, of_held(held.because, plain), name[: answers.MAX_QUOTED]
    # A name that the client has not said is the server's word.
    word = f"{it.server}/{switch_of(it.kind, it.name)}" if name.endswith(it.name) else it.server
    approve, does = f"mcpd approve {shlex.quote(word)}", "approves it, with --diff it shows the change"
    lock = view.catalog.config.lock
    if held.because == "unknown" or (lock is not None and lock.problem):
        approve, does = "mcpd doctor", "says why no approval can be read"
    text = (
        f"{answers.quoted(name)} waits for an operator's approval: {why}. Nothing was sent. `{approve}` {does}."
    )
    text += " Tell your user, and use something else meanwhile."
    details = {"server": it.server, "because": str(held.because), str(it.kind): asked, "approve": approve}
    return ToolHeld(text, held=held, **details)


def refuse_held_uri(view: View, uri: str) -> None:
    """Raise `ToolHeld` for the URI of a skill or template that waits for approval."""
    named, servers = read_mcpd_uri(uri), view.servers
    for server, own in [named] if named else [(each, uri) for each in servers]:
        if (entry := servers.get(server)) is not None:
            refuse_held(view, Kind.SKILL, (server, skill_with(own, entry.list_of(Kind.SKILL).all)), uri)
            held = entry.list_of(Kind.TEMPLATE).held
            for each in fitting([Template(server=server, text=text) for text in held], own):
                refuse_held(view, Kind.TEMPLATE, (server, each.text), uri)


def read_only(name: str, call: MetaTool, what: str = "tools") -> MetaTool:
    """Make a variant of a meta-tool that calls only read-only tools; profiles may leave it out."""

    def does(view: View, arguments: bytes, *, patient: bool) -> Action:
        action = call.does(view, arguments, patient=patient)
        if isinstance(action, Forward):
            refuse_writing(view, action, name, f"Call {call.name} with the same arguments.", call.name)
        return replace(action, read_only=True) if isinstance(action, RunScript) else action

    return msgspec.structs.replace(
        call,
        name=name,
        describe=f"Prefer this to {call.name} for {what} with readOnlyHint: true.",
        hints=READS,
        does=does,
        exists=lambda view: view.profile.read_only_call,
    )


def refuse_writing(view: View, forward: Forward, name: str, helps: str, call: str) -> None:
    """Raise `InvalidArguments` if `name` may not call the tool because it may write; `call` is another way."""
    if why := may_write(view, forward):
        text = f"{forward.label} is not called by {name}: {why}. Nothing was sent. {helps}"
        raise InvalidArguments(text, tool=forward.name, server=forward.server, call=call)


def may_write(view: View, forward: Forward) -> str:
    """Why a tool may write or needs the user's consent; empty if it only reads."""
    offered = view.offer.tools.get((forward.server, forward.name))
    if offered is None:
        return "its server has not listed it yet"
    if forward.ask is not None:
        return "mcpd's configuration has the user asked about it"
    reads = annotations_of(offered.tool).read_only
    return "" if reads else "its server does not say that it only reads (readOnlyHint)"


READ = "read_resource"
EXAMPLE = '{"uri": "file:///notes.txt"}'


class _Arguments(Struct, forbid_unknown_fields=True):
    uri: str


class _Contents(Struct):
    uri: Raw = Raw(b'""')
    text: Raw | msgspec.UnsetType = msgspec.UNSET
    blob: Raw | msgspec.UnsetType = msgspec.UNSET
    mimeType: str | None = None  # noqa: N815 - the wire's name


class _ReadResult(Struct):
    contents: list[Raw]


def _read(view: View, arguments: bytes, *, patient: bool) -> Action:  # noqa: ARG001 - as any meta-tool
    uri = decode_arguments(arguments, _Arguments, EXAMPLE).uri
    if kept := result_in(uri):
        return ReadResult(id=kept, room=room_of(view))
    found = locate(view.catalog, view.offer, uri, view.linked)
    if found is None:
        refuse_held_uri(view, uri)
        raise UnknownResource(
            f"no server has a resource {cut(uri, MAX_QUOTED)!r}. Use a URI that a tool's result links to, or"
            " mcpd://SERVER/URI, percent-encoded, for one that a server knows but does not list.",
            uri=cut(uri, MAX_QUOTED),
        )
    server, own = found
    read = Forward.about(server, "resources/read", f"{server}: {READ}", "uri", own)
    return attrs.evolve(read, name=own, convert=as_tool_result)


def as_tool_result(result: bytes | memoryview | Raw) -> bytes:
    """Convert the result of `resources/read` to a `CallToolResult` (MCP); an invalid one stays."""
    try:
        items = [_as_content(each) for each in _decode_result(result).contents]
    except UNREADABLE:
        return bytes(result)
    return b'{"content":[%b],"isError":false}' % b",".join(items)


def _as_content(raw: Raw) -> bytes:
    contents = _decode_contents(raw)
    if contents.text is not msgspec.UNSET:
        return b'{"type":"text","text":%b}' % bytes(contents.text)
    kind = (contents.mimeType or "").partition("/")[0]
    if contents.blob is not msgspec.UNSET and kind in ("image", "audio"):
        mime_type = msgspec.json.encode(contents.mimeType)
        return b'{"type":"%b","data":%b,"mimeType":%b}' % (kind.encode(), bytes(contents.blob), mime_type)
    return b'{"type":"resource","resource":%b}' % bytes(raw)


_decode_result = msgspec.json.Decoder(_ReadResult).decode
_decode_contents = msgspec.json.Decoder(_Contents).decode

READ_RESOURCE = MetaTool(
    name=READ,
    describe="Read a resource by its URI: one that a tool's result links to, or that a server is known to"
    " have.",
    properties={"uri": {"type": "string", "description": "The resource's URI, as it was given."}},
    required=("uri",),
    does=_read,
)
