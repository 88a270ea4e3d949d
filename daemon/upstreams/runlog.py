"""What the daemon's log has of a server's runs: a failure like the one before is counted, not told again.

A server that does not come up is started again every minute, for as long as nobody mends it, and writes the
same traceback each time. So in a run that follows a failed one only what is new is told, until it has been well
for long enough to be trusted. That a run has ended as those before it is said less and less often, at last once
an hour. Numbers are left out of the comparison: times, process ids, addresses. `mcpd logs` has every line.
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
"""Lines of a run that are remembered, the last ones: a traceback of node's has some 30."""

KNOWN = 4 * LINES
"""Lines of failed runs together; beyond, the oldest are told again."""

CHARACTERS = 200
"""Of a line, that are compared: a longer one that differs only behind them is told once."""

SAID_AGAIN_FIRST = 60.0
"""Seconds after which it is said again that runs end as before; each time twice as many, ..."""

SAID_AGAIN_LATEST = 3600.0
"""... but never more: a reader of an hour of log must see that a server does not work."""

_NUMBER = re.compile(r"(?<![0-9a-fA-F])[a-fA-F]*\d[0-9a-fA-F]*")
"""Numbers, decimal or not; looked for only where one begins, so that a long line takes no longer than it is."""

_LARGE = re.compile(r"\d{4,}")
"""In the reason for an end small ones tell what happened: an exit status, an errno, an HTTP status."""


class RunLog:
    """The runs of one server, in the daemon's log."""

    def __init__(self, server: str, *, stable_after: float, wall: Callable[[], float]) -> None:
        """Begin before the first run.

        Args:
            server: its name.
            stable_after: seconds for which a run must be well to be trusted (`restart.stableAfter`).
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
        """A run begins.

        Args:
            failing: whether it follows a failed one, and nobody has asked for it.
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

    def retried(self) -> None:
        """The same run starts its program once more, which will say the same."""
        news = self._news
        self.begin(failing=True)
        self._news = news

    def ready(self) -> None:
        """The server does its work."""
        if self._ready_at is None:
            self._ready_at = trio.current_time()
            if self._alike:
                self.say("INFO", "is up again")

    def say(self, level: str, text: str) -> None:
        """Log a line about this run; as DEBUG if the runs before had it."""
        self._log.log(level if self._is_new(text) else "DEBUG", "{}", text)

    def stderr(self, text: str) -> None:
        """Log a line of its stderr, if it is new and within the server's share."""
        if self._is_new(text):
            for line in self._share.lines(text, trio.current_time()):
                self._log.info("{}", line)

    def ended(self, number: int, run: Run) -> None:
        """A run has ended: say so, or count it."""
        text = f"run {number} ended: {run.reason.text}"
        if not self._ends_alike(run):
            level = "INFO" if run.ending in {Ending.ASKED, Ending.NORMAL} else "WARNING"
            self._log.log(level, "{}", text)
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
        self._log.warning("{}; {}, since {}{}", text, runs, since, lines)

    def _ends_alike(self, run: Run) -> bool:
        """Whether there is nothing to tell of a run that the runs before it had not."""
        before, self._reason = self._reason, _LARGE.sub("#", run.reason.text)
        known = self._failing and not self._news and not self._is_stable
        return known and before == self._reason and run.ending is not Ending.ASKED

    @property
    def _is_stable(self) -> bool:
        return self._ready_at is not None and trio.current_time() - self._ready_at >= self._stable_after

    def _is_new(self, text: str) -> bool:
        """Whether a line is to be told; what stands before it and was not is then counted out."""
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
    """What a line is compared by."""
    return hash(_NUMBER.sub("#", line))
