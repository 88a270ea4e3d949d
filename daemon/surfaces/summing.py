"""One line about a server, a category or a tool: whose words are used, and how they are cut.

An operator's words take precedence over a model's, and a model's over a cut description, which was written to
be read whole.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from daemon.safety.escape import legible
from daemon.surfaces.answers import MAX_LINE, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from daemon.catalog.categories import ToolCategory
    from daemon.catalog.snapshot import ServerEntry
    from daemon.model import Tool
    from daemon.surfaces.base import View


LEAD_CHARACTERS = 2000
"""Characters of a description that are searched for its first sentence: a longer one is cut far earlier."""

SHORTEST = 10
"""Characters of the shortest sentence; anything shorter is a number or a heading and says nothing alone."""

_HEADING = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
_PARAGRAPH_END = re.compile(r"\n[ \t]*\n")
_SENTENCE_END = re.compile(
    "(?<=[.!?])(?<!e\\.g\\.)(?<!i\\.e\\.)(?<!vs\\.)(?<!etc\\.)\\s|(?<=[\u3002\uff01\uff1f])"
)


def server_words(entry: ServerEntry) -> str:
    """The description of a server: the configuration's words, else a model's, else the server's own.

    The server's own words are not trusted: one sentence of them, on one line, with nothing hidden.
    """
    if entry.description:
        return entry.description
    if entry.summary is not None:
        return entry.summary.text
    return one_line(legible(first_sentence(_HEADING.sub("", entry.about))))


def server_line(view: View, entry: ServerEntry) -> str:
    """The line about a server: its description, else the names of its tools."""
    known = (name for name in entry.tools or () if view.offer.rules.allows((entry.name, name)))
    return server_words(entry) or in_words(known, entry.name)


def category_line(view: View, category: ToolCategory) -> str:
    """The line about a category, or about the server that it is: its description, else its tools' names."""
    whole = not view.catalog.config.categories
    words = server_words(view.catalog.servers[category.name]) if whole else category.description
    members = category.members.values()
    shown = (member.tool for member in members if member.listed and view.offer.rules.shows(member))
    return words or in_words(shown, category.servers[0] if category.servers else "") or category.description


def tool_line(entry: ServerEntry, tool: Tool, description: str) -> str:
    """The line about a tool, of at most `answers.MAX_LINE` characters.

    Args:
        entry: its server.
        tool: the tool.
        description: the description by the profile or the category, else the tool's own.
    """
    if description != tool.description:
        return one_line(description)
    said = entry.sentences.get(tool.schema_hash)
    return one_line(first_sentence(description) if said is None else said.text)


def first_sentence(text: str) -> str:
    """The first sentence of a text, which may span several lines, or the beginning if it has none."""
    lead = text[:LEAD_CHARACTERS].strip()
    sentence = _SENTENCE_END.split(_PARAGRAPH_END.split(lead, maxsplit=1)[0], maxsplit=1)[0].strip()
    return sentence if len(sentence) >= SHORTEST else lead


MAX_PHRASES = 300
"""Names that are looked at: a line has room for some thirty of them."""

ROOM = MAX_LINE - 20
"""Characters of all phrases: the name of what they describe comes before them on the same line."""

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\W\d_A-Z]+|[A-Z]+|\d+")
_SMALL = frozenset({"a", "an", "and", "by", "for", "from", "in", "of", "on", "or", "the", "to", "with"})

Phrase = tuple[str, ...]


def in_words(names: Iterable[str], server: str) -> str:
    """Names of tools as phrases, as many as fit: `navigate, take screenshot, click, fill form`.

    A common prefix of all names is left out, and so is their server's name. If not all phrases fit, no word is
    repeated, so that more words can be found.

    Args:
        names: the tools' names, in their server's order.
        server: the name of their server.
    """
    phrases = _without_prefix([_words(name) for name, _ in zip(names, range(MAX_PHRASES), strict=False)])
    own = set(_words(server))
    phrases = [_without_own(phrase, own) for phrase in phrases]
    whole = list(dict.fromkeys(" ".join(phrase) for phrase in phrases if phrase))
    if len(", ".join(whole)) <= ROOM:
        return ", ".join(whole)
    said: set[str] = set(_SMALL)
    line = ""
    for phrase in phrases:
        new = " ".join(word for word in phrase if word not in said)
        longer = f"{line}, {new}" if line and new else line or new
        if len(longer) > ROOM:
            return f"{line or longer[:ROOM]}…"
        said.update(phrase)
        line = longer
    return line


def _words(name: str) -> Phrase:
    return tuple(word.lower() for word in _WORD.findall(name))


def _without_prefix(phrases: Sequence[Phrase]) -> Sequence[Phrase]:
    """Phrases without the first words that they all share, as long as each keeps one."""
    while len(phrases) > 1 and all(len(phrase) > 1 for phrase in phrases):
        if len({phrase[0] for phrase in phrases}) > 1:
            break
        phrases = [phrase[1:] for phrase in phrases]
    return phrases


def _without_own(phrase: Phrase, own: set[str]) -> Phrase:
    """A phrase without the server's own name at its beginning."""
    start = next((at for at, word in enumerate(phrase) if word not in own), len(phrase) - 1)
    return phrase[max(0, start) :]
