"""Summarises a server, category or tool in a line, from an operator, a model, a description or names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice

from daemon.catalog.categories import ToolCategory
from daemon.catalog.snapshot import ServerEntry
from daemon.kit.later import pattern
from daemon.model import Tool
from daemon.safety.escape import legible
from daemon.search.language import stem_of
from daemon.surfaces.answers import MAX_LINE, MAX_NAME, cut, index_lines, one_line, share_of
from daemon.surfaces.surface import View

MAX_PHRASES = 300
"""Names read: a line has room for some thirty."""

ROOM = MAX_LINE - MAX_NAME
"""Characters of all phrases on a line, after the name."""

KEPT = 512
"""Cached lines: twice as many as large configurations have servers."""

_TOLD = 1000
"""Characters read of each description, whose subject stands at the beginning."""

_WORD = pattern(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\W\d_A-Z]+|[A-Z]+|\d+")
_SMALL = frozenset({"a", "an", "and", "by", "for", "from", "in", "of", "on", "or", "the", "to", "with"})

Phrase = tuple[str, ...]


def in_words(tools: Iterable[tuple[str, str]], server: str, room: int = ROOM) -> str:
    """Tool names as phrases, as many as fit into `room` characters: `navigate, take screenshot, click`.

    Prefers phrases whose words occur in most of the server's tools, and drops the server's name.
    """
    return _in_words(tuple(islice(tools, MAX_PHRASES)), server, room)


@lru_cache(maxsize=KEPT)
def _in_words(tools: tuple[tuple[str, str], ...], server: str, room: int) -> str:
    phrases = _without_prefix([_words(name) for name, _description in tools])
    own = set(_words(server))
    phrases = [_without_own(phrase, own) for phrase in phrases]
    whole = ", ".join(dict.fromkeys(" ".join(phrase) for phrase in phrases if phrase))
    if len(whole) <= room:
        return whole
    once = ", ".join(_each_once(phrases))
    if len(once) <= room:
        return once
    some = ", ".join(_each_once([phrases[place] for place in _central(phrases, _uses(tools), room)]))
    return f"{some or once[:room]}…"


def _central(phrases: Sequence[Phrase], uses: Mapping[str, int], room: int) -> list[int]:
    used = set(_SMALL)
    left, found = dict(enumerate(phrases)), list[int]()
    while left:
        new = {place: [word for word in phrase if word not in used] for place, phrase in left.items()}
        left = {
            place: left[place] for place, words in new.items() if words and len(" ".join(words)) + 2 <= room
        }
        if left:
            best = max(left, key=lambda place: _worth(new[place], uses))
            used.update(new[best])
            room -= len(" ".join(new[best])) + 2
            found.append(best)
            del left[best]
    return sorted(found)


def _worth(words: Sequence[str], uses: Mapping[str, int]) -> tuple[int, int]:
    """A phrase's value: the number of tools with its words, then the length of its longest word."""
    return max(uses[stem_of(word)] for word in words), max(map(len, words))


def _uses(tools: Iterable[tuple[str, str]]) -> Mapping[str, int]:
    return Counter(
        stem
        for name, description in tools
        for stem in {stem_of(word) for word in _words(f"{name} {description[:_TOLD]}")}
    )


def _each_once(phrases: Iterable[Phrase]) -> Iterable[str]:
    used = set(_SMALL)
    for phrase in phrases:
        if new := " ".join(word for word in phrase if word not in used):
            yield new
        used.update(phrase)


def _words(name: str) -> Phrase:
    return tuple(word.lower() for word in _WORD.findall(name))


def _without_prefix(phrases: Sequence[Phrase]) -> Sequence[Phrase]:
    while len(phrases) > 1 and all(len(phrase) > 1 for phrase in phrases):
        if len({phrase[0] for phrase in phrases}) > 1:
            break
        phrases = [phrase[1:] for phrase in phrases]
    return phrases


def _without_own(phrase: Phrase, own: set[str]) -> Phrase:
    start = next((at for at, word in enumerate(phrase) if word not in own), len(phrase) - 1)
    return phrase[max(0, start) :]


LEAD_CHARACTERS = 2000
"""Characters of a description searched for its first sentence."""

TOPICS_CHARACTERS = 600
"""Most characters about all tools on surfaces without an initial list: 150 tokens."""

SHORTEST = 10
"""Characters of the shortest sentence; anything shorter is a number or a heading."""

