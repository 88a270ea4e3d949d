"""What the daemon's log says about a server's runs: a failure like the one before is counted, not repeated.

A server that does not come up is restarted every minute until somebody fixes it, and writes the same traceback
each time. So in a run that follows a failed one only new lines are logged, until it has been up for long enough
to be trusted. That a run ended like those before it is logged less and less often, in the end once an hour.
Numbers (times, process ids, addresses) are left out of the comparison. `mcpd logs` has every line.
"""

from __future__ import annotations

import re
import time
from collections import deque
from typing import TYPE_CHECKING

import trio
from loguru import logger

from daemon.counting.measures import LogShare
from daemon.supervision.backoff import Ending

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.supervision.backoff import Run

LINES = 256
"""How many of the last lines of a run are remembered: a traceback of Node.js has some 30."""

KNOWN = 4 * LINES
"""Lines remembered of all failed runs together; beyond that, the oldest are logged again."""

CHARACTERS = 200
"""Characters of a line that are compared: lines that differ only after them are logged once."""

SAID_AGAIN_FIRST = 60.0
"""Seconds until it is logged again that runs end as before; doubled each time, ..."""

SAID_AGAIN_LATEST = 3600.0
"""... but never more than this: a reader of an hour of log must see that a server does not work."""

_NUMBER = re.compile(r"(?<![0-9a-fA-F])[a-fA-F]*\d[0-9a-fA-F]*")
"""Numbers, decimal or hexadecimal; matched only where one begins, so that the search stays linear."""

_LARGE = re.compile(r"\d{4,}")
"""Large numbers in the reason of an end; small ones matter: an exit status, an errno, an HTTP status."""


class RunLog:
    """Logs the runs of one server."""

    def __init__(self, server: str, *, stable_after: float, wall: Callable[[], float]) -> None:
        """Start before the first run.

        Args:
            server: the server's name.
            stable_after: seconds for which a run must be up to be trusted (`restart.stableAfter`).
            wall: seconds since the epoch.
        """
        self._server = server
        self._stable_after = stable_after
        self._wall = wall
        self._log = logger.bind(server=server)
        self._share = LogShare()
        self._known: dict[int, None] = {}
        self._said: deque[str] = deque(maxlen=LINES)
        self._reason = ""
        self._failing = False
        self._ready_at: float | None = None
        self._news = False
        self._held = self._untold = 0
        self._alike, self._since = 0, 0.0
        self._due, self._pause = 0.0, SAID_AGAIN_FIRST

    def begin(self, *, failing: bool) -> None:
        """Note that a run begins.

        Args:
            failing: whether it follows a failed run, and no operator asked for it.
        """
        if failing:
            for form in map(_form, self._said):
                self._known.pop(form, None)
                self._known[form] = None
            for form in list(self._known)[: max(0, len(self._known) - KNOWN)]:
                del self._known[form]
        else:
            self._known.clear()
            self._reason = ""
        self._said.clear()
        self._failing, self._ready_at = failing, None
        self._news = False
        self._held = self._untold = 0

    def ready(self) -> None:
        """Note that the server is up."""
        if self._ready_at is None:
            self._ready_at = trio.current_time()
            if self._alike:
                self.say("INFO", "is up again")

    def say(self, level: str, text: str) -> None:
        """Log a line about this run; as DEBUG if it was logged in the runs before."""
        self._log.log(level if self._is_new(text) else "DEBUG", "{}", text)

    def stderr(self, text: str) -> None:
        """Log a line of the server's stderr, if it is new and within the server's share."""
        if self._is_new(text):
            for line in self._share.lines(text, trio.current_time()):
                self._log.info("{}", line)

    def ended(self, number: int, run: Run) -> None:
        """Log that a run has ended, or count it."""
        text = f"run {number} ended: {run.reason.text}"
        if not self._ends_alike(run):
            level = "INFO" if run.ending in {Ending.ASKED, Ending.NORMAL} else "WARNING"
            self._log.bind(event=True).log(level, "{}", text)
            self._alike, self._since = 0, self._wall()
            self._due, self._pause = 0.0, SAID_AGAIN_FIRST
            return
        self._alike += 1
        now = trio.current_time()
        if now < self._due:
            self._log.debug("{}", text)
            return
        self._due = now + self._pause
        self._pause = min(self._pause * 2, SAID_AGAIN_LATEST)
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self._since))
        runs = "as the one before it" if self._alike == 1 else f"as the {self._alike} before it"
        lines = (
            f", with the same {self._held} lines (`mcpd logs {self._server}` has them)" if self._held else ""
        )
        self._log.bind(event=True).warning("{}; {}, since {}{}", text, runs, since, lines)

    def _ends_alike(self, run: Run) -> bool:
        """Whether a run ended like the one before it, without anything new in between."""
        before, self._reason = self._reason, _LARGE.sub("#", run.reason.text)
        known = self._failing and not self._news and not self._is_stable
        return known and before == self._reason and run.ending is not Ending.ASKED

    @property
    def _is_stable(self) -> bool:
        return self._ready_at is not None and trio.current_time() - self._ready_at >= self._stable_after

    def _is_new(self, text: str) -> bool:
        """Whether a line is to be logged; if so, the number of lines suppressed before it is logged first."""
        line = text[:CHARACTERS]
        self._said.append(line)
        if not self._failing or self._is_stable:
            return True
        if _form(line) in self._known:
            self._held += 1
            self._untold += 1
            return False
        if self._untold:
            self._log.info("{} lines as in the runs before", self._untold)
            self._untold = 0
        self._news = True
        return True


def _form(line: str) -> int:
    """The hash that a line is compared by: without its numbers."""
    return hash(_NUMBER.sub("#", line))
