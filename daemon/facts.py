"""Facts for the registry: frozen, each states the present and replaces an unread older one of its kind."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import cast

import attrs
import msgspec

from daemon.causes import Cause, Datum, Reason, Remedy
from daemon.config.config_model import Config
from daemon.model import Approval, Definition, GivenName, Kind, Summary, Tool
from daemon.states import COMING, ServerState


@attrs.frozen(kw_only=True)
class ServerStatus:
    """A server's status for operators and models."""

    state: ServerState
    reason: str = ""
    """In words; set for a serving server with a problem, too."""
    cause: Cause | None = None
    cause_data: Mapping[str, Datum] = attrs.field(factory=dict, hash=False)
    remedy: Remedy | None = None
    since: float = 0.0
    attempt: int = 0
    """Failed runs in a row."""
    next_retry_at: float | None = None
    incarnation: int = 0
    """The number of this start: a fencing token, against facts of older ones."""
    restarts: int = 0
    """Ended runs since the daemon's start."""

    of_instance: bool = False
    """Whether it describes one instance: other clients' may be healthy."""

    @property
    def is_unsettled(self) -> bool:
        """Whether a start comes without a request: first, queued, under way, due, or after a restart."""
        is_due = self.state is ServerState.BACKOFF and self.next_retry_at is None
        return is_due or self.state in COMING or self.state is ServerState.STOPPED

    @property
    def why(self) -> Reason:
        """Reason, cause, data and remedy together."""
        return Reason(self.reason, self.cause, self.cause_data, self.remedy)


class StatusChanged(msgspec.Struct, frozen=True, kw_only=True):
    """A server's present status."""

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
    """A server's present tools, prompts, resources or templates, or its failure to list them."""

    server: str
    incarnation: int
    """A fencing token."""
    kind: Kind
    definitions: tuple[Definition, ...] = attrs.field(default=(), repr=False)
    """Usable ones, in the server's order."""
    quarantined: Mapping[str, str] = attrs.field(factory=dict)
    problem: str = ""
    """The reason of a failure, which keeps the known list."""
    refusal: bytes = attrs.field(default=b"", repr=False)
    """The server's JSON-RPC error object in place of a list."""
    at: float = 0.0
    first: bool = False
    """Whether it is the incarnation's first list, which may be empty while a backend warms up."""
    declared: bool = True
    said: SelfDescription | None = attrs.field(default=None, repr=False)


@attrs.frozen(kw_only=True)
class ServerRecord:
    """A server's stored facts."""

    server: str
    fingerprint: str
    """The configuration behind the lists; they are invalid under another."""
    epoch: int
    lists: Mapping[Kind, tuple[Definition, ...]] = attrs.field(factory=dict, repr=False)
    """Each in the server's order; an empty list is known to be empty, a missing one unknown."""
    refreshed_at: float = 0.0
    """When tools were last listed or changed, in seconds since the epoch."""
    summary: Summary | None = None
    sentences: Mapping[str, Summary] = attrs.field(factory=dict, repr=False)
    since: Mapping[str, float] = attrs.field(factory=dict, repr=False)
    said: SelfDescription = attrs.field(factory=SelfDescription, repr=False)
    """Without instructions, which are not stored."""
    by_another: bool = False
    """Whether another running daemon wrote it, not an earlier life of this one."""

    @property
    def tools(self) -> tuple[Tool, ...] | None:
        """None if never listed."""
        return cast("tuple[Tool, ...] | None", self.lists.get(Kind.TOOL))

    @property
    def definitions(self) -> Mapping[Kind, tuple[Definition, ...]]:
        """All lists except that of tools."""
        return {kind: each for kind, each in self.lists.items() if kind is not Kind.TOOL}


class NamesRecalled(msgspec.Struct, frozen=True, kw_only=True):
    """All stored names of tools, prompts and URIs."""

    names: tuple[GivenName, ...]
    shared: bool = False
    """Whether other daemons give names, too, and their tools' names are taken."""


class Switched(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that operators disabled."""

    off: frozenset[tuple[str, str]]
    """Server and tool, or server and `catalog.kinds.switch_of`; an empty second part is the whole server."""


class Approved(msgspec.Struct, frozen=True, kw_only=True):
    """Approvals that count besides those known before; also that the store was read."""

    approvals: tuple[Approval, ...] = ()
    at: float = 0.0
    """Seconds since the epoch."""
    number: int = msgspec.field(default_factory=count().__next__)
    """No later fact replaces this one: approvals are added."""


@attrs.frozen(kw_only=True)
class Configured:
    """The present configuration."""

    config: Config = attrs.field(repr=False)
    now: float


class Summarized(msgspec.Struct, frozen=True, kw_only=True):
    """A model's summaries of a server and its present tools."""

    server: str
    summary: Summary | None = None
    sentences: Mapping[str, Summary] = {}

    def __repr__(self) -> str:
        """Without texts, which a model has made of a server's."""
        return f"<Summarized {self.server}>"


ServerFact = StatusChanged | DefinitionsListed | ServerRecord | Summarized
Fact = ServerFact | NamesRecalled | Switched | Approved | Configured
