"""Requests that were given up without an answer: they may still run at the peer, which may answer late.

What the peer asks while one runs may belong to it. So whose it was is remembered until its answer comes, or for
as long as a request may run without a sign of life: MCP lets a peer never answer a request that was cancelled.
"""

from __future__ import annotations

import math

MAX_GIVEN_UP = 1000
"""Requests that are remembered one by one, a hundred kilobytes: when there are more, it is only remembered that
there were, and then nobody's request is certain until they have run out."""


class GivenUp:
    """The requests of one connection that were given up."""

    def __init__(self) -> None:
        """Begin without any."""
        self.seconds = math.inf
        """How long a request may still run."""
        self._known: dict[int, tuple[object, float, frozenset[str]]] = {}
        self._forgotten = -math.inf

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._known)

    def add(self, uid: int, asker: object, now: float, answerable: frozenset[str] = frozenset()) -> None:
        """Remember a request, whose it was, and what that client can answer (`Exchange`)."""
        self._prune(now)
        if len(self._known) >= MAX_GIVEN_UP:
            _, self._forgotten, _ = self._known.pop(next(iter(self._known)))
        self._known[uid] = asker, now, answerable

    def answered(self, uid: int) -> None:
        """Forget a request: its answer has come, and nothing follows it."""
        self._known.pop(uid, None)

    def askers(self, now: float) -> list[object]:
        """Whose requests may still run; this object itself stands for those that are not remembered."""
        self._prune(now)
        found = [asker for asker, _, _ in self._known.values()]
        return [*found, self] if now - self._forgotten < self.seconds else found

    def may_answer(self, method: str, now: float) -> bool:
        """Whether one of the clients whose requests may still run can answer such a request."""
        self._prune(now)
        return now - self._forgotten < self.seconds or any(
            method in answerable for _, _, answerable in self._known.values()
        )

    def _prune(self, now: float) -> None:
        """Forget what has run out: the oldest come first."""
        while self._known:
            oldest = next(iter(self._known))
            if now - self._known[oldest][1] < self.seconds:
                return
            del self._known[oldest]
