"""Wording that messages share: suggestions for wrong names, quotes, sizes, times, counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.kit.later import later

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rapidfuzz import fuzz, process
else:
    # 5 ms, and needed only once somebody writes a wrong name.
    fuzz, process = later("rapidfuzz.fuzz", due=True), later("rapidfuzz.process", due=True)

KIB = 1024
MIB = 1024 * KIB

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")

MINUTE, HOUR, DAY = 60, 3600, 86_400

_TIMES = (
    (2 * DAY, DAY, "d", HOUR, "h"),  # "1d" alone would say too little.
    (HOUR, HOUR, "h", MINUTE, "m"),
    (MINUTE, MINUTE, "m", 1, "s"),
)
"""Rows of a shortest length in seconds, and two units for this and longer lengths."""

TWO_DIGITS = 10
"""The value from which a number needs no decimals."""
_TENTHS = 10
"""Seconds below which tenths are shown."""

BYTES_PER_TOKEN = 4
"""Bytes per token, a rule of thumb for JSON in English; results based on this number are called estimates."""

ALIKE = 60
"""Least similarity of a suggested name, out of 100 (indel similarity)."""

LONGEST = 200
"""Most characters of a wrong name that are compared; real names have at most 128 bytes."""

MAX_COMPARED = 20_000
"""Most names compared, at 0.3 µs each: twice what one server may list."""

MAX_QUOTED = 64
"""Most characters of a word that a message repeats: the longest name in a configuration."""

_SEPARATORS = str.maketrans("", "", "_-")


def closest(wanted: str, names: Iterable[str], most: int = 3) -> list[str]:
    """The names most similar to a wrong one, closest first; ignores case and separators."""
    known = list(dict.fromkeys(names))[:MAX_COMPARED]
    found = process.extract(
        wanted[:LONGEST], known, scorer=fuzz.ratio, processor=_folded, limit=most, score_cutoff=ALIKE
    )
    return [name for name, _score, _position in found]


def meant(names: Iterable[str]) -> str:
    """The question whether one of these names was meant."""
    return f"Did you mean {' or '.join(names)}?"


def hint(wanted: str, names: Iterable[str]) -> str:
    """The sentence after "there is no such name": similar names, or all names."""
    known = list(names)
    if close := closest(wanted, known):
        return meant(close)
    return f"There are: {', '.join(known)}." if known else "There are none."


def suggestion(wanted: str, names: Iterable[str], most: int | None = None) -> str:
    """`hint` as the end of a sentence, for faults that are one sentence; lists at most `most` names."""
    known = list(names)
    if close := closest(wanted, known, 1):
        return f": did you mean {close[0]!r}?"
    return f": known are {', '.join(known[:most])}" if known else ": there are none"


def quoted(word: str) -> str:
    """The word in quotes, cut to a readable length."""
    return f"'{word}'" if len(word) <= MAX_QUOTED else f"'{word[:MAX_QUOTED]}…'"


def camel(name: str) -> str:
    """An attribute's name as files and answers spell it: `stop_eof` becomes `stopEof`."""
    head, *tail = name.split("_")
    return head + "".join(word.capitalize() for word in tail)


def counted(number: int, noun: str, several: str = "") -> str:
    """A number of things: `1 tool`, `1,204 tools`; `several` is the plural if it is not formed with an s."""
    return f"{number:,} {noun if number == 1 else several or f'{noun}s'}"


def some(names: Sequence[object], most: int, more: int = 0) -> str:
    """The first `most` names, and the number of the others plus `more`: `a, b and 3 more`."""
    left = more + max(0, len(names) - most)
    return ", ".join(map(str, names[:most])) + (f" and {left} more" if left else "")


def called(call: Mapping[str, Any]) -> str:
    """The tool of a call: `SERVER/TOOL`, or the name of a meta-tool."""
    return f"{call['server']}/{call['tool']}" if call["server"] else str(call["tool"])


def bytes_in_words(count: int) -> str:
    """A number of bytes as `512 B` or `1.25 GiB`, exact enough to tell 1.04 GiB from a limit of 1 GiB."""
    value, unit = float(count), 0
    while value >= KIB and unit < len(UNITS) - 1:
        value, unit = value / KIB, unit + 1
    return f"{value:.2f}".rstrip("0").rstrip(".") + f" {UNITS[unit]}"


def short_size(count: int | None) -> str:
    """A number of bytes as `512B`, `96K` or `1.5G`; `-` if unknown."""
    if count is None:
        return "-"
    value, units = float(count), iter("BKMGT")
    unit = next(units)
    while value >= KIB and (larger := next(units, None)) is not None:
        value, unit = value / KIB, larger
    return f"{value:.0f}{unit}" if unit in "BK" or value >= TWO_DIGITS else f"{value:.1f}{unit}"


def span(seconds: float, parts: int = 2) -> str:
    """A length of time: `1.4s`, `42s`, `2m 5s`, `9d 1h`; with one part, for ages: `2h`, in whole units."""
    whole = max(0, int(seconds))
    if whole < MINUTE:
        return f"{max(0.0, seconds):.1f}s" if parts > 1 and seconds < _TENTHS else f"{whole}s"
    _, unit, name, part, smaller = next(each for each in _TIMES if whole >= each[0])
    count, rest = divmod(whole, unit)
    return f"{count}{name} {rest // part}{smaller}" if parts > 1 and rest >= part else f"{count}{name}"


def _folded(name: str) -> str:
    return name.lower().translate(_SEPARATORS)


def log_in(server: str) -> str:
    """The advice to a model whose call needs a login, without the full stop."""
    return f"Tell the user to run `mcpd login {server}`, then try again"
