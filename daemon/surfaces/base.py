"""What a surface is: what it sees, what it may decide, and the Protocol that all of them keep.

A surface decides and nothing else. Waiting, sending, loading and answering are done for it by the session and
the call path, which know no surface by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs
import msgspec

from daemon.catalog.digests import hashes
from daemon.catalog.loaded import Loaded, Source
from daemon.config.names import read_reference
from daemon.protocol import CALL_TOOL, tool_head

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from daemon.catalog.categories import ToolCategory
    from daemon.catalog.offer import Offer, Offered, Offers
    from daemon.catalog.snapshot import Catalog, ServerEntry
    from daemon.config.model import Profile
    from daemon.model import Repair, Tool, ToolKey
    from daemon.search.index import Index
    from daemon.surfaces.arguments.reading import Checker

MAX_REMEMBERED = 1024
"""Decisions that are remembered with one view, of each kind: more tools than one client calls between two
changes."""

ALWAYS_LOAD = {"anthropic/alwaysLoad": True}
"""Keeps a client from hiding a tool behind a tool search of its own."""


@attrs.frozen(kw_only=True)
class Means:
    """What all views share: made from the catalog, never a truth of its own."""

    offers: Offers
    """What each profile lets through."""
    checker: Checker
    """Reads the arguments that models wrap."""
    index: Callable[[], Index]
    """The newest search index; it follows the catalog in its own time."""
    index_characters: int
    """Characters of a list of categories or servers that is shown from the start (`limits.indexCharacters`)."""
    most_called: Callable[[], Sequence[ToolKey]] = tuple
    """The tools that were ever called, as far as that is known, those called most first."""


@attrs.frozen(kw_only=True)
class View:
    """What a session sees: a moment of the catalog through its profile."""

    catalog: Catalog
    """Everything that exists."""
    profile: Profile
    """What this session may see of it."""
    now: Callable[[], float] = attrs.field(repr=False)
    """Seconds since the epoch, whenever it is asked."""
    means: Means = attrs.field(repr=False)
    """What to work with."""
    loaded: Loaded = attrs.field(factory=Loaded)
    """What this session has loaded."""
    shown: Callable[[ToolKey], str | None] = attrs.field(default=lambda _key: None, repr=False)
    """The schema hash of a tool as this client was last shown it; None if it never was."""

    usual: Callable[[], Sequence[ToolKey]] = attrs.field(default=tuple, repr=False)
    """The core tools of a profile that names none, as they were chosen for this client (`surfaces.listing`)."""
    forwards: dict[str, Forward] = attrs.field(factory=dict, init=False, repr=False)
    """Where calls of a name go, whatever their arguments are: decided once for as long as this view holds."""
    targets: dict[tuple[str, str], Target] = attrs.field(factory=dict, init=False, repr=False)
    """Which tool a wrapper call means, by the two names that it was given: likewise."""

    @property
    def categories(self) -> Mapping[str, ToolCategory]:
        """The categories of the profile, in the configuration's order."""
        allowed = self.profile.categories
        if allowed is None:
            return self.catalog.categories
        return {name: entry for name, entry in self.catalog.categories.items() if name in allowed}

    @property
    def servers(self) -> Mapping[str, ServerEntry]:
        """The servers of which the profile shows something, or may once they have listed."""
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
    def offer(self) -> Offer:
        """The tools of the profile, each once."""
        return self.means.offers.of(self.catalog, self.profile)


@attrs.frozen(kw_only=True)
class Loading:
    """Tools that a session has loaded with a call: listed for it from now on."""

    tools: tuple[ToolKey, ...] = ()
    """Which."""
    source: Source = Source.MANUAL
    """Who wanted it."""


@attrs.frozen
class Reply:
    """The call is answered: this is the result, raw JSON."""

    result: bytes
    loading: Loading | None = None
    """What the answer loads."""
    shown: tuple[ToolKey, ...] = ()
    """The tools whose definitions it shows."""


