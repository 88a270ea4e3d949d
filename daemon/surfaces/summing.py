"""What is said of servers and tools on one line: whose words count, and how they are cut.

An operator's words count more than a model's, and a model's more than a cut description, which was written to
be read whole.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from daemon.escape import legible
from daemon.surfaces.answers import one_line
from daemon.surfaces.phrases import in_words

if TYPE_CHECKING:
    from daemon.catalog.categories import Category
    from daemon.catalog.snapshot import ServerEntry
    from daemon.model import Tool
    from daemon.surfaces.base import View

LEAD_CHARACTERS = 2000
"""Of a description: a first sentence that is not over by then is cut far earlier."""

SHORTEST = 10
"""Characters of a sentence; what is shorter is a number or a heading, and says nothing alone."""

_HEADING = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
_PARAGRAPH_END = re.compile(r"\n[ \t]*\n")
_SENTENCE_END = re.compile(
    "(?<=[.!?])(?<!e\\.g\\.)(?<!i\\.e\\.)(?<!vs\\.)(?<!etc\\.)\\s|(?<=[\u3002\uff01\uff1f])"
)


def server_words(entry: ServerEntry) -> str:
    """What somebody says of a server: the configuration's words, else a model's, else its own.

    Its own are a stranger's: one sentence of them, on one line, with nothing hidden.
    """
    if entry.description:
        return entry.description
    if entry.summary is not None:
        return entry.summary.text
    return one_line(legible(first_sentence(_HEADING.sub("", entry.about))))


def server_line(view: View, entry: ServerEntry) -> str:
    """What is said of a server: somebody's words, else the names of its tools."""
    known = (name for name in entry.tools or () if view.offer.allows((entry.name, name)))
    return server_words(entry) or in_words(known, entry.name)


def category_line(view: View, category: Category) -> str:
    """What is said of a category, or of the server that it is: somebody's words, else its tools' names."""
    whole = not view.catalog.config.categories
    words = server_words(view.catalog.servers[category.name]) if whole else category.description
    members = category.members.values()
    shown = (member.tool for member in members if member.listed and view.offer.shows(member))
    return words or in_words(shown, category.servers[0] if category.servers else "") or category.description


def tool_line(entry: ServerEntry, tool: Tool, description: str) -> str:
    """What is said of a tool, on one line of at most `answers.MAX_LINE` characters.

    Args:
        entry: its server.
        tool: which one.
        description: what the profile or the category says of it, else its own description.
    """
    if description != tool.description:
        return one_line(description)
    said = entry.sentences.get(tool.schema_hash)
    return one_line(first_sentence(description) if said is None else said.text)


def first_sentence(text: str) -> str:
    """The first sentence of a text, which may stand on several lines, or the paragraph if it has none."""
    lead = text[:LEAD_CHARACTERS].strip()
    sentence = _SENTENCE_END.split(_PARAGRAPH_END.split(lead, maxsplit=1)[0], maxsplit=1)[0].strip()
    return sentence if len(sentence) >= SHORTEST else lead
