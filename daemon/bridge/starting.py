"""Has the daemon started where none runs: by `mcpd start`, which says why if it cannot; delays between tries.

A start is asked for when nobody listens: at once the first time, and once more when a daemon that was there is
lost; after that only while a request waits, so that windows which nobody uses ask for nothing. Standard library
only, and nothing of it is used while a daemon runs.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


MAX_DOUBLINGS = 30
"""2^30 s is beyond any cap; without it the power of a long streak would overflow a float."""


def doubled(first: float, longest: float, failures: int) -> float:
    """The delay in seconds, without jitter, when `failures` came before the last one: `first` after none."""
    return min(longest, first * 2.0 ** min(failures, MAX_DOUBLINGS))


def jittered(seconds: float, chance: float) -> float:
    """Half of a delay plus a random part of the other half; `chance` is in [0, 1)."""
    return seconds / 2 * (1 + chance)


FIRST_SECONDS = 2.0
"""The least time from one start to the next, doubled with each that fails."""

LONGEST_SECONDS = 30.0
"""The most: as long as a request waits, so that each that does sees a start of its own."""

REASON_BYTES = 64 * 1024
"""Bytes that are kept of what a start says: a faulty configuration takes some hundred."""

IN_PROGRESS = "the daemon is not running, and is being started. If that lasts, `mcpd start` says why."
"""Said until a start has ended."""


class Starting:
    """The starts that one bridge asks for."""

    def __init__(self, allowed: Callable[[], bool]) -> None:
        """Start nothing yet; nothing ever unless it is allowed, which is asked when it matters."""
        self.pipe: int | None = None
        """Readable when the start that goes on says something, or has ended; None: none does."""
        self.reason = ""
        """Why the last start came to nothing."""
        self._allowed = allowed
        self._has_ended = False
        self._knows = False
        """Whether a start has ended since a daemon was last there."""
        self._failures = 0
        self._next = 0.0
        self._pid = 0
        self._said = b""

    @property
    def trouble(self) -> str:
        """Why there is no daemon, as far as that is known here: what the last start said, until another has."""
        return IN_PROGRESS if self.pipe is not None and not self._knows else self.reason

    def lost(self) -> None:
        """Note that a daemon was lost: the next start need not wait for a request."""
        self._failures, self._next, self.reason, self._has_ended = 0, 0.0, "", False
        self._knows = False

    def ask(self, now: float, *, awaited: bool, known: bool) -> None:
        """Ask for a start unless it is too early; `now` in seconds, monotonic.

        Args:
            now: the time.
            awaited: whether a request waits.
            known: whether this bridge was connected before: a daemon that was stopped is not started then.
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
        """Whether a start has ended since this was last asked."""
        ended, self._has_ended = self._has_ended, False
        return ended

    def hear(self) -> bool:
        """Take what the start says; returns whether it has ended."""
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
        """Run `mcpd start` in a session of its own, so that it outlives this window; its stderr is our pipe."""
        ours, theirs = os.pipe()
        # -P: what lies in this directory, which may be a repository just cloned, is not to be imported.
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