@attrs.frozen(kw_only=True)
class Target:
    """The tool that a wrapper call means."""

    server: str
    """Which server has it."""
    name: str
    """The tool's bare name there."""
    label: str
    """What the log calls a call to it."""
    tool: Tool | None
    """What is known of it; None while its server has not listed its tools."""
    head: bytes = attrs.field(init=False, repr=False)
    """As `Forward.head`."""

    @head.default
    def _head(self) -> bytes:
        return tool_head(self.name)


@attrs.frozen(kw_only=True)
class Forward:
    """The call goes to a server; its result is the answer."""

    server: str
    """Which server."""
    method: str = CALL_TOOL
    """What is asked of it."""
    name: str
    """What it is asked for, by the name that the server knows: of `tools/call`, the tool's."""
    head: bytes = attrs.field(repr=False)
    """What stands in its `params` before the payload, raw (`ports.CallToSend.params`)."""
    arguments: bytes | msgspec.Raw = attrs.field(repr=False)
    """The payload: a JSON object, as the client wrote it."""
    label: str
    """What the log calls it."""
    loading: Loading | None = None
    """What the call loads."""
    repair: Repair | None = None
    """How the arguments had to be mended, if they had."""
    verbatim: bool = False
    """Whether the decision is the same whatever the arguments are: nobody has opened them."""


@attrs.frozen(kw_only=True)
class AwaitListing:
    """The answer depends on what is not known yet; ask again when it is."""

    servers: tuple[str, ...] = ()
    """Servers that have not listed their tools."""
    calling: bool = False
    """Whether a tool of theirs is to be called: that is worth waiting for a whole start."""
    indexed: bool = False
    """Whether the search index is to be up to date."""


Action = Reply | Forward | AwaitListing


class Surface(Protocol):
    """One family of meta-tools. Holds no state: one object serves all sessions."""

    name: str
    """As `--surface` and profiles call it."""

    @property
    def meta_tools(self) -> tuple[str, ...]:
        """Names of its own: a server's tool that is called like one gets another name beside it."""

    def instructions(self, view: View) -> str:
        """How to use it, for the handshake."""

    def awaits(self, view: View) -> tuple[str, ...]:
        """Servers whose first list is worth a short wait before `list_tools` is answered."""

    def list_tools(self, view: View) -> tuple[bytes, ...]:
        """The tools that a client is shown, each a raw JSON object; the same while nothing changes."""

    def listed(self, view: View) -> Sequence[Offered]:
        """The servers' tools that `list_tools` ends with, in its order; what stands before them is our own."""

    def call(self, view: View, name: str, arguments: bytes, *, patient: bool) -> Action:
        """Decide what a call means.

        Args:
            view: the moment to decide at.
            name: which tool: one that was listed, or any other name.
            arguments: a raw JSON object.
            patient: whether `AwaitListing` may be the answer; otherwise answer with what is known.

        Raises:
            CallError: the call is refused; `answers.error_result` is what the client gets.
        """


def renamed(view: View, name: str) -> tuple[ToolKey, Offered] | None:
    """What a name meant, and the tool that it is now; None if it was not renamed, or is not to be had."""
    catalog = view.catalog
    key = catalog.names.key_of(name, catalog.servers)
    if key is None or key in view.offer.tools:
        return None
    entry = catalog.servers[key[0]]
    if entry.tools is None or key[1] in entry.tools:
        return None
    new = entry.renamed.get(key[1])
    if new is None and key in view.loaded:
        # The session knows it from a life of the daemon in which it happened.
        new = view.loaded.tools[key].verdict.renamed_to
    offered = None if new is None else view.offer.tools.get((key[0], new))
    return None if offered is None else (key, offered)


def is_as_shown(view: View, old: ToolKey, now: Tool) -> bool:
    """Whether a renamed tool is what the client was shown under its old name, or loaded, but for the name."""
    seen = view.shown(old)
    if seen is None and old in view.loaded:
        seen = view.loaded.tools[old].schema_hash
    if seen is None:
        return False
    whole, _content = hashes({**msgspec.json.decode(now.raw), "name": old[1]})
    return whole == seen
