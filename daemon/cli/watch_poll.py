"""Asking the daemon again and again beside the screen, so that a key is answered while the daemon is silent."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import attrs

from daemon.cli.control import DaemonUnreachable, RemoteFault

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]


@attrs.frozen
class Picture:
    """What is known of the daemon."""

    status: Json | None = None
    """Its newest answer to `status`; None before the first."""
    one: Json | None = None
    """Its newest answer about one server; None where none was asked for."""
    at: float = 0.0
    """When it answered, in seconds since the epoch."""
    problem: str = ""
    """Why it did not answer the last question; empty if it did."""
    away: float = 0.0
    """Since when it has not answered, in seconds since the epoch; 0 if it does."""
    asked: float = 0.0
    """When the question was asked that is not answered yet, in seconds since the epoch; 0 if there is none."""


class StatusPoll:
    """Asks in a thread of its own, and holds the newest picture."""

    def __init__(
        self,
        look: Callable[[str | None], tuple[Json, Json | None]],
        every: float,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Ask nothing yet.

        Args:
            look: answers the status, and about one server if that is named; raises what `control.ask` does.
            every: seconds from an answer to the next question.
            wall: the time in seconds since the epoch.
        """
        self._look, self._every, self._wall = look, every, wall
        self._wanted: str | None = None
        self._wake = threading.Event()
        self._stopped = False
        self.picture = Picture()
        """Replaced as a whole by the thread, so that a reader never sees half of a change."""
        self.fault: Exception | None = None
        """The fault of ours that ended the thread."""

    def start(self, told: Callable[[], object]) -> None:
        """Begin to ask; `told` is called in the thread after each answer."""
        # A daemon thread: a question that hangs does not keep anybody from leaving.
        threading.Thread(target=self._run, args=(told,), daemon=True, name="poll").start()

    def see(self, server: str | None) -> None:
        """Ask about this server, too; if that is another one than before, at once."""
        if server != self._wanted:
            self._wanted = server
            self._wake.set()

    def stop(self) -> None:
        """Ask no more."""
        self._stopped = True
        self._wake.set()

    def _run(self, told: Callable[[], object]) -> None:
        try:
            while not self._stopped:
                self._ask()
                told()
                self._wake.wait(self._every)
                self._wake.clear()
        except Exception as error:  # noqa: BLE001 - handed to whoever shows the picture, who raises it
            self.fault = error
            told()

    def _ask(self) -> None:
        began, before = self._wall(), self.picture
        self.picture = attrs.evolve(before, asked=began)
        try:
            status, one = self._look(self._wanted)
        except (DaemonUnreachable, RemoteFault) as error:
            self.picture = attrs.evolve(before, problem=str(error), away=before.away or began, asked=0.0)
        else:
            self.picture = Picture(status=status, one=one, at=self._wall())
