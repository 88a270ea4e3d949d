"""Meta-tools that several surfaces add: `read_resource`, and a call tool for read-only tools."""

from __future__ import annotations

import attrs
import msgspec
from msgspec import Raw, Struct

from daemon.catalog.permissions import annotations_of
from daemon.catalog.shown import locate
from daemon.errors import InvalidArguments, UnknownResource
from daemon.protocol import UNREADABLE
from daemon.surfaces.answers import MAX_QUOTED, cut, decode_arguments, room_of
from daemon.surfaces.held import refuse_held_uri
from daemon.surfaces.large_results import result_in
from daemon.surfaces.surface import READS, Action, Forward, MetaTool, ReadResult, View


def read_only(name: str, call: MetaTool) -> MetaTool:
    """The variant `name` of the call tool `call` that runs only read-only tools; profiles can omit it."""

    def does(view: View, arguments: bytes, *, patient: bool) -> Action:
        action = call.does(view, arguments, patient=patient)
        if isinstance(action, Forward) and (why := may_write(view, action)):
            raise InvalidArguments(
                f"{action.label} is not called by {name}: {why}. Nothing was sent. Call {call.name} with the"
                " same arguments.",
                tool=action.name,
                server=action.server,
                call=call.name,
            )
        return action

    return attrs.evolve(
        call,
        name=name,
        describe=f"Prefer this to {call.name} for tools with readOnlyHint: true.",
        hints=READS,
        does=does,
        exists=lambda view: view.profile.read_only_call,
    )


def may_write(view: View, forward: Forward) -> str:
    """The reason why a tool may write or needs the user's consent; empty if it only reads."""
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
    return Forward(
        server=server,
        method="resources/read",
        name=own,
        head=b'"uri":',
        arguments=msgspec.json.encode(own),
        label=f"{server}: {READ}",
        convert=as_tool_result,
    )


def as_tool_result(result: bytes | memoryview | Raw) -> bytes:
    """Convert a `resources/read` result to a `CallToolResult` (MCP); an invalid one passes unchanged."""
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
        said = msgspec.json.encode(contents.mimeType)
        return b'{"type":"%b","data":%b,"mimeType":%b}' % (kind.encode(), bytes(contents.blob), said)
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
"""For profiles with `readResource`."""
