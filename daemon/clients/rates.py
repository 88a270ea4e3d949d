"""Limits of calls a minute, for servers and profiles (`limits.callsPerMinute`).

Token buckets kept as the time of the next token (ITU-T I.371). An early call waits its turn; one that would
wait longer than `timeouts.queue` is refused and takes no token.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import trio

from daemon.config.config_model import Config, Profile
from daemon.errors import Overloaded
from daemon.kit.waiting import keep_latest

BURST_SECONDS = 10.0
"""Seconds' worth of calls that may go out at once after a pause: an agent makes several calls in one turn."""

MAX_BUCKETS = 4096
"""Limits with buckets: more than a configuration has servers and profiles."""


class Bucket(msgspec.Struct):
    """One limit, and when its next token is due on the clock."""

    per_minute: int
    due: float = 0.0

    def wait(self, now: float) -> float:
        """Seconds until a call made now has its token."""
        spare = max(BURST_SECONDS - 60 / self.per_minute, 0.0)
        return max(0.0, self.due - spare - now)

    def take(self, now: float) -> None:
        """Spend a token."""
        self.due = max(self.due, now) + 60 / self.per_minute


class CallRates:
    """The buckets of all limits, across reconnections, instances and sessions."""

    def __init__(self, clock: Callable[[], float] = trio.current_time) -> None:
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self._clock = clock

    def take(self, config: Config, profile: Profile, server: str) -> float:
        """Spend a call's tokens; returns the seconds to wait. Raises Overloaded: over `timeouts.queue`."""
        entry, now = config.mcp_servers.get(server), self._clock()
        if entry is None:  # A reload is removing it: nothing will be sent there.
            return 0.0
        limits = {
            ("server", server): entry.limits.calls_per_minute,
            ("profile", profile.name): profile.limits.calls_per_minute,
        }
        buckets = {key: self._bucket(key, limit) for key, limit in limits.items() if limit is not None}
        for (kind, name), bucket in buckets.items():
            if (wait := bucket.wait(now)) > entry.timeouts.queue:
                retry = wait - entry.timeouts.queue
                raise Overloaded(
                    f"{kind} {name} may have {bucket.per_minute} calls a minute (limits.callsPerMinute), and"
                    f" those in line need {wait:.0f} s. The call was not sent;"
                    f" try again in about {retry:.0f} s.",
                    server=server,
                    bound=f"limits.callsPerMinute of {kind} {name}",
                    retryAfterMs=round(retry * 1000),
                )
        seconds = max((bucket.wait(now) for bucket in buckets.values()), default=0.0)
        for bucket in buckets.values():
            bucket.take(now)
        return seconds

    def _bucket(self, key: tuple[str, str], per_minute: int) -> Bucket:
        bucket = self._buckets.get(key) or Bucket(per_minute)
        bucket.per_minute = per_minute
        keep_latest(self._buckets, key, bucket, MAX_BUCKETS)
        return bucket


def is_metered(config: Config, profile: Profile) -> bool:
    """Whether a limit counts the calls of a profile's clients."""
    servers = any(each.limits.calls_per_minute is not None for each in config.mcp_servers.values())
    return servers or profile.limits.calls_per_minute is not None
