"""One server as the catalog knows it, and how facts change that.

Its epoch rises by one when its visible capabilities change and never otherwise: a reconnect that lists the same
tools is no change. Facts of an incarnation that is not the present one are dropped: their child is dead.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

from daemon.catalog.definitions import (
    NEVER,
    fingerprint,
    known_for_longer,
    mean_the_same,
    renames,
    say_the_same,
    since_when,
)
from daemon.facts import ListingFailed, Recalled, ServerStatus, StatusChanged, Summarized, ToolsListed
from daemon.safety.legible import screened
from daemon.states import COMING, SERVING, ServerState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.config.model import Server
    from daemon.facts import ServerFact
    from daemon.model import Summary, Tool

UNSETTLED = COMING | {ServerState.STOPPED}
"""States in which a server that has listed nothing may be about to."""

EMPTIED = (
    "since it was started it lists no tools, and it has had some: those are kept until it lists any, or is"
    " configured anew"
)
"""What is wrong with a server that came back with nothing."""

_NUMBER = re.compile(r"\d+")


@attrs.frozen(kw_only=True)
class ServerEntry:
    """One server as the catalog knows it."""

    name: str
    """Its configured name."""
    description: str
    """What it is good for."""
    status: ServerStatus
    """The state of the server, as its supervisor last told."""
    tools: Mapping[str, Tool] | None = None
    """The last known tools by name, in the server's order; None if it never listed any."""
    epoch: int = 0
    """Version of its visible capabilities."""
    quarantined: Mapping[str, str] = attrs.field(factory=dict)
    """Tools that cannot be used, with reasons."""
    hidden: Mapping[str, str] = attrs.field(factory=dict)
    """Its tools that have hidden characters in their definitions, each with which (`safety.legible`)."""
    completed: tuple[str, ...] = ()
    """Its tools whose schemas of arguments it lists without their type (`catalog.definitions`)."""
    listing_error: str = ""
    """Why the last attempt to list its tools failed; empty if it did not."""
    first_run: int = 0
    """Which incarnation is the first that counts: those before are dead, or were another server's."""
    since: Mapping[str, float] = attrs.field(factory=dict, repr=False)
    """Since when each of its tools is as it is, in seconds since the epoch: whoever was shown it after that was
    shown this. What was never known otherwise is so since this life has `begun`."""
    begun: float = 0.0
    """When this life of the daemon began: what it knows of earlier ones is what the store has."""
    fingerprint: str = attrs.field(default="", repr=False)
    """Of the configuration that decides which server answers (`catalog.definitions`)."""
    enabled: bool = True
    """Whether the configuration has it switched on."""
    switched_off: bool = False
    """Whether an operator has switched it off."""
    recalled: bool = False
    """Whether its tools are those of an earlier life: it has not listed any in this one."""
    refreshed_at: float = 0.0
    """When it was last listed, in seconds since the epoch."""
    renamed: Mapping[str, str] = attrs.field(factory=dict)
    """Names that tools had, with those that they have now."""
    about: str = attrs.field(default="", repr=False)
    """What it says of itself, as it said it when it last listed its tools."""
    summary: Summary | None = None
    """What a model said of it."""
    sentences: Mapping[str, Summary] = attrs.field(factory=dict, repr=False)
    """What a model said of its tools, by schema hash."""

    @property
    def available(self) -> bool:
        """Whether its tools can be called now."""
        return self.status.state in SERVING

    @property
    def usable(self) -> bool:
        """Whether a call to one of its tools would be taken: a server that only sleeps wakes for it."""
        return self.available or (self.tools is not None and self.status.state is ServerState.DORMANT)

    @property
    def of_use(self) -> bool:
        """Whether it is up and not without any tool although it should have some."""
        return self.available and (bool(self.tools) or self.status.state is ServerState.READY)

    @property
    def disabled(self) -> bool:
        """Whether it is switched off, by the configuration or by an operator: whatever its child does yet."""
        return self.switched_off or not self.enabled

    @property
    def awaited(self) -> bool:
        """Whether it is on its way to its first list."""
        known = self.tools is not None or bool(self.listing_error)
        return not known and not self.disabled and self.status.state in UNSETTLED


