"""One server as the catalog knows it, and how facts change that.

Its epoch rises by one exactly when its visible capabilities change: a reconnect that lists the same tools is no
change. Facts of an earlier incarnation are dropped, because its child is dead.
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
"""States in which a server that has not listed its tools may be about to."""

EMPTIED = (
    "since it was started it lists no tools, and it has had some: those are kept until it lists any, or is"
    " configured anew"
)
"""The problem of a server that had tools and lists none after a restart."""

_NUMBER = re.compile(r"\d+")


@attrs.frozen(kw_only=True)
class ServerEntry:
    """One server as the catalog knows it."""

    name: str
    """Its configured name."""
    description: str
    """What it is good for, in words for a model."""
    status: ServerStatus
    """The state of the server, as its supervisor last reported it."""
    tools: Mapping[str, Tool] | None = None
    """The last known tools by name, in the server's order; None if it never listed any."""
    epoch: int = 0
    """Version of its visible capabilities."""
    quarantined: Mapping[str, str] = attrs.field(factory=dict)
    """Tools that cannot be used, with reasons."""
    hidden: Mapping[str, str] = attrs.field(factory=dict)
    """The hidden characters in its tools' definitions, in words, by tool (`safety.legible`)."""
    completed: tuple[str, ...] = ()
    """Its tools whose schemas of arguments it lists without their type (`catalog.definitions`)."""
    listing_error: str = ""
    """Why the last attempt to list its tools failed; empty if it succeeded."""
    first_run: int = 0
    """The first incarnation that counts: earlier ones are dead, or belonged to another server."""
    since: Mapping[str, float] = attrs.field(factory=dict, repr=False)
    """When each of its tools took its present form, in seconds since the epoch: every client that was shown it
    later was shown this form. A form that is the first known one counts from `begun`."""
    begun: float = 0.0
    """When this run of the daemon began, in seconds since the epoch; earlier runs are known from the store."""
    fingerprint: str = attrs.field(default="", repr=False)
    """Fingerprint of the configuration that decides which server answers (`catalog.definitions`)."""
    enabled: bool = True
    """Whether the configuration enables it."""
    switched_off: bool = False
    """Whether an operator has switched it off."""
    recalled: bool = False
    """Whether its tools are from an earlier run of the daemon: it has not listed any in this one."""
    refreshed_at: float = 0.0
    """When it was last listed, in seconds since the epoch."""
    renamed: Mapping[str, str] = attrs.field(factory=dict)
    """The present names of renamed tools, by their earlier names."""
    about: str = attrs.field(default="", repr=False)
    """The server's description of itself, as of its last list of tools."""
    summary: Summary | None = None
    """A model's summary of the server."""
    sentences: Mapping[str, Summary] = attrs.field(factory=dict, repr=False)
    """A model's summaries of its tools, by schema hash."""

    @property
    def available(self) -> bool:
        """Whether its tools can be called now."""
        return self.status.state in SERVING

    @property
    def usable(self) -> bool:
        """Whether a call to one of its tools would be accepted: a dormant server is started for it."""
        return self.available or (self.tools is not None and self.status.state is ServerState.DORMANT)

    @property
    def of_use(self) -> bool:
        """Whether it is up and has the tools that it should have."""
        return self.available and (bool(self.tools) or self.status.state is ServerState.READY)

    @property
    def disabled(self) -> bool:
        """Whether the configuration or an operator has switched it off, even if its child still runs."""
        return self.switched_off or not self.enabled

    @property
    def awaited(self) -> bool:
        """Whether its first list of tools is still expected."""
        known = self.tools is not None or bool(self.listing_error)
        return not known and not self.disabled and self.status.state in UNSETTLED


def fresh(
    server: Server, now: float, *, begun: float, epoch: int = 0, switched_off: bool = False
) -> ServerEntry:
    """A server before anything is known of it.

    Args:
        server: its configuration.
        now: seconds since the epoch.
        begun: when this run of the daemon began, in seconds since the epoch.
        epoch: the epoch to continue from: the server may have been configured before.
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
    """With a status, whichever incarnation reports it; lists of earlier incarnations no longer count."""
    if status.state is ServerState.STOPPED and not entry.enabled:
        status = _initial_status(status.since, enabled=False)
    if status == entry.status:
        return entry
    return attrs.evolve(entry, status=status, first_run=max(entry.first_run, status.incarnation))


def _is_stale(entry: ServerEntry, incarnation: int) -> bool:
    return incarnation < entry.first_run


def _with_about(entry: ServerEntry, about: str) -> ServerEntry:
    """With the server's description of itself; unchanged if only numbers differ: clients are shown it."""
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
        # Before the first list, no client can have been shown anything in this run of the daemon.
        since=since_when(tools, known or {}, entry.since, fact.at if entry.epoch else entry.begun),
    )
    if known is not None and mean_the_same(known, tools):
        # Only the encoding differs: white space, or the order of members.
        return news
    return attrs.evolve(
        news,
        epoch=entry.epoch + 1,
        renamed=renames(known or {}, tools, entry.renamed),
        sentences=_still_said(entry.sentences, tools),
    )


def _with_memory(entry: ServerEntry, fact: Recalled) -> ServerEntry:
    """With what the store remembers, where nothing is known; what the server says itself takes precedence."""
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
        # An epoch ahead of the stored one has already stood for something else.
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
        # It listed tools that differ from the stored ones before those were read.
        renamed = {**renames(tools, known, {}), **entry.renamed}
        entry = attrs.evolve(entry, epoch=fact.epoch + 1, renamed=renamed)
    # Otherwise each daemon trusts its own server: two that adopted each other's epochs for different tools
    # would never settle.
    return _with_remembered_summaries(entry, fact, same=same or known is None)


def _at_least(entry: ServerEntry, epoch: int) -> ServerEntry:
    return entry if entry.epoch >= epoch else attrs.evolve(entry, epoch=epoch)


def _with_remembered_summaries(entry: ServerEntry, fact: Recalled, *, same: bool) -> ServerEntry:
    """With the later summaries, so that two daemons agree; one about other tools only if there is none yet."""
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
    """The sentences about present tools: a server that keeps changing must not fill the memory."""
    if not sentences:
        return {}
    present = {tool.schema_hash for tool in tools.values()}
    return {digest: said for digest, said in sentences.items() if digest in present}


def _with_failure(entry: ServerEntry, fact: ListingFailed) -> ServerEntry:
    if _is_stale(entry, fact.incarnation):
        return entry
    return _with_problem(entry, fact.reason, entry.quarantined)


def _with_problem(entry: ServerEntry, problem: str, quarantined: Mapping[str, str]) -> ServerEntry:
    """With a problem of listing; the known tools stay."""
    if (entry.listing_error, entry.quarantined) == (problem, quarantined):
        return entry
    return attrs.evolve(entry, listing_error=problem, quarantined=quarantined)
