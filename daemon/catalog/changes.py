"""Facts, configurations and stored lists applied to the catalog's entry of one server.

Its epoch rises by one exactly when its visible capabilities change: a reconnect that lists the same is no
change. Facts of an earlier incarnation are dropped, because its child is dead.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

from daemon.catalog.definitions import NEVER, known_for_longer, mean_the_same, renames, say_the_same, since_when
from daemon.catalog.entry import after_listing, initial_status, lasting_trouble, look_alike, remembered
from daemon.catalog.kinds import BESIDE_TOOLS
from daemon.facts import DefinitionsListed, ListingFailed, Recalled, StatusChanged, Summarized, ToolsListed
from daemon.safety.legible import screened
from daemon.states import ServerState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.catalog.entry import KnownList, ServerEntry
    from daemon.facts import ServerFact, ServerStatus
    from daemon.model import Kind, Summary, Tool
    from daemon.safety.legible import Screened


def with_memory(entry: ServerEntry, fact: Recalled) -> ServerEntry:
    """With what the store remembers, where nothing is known; what the server says itself takes precedence."""
    if fact.tools is None and not fact.definitions:
        return _at_least(entry, fact.epoch)
    if entry.fingerprint not in {"", fact.fingerprint}:
        return entry if fact.by_another else _at_least(entry, fact.epoch)
    if not entry.fingerprint:
        entry = attrs.evolve(entry, fingerprint=fact.fingerprint)
    if fact.introduction and not entry.introduction:
        entry = attrs.evolve(entry, introduction=fact.introduction)
    after = entry if fact.tools is None else _with_remembered_tools(entry, fact, screened(fact.tools))
    return _with_remembered_lists(entry, after, fact)


def _with_remembered_lists(before: ServerEntry, entry: ServerEntry, fact: Recalled) -> ServerEntry:
    """With the stored lists beside the tools, where none is known, or those that are known are older.

    Args:
        before: the entry before the fact.
        entry: the same with the stored tools.
        fact: what is stored.
    """
    stored = {kind: remembered(definitions) for kind, definitions in fact.definitions.items()}
    newer = fact.epoch > before.epoch
    taken = {
        kind: each
        for kind, each in stored.items()
        if (known := before.lists.get(kind)) is None or (known.recalled and newer)
    }
    lists = {**before.lists, **taken}
    epoch = entry.epoch
    if all(look_alike(lists.get(kind), stored.get(kind)) for kind in BESIDE_TOOLS):
        # With stored tools, those have decided.
        epoch = max(epoch, fact.epoch) if fact.tools is None else epoch
    elif not fact.by_another:
        # It listed what differs from the stored before that was read.
        epoch = max(epoch, fact.epoch + 1)
    seen_before = before.tools is not None or epoch > fact.epoch
    if epoch == before.epoch and seen_before and not _lists_look_alike(before, lists):
        epoch += 1
    return attrs.evolve(entry, epoch=epoch, lists=lists) if taken else _at_least(entry, epoch)


def _lists_look_alike(entry: ServerEntry, lists: Mapping[Kind, KnownList]) -> bool:
    return all(look_alike(entry.lists.get(kind), lists.get(kind)) for kind in BESIDE_TOOLS)


def _with_remembered_tools(entry: ServerEntry, fact: Recalled, looked: Screened[Tool]) -> ServerEntry:
    entry = entry if entry.about or not fact.about else attrs.evolve(entry, about=fact.about)
    tools, known = looked.usable, entry.tools
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
    return with_summaries(entry, theirs if takes_theirs else ours, sentences)


def with_summaries(
    entry: ServerEntry, summary: Summary | None, sentences: Mapping[str, Summary]
) -> ServerEntry:
    """With what a model has said: the summary, and further sentences about present tools."""
    merged = {**entry.sentences, **sentences}
    if entry.tools is not None:
        merged = still_said(merged, entry.tools)
    if summary == entry.summary and merged == entry.sentences:
        return entry
    return attrs.evolve(entry, summary=summary, sentences=merged)


def still_said(sentences: Mapping[str, Summary], tools: Mapping[str, Tool]) -> dict[str, Summary]:
    """The sentences about present tools: a server that keeps changing must not fill the memory."""
    if not sentences:
        return {}
    present = {tool.schema_hash for tool in tools.values()}
    return {digest: said for digest, said in sentences.items() if digest in present}


EMPTIED = (
    "since it was started it lists no tools, and it has had some: those are kept until it lists any, or is"
    " configured anew"
)
"""The problem of a server that had tools and lists none after a restart."""

_NUMBER = re.compile(r"\d+")


def changed_by(entry: ServerEntry, fact: ServerFact) -> ServerEntry:
    """The entry after a fact; the same object if the fact is stale or changes nothing."""
    match fact:
        case StatusChanged(status=status):
            return _with_status(entry, status)
        case ToolsListed():
            return _with_tools(entry, fact)
        case DefinitionsListed():
            return _with_list(entry, fact)
        case ListingFailed():
            return _with_failure(entry, fact)
        case Recalled():
            return with_memory(entry, fact)
        case Summarized():
            return with_summaries(entry, fact.summary or entry.summary, fact.sentences)


def reconfigured(entry: ServerEntry, made: ServerEntry) -> ServerEntry:
    """The entry of a server whose configuration may be another one now.

    Args:
        entry: the entry so far.
        made: the entry that the configuration would begin with.
    """
    same_server = made.fingerprint in {"", entry.fingerprint}
    if same_server and entry.enabled == made.enabled:
        same_words = entry.description == made.description
        return entry if same_words else attrs.evolve(entry, description=made.description)
    if entry.enabled:
        # Its child keeps counting incarnations: facts of the old server must not count for the new one.
        last = entry.status.incarnation
        made = attrs.evolve(made, status=attrs.evolve(made.status, incarnation=last), first_run=last + 1)
    if not same_server:
        return made
    return attrs.evolve(
        entry,
        description=made.description,
        enabled=made.enabled,
        status=made.status,
        first_run=made.first_run,
    )


def _with_status(entry: ServerEntry, status: ServerStatus) -> ServerEntry:
    """With a status, whichever incarnation reports it; lists of earlier incarnations no longer count."""
    if status.state is ServerState.STOPPED and not entry.enabled:
        status = initial_status(status.since, enabled=False)
    if status == entry.status:
        return entry
    return attrs.evolve(
        entry,
        status=status,
        trouble=lasting_trouble(entry, status),
        first_run=max(entry.first_run, status.incarnation),
    )


def _is_stale(entry: ServerEntry, incarnation: int) -> bool:
    return incarnation < entry.first_run


def _with_instructions(entry: ServerEntry, said: str) -> ServerEntry:
    return entry if entry.instructions == said else attrs.evolve(entry, instructions=said)


def _with_about(entry: ServerEntry, about: str) -> ServerEntry:
    """With the server's description of itself; unchanged if only numbers differ: clients are shown it."""
    if _NUMBER.sub("", entry.about) == _NUMBER.sub("", about):
        return entry
    return attrs.evolve(entry, about=about)


