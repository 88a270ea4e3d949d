"""Starts a daemon through `mcpd start` where none runs, at once or for a waiting request, with delays."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

MAX_DOUBLINGS = 30  # 2^30 s exceeds any cap; a higher power would overflow a float


def doubled(first: float, longest: float, failures: int) -> float:
    """The delay in seconds, without jitter: `first` with no earlier failure, then doubled with each."""
    return min(longest, first * 2.0 ** min(failures, MAX_DOUBLINGS))


def jittered(seconds: float, chance: float) -> float:
    """Half of a delay plus a random part of the other half; `chance` is in [0, 1)."""
    return seconds / 2 * (1 + chance)


FIRST_SECONDS = 2.0  # least time between two starts, doubled with each failure

LONGEST_SECONDS = 30.0  # the most: the wait of a request, so that each one sees a start

REASON_BYTES = 64 * 1024  # bytes kept of a start's stderr: a faulty configuration takes some hundred

IN_PROGRESS = "the daemon is not running, and is being started. If that lasts, `mcpd start` says why."
"""The trouble until a start has ended."""


class Starting:
    """The starts that one bridge asks for."""

    def __init__(self, allowed: Callable[[], bool]) -> None:
        self.pipe: int | None = None  # readable when the running start speaks or ends; None without a start
        self.reason = ""  # the reason why the last start failed
        self._allowed = allowed
        self._has_ended = False
        self._knows = False  # whether a start has ended since a daemon was last there
        self._failures = 0
        self._next = 0.0
        self._pid = 0
        self._said = b""

    @property
    def trouble(self) -> str:
        """The known reason for the missing daemon: that of the last start, until another has ended."""
        return IN_PROGRESS if self.pipe is not None and not self._knows else self.reason

    def lost(self) -> None:
        """Note a lost daemon: the next start need not wait for a request."""
        self._failures, self._next, self.reason, self._has_ended = 0, 0.0, "", False
        self._knows = False

    def ask(self, now: float, *, awaited: bool, known: bool) -> None:
        """Start a daemon unless it is too early (`now` in seconds, monotonic).

        After a failed start only an `awaited` one; a `known` bridge does not restart a daemon that was stopped.
        """
        if self.pipe is not None or now < self._next or (self._failures and not awaited) or not self._allowed():
            return
        self._next = now + doubled(FIRST_SECONDS, LONGEST_SECONDS, self._failures)
        self._failures += 1
        try:
            self._spawn("known" if known else "new")
        except (OSError, NotImplementedError) as error:
            self.reason = f"the daemon is not running, and `mcpd start` cannot be run: {error}"

    def take_ended(self) -> bool:
        """Whether a start has ended since the last call."""
        ended, self._has_ended = self._has_ended, False
        return ended

    def hear(self) -> bool:
        """Read the start's stderr; return whether the start has ended."""
        assert self.pipe is not None
        data = os.read(self.pipe, REASON_BYTES)
        self._said = (self._said + data)[:REASON_BYTES]
        if data:
            return False
        os.close(self.pipe)
        self.pipe, self._has_ended, self._knows = None, True, True
        os.waitpid(self._pid, 0)
        text = self._said.decode(errors="replace").strip().removeprefix("mcpd: ")
        self.reason = text and f"the daemon is not running: {text}"
        return True

    def _spawn(self, window: str) -> None:
        """Run `mcpd start` in a session of its own, which outlives this window; its stderr is our pipe."""
        ours, theirs = os.pipe()
        # -P: nothing is imported from this directory, which may be a repository just cloned.
        command = [sys.executable, "-P", "-m", "daemon", "start", "--window", window]
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        actions = [
            (os.POSIX_SPAWN_DUP2, null, 0),
            (os.POSIX_SPAWN_DUP2, null, 1),
            (os.POSIX_SPAWN_DUP2, theirs, 2),
        ]
        try:
            self._pid = os.posix_spawn(command[0], command, os.environ, file_actions=actions, setsid=True)
        except OSError:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
            os.close(null)
        self.pipe, self._said = ours, b""
