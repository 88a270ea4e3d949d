"""The base of all surfaces, the view that they see, and the actions that they decide on.

A surface only decides. The session and the call path wait, send, load and answer for it, and know no surface by
name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import attrs
import msgspec

from daemon.catalog.definitions import hashes, shown_meta_tool
from daemon.catalog.loaded import Loaded, Source
from daemon.config.names import read_reference
from daemon.model import Kind
from daemon.protocol import CALL_TOOL
from daemon.surfaces.wrapped import WRAPPERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    from daemon.catalog.categories import ToolCategory
    from daemon.catalog.offer import Offer, Offered, Offers
    from daemon.catalog.snapshot import Catalog, ServerEntry
    from daemon.config.config_model import Profile
    from daemon.model import Repair, Tool, ToolKey
    from daemon.search.index import Index
    from daemon.surfaces.validators import Validator
    from daemon.surfaces.wrapped import Checker, Wrapper


Key = TypeVar("Key")
Kept = TypeVar("Kept")

MAX_REMEMBERED = 1024
"""Decisions of each kind that are remembered with one view: more tools than one client calls between two
changes."""

ALWAYS_LOAD = {"anthropic/alwaysLoad": True}
"""Keeps a client from hiding a tool behind a tool search of its own."""


@attrs.frozen(kw_only=True)
class Means:
    """The services that all views share; derived from the catalog, never a source of truth."""

    offers: Offers
    """The tools that each profile offers."""
    checker: Checker
    """Reads the arguments that models wrap."""
    index: Callable[[], Index]
    """Returns the newest search index, which may lag behind the catalog."""
    index_characters: int
    """Characters of a list of categories or servers that is shown from the start (`limits.indexCharacters`)."""
    most_called: Callable[[], Sequence[ToolKey]] = tuple
    """Returns the tools that were ever called, as far as is known, the most called first."""


@attrs.frozen(kw_only=True)
class View:
    """What a session sees: one state of the catalog through its profile."""

    catalog: Catalog
    """The whole catalog."""
    profile: Profile
    """The profile, which restricts what the session sees of the catalog."""
    now: Callable[[], float] = attrs.field(repr=False)
    """Returns the present time, in seconds since the epoch."""
    means: Means = attrs.field(repr=False)
    """The services to use."""
    loaded: Loaded = attrs.field(factory=Loaded)
    """The tools that this session has loaded."""
    shown: Callable[[ToolKey], str | None] = attrs.field(default=lambda _key: None, repr=False)
    """Returns the schema hash of a tool as this client was last shown it; None if it never was."""

    usual: Callable[[], Sequence[ToolKey]] = attrs.field(default=tuple, repr=False)
    """Returns the core tools that were chosen for this client if its profile names none
    (`surfaces.calling`)."""
    linked: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """The servers whose results have linked to URIs in this session."""
    keeps: bool = True
    """Whether what is loaded or shown is known in the client's next request."""
    forwards: dict[str, Forward] = attrs.field(factory=dict, init=False, repr=False)
    """Where calls of a name go whatever their arguments are, decided once per view."""
    wrapped: dict[str, WrappedCalls] = attrs.field(factory=dict, init=False, repr=False)
    """Where calls through a meta-tool of that name go, decided once per view and tool."""

    @property
    def categories(self) -> Mapping[str, ToolCategory]:
        """The categories of the profile, in the configuration's order."""
        allowed = self.profile.categories
        if allowed is None:
            return self.catalog.categories
        return {name: entry for name, entry in self.catalog.categories.items() if name in allowed}

    @property
    def servers(self) -> Mapping[str, ServerEntry]:
        """The servers that the profile shows something of, or may once they have listed their tools."""
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

    @property
    def auto_load(self) -> bool:
        """Whether a tool may be called that is not loaded; it must be if another request may have loaded it."""
        return self.profile.auto_load or not self.keeps

    @property
    def offer(self) -> Offer:
        """The tools of the profile, each once."""
        return self.means.offers.of(self.catalog, self.profile)

    def remember(self, name: str, sent: bytes, forward: Forward) -> None:
        """Remember what was decided about a call, if the next one that is like it goes the same way.

        Args:
            name: the name that was called.
            sent: the arguments that it was called with.
            forward: the decision.
        """
        if forward.verbatim:
            _keep(self.forwards, name, _without_arguments(forward))
        elif forward.wrapper is not None:
            if name not in self.wrapped:
                # A name of ours: one for each of the few meta-tools that call others.
                self.wrapped[name] = WrappedCalls(forward.wrapper, self.means.checker)
            self.wrapped[name].remember(sent, forward)


class Loading(msgspec.Struct, frozen=True, kw_only=True):
    """Tools that a call loads into its session, which lists them from then on."""

    tools: tuple[ToolKey, ...] = ()
    """The keys of the tools."""
    source: Source = Source.MANUAL
    """What caused the loading."""
    leaving: tuple[ToolKey, ...] | None = None
    """The tools that leave the list instead, the one unused longest first; None where none ever does."""