def _with_tools(entry: ServerEntry, fact: ToolsListed) -> ServerEntry:
    if _is_stale(entry, fact.incarnation):
        return entry
    entry = _with_instructions(_with_about(entry, fact.about), fact.instructions)
    if fact.introduction and fact.introduction != entry.introduction:
        entry = attrs.evolve(entry, introduction=fact.introduction)
    looked = screened(fact.tools)
    tools, quarantined = looked.usable, {**fact.quarantined, **looked.refused}
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
        sentences=still_said(entry.sentences, tools),
    )


def _with_list(entry: ServerEntry, fact: DefinitionsListed) -> ServerEntry:
    known = entry.lists.get(fact.kind)
    if _is_stale(entry, fact.incarnation) or (after := after_listing(known, fact)) is known:
        return entry
    epoch = entry.epoch if look_alike(known, after) else entry.epoch + 1
    return attrs.evolve(entry, epoch=epoch, lists={**entry.lists, fact.kind: after})


def _with_failure(entry: ServerEntry, fact: ListingFailed) -> ServerEntry:
    if _is_stale(entry, fact.incarnation):
        return entry
    return _with_problem(entry, fact.reason, entry.quarantined)


def _with_problem(entry: ServerEntry, problem: str, quarantined: Mapping[str, str]) -> ServerEntry:
    """With a problem of listing; the known tools stay."""
    if (entry.listing_error, entry.quarantined) == (problem, quarantined):
        return entry
    return attrs.evolve(entry, listing_error=problem, quarantined=quarantined)
