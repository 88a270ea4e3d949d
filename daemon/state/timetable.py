"""When what is done now and then is due next."""

from __future__ import annotations

import trio


class Timetable:
    """Times of things to do, on trio's clock."""

    def __init__(self) -> None:
        """Begin with nothing to do."""
        self._at: dict[str, float] = {}

    @property
    def next(self) -> float:
        """When the next thing is due (seconds); there must be one."""
        return min(self._at.values())

    def put(self, what: str, seconds: float) -> None:
        """Do it so many seconds from now, whatever was meant before."""
        self._at[what] = trio.current_time() + seconds

    def put_if_none(self, what: str, seconds: float) -> None:
        """Do it so many seconds from now, unless a time is set."""
        self._at.setdefault(what, trio.current_time() + seconds)

    def drop(self, what: str) -> None:
        """Do not do it."""
        self._at.pop(what, None)

    def take(self, what: str, period: float) -> bool:
        """Whether its time has come; if so, the next one is set, so many seconds from now."""
        now = trio.current_time()
        if self._at.get(what, now + 1) > now:
            return False
        self._at[what] = now + period
        return True
