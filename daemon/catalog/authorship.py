"""Marks servers' questions to users and models with the server's name, and refuses deceptive ones.

A server's text starts with `Server NAME asks: `, and its further lines with `> `; hidden characters are spelt
out. mcpd's own questions start with `OURS`, which no server's text may contain or resemble. mcpd refuses URLs
other than plain http or https, and hidden characters in names and choices, which answers must repeat.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from msgspec import Raw

from daemon.protocol import LIST_ROOTS, UNREADABLE
from daemon.safety.escape import legible

OURS = "mcpd asks: "
"""The beginning of each of mcpd's own questions."""

_ANSWERED = frozenset({"const", "enum", "default", "pattern"})
"""Schema members that fix or restrict answers: mcpd keeps their values, or refuses the question."""

_FOREIGN = {
    "a": "\u03b1\u0430\u0251", "c": "\u03f2\u0441\u1d04", "d": "\u0501\u1d05", "k": "\u03ba\u043a\u1d0b",
    "m": "\u03bc\u043c\u1d0d", "p": "\u03c1\u0440\u1d18", "s": "\u0455\ua731",
}  # fmt: skip
"""Greek, Cyrillic and small capital letters that look like letters of `OURS` (Unicode, confusables.txt)."""

_STYLED = (
    (0x41, 0x24F),
    (0x1E00, 0x1EFF),
    (0x2070, 0x218F),
    (0x2460, 0x24FF),
    (0xFF21, 0xFF5A),
    (0x1D400, 0x1D7FF),
)
"""Code points of accented, circled, wide and styled Latin letters."""

_MARKS = r"\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"

_URL = re.compile(r"(?ai:https?://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?)(?:[/?#][^\s\\]*)?")
"""Matches a URL whose host is in ASCII and follows the scheme at once, without user info."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class UnsafeQuestion(Exception):
    """A question must not be shown; the text says why."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def authored(server: str, method: str, params: Raw | None) -> Raw | None:
    """Convert the params of a server's request for clients. Raises `UnsafeQuestion`."""
    if params is None or method == LIST_ROOTS:
        return params
    try:
        asked = _decode(params)
        if method == "elicitation/create":
            asked = authored_elicitation(server, asked)
        else:
            asked["systemPrompt"] = words_of(server, str(asked.get("systemPrompt") or "for this completion"))
            asked |= {name: _spelt(asked[name], _prose) for name in ("messages", "tools") if name in asked}
        return Raw(msgspec.json.encode(asked))
    except UNREADABLE as error:
        raise UnsafeQuestion("unreadable", f"the params of the request cannot be read: {error}") from None


def authored_elicitation(server: str, members: dict[str, Any]) -> dict[str, Any]:
    """Convert a decoded elicitation for clients. Raises `UnsafeQuestion`."""
    shown = {**members, "message": words_of(server, str(members.get("message") or ""))}
    if "url" in members or members.get("mode") == "url":
        _require_url(members.get("url"))
    if "requestedSchema" in members:
        shown["requestedSchema"] = _spelt(members["requestedSchema"], _on_one_line)
    return shown


def words_of(server: str, text: str) -> str:
    """Put the server's name before a server's text."""
    lines = [_safe(line) for line in text.splitlines()] or [""]
    if len(lines) == 1:
        return f"Server {server} asks: {lines[0]}"
    return "\n> ".join((f"Server {server} asks:", *lines))


def _require_url(url: object) -> None:
    if not isinstance(url, str) or legible(url) != url or not _URL.fullmatch(url):
        raise UnsafeQuestion("url", "the url is not a plain http or https url")


def _spelt(value: Any, prose: Callable[[str], str], *, answer: bool = False, fields: bool = False) -> Any:
    """Copy a schema, messages or a part of these, with legible texts.

    `prose` converts texts. If clients repeat this text (`answer`), raise `UnsafeQuestion` instead of changing
    it. With `fields`, the names of members are fields, not keywords of a schema.
    """
    if isinstance(value, str):
        return _answer(value) if answer else prose(value)
    if isinstance(value, list):
        return [_spelt(each, prose, answer=answer) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        _answer(name): _spelt(
            each,
            prose,
            answer=answer or (not fields and name in _ANSWERED),
            fields=not answer and not fields and name == "properties",
        )
        for name, each in value.items()
    }


def _answer(text: str) -> str:
    if legible(text) != text:
        raise UnsafeQuestion("hidden", "a name or a choice has hidden characters")
    if _safe(text) != text:
        raise UnsafeQuestion("imitation", f"a name or a choice reads as if mcpd asked ({OURS.strip()})")
    return text


def _prose(text: str) -> str:
    return "\n".join(map(_safe, text.split("\n")))


def _on_one_line(text: str) -> str:
    """Join the lines of a form's title or description, which could look like another question."""
    return _safe(" ".join(text.splitlines()))


def _safe(text: str) -> str:
    if text.isascii() and "cpd" not in text.lower():
        return legible(text)
    return _ours().sub(r"\1\\u{20}\2", legible(text))


# Compiled on first use, which takes 6 ms.
@cache
def _ours() -> re.Pattern[str]:
    alike = defaultdict(str, {letter: more + more.upper() for letter, more in _FOREIGN.items()})
    for first, last in _STYLED:
        for each in map(chr, range(first, last + 1)):
            alike[unicodedata.normalize("NFKD", each)[:1].lower()] += re.escape(each)
    c, p, d, a, s, k = (f"[{alike[each]}][{_MARKS}]*" for each in "cpdask")
    # One class first, with both cases, so that the search skips quickly.
    m = f"[{alike['m']}nN](?:(?<![nN])|(?<=[rR][nN]))[{_MARKS}]*"
    return re.compile(rf"({m}{c}{p}{d})\s+({a}{s}{k}{s})")