_HEADING = pattern(r"^[ \t]*#.*$", re.MULTILINE)
_PARAGRAPH_END = pattern(r"\n[ \t]*\n")
_SENTENCE_END = pattern(
    "(?<=[.!?])(?<!e\\.g\\.)(?<!i\\.e\\.)(?<!vs\\.)(?<!etc\\.)\\s|(?<=[\u3002\uff01\uff1f])"
)


def server_words(entry: ServerEntry) -> str:
    """A server's description: from the configuration, else from a model, else its own."""
    return _given(entry) or _own(entry)


def server_line(view: View, entry: ServerEntry, room: int = ROOM) -> str:
    """A server's line: the given description, or else its own and `room` characters about its tools."""
    tools = (
        (name, tool.description)
        for name, tool in entry.for_models.items()
        if view.offer.rules.allows((entry.name, name))
    )
    return _line(_cut(entry.name, _given(entry)), _own(entry), tools, entry.name, room)


def category_line(view: View, category: ToolCategory, room: int = ROOM) -> str:
    """A category's line, like `server_line`; a category of one whole server has the server's line."""
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
    """All categories' tools, in equal shares of `TOPICS_CHARACTERS`: `git (log, commit), time (convert)`."""
    categories = view.categories
    left = TOPICS_CHARACTERS - sum(len(name) + len(" (), ") for name in categories)
    if left < SHORTEST * len(categories):
        return ""
    lines = {name: category_line(view, each, TOPICS_CHARACTERS) for name, each in categories.items()}
    rooms: dict[str, int] = {}
    for place, name in enumerate(sorted(lines, key=lambda name: len(lines[name]))):
        rooms[name] = min(len(lines[name]), left // (len(lines) - place))
        left -= rooms[name]
    shares = {name: one_line(category_line(view, categories[name], rooms[name]), rooms[name]) for name in lines}
    return ", ".join(f"{name} ({words})" if words else name for name, words in shares.items())


def _given(entry: ServerEntry) -> str:
    return entry.description or ("" if entry.summary is None else entry.summary.text)


def _cut(name: str, given: str) -> str:
    return one_line(given, max(SHORTEST, MAX_LINE - len(f"- {name}: ")))


def _own(entry: ServerEntry) -> str:
    return one_line(legible(first_sentence(_HEADING.sub("", entry.said.about))))


def _line(given: str, own: str, tools: Iterable[tuple[str, str]], server: str, room: int) -> str:
    if given:
        return given
    half = one_line(own, MAX_LINE // 2)
    listed = in_words(tools, server, room - len(half))
    return f"{half} Tools: {listed}" if half and listed else listed or own


def tool_line(entry: ServerEntry, tool: Tool, description: str) -> str:
    """A tool's line; `description` is the profile's or category's, else the tool's own."""
    if description != tool.description:
        return one_line(description)
    sentence = entry.sentences.get(tool.schema_hash)
    return one_line(first_sentence(description) if sentence is None else sentence.text)


def first_sentence(text: str) -> str:
    """The first sentence of a text, even over several lines; without a sentence, the text's beginning."""
    lead = text[:LEAD_CHARACTERS].strip()
    sentence = _SENTENCE_END.split(_PARAGRAPH_END.split(lead, maxsplit=1)[0], maxsplit=1)[0].strip()
    return sentence if len(sentence) >= SHORTEST else lead


LINES_CHARACTERS = 2000
"""Most characters about all servers in the handshake: Claude Code shows its model 2 KB of instructions."""

REST = "their tools are listed like all others"
"""The last line, about servers that were left out."""


def first_instructions(view: View, entries: Iterable[ServerEntry]) -> dict[str, object]:
    """The member `{"instructions": {SERVER: text}}` of `meta` for servers new to this client; else empty."""
    new = [entry for entry in entries if entry.said.instructions and not _was_met(view, entry)]
    if not new:
        return {}
    room = share_of(view) // len(new)
    return {"instructions": {entry.name: cut(legible(entry.said.instructions), room) for entry in new}}


def server_lines(view: View) -> str:
    """A line for each server with a description, for mcpd's own instructions; empty without one."""
    described = [(entry.name, words) for entry in view.servers.values() if (words := server_words(entry))]
    return "Servers:\n" + index_lines(described, LINES_CHARACTERS, REST) if described else ""


def _was_met(view: View, entry: ServerEntry) -> bool:
    keys = [(entry.name, tool) for tool in entry.tools or ()]
    return any(key in view.loaded or view.shown(key) is not None for key in keys)
