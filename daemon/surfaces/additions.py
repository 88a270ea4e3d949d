"""Tools that a surface gets in addition to its own: `read_resource`, and a second call tool that only reads.

A tool's result may link to a resource (`resource_link`). Most clients never let their model read it, so a
profile can offer `read_resource`. The second call tool is for tools that only read, as their servers say:
clients may let it through unasked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct

from daemon.catalog.permissions import annotations_of
from daemon.catalog.shown import locate
from daemon.errors import InvalidArguments, UnknownResource
from daemon.surfaces.answers import MAX_QUOTED, cut, decode_arguments
from daemon.surfaces.base import Action, Forward, Surface, View
from daemon.surfaces.describing import READS, meta_tool, typed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from daemon.catalog.offer import Offered


class _Addition(Surface):
    """A surface with one tool more, after its own meta-tools."""

    def __init__(self, surface: Surface, definition: bytes) -> None:
        self.name = surface.name
        self.meta_tools = surface.meta_tools
        self._surface = surface
        self._definition = definition

    def instructions(self, view: View) -> str:
        """Those of the surface."""
        return self._surface.instructions(view)

    def awaits(self, view: View) -> tuple[str, ...]:
        """What the surface awaits."""
        return self._surface.awaits(view)

    def list_tools(self, view: View) -> tuple[bytes, ...]:
        """The surface's tools, with this one after its meta-tools."""
        tools = self._surface.list_tools(view)
        first = len(tools) - len(self._surface.listed(view))
        return (*tools[:first], self._definition, *tools[first:])

    def listed(self, view: View) -> Sequence[Offered]:
        """The servers' tools that the surface lists."""
        return self._surface.listed(view)


class ReadOnlyCalls(_Addition):
    """A surface with a call tool for read-only tools after its own one, unless the profile has it left out."""

    def __init__(self, surface: Surface, call: str, name: str, properties: Mapping[str, str]) -> None:
        """Add the tool to a surface, among whose meta-tools its name stands already.

        Args:
            surface: the surface.
            call: the name of its own call tool.
            name: the name of the tool for read-only tools.
            properties: the types of the call tool's arguments, by name; all of them are required.
        """
        described = f"Prefer this to {call} for tools with readOnlyHint: true."
        super().__init__(surface, meta_tool(name, described, typed(properties), tuple(properties), hints=READS))
        self._call = call
        self._own = name

    def list_tools(self, view: View) -> tuple[bytes, ...]:
        """The surface's tools, with this one after its meta-tools."""
        return super().list_tools(view) if view.profile.read_only_call else self._surface.list_tools(view)

    def call(self, view: View, name: str, arguments: bytes, *, patient: bool) -> Action:
        """Forward a call that only reads, or do what the surface does."""
        if name != self._own or not view.profile.read_only_call:
            return self._surface.call(view, name, arguments, patient=patient)
        action = self._surface.call(view, self._call, arguments, patient=patient)
        if isinstance(action, Forward):
            self._require(view, action)
        return action

    def _require(self, view: View, forward: Forward) -> None:
        """Refuse what does not only read.

        Raises:
            InvalidArguments: its server does not say that it only reads, or its user is to be asked.
        """
        offered = view.offer.tools.get((forward.server, forward.name))
        if offered is None:
            why = "its server has not listed it yet"
        elif forward.ask is not None:
            why = "mcpd's configuration has the user asked about it"
        elif annotations_of(offered.tool).read_only:
            return
        else:
            why = "its server does not say that it only reads (readOnlyHint)"
        raise InvalidArguments(
            f"{forward.label} is not called by {self._own}: {why}. Nothing was sent. Call {self._call} with the"
            " same arguments.",
            tool=forward.name,
            server=forward.server,
            call=self._call,
        )


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


class ReadingSurface(_Addition):
    """A surface with `read_resource` after its meta-tools."""

    def __init__(self, surface: Surface) -> None:
        """Add the tool to `surface`."""
        super().__init__(surface, _DEFINITION)
        self.meta_tools = (*surface.meta_tools, READ)

    def call(self, view: View, name: str, arguments: bytes, *, patient: bool) -> Action:
        """Read a resource, or do what the surface does."""
        if name != READ:
            return self._surface.call(view, name, arguments, patient=patient)
        return _read(view, decode_arguments(arguments, _Arguments, EXAMPLE).uri)


def _read(view: View, uri: str) -> Forward:
    found = locate(view.catalog, view.offer, uri, view.linked)
    if found is None:
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
    """What `resources/read` was answered with, as the result of a tool (MCP, `CallToolResult`).

    Text becomes text, an image an image, and everything else an embedded resource; each as its server wrote it.
    A result that is none comes back as it is.
    """
    try:
        items = [_as_content(each) for each in _decode_result(result).contents]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
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

_DEFINITION = meta_tool(
    READ,
    "Read a resource by its URI: one that a tool's result links to, or that a server is known to have.",
    {"uri": {"type": "string", "description": "The resource's URI, as it was given."}},
    ("uri",),
)
