"""Facts: what the registry is told. Frozen and level-triggered ("it is so now").

A newer one replaces an older one of its kind about the same server that was not read yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from daemon.causes import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.causes import Cause, Datum
    from daemon.config.model import Config
    from daemon.model import GivenName, Summary, Tool
    from daemon.states import ServerState


@attrs.frozen(kw_only=True)
class ServerStatus:
    """How a server is, as told to operators and models."""

    state: ServerState
    """The server's state."""
    reason: str = ""
    """In words: why it is not ready, or what is wrong although it is."""
    cause: Cause | None = None
    """The same for programs; None if nothing is wrong, or if it was wanted so."""
    cause_data: Mapping[str, Datum] = attrs.field(factory=dict, hash=False)
    """What the cause says that it carries."""
    since: float = 0.0
    """When it entered the state, in seconds since the epoch."""
    attempt: int = 0
    """Failed runs in the present streak."""
    next_retry_at: float | None = None
    """When it is tried again, in seconds since the epoch; None if no try is due."""
    incarnation: int = 0
    """Which start of this server this is: a fencing token, facts of an older one are dropped."""
    restarts: int = 0
    """Runs that ended since the daemon started, whatever ended them."""

    @property
    def why(self) -> Reason:
        """Its reason, cause and data together."""
        return Reason(self.reason, self.cause, self.cause_data)


@attrs.frozen(kw_only=True)
class StatusChanged:
    """A server's state is now this."""

    server: str
    """Which server."""
    status: ServerStatus
    """Its state, with what explains it."""


@attrs.frozen(kw_only=True)
class ToolsListed:
    """A server lists these tools now."""

    server: str
    """Which server."""
    incarnation: int
    """Which start of it said so."""
    tools: tuple[Tool, ...] = attrs.field(repr=False)
    """All usable tools, in the server's order."""
    quarantined: Mapping[str, str]
    """Names of tools that cannot be used, each with the reason."""
    at: float = 0.0
    """When, in seconds since the epoch."""
    first: bool = False
    """Whether this start of it has listed no tool before: servers list none while what is behind them warms up,
    so that alone takes nothing away."""
    about: str = attrs.field(default="", repr=False)
    """What it says of itself in the handshake; empty if it says nothing."""


@attrs.frozen(kw_only=True)
class ListingFailed:
    """A server is connected but did not list its tools."""

    server: str
    """Which server."""
    incarnation: int
    """The incarnation of the server that this is about: a fencing token."""
    reason: str
    """Why the list could not be read, for operators and models."""


@attrs.frozen(kw_only=True)
class Recalled:
    """What the store remembers of a server."""

    server: str
    """Which server."""
    fingerprint: str
    """Of the configuration that it was listed under: tools of another are not its own."""
    epoch: int
    """The epoch that the server had with this list."""
    tools: tuple[Tool, ...] | None = attrs.field(repr=False)
    """Its tools then, in its order; None if it never listed any."""
    summary: Summary | None = None
    """What a model said of it."""
    sentences: Mapping[str, Summary] = attrs.field(factory=dict, repr=False)
    """What a model said of its tools, by schema hash."""
    since: Mapping[str, float] = attrs.field(factory=dict, repr=False)
    """Since when each of its tools is as it is, by name."""
    about: str = attrs.field(default="", repr=False)
    """What it said of itself."""
    by_another: bool = False
    """Whether another daemon has written it meanwhile; otherwise it is what an earlier life left."""


@attrs.frozen(kw_only=True)
class NamesRecalled:
    """The names that the store remembers; all of them, not a difference."""

    names: tuple[GivenName, ...] = attrs.field(repr=False)
    """Each with the tool that it means."""
    shared: bool = False
    """Whether other daemons give names, too: one that means a tool of theirs is not to be had, either."""


@attrs.frozen(kw_only=True)
class Switched:
    """Which servers and tools operators have switched off; all of them, not a difference."""

    off: frozenset[tuple[str, str]]
    """Server and tool; an empty tool is the whole server. Names need not exist: they count when they do."""


@attrs.frozen(kw_only=True)
class Configured:
    """The configuration is now this one."""

    config: Config = attrs.field(repr=False)
    """The whole configuration."""
    now: float
    """Seconds since the epoch."""


@attrs.frozen(kw_only=True)
class Summarized:
    """What a model says of a server and of its present tools; all that is known, not a difference."""

    server: str
    """Which server."""
    summary: Summary | None = None
    """Of the server; None leaves what there is."""
    sentences: Mapping[str, Summary] = attrs.field(factory=dict, repr=False)
    """Of its tools, by schema hash; others stay as they are."""


ServerFact = StatusChanged | ToolsListed | ListingFailed | Recalled | Summarized
"""A fact about one server."""

Fact = ServerFact | NamesRecalled | Switched | Configured
