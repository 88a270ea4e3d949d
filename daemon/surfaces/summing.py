"""What is said of servers and tools on one line: whose words count, and how they are cut.

An operator's words count more than a model's, and a model's more than a cut description, which was written to
be read whole.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from daemon.surfaces.answers import one_line

if TYPE_CHECKING:
    from daemon.catalog.categories import Category
    from daemon.catalog.snapshot import Catalog, ServerEntry
    from daemon.model import Tool

LEAD_CHARACTERS = 2000
"""Of a description: a first sentence that is not over by then is cut far earlier."""

SHORTEST = 10
"""Characters of a sentence; what is shorter is a number or a heading, and says nothing alone."""

_PARAGRAPH_END = re.compile(r"\n[ \t]*\n")
_SENTENCE_END = re.compile(
    "(?<=[.!?])(?<!e\\.g\\.)(?<!i\\.e\\.)(?<!vs\\.)(?<!etc\\.)\\s|(?<=[\u3002\uff01\uff1f])"
)


def server_line(entry: ServerEntry) -> str:
    """What is said of a server: the configuration's words, else a model's, else nothing."""
    return entry.description or (entry.summary.text if entry.summary is not None else "")


def category_line(catalog: Catalog, category: Category) -> str:
    """What is said of a category: its own words; of one that is a whole server, what is said of that."""
    if catalog.config.categories:
        return category.description
    return server_line(catalog.servers[category.name]) or category.description


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
