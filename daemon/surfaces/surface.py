"""The base class of all surfaces, the view that they read, and the actions that they decide on."""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Self, TypeAlias

import attrs
import msgspec
from msgspec import Raw

from daemon.catalog.categories import ToolCategory
from daemon.catalog.definitions import hashes, shown_meta_tool
from daemon.catalog.loaded import Loaded, Source
from daemon.catalog.offer import Offer, Offered, Offers
from daemon.catalog.snapshot import Catalog, ServerEntry
from daemon.config.config_model import Profile
from daemon.config.names import read_reference
from daemon.kit.waiting import keep_latest
from daemon.model import Kind, Repair, Tool, ToolKey
from daemon.protocol import CALL_TOOL
from daemon.safety.legible import legible_tool
from daemon.surfaces.validators import MAX_REMEMBERED, WrappedCalls, validator_of
from daemon.surfaces.wrapped import Wrapper

if TYPE_CHECKING:
    from daemon.catalog.tool_results import Shape
    from daemon.search.index import Index


LARGEST = "anthropic/maxResultSizeChars"
"""Raises the limit above which Claude Code writes a tool's result to a file."""

_SIZE = re.compile(rf'"{LARGEST}"\s*:\s*(\d{{1,9}})\b'.encode())

ALWAYS_LOAD = {"anthropic/alwaysLoad": True}
"""Tells a client not to hide a tool behind its own tool search."""


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """Services that all views share; all are derived from the catalog."""

    offers: Offers
    index: Callable[[], Index]
    """Returns the newest search index, which may lag behind the catalog."""
    index_characters: int
    """Characters of the initial list of categories or servers (`limits.indexCharacters`)."""
    most_called: Callable[[], Sequence[ToolKey]] = tuple
    shapes: Callable[[str], Shape | None] = lambda _hash: None
    """Returns the observed shape of a tool's results, by the tool's schema hash."""


@attrs.frozen(kw_only=True)
class View:
    """The catalog in one state, as a session with a profile sees it."""

    catalog: Catalog
    profile: Profile
    now: Callable[[], float] = attrs.field(repr=False)
    services: Services = attrs.field(repr=False)
    loaded: Loaded = attrs.field(factory=Loaded)
    shown: Callable[[ToolKey], str | None] = attrs.field(default=lambda _key: None, repr=False)
    """Returns the schema hash of a tool as this client last saw it; None if it never did."""

    usual: Callable[[], Sequence[ToolKey]] = attrs.field(default=tuple, repr=False)
    """Returns the core tools for this client, if its profile names none (`surfaces.calling`)."""
    linked: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """The server of each URI that a result of this session has linked to."""
    keeps: bool = True
    apps: bool = False
    forwards: dict[str, Forward] = attrs.field(factory=dict, init=False, repr=False)
    """Decisions by tool name that do not depend on the arguments; made once per view."""
    wrapped: dict[str, WrappedCalls[Forward]] = attrs.field(factory=dict, init=False, repr=False)
    """Decisions about calls through each meta-tool, by the meta-tool's name."""

    @property
    def categories(self) -> Mapping[str, ToolCategory]:
        """The categories of the profile, in the configuration's order."""
        allowed = self.profile.categories
        if allowed is None:
            return self.catalog.categories
        return {name: entry for name, entry in self.catalog.categories.items() if name in allowed}

    @cached_property
    def servers(self) -> Mapping[str, ServerEntry]:
        """The servers that the profile shows, or may show once they have listed their tools."""
        entries = {name: entry for name, entry in self.catalog.servers.items() if not entry.disabled}
        if self.profile.categories is None:
            return entries
        shown = {server for category in self.categories.values() for server in category.servers}
        shown |= {server for server, _tool in self.offer.tools}
        shown |= {
            reference.server
            for name in self.profile.included_optional_tools
            if (reference := read_reference(name, entries)).server
        }
        return {name: entry for name, entry in entries.items() if name in shown}

    @cached_property
    def largest_result(self) -> Mapping[str, int]:
        """The tools' highest `anthropic/maxResultSizeChars`, for the `_meta` of meta-tools that call them."""
        tools = chain.from_iterable(each.values() for each in self.offer.table.by_server.values())
        sizes = [int(size) for tool in tools for size in _SIZE.findall(tool.parts.get("_meta", b""))]
        return {LARGEST: max(sizes)} if sizes else {}

    @property
    def auto_load(self) -> bool:
        """Whether an unloaded tool may be called; always if another request may have loaded the tool."""
        return self.profile.auto_load or not self.keeps

    @property
    def offer(self) -> Offer:
        """The tools that the profile offers."""
        return self.services.offers.of(self.catalog, self.profile)

    def remember(self, name: str, sent: bytes, forward: Forward) -> None:
        """Keep the decision about the call `sent` of `name`, if all similar calls go the same way."""
        kept = attrs.evolve(forward, arguments=b"{}")  # without arguments: they may be megabytes, and a secret
        if forward.verbatim:
            keep_latest(self.forwards, name, kept, MAX_REMEMBERED)
        elif forward.wrapper is not None:
            # Bounded: one entry for each of the few meta-tools that call others.
            calls = self.wrapped.setdefault(name, WrappedCalls(forward.wrapper.opening))
            head, validator = forward.wrapper.head(sent), validator_of(forward.tool)
            if head and validator is not None and sent == b"%b%b}" % (head[:-1], forward.arguments):
                calls.remember(head, kept, validator)


