"""Facts that the registry is told. Frozen and level-triggered: each states what is so now.

A newer fact replaces an unread older one of its kind about the same server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import attrs
import msgspec

from daemon.causes import Reason
from daemon.model import Kind
from daemon.states import COMING, ServerState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.causes import Cause, Datum, Remedy
    from daemon.config.config_model import Config
    from daemon.model import Definition, GivenName, Summary, Tool


@attrs.frozen(kw_only=True)
class ServerStatus:
    """The status of a server as operators and models see it."""

    state: ServerState
    """The server's state."""
    reason: str = ""
    """Why it is not ready, or what is wrong although it is, in words."""
    cause: Cause | None = None
    """The same as a code for programs; None if nothing is wrong, or if an operator wanted it so."""
    cause_data: Mapping[str, Datum] = attrs.field(factory=dict, hash=False)
    """The data that belong to the cause."""
    remedy: Remedy | None = None
    """What happened and what helps; None if nothing is known beyond the reason."""
    since: float = 0.0
    """When it entered the state, in seconds since the epoch."""
    attempt: int = 0
    """How many runs have failed in a row."""
    next_retry_at: float | None = None
    """When it is started again, in seconds since the epoch; None if no start is due."""
    incarnation: int = 0
    """The number of this start of the server: a fencing token, facts of an older one are dropped."""
    restarts: int = 0
    """How many runs have ended since the daemon started, for any reason."""

    of_instance: bool = False
    """Whether it is that of one instance: another client's may be well."""

    @property
    def is_unsettled(self) -> bool:
        """Whether a start is expected that nobody has to ask for: first, queued, under way, or due at once.

        A run that is being ended for a restart is in backoff without a time.
        """
        is_due = self.state is ServerState.BACKOFF and self.next_retry_at is None
        return is_due or self.state in COMING or self.state is ServerState.STOPPED

    @property
    def why(self) -> Reason:
        """The status's reason, cause, data and remedy together."""
        return Reason(self.reason, self.cause, self.cause_data, self.remedy)


class StatusChanged(msgspec.Struct, frozen=True, kw_only=True):
    """A server's status is now this."""

    server: str
    """Which server."""
    status: ServerStatus
    """Its state, with the explanation."""


@attrs.frozen(kw_only=True)
class SelfDescription:
    """What a server said about itself in the handshake."""

    about: str = ""
    """How it describes itself; empty if it does not."""
    instructions: str = ""
    """What it says about how to use it; empty if nothing."""
    introduction: bytes = b""
    """All of it (`catalog.introduction`); empty if that is not known."""


@attrs.frozen(kw_only=True)
class DefinitionsListed:
    """A server now lists these tools, prompts, resources or templates, or cannot list them."""

    server: str
    """Which server."""
    incarnation: int
    """The incarnation of the server that listed them: a fencing token."""
    kind: Kind
    """Which of these they are; a newer list of the same kind replaces an unread older one."""
    definitions: tuple[Definition, ...] = attrs.field(default=(), repr=False)
    """All usable ones, in the server's order."""
    quarantined: Mapping[str, str] = attrs.field(factory=dict)
    """Names or URIs of those that cannot be used, each with the reason."""
    problem: str = ""
    """Why they could not be listed; empty if they were. What is known then stays."""
    at: float = 0.0
    """When the list was read, in seconds since the epoch."""
    first: bool = False
    """Whether this incarnation has not listed any before: servers list nothing while their backends warm up, so
    an empty first list takes nothing away."""
    declared: bool = True
    """Whether the server declares in its handshake that it has such a list."""
    said: SelfDescription | None = attrs.field(default=None, repr=False)
    """What the server says about itself, told with its tools."""


@attrs.frozen(kw_only=True)
class ServerRecord:
    """What the store holds of a server; as a fact, what it remembers."""

    server: str
    """Which server."""
    fingerprint: str
    """The fingerprint of the configuration that the lists are of; under another one they do not count."""
    epoch: int
    """The epoch that the server had with these lists."""
    lists: Mapping[Kind, tuple[Definition, ...]] = attrs.field(factory=dict, repr=False)
    """Its last tools, prompts, resources and templates, each in its order, but those that it never listed;
    an empty list says that it has none, so that nobody waits for it to say so."""
    refreshed_at: float = 0.0
    """When its tools were last listed, or changed otherwise, in seconds since the epoch."""
    summary: Summary | None = None
    """A model's summary of the server."""
    sentences: Mapping[str, Summary] = attrs.field(factory=dict, repr=False)
    """A model's summaries of its tools, by schema hash."""
    since: Mapping[str, float] = attrs.field(factory=dict, repr=False)
    """Since when each of its tools is unchanged, in seconds since the epoch, by name."""
    said: SelfDescription = attrs.field(factory=SelfDescription, repr=False)
    """What it said about itself; its instructions are not kept."""
    by_another: bool = False
    """Whether another running daemon has written it; otherwise an earlier life of this one has."""

    @property
    def tools(self) -> tuple[Tool, ...] | None:
        """Its tools; None if it never listed any."""
        return cast("tuple[Tool, ...] | None", self.lists.get(Kind.TOOL))

    @property
    def definitions(self) -> Mapping[Kind, tuple[Definition, ...]]:
        """Its prompts, resources and templates."""
        return {kind: each for kind, each in self.lists.items() if kind is not Kind.TOOL}


@attrs.frozen(kw_only=True)
class NamesRecalled:
    """All names of tools and prompts, and all URIs, that the store remembers."""

    names: tuple[GivenName, ...] = attrs.field(repr=False)
    """The names, each with what it means."""
    shared: bool = False
    """Whether other daemons give names, too: a name that means one of their tools is taken."""


class Switched(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that operators have switched off."""

    off: frozenset[tuple[str, str]]
    """Pairs of server and tool, or of server and `catalog.kinds.switch_of` for what is no tool; an empty second
    part is the whole server. They count once what they name exists."""


@attrs.frozen(kw_only=True)
class Configured:
    """The configuration is now this one."""

    config: Config = attrs.field(repr=False)
    """The whole configuration."""
    now: float
    """The present time, in seconds since the epoch."""


@attrs.frozen(kw_only=True)
class Summarized:
    """Everything that a model has said about a server and its present tools."""

    server: str
    """Which server."""
    summary: Summary | None = None
    """The summary of the server; None keeps the present one."""
    sentences: Mapping[str, Summary] = attrs.field(factory=dict, repr=False)
    """The summaries of its tools, by schema hash; others stay as they are."""


ServerFact = StatusChanged | DefinitionsListed | ServerRecord | Summarized
"""A fact about one server."""

Fact = ServerFact | NamesRecalled | Switched | Configured
