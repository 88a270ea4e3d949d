"""What one client was spared: all tools of its profile, against what it was given instead.

A list takes the place of the one before it, at the client and in its model's context. So of each session it is
known by how much the list that its client has now is smaller than that of all tools would be, and only what
changes of that is counted: who asks again and again is not spared again and again. What meta-tools answer is
added to what was sent, for nobody who has all tools would have asked them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from daemon.clients.announcements import MAX_LISTS
from daemon.counting.tally import tokens_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.counting.tally import Tally

DEFERRING_SINCE: Mapping[str, tuple[int, ...]] = {
    # The first that was seen to: names, and schemas through its ToolSearch. 2.1.197 gives its model everything.
    "claude-code": (2, 1, 329),
    # All that were seen do, with a `tool_search` of their own; the switch for it is gone (0.169).
    "codex": (),
}
"""By the beginning of the name that a client gives itself, the first version that keeps tools from its model
until they are searched for, whatever it is given."""

_NUMBERS = re.compile(r"\d+(?:\.\d+)*")

TOLD_TWICE = 2
"""An answer of a meta-tool says the same in `content` and in `structuredContent`; a model is given one of the
two."""


class Savings:
    """What one client was spared."""

    def __init__(self, tally: Tally) -> None:
        """Begin with a client that was sent nothing."""
        self.applies = True
        """Whether it gives its model all tools that it is given (`defers_tools`)."""
        self._tally = tally
        self._spared = 0
        self._margins: dict[str | None, int] = {}

    @property
    def tokens(self) -> int | None:
        """About how many tokens it was spared, fewer than none if it was sent more; None if nothing applies."""
        return tokens_in(self._spared) if self.applies else None

    def listed(self, surface: str, key: str | None, *, sent: int, full: int) -> None:
        """It was given the list of a session.

        Args:
            surface: as which surface.
            key: the session's.
            sent: bytes of the tools in it.
            full: bytes of all tools of the profile.
        """
        before = self._margins.pop(key, 0)
        self._margins[key] = full - sent
        while len(self._margins) > MAX_LISTS:
            del self._margins[next(iter(self._margins))]
        self._count(surface, full - sent - before)

    def answered(self, surface: str, size: int) -> None:
        """A meta-tool has answered it with so many bytes."""
        self._count(surface, -(size // TOLD_TWICE))

    def _count(self, surface: str, spared: int) -> None:
        if self.applies:
            self._spared += spared
            self._tally.spared(surface, spared)


def defers_tools(name: str, version: str) -> bool:
    """Whether a client shows its model only those tools that it has searched for.

    Args:
        name: what it calls itself: `claude-code`, `codex-mcp-client`.
        version: likewise. One that cannot be read may be any: nothing is claimed to be saved then.
    """
    found = _NUMBERS.match(version)
    given = None if found is None else tuple(int(number[:9]) for number in found[0].split("."))
    return any(
        (name == known or name.startswith(f"{known}-")) and (given is None or given >= since)
        for known, since in DEFERRING_SINCE.items()
    )
