"""What the store remembers of a server, and what a model has said of it, as a part of its entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from daemon.catalog.definitions import NEVER, known_for_longer, mean_the_same, renames
from daemon.catalog.kinds import BESIDE_TOOLS
from daemon.catalog.known import look_alike, remembered
from daemon.safety.legible import screened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.catalog.entry import ServerEntry
    from daemon.catalog.known import KnownList
    from daemon.facts import Recalled
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
