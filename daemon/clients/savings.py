"""The tokens that one client was spared, by what it was given instead of all tools of its profile.

A list replaces the one before it, at the client and in its model's context. So for each session the difference
between the client's present list and that of all tools is kept, and only changes of it are counted: a client
that asks again and again saves nothing more. What meta-tools answer is added to what was sent, because a client
that has all tools would not have asked them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.counting.tally import tokens_in
from daemon.kit.latest import keep_latest

if TYPE_CHECKING:
    from daemon.counting.tally import Tally

MAX_LISTS = 64
"""Sessions of one connection whose lists are compared, as many as it takes part in (`attachments.MAX_KEYS`)."""

TOLD_TWICE = 2
"""An answer of a meta-tool says the same in `content` and in `structuredContent`; a model is given one of the
two."""


class Savings:
    """The tokens that one client was spared."""

    def __init__(self, tally: Tally) -> None:
        """Begin with a client that was not sent anything."""
        self.applies = True
        """Whether the client gives its model all tools that it is given (`defers_tools`)."""
        self.client = ""
        """The name that the client gives."""
        self._tally = tally
        self._spared = 0
        self._margins: dict[str | None, int] = {}

    @property
    def tokens(self) -> int | None:
        """About how many tokens it was spared, negative if it was sent more; None if it defers tools itself."""
        return tokens_in(self._spared) if self.applies else None

    def listed(self, surface: str, key: str | None, *, sent: int, full: int) -> None:
        """Note that the client was given the list of a session.

        Args:
            surface: the surface that the list was made for.
            key: the session's key.
            sent: bytes of the tools in the list.
            full: bytes of all tools of the profile.
        """
        before = self._margins.get(key, 0)
        keep_latest(self._margins, key, full - sent, MAX_LISTS)
        self._count(surface, full - sent - before)

    def answered(self, surface: str, size: int) -> None:
        """Note that a meta-tool has answered the client with so many bytes."""
        self._count(surface, -(size // TOLD_TWICE))

    def _count(self, surface: str, spared: int) -> None:
        if self.applies:
            self._spared += spared
            self._tally.spared(surface, spared, self.client)
