"""The restart policy, as arithmetic on runs, after OTP's supervisor and Kubernetes' CrashLoopBackOff."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

import attrs
import msgspec

from daemon.causes import Reason
from daemon.config.tuning import Restart
from daemon.kit.waiting import RetryPolicy
from daemon.states import ServerState


class Ending(StrEnum):
    """The ends of a run that the policy distinguishes."""

    NORMAL = "normal"
    """The server ended successfully by itself."""
    CRASHED = "crashed"
    """The server failed, hung, closed the connection or never became ready."""
    CANNOT_START = "cannot_start"
    """The server cannot start, and an early retry cannot help."""
    NEEDS_AUTH = "needs_auth"
    """The server refuses mcpd's credentials, or wants some."""
    ASKED = "asked"
    """mcpd ended the run: for a restart, idleness, or a new configuration."""


@attrs.frozen(kw_only=True)
class Run:
    """A finished run."""

    ending: Ending
    reason: Reason
    healthy: float
    """Seconds from ready to the end; 0 if it was never ready."""
    ended_at: float
    """Seconds on trio's clock."""


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """The decision after a failed run: the state to wait in, and the seconds until the next start."""

    state: ServerState
    delay: float


def wants_restart(policy: Restart, run: Run) -> bool:
    """Whether a child runs again, by OTP's table of restart types and exit reasons."""
    if run.ending is Ending.ASKED:
        return True
    if policy.type == "permanent":
        return True
    return policy.type == "transient" and run.ending is not Ending.NORMAL


def is_stable(policy: Restart, run: Run) -> bool:
    """Whether a run was healthy for so long that the failures before it are forgotten."""
    return run.healthy >= policy.stable_after or run.ending is Ending.ASKED


def judge(
    policy: Restart, streak: Sequence[Run], jitter: float, *, forgotten: int = 0, looping: bool = False
) -> Backoff:
    """Decide what follows the last failure in `streak` (oldest first; it lacks `forgotten` earlier ones).

    `jitter` is in [0, 1); `looping`: the child is in a crash loop already, which failures at the longest delay
    are too rare to show.
    """
    last = streak[-1]
    if last.ending is Ending.CANNOT_START:
        return Backoff(state=ServerState.FAILED, delay=policy.parked)
    if last.ending is Ending.NEEDS_AUTH:
        return Backoff(state=ServerState.NEEDS_AUTH, delay=policy.parked)
    first_was_free = streak[0].healthy >= policy.free_after
    charged = len(streak) + forgotten - first_was_free
    if charged == 0:
        return Backoff(state=ServerState.BACKOFF, delay=0.0)
    recent = sum(last.ended_at - run.ended_at <= policy.period for run in streak)
    if looping or recent > policy.intensity:
        capped = RetryPolicy(policy.cap, policy.cap, lambda: jitter, floor=policy.floor)
        return Backoff(state=ServerState.CRASHLOOP, delay=capped.delay(0))
    growing = RetryPolicy(policy.base, policy.cap, lambda: jitter, floor=policy.floor)
    return Backoff(state=ServerState.BACKOFF, delay=growing.delay(charged - 1))


class Streak:
    """The failed runs of a child since it was last stable."""

    def __init__(self, policy: Restart, rng: Callable[[], float]) -> None:
        self._policy = policy
        self._rng = rng
        self.forget()

    def forget(self) -> None:
        """Forget all failures, because the child was stable or an operator wants a fresh start."""
        self._runs: list[Run] = []
        self._forgotten = 0
        self._looping = False

    def judge(self, run: Run) -> Backoff:
        """Add a failed run, and decide what follows."""
        self._runs.append(run)
        # The first run decides whether a restart was free, the last ones whether this is a crash loop.
        surplus = self._runs[1 : -self._policy.intensity - 1]
        self._forgotten += len(surplus)
        del self._runs[1 : 1 + len(surplus)]
        verdict = judge(self._policy, self._runs, self._rng(), forgotten=self._forgotten, looping=self._looping)
        self._looping |= verdict.state is ServerState.CRASHLOOP
        return verdict
