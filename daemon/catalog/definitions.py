"""How one list of a server's definitions follows another: what stayed, since when, and what was renamed.

A definition has a name, its bytes and its digests. Nothing here cares that it is a tool's: lists of prompts
and of resources follow each other in the same way.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from daemon.model import Tool

NEVER = inf
"""Since when something is so of which nobody knows it: whatever a client was shown may have been otherwise."""

MAX_RENAMED = 1000
"""Renames that are remembered of one server, the latest: against one that invents new names all the time."""


def say_the_same(one: Mapping[str, Tool], other: Mapping[str, Tool]) -> bool:
    """Whether two lists are the same byte for byte, in any order. Equal ones are nearly always one object."""
    return one.keys() == other.keys() and all(
        each is (same := other[name]) or each.raw == same.raw for name, each in one.items()
    )


def mean_the_same(one: Mapping[str, Tool], other: Mapping[str, Tool]) -> bool:
    """Whether the definitions in two lists mean the same, in any order."""
    return one.keys() == other.keys() and all(_alike(each, other[name]) for name, each in one.items())


def since_when(
    listed: Mapping[str, Tool], before: Mapping[str, Tool], since: Mapping[str, float], now: float
) -> Mapping[str, float]:
    """Since when each definition is as it is.

    Args:
        listed: as they are listed now.
        before: as they were.
        since: since when they were so; what it lacks counts from now on.
        now: seconds since the epoch.
    """
    if listed is before:
        return since
    return {
        name: since.get(name, now) if (was := before.get(name)) is not None and _alike(was, each) else now
        for name, each in listed.items()
    }


def known_for_longer(
    listed: Mapping[str, Tool],
    since: Mapping[str, float],
    remembered: Mapping[str, Tool],
    at: Mapping[str, float],
) -> dict[str, float]:
    """Since when those are as they are that a memory knows to have been so for longer.

    Args:
        listed: the definitions as they are.
        since: since when, as far as is known without the memory.
        remembered: as the memory has them.
        at: since when it knows them so.
    """
    return {
        name: at[name]
        for name, each in listed.items()
        if (was := remembered.get(name)) is not None
        and _alike(was, each)
        and at.get(name, NEVER) < since.get(name, NEVER)
    }


def renames(
    before: Mapping[str, Tool], listed: Mapping[str, Tool], earlier: Mapping[str, str]
) -> dict[str, str]:
    """The renames that hold now: a definition went, and exactly one came that is the same but for its name.

    Args:
        before: the definitions as they were.
        listed: as they are.
        earlier: the renames before, new names by old ones.
    """
    gone = [name for name in before if name not in listed]
    new = [name for name in listed if name not in before]
    now: dict[str, str] = {}
    if gone and new:
        went, came = _by_content(before, gone), _by_content(listed, new)
        now = {went[content]: came[content] for content in went if content in came}
    # What was renamed before may have been renamed again, or be back, or be gone for good.
    followed = {old: now.get(new, new) for old, new in earlier.items() if old not in now}
    merged = {old: new for old, new in {**followed, **now}.items() if old not in listed and new in listed}
    return dict(islice(merged.items(), max(0, len(merged) - MAX_RENAMED), None))


def _by_content(listed: Mapping[str, Tool], names: Iterable[str]) -> dict[str, str]:
    """Names by content, without those whose content several have: nobody could say which became which."""
    shared = Counter(each.content_hash for each in listed.values())
    return {listed[name].content_hash: name for name in names if shared[listed[name].content_hash] == 1}


def _alike(one: Tool, other: Tool) -> bool:
    return one is other or one.schema_hash == other.schema_hash
