"""How facts and configurations change what the catalog knows of one server.

Its epoch rises by one exactly when its visible capabilities change: a reconnect that lists the same is no
change. Facts of an earlier incarnation are dropped, because its child is dead.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

from daemon.catalog.definitions import mean_the_same, renames, say_the_same, since_when
from daemon.catalog.entry import initial_status
from daemon.catalog.known import after_listing, look_alike
from daemon.catalog.memory import still_said, with_memory, with_summaries
from daemon.facts import (
    DefinitionsListed,
    ListingFailed,
    Recalled,
    StatusChanged,
    Summarized,
    ToolsListed,
)
from daemon.safety.legible import screened
from daemon.states import ServerState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.catalog.entry import ServerEntry
    from daemon.facts import ServerFact, ServerStatus

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
    return attrs.evolve(entry, status=status, first_run=max(entry.first_run, status.incarnation))


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
