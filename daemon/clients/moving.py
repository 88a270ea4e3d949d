"""Sessions that operators have given other profiles while their clients are connected.

A client cannot leave the profile that it began with; an operator may move it. That holds for all connections
that name the session for themselves, also for later ones, until it is moved again or the daemon ends; of a
session without a key it holds as long as its connection.
"""

from __future__ import annotations

MAX_MOVED = 1000
"""Sessions with a key of which it is known that they were moved, the last ones: an operator moves a few."""


class Moves:
    """The profiles that sessions with a key were given, by key."""

    def __init__(self) -> None:
        """Begin with none."""
        self._moved: dict[str, str] = {}

    def of(self, key: str | None) -> str | None:
        """The profile that a session was given; None if it was given none."""
        return None if key is None else self._moved.get(key)

    def note(self, key: str, profile: str) -> None:
        """The session of this key has another profile from now on."""
        self._moved.pop(key, None)
        self._moved[key] = profile
        while len(self._moved) > MAX_MOVED:
            del self._moved[next(iter(self._moved))]