class Reply(msgspec.Struct, frozen=True):
    """The decision to answer a call at once."""

    result: bytes
    """The result, raw JSON."""
    loading: Loading | None = None
    """The tools that the answer loads."""
    shown: tuple[ToolKey, ...] = ()
    """The tools whose definitions the answer shows."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The tool that a wrapper call means."""

    server: str
    """The name of the server that has it."""
    name: str
    """The tool's bare name there."""
    label: str
    """What the log calls a call to it."""
    tool: Tool | None
    """Its definition; None while its server has not listed its tools."""
    asks: bool = False
    """Whether it is called only if the client's user agrees."""
    lasts: bool = True
    """Whether it is the same for every such call, as long as the view does not change."""


@attrs.frozen(kw_only=True)
class Forward:
    """The decision to send a call to a server, whose result is the answer."""

    server: str
    """The name of the server."""
    method: str = CALL_TOOL
    """The method of the request."""
    name: str
    """The server's own name for what is called: with `tools/call`, the tool's bare name."""
    head: bytes = attrs.field(repr=False)
    """The raw bytes before the payload in the `params` (`ports.CallToSend.params`)."""
    arguments: bytes | msgspec.Raw = attrs.field(repr=False)
    """The payload: a JSON object, as the client wrote it."""
    label: str
    """The name that the log gives the call."""
    loading: Loading | None = None
    """The tools that the call loads."""
    repair: Repair | None = None
    """How the arguments were repaired; None if they were not."""
    convert: Callable[[bytes | memoryview | msgspec.Raw], bytes] | None = attrs.field(default=None, repr=False)
    """Makes the tool's result of what the server answers; None passes it on as it is."""
    verbatim: bool = False
    """Whether the decision does not depend on the arguments, which nobody has decoded."""
    ask: Tool | None = attrs.field(default=None, repr=False)
    """The tool, if it is called only once the client's user agrees; None: nobody is asked."""
    wrapper: Wrapper | None = attrs.field(default=None, repr=False)
    """The meta-tool that it was called through, if such calls of the tool go the same way as long as the view
    is valid and their arguments fit."""
    tool: Tool | None = attrs.field(default=None, repr=False)
    """The tool that arguments in a wrapper call have to fit; None while its server has not listed it."""


class WrappedCalls:
    """Where the calls through one meta-tool go, for as long as one view is valid.

    A call is known by the bytes before the members of its arguments; one that is written in any other way than
    nearly all are is judged by its surface.
    """

    def __init__(self, wrapper: Wrapper, checker: Checker) -> None:
        """Know none yet."""
        self._wrapper = wrapper
        self._opening = wrapper.opening
        self._checker = checker
        self._known: dict[bytes, tuple[Forward, Validator]] = {}

    def __len__(self) -> int:
        """How many tools are known."""
        return len(self._known)

    def find(self, sent: bytes) -> tuple[Forward | None, bytes]:
        """Where a call goes, and the tool's arguments; None and what was sent if it has to be judged."""
        end = sent.find(self._opening) + len(self._opening)
        known = self._known.get(sent[:end])
        if known is not None and sent.endswith(b"}}"):
            forward, validator = known
            arguments = sent[end - 1 : -1]
            # Bytes that are one whole object leave nothing between them and the end of the call.
            value = validator.proven(arguments)
            if value is not None and (len(value) != 1 or WRAPPERS.isdisjoint(value)):
                return forward, arguments
        return None, sent

    def remember(self, sent: bytes, forward: Forward) -> None:
        """Remember where a call was sent, if it is written as nearly all are and something can judge it."""
        head, validator = self._wrapper.head(sent), self._checker.validator(forward.tool)
        if head and validator is not None and sent == b"%b%b}" % (head[:-1], forward.arguments):
            _keep(self._known, head, (_without_arguments(forward), validator))


def _without_arguments(forward: Forward) -> Forward:
    """A decision to be kept: the arguments of the call may be megabytes, and a secret."""
    return attrs.evolve(forward, arguments=b"{}")


def _keep(known: dict[Key, Kept], key: Key, decided: Kept) -> None:
    if len(known) >= MAX_REMEMBERED:
        known.clear()
    known[key] = decided


class AwaitListing(msgspec.Struct, frozen=True, kw_only=True):
    """The decision to wait for what is not known yet, and to be asked again then."""

    servers: tuple[str, ...] = ()
    """Servers that have not listed yet."""
    calling: bool = False
    """Whether one of their tools is to be called: that is worth waiting for a whole start."""
    kinds: tuple[Kind, ...] = (Kind.TOOL,)
    """The lists of theirs that are waited for."""
    chosen: bool = False
    """Whether the client has chosen these servers: their whole first start is waited for."""
    indexed: bool = False
    """Whether the search index must have caught up with the catalog."""


Action = Reply | Forward | AwaitListing
Does: TypeAlias = "Callable[..., Action]"


