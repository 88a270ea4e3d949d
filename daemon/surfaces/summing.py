"""One line about a server, a category or a tool: whose words are used, and how they are cut.

An operator's words take precedence over a model's, and a model's over a cut description, which was written to
be read whole.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from daemon.safety.escape import legible
from daemon.surfaces.answers import MAX_LINE, one_line
from daemon.surfaces.phrases import ROOM, in_words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daemon.catalog.categories import ToolCategory
    from daemon.catalog.snapshot import ServerEntry
    from daemon.model import Tool
    from daemon.surfaces.base import View


LEAD_CHARACTERS = 2000
"""Characters of a description that are searched for its first sentence: a longer one is cut far earlier."""

TOPICS_CHARACTERS = 600
"""Characters of what is said of all tools on surfaces that list none at the start: 150 tokens."""

SHORTEST = 10
"""Characters of the shortest sentence; anything shorter is a number or a heading and says nothing alone."""

_HEADING = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
_PARAGRAPH_END = re.compile(r"\n[ \t]*\n")
_SENTENCE_END = re.compile(
    "(?<=[.!?])(?<!e\\.g\\.)(?<!i\\.e\\.)(?<!vs\\.)(?<!etc\\.)\\s|(?<=[\u3002\uff01\uff1f])"
)


def server_words(entry: ServerEntry) -> str:
    """The description of a server: the configuration's words, else a model's, else the server's own."""
    return _given(entry) or _own(entry)


def server_line(view: View, entry: ServerEntry, room: int = ROOM) -> str:
    """The line about a server: its description, and what its tools do unless an operator or a model gave that.

    Args:
        view: the view of the session.
        entry: the server.
        room: characters for what its tools do.
    """
    tools = (
        (name, tool.description)
        for name, tool in (entry.tools or {}).items()
        if view.offer.rules.allows((entry.name, name))
    )
    return _line(_cut(entry.name, _given(entry)), _own(entry), tools, entry.name, room)


def category_line(view: View, category: ToolCategory, room: int = ROOM) -> str:
    """The line about a category, or about the server that it is; arguments as for `server_line`."""
    servers, given, own = view.catalog.servers, category.description, ""
    if not view.catalog.config.categories:
        given, own = _given(servers[category.name]), _own(servers[category.name])
    tools = (
        (member.tool, (servers[member.server].tools or {})[member.tool].description)
        for member in category.members.values()
        if member.listed and view.offer.rules.shows(member)
    )
    name = category.servers[0] if category.servers else ""
    return _line(_cut(category.name, given), own, tools, name, room) or category.description


def topics(view: View) -> str:
    """What the tools of all categories do, for a surface that lists none: `git (log, commit), time (convert)`.

    At most `TOPICS_CHARACTERS`; empty if that is too little for so many categories. Each has the same room, and
    what one does not need the others have.
    """
    categories = view.categories
    left = TOPICS_CHARACTERS - sum(len(name) + len(" (), ") for name in categories)
    if left < SHORTEST * len(categories):
        return ""
    told = {name: category_line(view, each, TOPICS_CHARACTERS) for name, each in categories.items()}
    rooms: dict[str, int] = {}
    for place, name in enumerate(sorted(told, key=lambda name: len(told[name]))):
        rooms[name] = min(len(told[name]), left // (len(told) - place))
        left -= rooms[name]
    said = {name: one_line(category_line(view, categories[name], rooms[name]), rooms[name]) for name in told}
    return ", ".join(f"{name} ({words})" if words else name for name, words in said.items())


def _given(entry: ServerEntry) -> str:
    """What the configuration says of a server, else a model."""
    return entry.description or ("" if entry.summary is None else entry.summary.text)


def _cut(name: str, given: str) -> str:
    """What is given, as far as it has room on a line of `MAX_LINE` after a name."""
    return one_line(given, max(SHORTEST, MAX_LINE - len(f"- {name}: ")))


def _own(entry: ServerEntry) -> str:
    """What a server says of itself: not trusted, so one sentence, on one line, with nothing hidden."""
    return one_line(legible(first_sentence(_HEADING.sub("", entry.about))))


def _line(given: str, own: str, tools: Iterable[tuple[str, str]], server: str, room: int) -> str:
    """The words of an operator or a model; else a server's own, and after them what its tools do."""
    if given:
        return given
    half = one_line(own, MAX_LINE // 2)
    told = in_words(tools, server, room - len(half))
    return f"{half} Tools: {told}" if half and told else told or own


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
