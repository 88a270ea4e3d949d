"""Sessions that operators give other profiles while their clients are connected.

A client cannot leave the profile that it began with; who runs the daemon may move it. That holds for all
connections that name the session for themselves, also for later ones, until it is moved again or the daemon
ends; of a session without a key it holds as long as its connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from daemon.errors import InvalidArguments
from daemon.surfaces.answers import choices, quoted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from daemon.catalog.snapshot import Catalog
    from daemon.watch import Watch

MAX_MOVED = 1000
"""Sessions with a key of which it is known that they were moved, the last ones: an operator moves a few."""


class Movable(Protocol):
    """A connection."""

    number: int
    """Counts connections."""

    @property
    def key(self) -> str | None:
        """The key of its session; None if that ends with the connection."""

    def move(self, profile: str) -> None:
        """Serve it another profile from now on, and tell its client."""


class Moves:
    """Knows who was moved where."""

    def __init__(
        self,
        catalog: Watch[Catalog],
        live: Callable[[], Iterable[Movable]],
        report: Callable[[str], Awaitable[Mapping[str, object]]],
    ) -> None:
        """Begin with nobody.

        Args:
            catalog: the newest catalog, whose configuration has the profiles.
            live: open connections.
            report: tells of a session, by its key or `#` and a number; raises where there is none
                (`session_report.SessionReporter.answer`).
        """
        self._catalog = catalog
        self._live = live
        self._report = report
        self._moved: dict[str, str] = {}

    def of(self, key: str | None) -> str | None:
        """The profile that a session was given; None if it was given none."""
        return None if key is None else self._moved.get(key)

    async def move(self, key: str, profile: str) -> dict[str, object]:
        """Give a session another profile.

        Args:
            key: its key, or `#` and a connection's number.
            profile: the name of one.

        Raises:
            InvalidArguments: there is no such profile, or no such session.
            CallError: whether there is such a session cannot be known now.
        """
        told = await self._report(key)
        profiles = self._catalog.value.config.profiles
        if profile not in profiles:
            raise InvalidArguments(f"no profile is named {quoted(profile)}. {choices(profiles, profile)}")
        named, number = told["key"], told["number"]
        if named is None:
            moved = [each for each in self._live() if each.number == number]
        else:
            moved = [each for each in self._live() if each.key == named]
            if told["connections"] and not moved:
                raise InvalidArguments(
                    f"session {quoted(key)} is named by single requests only, and a profile belongs to a whole"
                    " connection. Move that: `mcpd status` has its number."
                )
            self._note(str(named), profile)
        for each in moved:
            each.move(profile)
        return {"key": named, "number": number, "profile": profile, "moved": len(moved)}

    def _note(self, key: str, profile: str) -> None:
        self._moved.pop(key, None)
        self._moved[key] = profile
        while len(self._moved) > MAX_MOVED:
            del self._moved[next(iter(self._moved))]