def fresh(
    server: Server, now: float, *, begun: float, epoch: int = 0, switched_off: bool = False
) -> ServerEntry:
    """A server before anything is known of it.

    Args:
        server: its configuration.
        now: seconds since the epoch.
        begun: when this life of the daemon began.
        epoch: where its epochs go on: it may have been here before.
        switched_off: whether an operator has switched it off.
    """
    return ServerEntry(
        name=server.name,
        description=server.description,
        status=_initial_status(now, enabled=server.enabled),
        epoch=epoch,
        begun=begun,
        fingerprint=fingerprint(server),
        enabled=server.enabled,
        switched_off=switched_off,
    )


def changed_by(entry: ServerEntry, fact: ServerFact) -> ServerEntry:
    """The entry after a fact; the same object if the fact is stale or changes nothing."""
    match fact:
        case StatusChanged(status=status):
            return _with_status(entry, status)
        case ToolsListed():
            return _with_tools(entry, fact)
        case ListingFailed():
            return _with_failure(entry, fact)
        case Recalled():
            return _with_memory(entry, fact)
        case Summarized():
            return _with_summaries(entry, fact.summary or entry.summary, fact.sentences)


def _initial_status(now: float, *, enabled: bool) -> ServerStatus:
    if enabled:
        return ServerStatus(state=ServerState.STOPPED, since=now, reason="not started yet")
    return ServerStatus(state=ServerState.DISABLED, since=now, reason="disabled in the configuration")


def _with_status(entry: ServerEntry, status: ServerStatus) -> ServerEntry:
    """How it is, whichever of its runs says so; what an older run lists stays without effect."""
    if status.state is ServerState.STOPPED and not entry.enabled:
        status = _initial_status(status.since, enabled=False)
    if status == entry.status:
        return entry
    return attrs.evolve(entry, status=status, first_run=max(entry.first_run, status.incarnation))


def _is_stale(entry: ServerEntry, incarnation: int) -> bool:
    return incarnation < entry.first_run


def _with_about(entry: ServerEntry, about: str) -> ServerEntry:
    """With what it says of itself; as before if only numbers differ: it stands in lists that clients have."""
    if _NUMBER.sub("", entry.about) == _NUMBER.sub("", about):
        return entry
    return attrs.evolve(entry, about=about)


def _with_tools(entry: ServerEntry, fact: ToolsListed) -> ServerEntry:
    if _is_stale(entry, fact.incarnation):
        return entry
    entry = _with_about(entry, fact.about)
    looked = screened(fact.tools)
    tools, quarantined = looked.tools, {**fact.quarantined, **looked.refused}
    known = entry.tools
    if fact.first and known and not tools:
        return _with_problem(entry, EMPTIED, quarantined)
    if known is not None and say_the_same(known, tools):
        settled = not entry.listing_error and not entry.recalled
        if settled and (entry.quarantined, entry.completed) == (quarantined, looked.completed):
            return entry
        tools = known
    news = attrs.evolve(
        entry,
        tools=tools,
        listing_error="",
        quarantined=quarantined,
        hidden=looked.hidden,
        completed=looked.completed,
        recalled=False,
        refreshed_at=fact.at or entry.refreshed_at,
        # Before its very first list nobody can have been shown anything in this life.
        since=since_when(tools, known or {}, entry.since, fact.at if entry.epoch else entry.begun),
    )
    if known is not None and mean_the_same(known, tools):
        # Written another way, and the same: white space, or the order of members.
        return news
    return attrs.evolve(
        news,
        epoch=entry.epoch + 1,
        renamed=renames(known or {}, tools, entry.renamed),
        sentences=_still_said(entry.sentences, tools),
    )


