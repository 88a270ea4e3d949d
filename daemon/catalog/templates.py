"""Templates of URIs (RFC 6570): which URIs a template can become.

Templates come from servers and URIs from clients, and neither may block the loop. So no regex tries one way
after the other: all ways are followed at once, as the bits of a number, one for each place in the URI.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

from daemon.catalog.spelling import SCHEME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MAX_URI = 4096
"""Longest URI, in characters, that is compared with templates: real ones have some hundred."""

MAX_COMPARED = 16 * 1024
"""Characters of all templates together that one URI is compared with, some hundred real ones: those with the
longest literal beginning first. Ten milliseconds at most, whatever servers list."""

_EXPRESSION = re.compile(r"\{([^{}]*)\}")

_ENDED_BY: Mapping[str, str] = {"+": "", "#": "", "?": "#", "&": "#", "/": "?#"}
"""The characters that an expression does not become, by its operator."""

_ENDED_OTHERWISE = "/?#"
"""The same for those without an operator, `.` and `;`. All else may come: not every client encodes."""


@attrs.frozen(kw_only=True)
class Template:
    """One server's template."""

    server: str
    """The server that lists it."""
    text: str
    """The template."""

    @property
    def literal(self) -> str:
        """What each of its URIs begins with."""
        return self.text.partition("{")[0]

    @property
    def has_scheme(self) -> bool:
        """Whether each of its URIs has the same scheme; others could stand for any server's."""
        return SCHEME.match(self.literal) is not None

    def fits(self, uri: Letters) -> bool:
        """Whether it can become this URI."""
        # Bit n: the first n characters are what the parts so far can become.
        places = 1
        for literal, operator in _taken_apart(self.text):
            for letter in literal:
                places = (places & uri.where(letter)) << 1
            if not literal:
                places = uri.moved(places, _ENDED_BY.get(operator, _ENDED_OTHERWISE))
            if not places:
                return False
        return bool(places >> uri.length & 1)


class Letters:
    """A URI by its letters: in which places each stands, as the bits of a number."""

    def __init__(self, uri: str) -> None:
        """Take a URI of at most `MAX_URI` characters."""
        self.length = len(uri)
        self._where: dict[str, int] = {}
        for place, letter in enumerate(uri):
            self._where[letter] = self._where.get(letter, 0) | 1 << place

    def where(self, letter: str) -> int:
        """The places of a letter."""
        return self._where.get(letter, 0)

    def moved(self, places: int, ended_by: str) -> int:
        """All places that can be reached from these over letters that are not among `ended_by`."""
        run = (1 << self.length) - 1
        for letter in ended_by:
            run &= ~self.where(letter)
        # Added to a run of ones, a one becomes a carry behind the end of the run; what differs was run over.
        return places | ((places & run) + run) ^ run


def fitting(templates: Iterable[Template], uri: str) -> Iterator[Template]:
    """The templates that can become a URI, those with the longest literal beginning first."""
    if len(uri) > MAX_URI:
        return
    begin_so = [each for each in templates if uri.startswith(each.literal)]
    begin_so.sort(key=lambda each: len(each.literal), reverse=True)
    letters, left = Letters(uri), MAX_COMPARED
    for each in begin_so:
        # A long one leaves room for shorter ones, which may be another server's.
        if len(each.text) <= left:
            left -= len(each.text)
            if each.fits(letters):
                yield each


def _taken_apart(text: str) -> Iterator[tuple[str, str]]:
    """The literals of a template, each with an empty operator, and the operators of its expressions."""
    at = 0
    for found in _EXPRESSION.finditer(text):
        if found.start() > at:
            yield text[at : found.start()], ""
        yield "", found[1][:1]
        at = found.end()
    if at < len(text):
        yield text[at:], ""
