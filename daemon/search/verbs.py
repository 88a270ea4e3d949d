"""What a need asks to have done, and what tools do: who asks to make something is not led to remove it."""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache

from daemon.search.text import parts, stem_of

OTHERWISE = 0.9
"""What a tool counts that does another kind of thing than was asked for: names are not always plain."""

OPPOSED = 0.3
"""What it counts if one of the two is to remove: that is the mistake nobody can take back."""


class Deed(IntEnum):
    """A kind of thing to do."""

    NONE = 0
    """None that is known."""
    READ = 1
    MAKE = 2
    CHANGE = 3
    REMOVE = 4


_VERBS = {
    Deed.READ: """get read list show fetch view find search retrieve lookup query check describe browse see
        display look download inspect summarize summarise analyze analyse know tell explore discover give
        monitor track compare identify obtain extract""",
    Deed.MAKE: """create add insert new make write save store post append compose draft schedule book reserve
        register generate upload push publish send submit commit build start launch open plan arrange organize
        organise invite""",
    Deed.CHANGE: """update edit modify change alter rename move replace patch set adjust correct fix
        reschedule convert""",
    Deed.REMOVE: """delete remove cancel erase drop clear destroy purge uninstall unsubscribe revoke kill
        terminate wipe trash close stop""",
}

_DEEDS = {stem_of(verb): deed for deed, verbs in _VERBS.items() for verb in verbs.split()}

_NO_VERB_AFTER = frozenset(
    """
    a an the my our your his her their its this that these those of for in on at with from by any some no new
    current each every all
    """.split()  # noqa: SIM905 - a list of words is easier to read without quotes
)
"""After one of these a word is a thing: "my schedule", "a list of"."""

_WORDS = re.compile(r"[a-z0-9]+")

Asked = frozenset[Deed]
"""Kinds of things that a need asks for; empty if it says none."""

NOTHING_ASKED: Asked = frozenset()


def deeds_of(need: str) -> Asked:
    """What a need asks to have done."""
    before = ""
    found = set()
    for word in _WORDS.findall(need.lower()):
        deed = _DEEDS.get(stem_of(word))
        if deed is not None and before not in _NO_VERB_AFTER:
            found.add(deed)
        before = word
    return frozenset(found)


def deed_of(name: str) -> Deed:
    """What a tool does: the first verb of its name."""
    return next((deed for part in parts(name) if (deed := _DEEDS.get(stem_of(part)))), Deed.NONE)


@lru_cache(maxsize=1 << len(Deed))
def worth(asked: Asked) -> tuple[float, ...]:
    """What a tool counts, for each deed in order: less if it does something else than what was asked for."""
    return tuple(_worth(deed, asked) for deed in Deed)


def _worth(deed: Deed, asked: Asked) -> float:
    if deed is Deed.NONE or not asked or deed in asked:
        return 1.0
    if deed is Deed.REMOVE or asked == {Deed.REMOVE}:
        return OPPOSED
    return OTHERWISE if len(asked) == 1 else 1.0
