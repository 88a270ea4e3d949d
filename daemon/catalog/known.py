"""What is known of one of a server's lists beside its tools: its prompts, its resources or their templates.

Facts change it as they change tools (`catalog.entry`): what cannot be listed keeps what was known, and a server
that has had some and lists none when it has just been started keeps those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from daemon.catalog.definitions import mean_the_same, say_the_same
from daemon.safety.legible import screened

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from daemon.facts import DefinitionsListed
    from daemon.model import Definition

EMPTIED = (
    "since the server was started it lists none, and it has had some: those are kept until it lists any, or is"
    " configured anew"
)
"""The problem of a server that had some and lists none after a restart."""


@attrs.frozen(kw_only=True)
class KnownList:
    """A server's prompts, its resources or their templates, as last known."""

    definitions: Mapping[str, Definition] = attrs.field(factory=dict)
    """Those that can be used, by name, URI or template, in the server's order."""
    quarantined: Mapping[str, str] = attrs.field(factory=dict)
    """Those that cannot be used, with reasons."""
    hidden: Mapping[str, str] = attrs.field(factory=dict)
    """The hidden characters in definitions, in words, by name (`safety.legible`)."""
    problem: str = ""
    """Why the last attempt to list them failed, or keeps what was known; empty if it succeeded."""
    recalled: bool = False
    """Whether they are from an earlier run of the daemon: the server has not listed any in this one."""
    declared: bool = True
    """Whether the server declares that it has such a list."""


NOTHING_KNOWN = KnownList()
"""What is known before the first list."""


def after_listing(known: KnownList | None, fact: DefinitionsListed) -> KnownList:
    """What is known after the server has listed, or failed to; the same object if that changes nothing."""
    before = known or NOTHING_KNOWN
    if fact.problem:
        after = attrs.evolve(before, problem=fact.problem, declared=fact.declared)
    else:
        looked = screened(fact.definitions)
        quarantined = {**fact.quarantined, **looked.refused}
        if fact.first and fact.declared and before.definitions and not looked.usable:
            after = attrs.evolve(before, problem=EMPTIED, quarantined=quarantined)
        else:
            same = say_the_same(before.definitions, looked.usable)
            after = KnownList(
                definitions=before.definitions if same else looked.usable,
                quarantined=quarantined,
                hidden=looked.hidden,
                declared=fact.declared,
            )
    return known if after == known else after


def remembered(definitions: Iterable[Definition]) -> KnownList:
    """What the store remembers of a list."""
    looked = screened(definitions)
    return KnownList(definitions=looked.usable, hidden=looked.hidden, recalled=True)


def look_alike(one: KnownList | None, other: KnownList | None) -> bool:
    """Whether clients see the same in both: a list that nobody has seen yet looks like an empty one."""
    if one is other:
        return True
    return mean_the_same((one or NOTHING_KNOWN).definitions, (other or NOTHING_KNOWN).definitions)
