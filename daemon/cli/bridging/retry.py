"""When the next attempt to reach a daemon is made."""

from __future__ import annotations

import os

from daemon.delay import doubled, jittered

FIRST_SECONDS = 0.1
"""After the first failure; an attempt on a socket in the file system costs microseconds."""

LONGEST_SECONDS = 5.0
"""Between two attempts, at the most: a client that is used again finds its daemon within that."""

STABLE_SECONDS = 1.0
"""A connection that lasted as long ended for a reason of its own, so the next attempt is made at once."""


class Retry:
    """Delays that double from failure to failure; half of each is left to chance, against herds of bridges."""

    def __init__(self) -> None:
        self._failures = 0

    def delay(self) -> float:
        """Seconds until the next attempt."""
        if not self._failures:
            return 0.0
        return jittered(doubled(FIRST_SECONDS, LONGEST_SECONDS, self._failures - 1), os.urandom(1)[0] / 256)

    def failed(self) -> None:
        """An attempt has come to nothing."""
        self._failures += 1

    def ended(self, lasted: float) -> None:
        """A connection that was of use has ended, after so many seconds."""
        self._failures = 0 if lasted >= STABLE_SECONDS else 1
