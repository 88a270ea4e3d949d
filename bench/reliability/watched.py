"""`mcpd` with instrumentation: on SIGUSR2 it writes the number of its tasks, and the loop's longest stall.

    python watched.py REPORT run --config ...

REPORT gets {"number", "tasks", "stall"} each time: the number of the report, trio's living tasks, and the
longest seconds since the last report in which the loop did not poll. In all else it equals `mcpd`.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import trio

from daemon.cli import main


class Loop(trio.abc.Instrument):
    """Measures the loop's longest time between two polls."""

    def __init__(self, report: Path) -> None:
        """Prepare; the first `asked` begins the measurement."""
        self._report = report
        self._number = 0
        self._stall = 0.0
        self._since = 0.0

    def after_io_wait(self, timeout: float) -> None:
        """Note the end of a poll."""
        self._since = time.perf_counter()

    def before_io_wait(self, timeout: float) -> None:
        """Note the begin of a poll."""
        if self._since:
            self._stall = max(self._stall, time.perf_counter() - self._since)

    def asked(self, *_: Any) -> None:
        """Handle the signal: report from within the loop."""
        trio.lowlevel.current_trio_token().run_sync_soon(self.tell)

    def tell(self) -> None:
        """Write the report atomically, and reset the stall."""
        self._number += 1
        if self._number == 1:
            trio.lowlevel.add_instrument(self)
        tasks = trio.lowlevel.current_statistics().tasks_living
        told = json.dumps({"number": self._number, "tasks": tasks, "stall": self._stall})
        fresh = self._report.with_suffix(".new")
        fresh.write_text(told)
        fresh.replace(self._report)
        self._stall, self._since = 0.0, 0.0


if __name__ == "__main__":
    signal.signal(signal.SIGUSR2, Loop(Path(sys.argv[1])).asked)
    sys.argv = ["mcpd", *sys.argv[2:]]
    main()
