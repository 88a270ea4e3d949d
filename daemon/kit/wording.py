"""What texts share: what was meant by a wrong name, sizes in words, the spelling of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.kit.later import later

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rapidfuzz import fuzz, process
else:
    # 5 ms: it takes somebody who has written a wrong name.
    fuzz, process = later("rapidfuzz.fuzz", due=True), later("rapidfuzz.process", due=True)

KIB = 1024
MIB = 1024 * KIB

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
"""Each 1024 times the one before."""

BYTES_PER_TOKEN = 4
"""A rule of thumb for JSON in English; what is computed with it is called an estimate."""

ALIKE = 60
"""How much two names must have in common to be taken for one another, of 100 (indel similarity)."""

LONGEST = 200
"""Characters of a wrong name that are compared; real names have at most 128 bytes."""

MAX_COMPARED = 20_000
"""Names that a wrong one is compared with, 0.3 µs each: two servers' fill."""

MAX_QUOTED = 64
"""Characters of a word that a message repeats; no name in a configuration may be longer."""

_SEPARATORS = str.maketrans("", "", "_-")


def closest(wanted: str, names: Iterable[str], most: int = 3) -> list[str]:
    """The names that look most like a wrong one, closest first; case and separators do not count.

    Args:
        wanted: what was written.
        names: what there is.
        most: how many to return.
    """
    known = list(dict.fromkeys(names))[:MAX_COMPARED]
    found = process.extract(
        wanted[:LONGEST], known, scorer=fuzz.ratio, processor=_folded, limit=most, score_cutoff=ALIKE
    )
    return [name for name, _score, _position in found]


def meant(names: Iterable[str]) -> str:
    """The question whether one of these names was meant, as a sentence."""
    return f"Did you mean {' or '.join(names)}?"


def hint(wanted: str, names: Iterable[str]) -> str:
    """The sentence that follows one which says that there is no such name: what was meant, or what there is."""
    known = list(names)
    if close := closest(wanted, known):
        return meant(close)
    return f"There are: {', '.join(known)}." if known else "There are none."


def suggestion(wanted: str, names: Iterable[str], most: int | None = None) -> str:
    """The same as the end of a sentence, for faults that are told in one; `most` names are listed."""
    known = list(names)
    if close := closest(wanted, known, 1):
        return f": did you mean {close[0]!r}?"
    return f": known are {', '.join(known[:most])}" if known else ": there are none"


def quoted(word: str) -> str:
    """A word that somebody wrote in quotes, cut to a length that leaves the sentence readable."""
    return f"'{word}'" if len(word) <= MAX_QUOTED else f"'{word[:MAX_QUOTED]}…'"


def camel(name: str) -> str:
    """The spelling of an attribute in files and answers: `stop_eof` is `stopEof`."""
    head, *tail = name.split("_")
    return head + "".join(word.capitalize() for word in tail)


def bytes_in_words(count: int) -> str:
    """A number of bytes as `512 B`, `96 KiB`, `1.25 GiB`: exact enough to tell 1.04 GiB from a limit of 1."""
    value, unit = float(count), 0
    while value >= KIB and unit < len(UNITS) - 1:
        value, unit = value / KIB, unit + 1
    return f"{value:.2f}".rstrip("0").rstrip(".") + f" {UNITS[unit]}"


def _folded(name: str) -> str:
    return name.lower().translate(_SEPARATORS)
