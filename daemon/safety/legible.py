"""Shows definitions to models with hidden characters spelt out; hashes are made of the server's bytes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import attrs
import msgspec
from msgspec import Raw

from daemon.kit.later import pattern
from daemon.kit.wording import counted
from daemon.model import Definition, Tool
from daemon.safety.escape import hidden_in, legible, visible

NOTE = r"[mcpd: this definition has hidden characters; they are spelt out, as \u{202e}.]"
"""Tells a model that a tool's definition hid something."""

KEPT = 4096
"""Most cached schemas: as many as compact ones (`catalog.definitions`)."""

MAX_POINTS = 8
"""Most code points named per tool."""

# Every alternative begins with one fixed byte, so the search skips ahead with a table lookup, 2 ns a byte.
_SUSPECT_BYTES = pattern(
    rb"\x7f|\xc2[\x80-\x9f\xad]|\xcd\x8f|\xd8\x9c|\xe1\x85[\x9f\xa0]|\xe1\x9e[\xb4\xb5]|\xe1\xa0[\x8b-\x8f]"
    rb"|\xe2\x80[\x8b-\x8f\xa8-\xae]|\xe2\x81[\xa0-\xaf]|\xe2\xa0\x80|\xe3\x85\xa4|\xee|\xef[\x80-\xa3]|\xef\xb7[\x90-\xaf]"
    rb"|\xef\xb8[\x80-\x8f]|\xef\xbb\xbf|\xef\xbe\xa0|\xef\xbf[\xb0-\xbf]|\xf0\x93[\x90\x91]|\xf0\x96\xbf|\xf0\x9b\xb2"
    rb"|\xf0\x9d\x85|\xf0[\x9f\xaf\xbf]\xbf|\xf1[\x8f\x9f\xaf\xbf]\xbf|\xf2[\x8f\x9f\xaf\xbf]\xbf|\xf3|\xf4"
)
_SUSPECT_ESCAPES = pattern(
    rb"\\[bfr]|\\u(?:00[0189]|007f|00ad|034f|061c|11(?:5f|60)|17b[45]|180[b-f]|200[b-f]|202[89a-e]|206|2800|3164"
    rb"|d[89a-f]|e|f[0-8]|fd[de]|fe0|feff|ffa0|fff)",
    re.IGNORECASE,
)
"""JSON that matches neither pattern has no hidden character; JSON that matches may have one."""

_STRING = pattern(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_decode_text = msgspec.json.Decoder(str).decode
_decode_any = msgspec.json.Decoder().decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode

UNREADABLE = b'"(not readable)"'


class Screened(msgspec.Struct, frozen=True, kw_only=True):
    """The result of screening a list."""

    usable: Mapping[str, Definition]
    """Usable definitions by name, in the server's order."""
    hidden: Mapping[str, str]
    """The hidden characters found, in words, by name."""
    refused: Mapping[str, str]
    """Unusable definitions by name, with reasons."""
    completed: tuple[str, ...] = ()
    """Tools whose schemas lacked a type."""


class ScreenedList(tuple[Definition, ...]):  # noqa: SLOT001 - a tuple can have no slots of its own
    """A list that was screened in the thread that read it."""

    screened: Screened

    @classmethod
    def of(cls, definitions: Iterable[Definition]) -> ScreenedList:
        """Screen a list."""
        made = cls(definitions)
        made.screened = _screened(made)
        return made


def screened(definitions: Iterable[Definition]) -> Screened:
    """Screen a list, unless it already was."""
    return definitions.screened if isinstance(definitions, ScreenedList) else _screened(definitions)


def _screened(definitions: Iterable[Definition]) -> Screened:
    usable: dict[str, Definition] = {}
    hidden: dict[str, str] = {}
    refused: dict[str, str] = {}
    for each in definitions:
        found = _hidden_in_json(each.raw)
        # An ASCII name hides nothing: it is printable, or the definition would not have been read.
        if not each.name.isascii() and hidden_in(each.name):
            refused[visible(each.name)] = f"its name has hidden characters: {_named(hidden_in(each.name))}"
            continue
        usable[each.name] = each
        if found:
            hidden[each.name] = _named(found)
            if isinstance(each, Tool):
                usable[each.name] = attrs.evolve(each, description=_noted(each.description))
    completed = tuple(name for name, each in usable.items() if isinstance(each, Tool) and each.completed)
    return Screened(usable=usable, hidden=hidden, refused=refused, completed=completed)


def legible_json(raw: bytes) -> bytes:
    """Spell out hidden characters in strings and keys; other bytes stay. May return the same object."""
    if not _is_suspect(raw):
        return raw
    shown = _STRING.sub(lambda found: _legible_string(found[0]), raw)
    return raw if shown == raw else shown


@lru_cache(maxsize=KEPT)
def legible_schema(raw: bytes) -> bytes:
    """As `legible_json`, with a cache for schemas."""
    return legible_json(raw)


def legible_tool(raw: bytes, description: str) -> bytes:
    """A tool for mcpd's lists: unchanged, or made legible with the catalog's `description`."""
    shown = legible_schema(raw)
    if shown == raw:
        return raw
    return msgspec.json.encode({**_decode_members(shown), "description": legible(description)})


def legible_definition(raw: bytes) -> bytes:
    """A prompt, resource or template for a list, changed only if it hides characters."""
    shown = legible_json(raw)
    if shown is raw:
        return raw
    members = _decode_members(shown)
    said = _decode_any(members.get("description", b"null"))
    return msgspec.json.encode({**members, "description": _noted(said if isinstance(said, str) else "")})


def _is_suspect(raw: bytes) -> bool:
    if b"\\" in raw and _SUSPECT_ESCAPES.search(raw) is not None:
        return True
    return (b"\x7f" in raw) if raw.isascii() else _SUSPECT_BYTES.search(raw) is not None


def _legible_string(string: bytes) -> bytes:
    if not _is_suspect(string):
        return string
    try:
        text = _decode_text(string)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return UNREADABLE
    shown = legible(text)
    return string if shown == text else msgspec.json.encode(shown)


def _hidden_in_json(raw: bytes) -> str:
    return "" if not _is_suspect(raw) else "".join(_hidden_in_strings(raw))


def _hidden_in_strings(raw: bytes) -> Iterator[str]:
    for found in _STRING.finditer(raw):
        if _is_suspect(found[0]):
            try:
                yield hidden_in(_decode_text(found[0]))
            except (msgspec.MsgspecError, UnicodeDecodeError):
                yield "\ufffd"


def _noted(description: str) -> str:
    shown = legible(description)
    return f"{shown}\n{NOTE}" if shown else NOTE


def _named(found: str) -> str:
    points = [f"U+{ord(each):04X}" for each in Counter(found)]
    more = f" and {len(points) - MAX_POINTS} others" if len(points) > MAX_POINTS else ""
    return f"{counted(len(found), 'hidden character')}: {', '.join(points[:MAX_POINTS])}{more}"