READS_HERE = {"readOnlyHint": True, "openWorldHint": False}
"""The hints of a meta-tool that changes nothing and reaches nothing beyond this machine (MCP,
tool annotations).

What is a default is left out, and so are titles: the list is paid for with each session."""
READS = {"readOnlyHint": True}
"""The hints of a meta-tool that runs servers' tools which only read: the tools may reach anything."""
RUNS_ANYTHING = {"destructiveHint": True}
"""The hints of a meta-tool that runs any tool of a server. True is the default; a client that runs unasked
whatever says nothing of itself is still told."""


@attrs.frozen(kw_only=True)
class MetaTool:
    """One of a surface's own tools."""

    name: str
    """What it is called."""
    describe: str | Callable[[View], str]
    """What it does, for models; where it depends on the view, empty if it is not listed now."""
    properties: Mapping[str, object] | Callable[[View], Mapping[str, object]] = attrs.field(factory=dict)
    """The schemas of its arguments."""
    required: tuple[str, ...] = ()
    """The arguments that must be given."""
    hints: Mapping[str, bool] = attrs.field(factory=READS_HERE.copy)
    """Its annotations."""
    does: Does = attrs.field(repr=False)
    """Decides what a call means, as `Surface.call`, without a name."""
    exists: Callable[[View], bool] = attrs.field(default=lambda _view: True, repr=False)
    """Whether it can be called; otherwise its name may be that of a server's tool."""

    def definition(self, view: View) -> bytes:
        """The tool as a list of tools shows it, raw JSON; empty if it is not listed."""
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
                "_meta": ALWAYS_LOAD,
            }
        )
        return shown_meta_tool(raw, view.profile.schemas)


class Surface(ABC):
    """One way to show tools to clients. Holds no state: one object serves all sessions."""

    name: str
    """The name that `--surface` and profiles use."""
    tools: tuple[MetaTool, ...]
    """Its own tools, which it lists first."""
    meta_tools: tuple[str, ...]
    """Their names: a server's tool of the same name is given another one in their list."""

    def __init__(self) -> None:
        """Know the names of its own tools."""
        self.meta_tools = tuple(tool.name for tool in self.tools)

    def with_tool(self, tool: MetaTool) -> Self:
        """The same surface with one more tool of its own."""
        other = copy(self)
        other.tools, other.meta_tools = (*self.tools, tool), (*self.meta_tools, tool.name)
        return other

    @abstractmethod
    def instructions(self, view: View) -> str:
        """The instructions for models that the handshake gives."""

    def awaits(self, _view: View) -> tuple[str, ...]:
        """The servers whose first list is worth a short wait before `list_tools` is answered."""
        return ()

    def list_tools(self, view: View) -> tuple[bytes, ...]:
        """The tools that a client is shown, each a raw JSON object; the same while nothing changes."""
        own = [tool.definition(view) for tool in self.tools if tool.exists(view)]
        listed = self.list_listed(view)
        return (*filter(None, own), *listed) if any(own) else listed

    def listed(self, _view: View) -> Sequence[Offered]:
        """The servers' tools that `list_tools` ends with, in its order; the tools before them are our own."""
        return ()

    def list_listed(self, _view: View) -> tuple[bytes, ...]:
        """The same, each a raw JSON object."""
        return ()

    def call(self, view: View, name: str, arguments: bytes, *, patient: bool) -> Action:
        """Decide what a call means.

        Args:
            view: the view to decide by.
            name: the name of a tool, listed or not.
            arguments: a raw JSON object.
            patient: whether `AwaitListing` may be the answer; otherwise answer with what is known.

        Raises:
            CallError: the call is refused; `answers.error_result` is what the client gets.
        """
        for tool in self.tools:
            if tool.name == name and tool.exists(view):
                return tool.does(view, arguments, patient=patient)
        return self.call_other(view, name, arguments, patient=patient)

    @abstractmethod
    def call_other(self, view: View, name: str, arguments: bytes, *, patient: bool) -> Action:
        """Decide what a call means that is of none of its own tools; as for `call`."""


def renamed(view: View, name: str) -> tuple[ToolKey, Offered] | None:
    """The key that a name meant and the tool that it is now; None if it was not renamed or is not offered."""
    catalog = view.catalog
    key = catalog.names.key_of(name, catalog.servers)
    if key is None or key in view.offer.tools:
        return None
    entry = catalog.servers[key[0]]
    if entry.tools is None or key[1] in entry.tools:
        return None
    new = entry.tool_list.renamed.get(key[1])
    if new is None and key in view.loaded:
        # It was renamed before this daemon started; the session has stored it.
        new = view.loaded.tools[key].verdict.renamed_to
    offered = None if new is None else view.offer.tools.get((key[0], new))
    return None if offered is None else (key, offered)


def is_as_shown(view: View, old: ToolKey, now: Tool) -> bool:
    """Whether a renamed tool differs only in its name from what the client was shown or has loaded."""
    seen = view.shown(old)
    if seen is None and old in view.loaded:
        seen = view.loaded.tools[old].schema_hash
    if seen is None:
        return False
    whole, _content = hashes({**msgspec.json.decode(now.raw), "name": old[1]})
    return whole == seen