class Loading(msgspec.Struct, frozen=True, kw_only=True):
    """Tools that a call loads into its session."""

    tools: tuple[ToolKey, ...] = ()
    source: Source = Source.MANUAL
    leaving: tuple[ToolKey, ...] | None = None
    """The tools that leave the list, least recently used first; None on surfaces that keep all."""


class Reply(msgspec.Struct, frozen=True):
    """The decision to answer a call at once."""

    result: bytes
    loading: Loading | None = None
    shown: tuple[ToolKey, ...] = ()


@attrs.frozen(kw_only=True)
class Forward:
    """The decision to send a call to a server and answer with its result."""

    server: str
    method: str = CALL_TOOL
    name: str
    head: bytes = attrs.field(repr=False)
    """The raw bytes before the payload in `params` (`ports.CallToSend.params`)."""
    arguments: bytes | Raw = attrs.field(repr=False)
    """The payload: a JSON object, in the client's own bytes."""
    label: str
    loading: Loading | None = None
    repair: Repair | None = None
    convert: Callable[[bytes | memoryview | Raw], bytes] | None = attrs.field(default=None, repr=False)
    verbatim: bool = False
    """Whether the decision does not depend on the arguments, so that they are not decoded."""
    ask: Tool | None = attrs.field(default=None, repr=False)
    wrapper: Wrapper | None = attrs.field(default=None, repr=False)
    """The meta-tool of the call, if like calls go the same way while the view is valid."""
    page: str = ""
    """The URI of the app that the call opens or whose page shows the result."""
    tool: Tool | None = attrs.field(default=None, repr=False)
    """The tool that the decision is based on; None while its server has not listed it."""

    @classmethod
    def about(
        cls, server: str, method: str, label: str, member: str, value: object, payload: Raw | None = None
    ) -> Self:
        """The decision to send a request in which `member` holds the server's own name, `value`."""
        head, written = b'"%b":' % member.encode(), msgspec.json.encode(value)
        if payload is not None:
            head, written = b'%b%b,"arguments":' % (head, written), bytes(payload)
        return cls(server=server, method=method, name="", head=head, arguments=written, label=label)


class AwaitListing(msgspec.Struct, frozen=True, kw_only=True):
    """The decision to wait for missing lists, and then to decide again."""

    servers: tuple[str, ...] = ()
    calling: bool = False
    kinds: tuple[Kind, ...] = (Kind.TOOL,)
    chosen: bool = False
    """Whether the client has chosen these servers, so that it waits for their whole first start."""
    indexed: bool = False


class RunScript(msgspec.Struct, frozen=True, kw_only=True):
    """The decision to run a script and answer with its value."""

    code: str
    inputs: bytes
    """Raw JSON with the values of the script's variables, by name."""
    read_only: bool = False

    def __repr__(self) -> str:
        """Leaves the script out: it may hold a secret."""
        return "<RunScript>"


class ReadResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The decision to answer with a part of a kept result (`surfaces.additions`), and its arguments."""

    id: str
    offset: Annotated[int, msgspec.Meta(ge=0, lt=2**40)] = 0
    limit: Annotated[int, msgspec.Meta(ge=4)] = sys.maxsize
    """Bytes of the piece; one character has up to four."""
    grep: str | None = None
    jq: str | None = None
    room: int = 0
    """Bytes of the answer; 0 asks for the whole result as a resource."""


Action = Reply | Forward | AwaitListing | ReadResult | RunScript
Does: TypeAlias = "Callable[..., Action]"


READS_HERE = {"readOnlyHint": True, "openWorldHint": False}
"""Annotations of a meta-tool that only reads and reaches no server; without defaults, to save tokens."""
READS = {"readOnlyHint": True}
"""Annotations of a meta-tool that runs servers' read-only tools, which may reach anything."""
RUNS_ANYTHING = {"destructiveHint": True}
"""Annotations of a meta-tool that runs any tool; without the hint, some clients run it without asking."""


class MetaTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that belongs to a surface."""

    name: str
    describe: str | Callable[[View], str]
    """The description for models; a function that returns an empty text unlists the tool."""
    properties: Mapping[str, object] | Callable[[View], Mapping[str, object]] = {}
    required: tuple[str, ...] = ()
    hints: Mapping[str, bool] = msgspec.field(default_factory=READS_HERE.copy)
    does: Does
    exists: Callable[[View], bool] = lambda _view: True
    """Whether the tool can be called; if not, a tool of a server may have its name."""

    def definition(self, view: View) -> bytes:
        """The tool's entry in a list of tools, raw JSON; empty if the tool is not listed."""
        described = self.describe if isinstance(self.describe, str) else self.describe(view)
        if not described:
            return b""
        properties = self.properties(view) if callable(self.properties) else self.properties
        schema = {"type": "object", "properties": properties}
        raw = msgspec.json.encode(
            {
                "name": self.name,
                "description": described,
                "inputSchema": {**schema, "required": self.required} if self.required else schema,
                "annotations": self.hints,
                "_meta": {**ALWAYS_LOAD, **(view.largest_result if self.hints != READS_HERE else {})},
            }
        )
        return shown_meta_tool(raw, view.profile.schemas)


class Surface(ABC):
    """A way of showing tools to clients. Stateless: one object serves all sessions."""

    name: str
    tools: tuple[MetaTool, ...]
    meta_tools: tuple[str, ...]

    def __init__(self) -> None:
        self.meta_tools = tuple(tool.name for tool in self.tools)

    def with_tool(self, tool: MetaTool) -> Self:
        """A copy of the surface with one more own tool."""
        other = copy(self)
        other.tools, other.meta_tools = (*self.tools, tool), (*self.meta_tools, tool.name)
        return other

    @abstractmethod
    def instructions(self, view: View) -> str:
        """The instructions for models in the handshake."""

    def awaits(self, _view: View) -> tuple[str, ...]:
        """The servers for whose first list `list_tools` should wait a short time."""
        return ()

    def list_tools(self, view: View) -> tuple[bytes, ...]:
        """All listed tools, each a raw JSON object; the same tuple while nothing changes."""
        own = [tool.definition(view) for tool in self.tools if tool.exists(view)]
        listed = self.list_listed(view)
        return (*filter(None, own), *listed) if any(own) else listed

    def listed(self, view: View) -> Collection[Offered]:
        """The servers' tools at the end of `list_tools`, in order; by default those that open an app."""
        return tuple(view.offer.apps.shown.values()) if view.apps else ()

    def list_listed(self, view: View) -> tuple[bytes, ...]:
        """The entries of `listed`, each a raw JSON object."""
        names = (
            (each, view.catalog.names.name_beside(each.key, self.meta_tools)) for each in self.listed(view)
        )
        named = ((each, view.offer.apps.name_of(each.key, name)) for each, name in names)
        return tuple(legible_tool(each.listed(name), each.description) for each, name in named)

    def call(self, view: View, name: str, arguments: bytes, *, patient: bool) -> Action:
        """Decide on a call; `AwaitListing` only if `patient`. Raises CallError if the call is refused."""
        for tool in self.tools:
            if tool.name == name and tool.exists(view):
                return tool.does(view, arguments, patient=patient)
        return self.call_other(view, name, arguments, patient=patient)

    @abstractmethod
    def call_other(self, view: View, name: str, arguments: bytes, *, patient: bool) -> Action:
        """Decide on a call of a tool that does not belong to the surface, as `call`."""


def renamed(view: View, name: str) -> tuple[ToolKey, Offered] | None:
    """A renamed tool's former key and the present tool; None if the tool is not renamed or not offered."""
    catalog = view.catalog
    key = catalog.names.key_of(name, catalog.servers)
    if key is None or key in view.offer.tools:
        return None
    entry = catalog.servers[key[0]]
    if entry.tools is None or key[1] in entry.tools:
        return None
    new = entry.tool_list.renamed.get(key[1])
    if new is None and key in view.loaded:
        # It was renamed before this daemon started; the session stored the new name.
        new = view.loaded.tools[key].verdict.renamed_to
    offered = None if new is None else view.offer.tools.get((key[0], new))
    return None if offered is None else (key, offered)


def is_as_shown(view: View, old: ToolKey, now: Tool) -> bool:
    """Whether a renamed tool differs only by name from the one that the client saw or loaded."""
    seen = view.shown(old)
    if seen is None and old in view.loaded:
        seen = view.loaded.tools[old].schema_hash
    if seen is None:
        return False
    whole, _content = hashes({**msgspec.json.decode(now.raw), "name": old[1]})
    return whole == seen