def _with_memory(entry: ServerEntry, fact: Recalled) -> ServerEntry:
    """What the store remembers fills what is unknown; what the server says itself counts more."""
    if fact.tools is None:
        return _at_least(entry, fact.epoch)
    if fact.fingerprint != entry.fingerprint:
        return entry if fact.by_another else _at_least(entry, fact.epoch)
    looked = screened(fact.tools)
    entry = entry if entry.about or not fact.about else attrs.evolve(entry, about=fact.about)
    tools, known = looked.tools, entry.tools
    same = known is not None and mean_the_same(known, tools)
    if known is not None and not entry.recalled and not fact.by_another:
        longer = known_for_longer(known, entry.since, tools, fact.since)
        entry = attrs.evolve(entry, since={**entry.since, **longer}) if longer else entry
    if same:
        entry = _at_least(entry, fact.epoch)
    elif known is None or (entry.recalled and fact.epoch > entry.epoch):
        # An epoch that is ahead of the memory's has meant something else.
        epoch = fact.epoch if fact.epoch >= entry.epoch else entry.epoch + 1
        renamed = renames(known or {}, tools, entry.renamed)
        entry = attrs.evolve(
            entry,
            tools=tools,
            hidden=looked.hidden,
            epoch=epoch,
            recalled=True,
            renamed=renamed,
            since={name: fact.since.get(name, NEVER) for name in tools},
        )
    elif not entry.recalled and not fact.by_another and fact.epoch >= entry.epoch:
        # It has listed other tools than those remembered, before the memory was there.
        renamed = {**renames(tools, known, {}), **entry.renamed}
        entry = attrs.evolve(entry, epoch=fact.epoch + 1, renamed=renamed)
    # Otherwise each daemon keeps to what its own server says: two that took over each other's epochs for
    # different tools would never come to rest.
    return _with_remembered_summaries(entry, fact, same=same or known is None)


def _at_least(entry: ServerEntry, epoch: int) -> ServerEntry:
    return entry if entry.epoch >= epoch else attrs.evolve(entry, epoch=epoch)


def _with_remembered_summaries(entry: ServerEntry, fact: Recalled, *, same: bool) -> ServerEntry:
    """A model's later word counts, so that two daemons agree; one on other tools only where there is none."""
    ours, theirs = entry.summary, fact.summary
    takes_theirs = theirs is not None and (ours is None or (same and theirs.at > ours.at))
    sentences = {
        digest: said
        for digest, said in fact.sentences.items()
        if digest not in entry.sentences or said.at > entry.sentences[digest].at
    }
    return _with_summaries(entry, theirs if takes_theirs else ours, sentences)


def _with_summaries(
    entry: ServerEntry, summary: Summary | None, sentences: Mapping[str, Summary]
) -> ServerEntry:
    merged = {**entry.sentences, **sentences}
    if entry.tools is not None:
        merged = _still_said(merged, entry.tools)
    if summary == entry.summary and merged == entry.sentences:
        return entry
    return attrs.evolve(entry, summary=summary, sentences=merged)


def _still_said(sentences: Mapping[str, Summary], tools: Mapping[str, Tool]) -> dict[str, Summary]:
    """Sentences about tools that are there: a server that changes for ever must not fill the memory."""
    if not sentences:
        return {}
    present = {tool.schema_hash for tool in tools.values()}
    return {digest: said for digest, said in sentences.items() if digest in present}


def _with_failure(entry: ServerEntry, fact: ListingFailed) -> ServerEntry:
    if _is_stale(entry, fact.incarnation):
        return entry
    return _with_problem(entry, fact.reason, entry.quarantined)


def _with_problem(entry: ServerEntry, problem: str, quarantined: Mapping[str, str]) -> ServerEntry:
    """It has not said what it has: what is known stays."""
    if (entry.listing_error, entry.quarantined) == (problem, quarantined):
        return entry
    return attrs.evolve(entry, listing_error=problem, quarantined=quarantined)
