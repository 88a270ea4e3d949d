"""What is known of words beforehand: how rare they are among public tools, and which are close in meaning.

Read from two files of this package (their origin: data/README.md), once, by whoever makes an index first.

What a need asks to have done, and what tools do: who asks to make something is not led to remove it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import IntEnum
from functools import lru_cache
from importlib.resources import files

import attrs

from daemon.search.text import parts, stem, stem_of

SYNONYMS: tuple[tuple[str, ...], ...] = (
    ("add", "create", "insert", "new", "make"),
    ("article", "paper", "publication"),
    ("audio", "sound", "speech", "voice"),
    ("build", "compile"),
    ("buy", "purchase", "order"),
    ("calendar", "schedule", "appointment", "event"),
    ("car", "vehicle", "automobile"),
    ("chart", "graph", "plot", "diagram"),
    ("chat", "message", "conversation"),
    ("city", "town", "place", "location"),
    ("client", "customer"),
    ("cloud", "aws", "azure", "gcp"),
    ("clone", "copy", "duplicate"),
    ("code", "program", "script", "source"),
    ("commit", "checkin"),
    ("company", "business", "firm", "corporation"),
    ("compare", "diff", "difference"),
    ("convert", "transform", "translate", "change"),
    ("cost", "price", "fee"),
    ("crypto", "cryptocurrency", "bitcoin", "coin", "token"),
    ("currency", "money", "exchange"),
    ("current", "now", "today", "present"),
    ("database", "db", "sql", "table"),
    ("delete", "remove", "erase", "drop", "clear"),
    ("deploy", "release", "publish"),
    ("directory", "folder", "dir"),
    ("doc", "docs", "document", "documentation"),
    ("download", "fetch", "get", "retrieve"),
    ("edit", "modify", "update", "change", "alter"),
    ("email", "mail", "inbox", "gmail"),
    ("error", "exception", "bug", "issue", "fault"),
    ("execute", "run", "launch", "invoke", "start"),
    ("file", "document"),
    ("film", "movie", "cinema"),
    ("find", "search", "lookup", "query", "locate", "discover"),
    ("flight", "airline", "airport", "plane"),
    ("food", "meal", "recipe", "dish"),
    ("forecast", "weather", "temperature"),
    ("game", "gaming", "player"),
    ("holiday", "vacation", "trip", "travel"),
    ("hotel", "accommodation", "lodging", "room"),
    ("house", "property", "estate", "apartment"),
    ("image", "picture", "photo", "photograph"),
    ("internet", "web", "online", "website"),
    ("issue", "ticket", "task"),
    ("job", "career", "vacancy", "employment"),
    ("k8s", "kubernetes", "pod", "cluster"),
    ("list", "enumerate", "overview", "browse"),
    ("lyrics", "song", "music", "track"),
    ("map", "maps", "route", "direction", "navigation"),
    ("medicine", "drug", "medication", "pharmacy"),
    ("merge", "combine", "join"),
    ("news", "headline", "headlines"),
    ("note", "memo", "memory"),
    ("open", "launch", "navigate", "visit"),
    ("page", "website", "url", "webpage"),
    ("password", "credential", "secret", "login"),
    ("people", "person", "user", "contact"),
    ("pr", "pull", "merge"),
    ("process", "task", "job"),
    ("read", "view", "see", "display", "content"),
    ("rename", "move"),
    ("repo", "repository", "git", "github"),
    ("restaurant", "cafe", "dining"),
    ("review", "rating", "feedback"),
    ("save", "store", "write", "persist"),
    ("screenshot", "snapshot", "capture"),
    ("send", "post", "publish", "submit"),
    ("shell", "terminal", "command", "bash", "console"),
    ("shop", "store", "product", "shopping"),
    ("sport", "match", "league", "team"),
    ("stock", "share", "equity", "ticker"),
    ("summary", "summarize", "summarise", "abstract", "overview"),
    ("test", "check", "verify", "validate"),
    ("time", "clock", "timezone", "date"),
    ("train", "railway", "rail"),
    ("translate", "translation", "language"),
    ("undo", "revert", "reset", "restore"),
    ("upload", "push", "send"),
    ("video", "youtube", "clip"),
    ("word", "docx"),
    ("excel", "spreadsheet", "xlsx", "sheet", "workbook"),
    ("slide", "slides", "powerpoint", "presentation", "pptx"),
    ("zip", "compress", "archive"),
)
"""Groups of words that stand for one another where tools are concerned; stemmed when read."""

CLOSE = 0.8
"""How close words of one hand-written group are held to be."""


@attrs.frozen(kw_only=True)
class Language:
    """How rare words are among public tools, and which words are close in meaning."""

    tools: int
    """How many public tools were read."""
    frequencies: Mapping[str, int]
    """Stem to the number of those that have it."""
    neighbours: Mapping[str, tuple[tuple[str, float], ...]]
    """Stem to close stems with their closeness, 0 to 1, closest first."""


NOTHING = Language(tools=0, frequencies={}, neighbours={})
"""A language of which nothing is known."""


class _Neighbours(Mapping[str, tuple[tuple[str, float], ...]]):
    """Terms with those near to them, read when they are looked up: few of the thousands ever are."""

    def __init__(self, lines: Mapping[str, str], groups: Mapping[str, Mapping[str, float]]) -> None:
        """Take what is known.

        Args:
            lines: for each term others as they are written, `other:80 another:60`.
            groups: for some, or for further terms, others that count more than what is written.
        """
        self._lines = lines
        self._groups = groups

    def __getitem__(self, term: str) -> tuple[tuple[str, float], ...]:
        pairs = (pair.partition(":") for pair in self._lines.get(term, "").split())
        near = {other: int(closeness) / 100 for other, _, closeness in pairs}
        near.update(self._groups.get(term, {}))
        if not near:
            raise KeyError(term)
        return tuple(sorted(near.items(), key=lambda pair: -pair[1]))

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._lines, *self._groups]))

    def __len__(self) -> int:
        return len({*self._lines, *self._groups})


@lru_cache(maxsize=1)
def language() -> Language:
    """All that is known. Reads files: not for the event loop."""
    data = files("daemon.search") / "data"
    count, *lines = (data / "frequencies.txt").read_text(encoding="utf-8").splitlines()
    frequencies = {term: int(number) for term, _, number in (line.partition(" ") for line in lines)}
    near = (data / "neighbours.txt").read_text(encoding="utf-8").splitlines()
    groups: dict[str, dict[str, float]] = {}
    for group in SYNONYMS:
        stems = [found for word in group if (found := stem(word))]
        for one in stems:
            groups.setdefault(one, {}).update({other: CLOSE for other in stems if other != one})
    return Language(
        tools=int(count),
        frequencies=frequencies,
        neighbours=_Neighbours(
            {term: rest for term, _, rest in (line.partition(" ") for line in near)}, groups
        ),
    )


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
