"""One server as the catalog knows it, and how facts change that.

Its epoch rises by one when its visible capabilities change and never otherwise: a reconnect that lists the same
tools is no change. Facts of an incarnation that is not the present one are dropped: their child is dead.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

import attrs

from daemon.catalog.digests import fingerprint
from daemon.catalog.legible import screened
from daemon.facts import ListingFailed, Recalled, ServerStatus, StatusChanged, Summarized, ToolsListed
from daemon.states import COMING, SERVING, ServerState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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

NEVER = inf
"""Since when something is so of which nobody knows it: whatever a client was shown may have been otherwise."""

MAX_RENAMED = 1000
"""Renames that are remembered of one server, the latest: against one that invents new names all the time."""


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
    """Its tools that have hidden characters in their definitions, each with which (`catalog.legible`)."""
    completed: tuple[str, ...] = ()
    """Its tools whose schemas of arguments it lists without their type (`catalog.completing`)."""
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
    """Of the configuration that decides which server answers (`catalog.digests`)."""
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
    if known is not None and _say_the_same(known, tools):
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
        since=_since(entry, tools, fact.at if entry.epoch else entry.begun),
    )
    if known is not None and _are_called_the_same(known, tools):
        # Written another way, and the same: white space, or the order of members.
        return news
    return attrs.evolve(
        news,
        epoch=entry.epoch + 1,
        renamed=_renamed(entry.tools or {}, tools, entry.renamed),
        sentences=_still_said(entry.sentences, tools),
    )


def _since(entry: ServerEntry, tools: Mapping[str, Tool], now: float) -> Mapping[str, float]:
    """Since when each of these is as it is, given that they are listed now."""
    if tools is entry.tools:
        return entry.since
    known = entry.tools or {}
    return {
        name: entry.since.get(name, now)
        if (was := known.get(name)) is not None and was.schema_hash == tool.schema_hash
        else now
        for name, tool in tools.items()
    }


def _renamed(
    before: Mapping[str, Tool], tools: Mapping[str, Tool], earlier: Mapping[str, str]
) -> dict[str, str]:
    """The renames that hold now: a tool went, and exactly one came that is the same but for its name.

    Args:
        before: the tools as they were.
        tools: as they are.
        earlier: the renames before.
    """
    gone = [name for name in before if name not in tools]
    new = [name for name in tools if name not in before]
    now = _moved(before, gone, tools, new) if gone and new else {}
    # What was renamed before may have been renamed again, or be back, or be gone for good.
    followed = {old: now.get(new, new) for old, new in earlier.items() if old not in now}
    merged = {old: new for old, new in {**followed, **now}.items() if old not in tools and new in tools}
    return dict(islice(merged.items(), max(0, len(merged) - MAX_RENAMED), None))


def _moved(
    before: Mapping[str, Tool], gone: Iterable[str], tools: Mapping[str, Tool], new: Iterable[str]
) -> dict[str, str]:
    """Which of the names that went became which of those that came."""
    went, came = _by_content(before, gone), _by_content(tools, new)
    return {went[content]: came[content] for content in went if content in came}


def _by_content(tools: Mapping[str, Tool], names: Iterable[str]) -> dict[str, str]:
    """Names by content, without those whose content several tools have: nobody could say which became which."""
    shared = Counter(tool.content_hash for tool in tools.values())
    return {tools[name].content_hash: name for name in names if shared[tools[name].content_hash] == 1}


def _with_memory(entry: ServerEntry, fact: Recalled) -> ServerEntry:
    """What the store remembers fills what is unknown; what the server says itself counts more."""
    if fact.tools is None:
        return _at_least(entry, fact.epoch)
    if fact.fingerprint != entry.fingerprint:
        return entry if fact.by_another else _at_least(entry, fact.epoch)
    looked = screened(fact.tools)
    entry = entry if entry.about or not fact.about else attrs.evolve(entry, about=fact.about)
    tools, known = looked.tools, entry.tools
    same = known is not None and _are_called_the_same(known, tools)
    if known is not None and not entry.recalled and not fact.by_another:
        entry = _for_longer(entry, tools, fact.since)
    if same:
        entry = _at_least(entry, fact.epoch)
    elif known is None or (entry.recalled and fact.epoch > entry.epoch):
        # An epoch that is ahead of the memory's has meant something else.
        epoch = fact.epoch if fact.epoch >= entry.epoch else entry.epoch + 1
        renamed = _renamed(known or {}, tools, entry.renamed)
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
        renamed = {**_renamed(tools, known, {}), **entry.renamed}
        entry = attrs.evolve(entry, epoch=fact.epoch + 1, renamed=renamed)
    # Otherwise each daemon keeps to what its own server says: two that took over each other's epochs for
    # different tools would never come to rest.
    return _with_remembered_summaries(entry, fact, same=same or known is None)


def _for_longer(entry: ServerEntry, tools: Mapping[str, Tool], since: Mapping[str, float]) -> ServerEntry:
    """With what a memory that has come late knows of tools that are as it has them: how long they are so."""
    longer = {
        name: at
        for name, tool in (entry.tools or {}).items()
        if (was := tools.get(name)) is not None
        and was.schema_hash == tool.schema_hash
        and (at := since.get(name, NEVER)) < entry.since.get(name, NEVER)
    }
    return attrs.evolve(entry, since={**entry.since, **longer}) if longer else entry


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


def _say_the_same(one: Mapping[str, Tool], other: Mapping[str, Tool]) -> bool:
    """Whether two lists are the same byte for byte, in any order. Equal tools are nearly always one object."""
    return one.keys() == other.keys() and all(
        tool is (same := other[name]) or tool.raw == same.raw for name, tool in one.items()
    )


def _are_called_the_same(one: Mapping[str, Tool], other: Mapping[str, Tool]) -> bool:
    """Whether their definitions mean the same, in any order."""
    return one.keys() == other.keys() and all(
        tool is (same := other[name]) or tool.schema_hash == same.schema_hash for name, tool in one.items()
    )
