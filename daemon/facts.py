"""Facts for the registry: frozen; each states a current value, and replaces an unread older one of its kind."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import cast

import attrs
import msgspec

from daemon.causes import HEALTHY, Cause, Reason
from daemon.config.config_model import Config
from daemon.model import Approval, Definition, GivenName, Kind, Summary, Tool
from daemon.states import COMING, ServerState


@attrs.frozen(kw_only=True)
class ServerStatus:
    """A server's status for operators and models."""

    state: ServerState
    why: Reason = HEALTHY
    """The reason with its cause and remedy, without secrets; also set for a serving server with a problem."""
    since: float = 0.0
    attempt: int = 0
    """Failed runs in a row."""
    next_retry_at: float | None = None
    incarnation: int = 0
    """The number of this start: a fencing token against facts of older starts."""
    restarts: int = 0
    """Runs that have ended since the daemon started."""

    of_instance: bool = False
    """Whether the status describes one instance, while other clients' instances may be healthy."""

    @property
    def is_unsettled(self) -> bool:
        """Whether a start comes without a request: a first, queued, running or due start, or a restart."""
        is_due = self.state is ServerState.BACKOFF and self.next_retry_at is None
        return is_due or self.state in COMING or self.state is ServerState.STOPPED

    @property
    def reason(self) -> str:
        """The reason in words."""
        return self.why.text

    @property
    def cause(self) -> Cause | None:
        """The cause; None if healthy, or if an operator or the daemon wanted the state."""
        return self.why.cause


class StatusChanged(msgspec.Struct, frozen=True, kw_only=True):
    """A server's current status."""

    server: str
    status: ServerStatus


@attrs.frozen(kw_only=True)
class SelfDescription:
    """A server's self-description in the handshake."""

    about: str = ""
    instructions: str = ""
    introduction: bytes = b""


@attrs.frozen(kw_only=True)
class DefinitionsListed:
    """A server's current tools, prompts, resources or templates, or its failure to list them."""

    server: str
    incarnation: int
    """A fencing token."""
    kind: Kind
    definitions: tuple[Definition, ...] = attrs.field(default=(), repr=False)
    """The usable definitions, in the server's order."""
    quarantined: Mapping[str, str] = attrs.field(factory=dict)
    problem: str = ""
    """Why listing failed, in which case the known list stays."""
    refusal: bytes = attrs.field(default=b"", repr=False)
    """The server's JSON-RPC error object, sent in place of a list."""
    at: float = 0.0
    first: bool = False
    """Whether the list is this run's first one, which may be empty while a backend warms up."""
    declared: bool = True
    said: SelfDescription | None = attrs.field(default=None, repr=False)


@attrs.frozen(kw_only=True)
class ServerRecord:
    """A server's stored facts."""

    server: str
    fingerprint: str
    """The configuration that led to the lists; they are invalid under another."""
    epoch: int
    lists: Mapping[Kind, tuple[Definition, ...]] = attrs.field(factory=dict, repr=False)
    """Lists in the server's order; an empty list is known to be empty, a missing one is unknown."""
    refreshed_at: float = 0.0
    """When tools were last listed or changed, in seconds since the epoch."""
    summary: Summary | None = None
    sentences: Mapping[str, Summary] = attrs.field(factory=dict, repr=False)
    since: Mapping[str, float] = attrs.field(factory=dict, repr=False)
    said: SelfDescription = attrs.field(factory=SelfDescription, repr=False)
    """The self-description without instructions, which are not stored."""
    by_another: bool = False
    """Whether another running daemon wrote the record, rather than an earlier run of this one."""

    @property
    def tools(self) -> tuple[Tool, ...] | None:
        """The stored tools; None if never listed."""
        return cast("tuple[Tool, ...] | None", self.lists.get(Kind.TOOL))

    @property
    def definitions(self) -> Mapping[Kind, tuple[Definition, ...]]:
        """All lists except the list of tools."""
        return {kind: each for kind, each in self.lists.items() if kind is not Kind.TOOL}


class NamesRecalled(msgspec.Struct, frozen=True, kw_only=True):
    """All stored names of tools, prompts and URIs."""

    names: tuple[GivenName, ...]
    shared: bool = False
    """Whether other daemons give names, too, so that their tools' names are taken."""


class Switched(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that operators switched off."""

    off: frozenset[tuple[str, str]]
    """Server and tool, or server and `catalog.kinds.switch_of`; an empty second part means the whole server."""


class Approved(msgspec.Struct, frozen=True, kw_only=True):
    """Approvals to add to the known ones. The fact also says that the store was read."""

    approvals: tuple[Approval, ...] = ()
    at: float = 0.0
    """Seconds since the epoch."""
    number: int = msgspec.field(default_factory=count().__next__)
    """Distinguishes facts, so that none replaces another: approvals are added."""


@attrs.frozen(kw_only=True)
class Configured:
    """The current configuration."""

    config: Config = attrs.field(repr=False)
    now: float


class Summarized(msgspec.Struct, frozen=True, kw_only=True):
    """A model's summaries of a server and its current tools."""

    server: str
    summary: Summary | None = None
    sentences: Mapping[str, Summary] = {}

    def __repr__(self) -> str:
        """Omit the texts, which a model made from a server's texts."""
        return f"<Summarized {self.server}>"


ServerFact = StatusChanged | DefinitionsListed | ServerRecord | Summarized
Fact = ServerFact | NamesRecalled | Switched | Approved | Configured
