"""How long those wait who want a server that is not up: a call longer than one who only asks what there is.

What is said of a server that is not up: to one whose call is not sent, and to one who waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from daemon.errors import UpstreamUnavailable
from daemon.states import COMING, SERVING, WAKEABLE, ServerState
from daemon.supervision.starts import HOLD_SECONDS, LOOK_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.config.tuning import Timeouts
    from daemon.facts import ServerStatus
    from daemon.supervision.child import Child

LINE_SECONDS = HOLD_SECONDS + 2 * LOOK_SECONDS
"""How long a call waits for a start to begin: a server that is called and next in line has a place by then."""


class Waking:
    """Waits for one server to come up."""

    def __init__(self, timeouts: Timeouts, start_limit: Callable[[], float]) -> None:
        """Nobody waits yet.

        Args:
            timeouts: the server's.
            start_limit: seconds that the handshake under way, or the next one, may take.
        """
        self._timeouts = timeouts
        self._start_limit = start_limit
        self._awaited_run = 0
        self._until = 0.0

    async def for_call(self, child: Child) -> None:
        """Cut a wait short; return once it serves or has failed to, or a call has waited long enough.

        Nobody knows yet whether a server works that was never tried: its first start is waited for to its end,
        and before for its turn. One that has failed or gone down is waited for no longer than `timeouts.wake`.
        """
        child.wake()
        if child.status.untried:
            await self._first_start(child)
            return
        with trio.move_on_after(self._timeouts.wake):
            await child.status.wait_settled()

    async def for_list(self, child: Child) -> None:
        """As `for_call`, for one who wants to know its tools: once for each run, and not as long.

        All that ask during one run wait for the same moment, and later ones not at all: a server that hangs
        costs one wait, not one for each answer. Only one that nobody else would start is waited for longer.
        """
        state = child.status.value.state
        run = child.status.value.incarnation + (state not in COMING | SERVING)
        if run != self._awaited_run:
            patience = self._whole_start if child.spec.lazy and child.status.untried else self._timeouts.wake
            self._awaited_run, self._until = run, trio.current_time() + patience
        # Who asks for all that there is must not put all before the one that is called.
        child.wake(called=False)
        with trio.move_on_at(self._until):
            await child.status.wait_settled()

    async def _first_start(self, child: Child) -> None:
        before = child.status.value
        with trio.move_on_after(LINE_SECONDS) as line:
            await child.status.wait_until(
                lambda now: now.state not in WAKEABLE or now.attempt > before.attempt,
            )
        if not line.cancelled_caught:
            with trio.move_on_after(self._whole_start):
                # It may have failed already, of which only the newest state tells.
                await child.status.wait_settled(since=before)

    @property
    def _whole_start(self) -> float:
        return self._timeouts.probe + self._start_limit()


_HINTS = {
    ServerState.FAILED: "It will not work until the operator mends it (`mcpd status` says what is wrong)",
    ServerState.NEEDS_AUTH: "The operator must give it valid credentials",
    ServerState.STARTING: "Try again in a few seconds",
    ServerState.QUEUED: "Try again in a few seconds: a server that is called is started before the others",
}


def unavailable(server: str, status: ServerStatus, now: float) -> UpstreamUnavailable:
    """Why a call is not sent, and what to do.

    Args:
        server: its name.
        status: how it is.
        now: seconds since the epoch.
    """
    due = status.next_retry_at
    wait = None if due is None else max(0.0, due - now)
    hint = _HINTS.get(status.state, "Try again later, or use another tool")
    retry = "" if wait is None else f" The next attempt is in {wait:.1f} s."
    return UpstreamUnavailable(
        f"server {server} is {status.state}: {status.reason or 'not ready yet'}."
        f" The call was not sent.{retry} {hint}.",
        server=server,
        state=str(status.state),
        reason=status.reason,
        cause=status.cause,
        attempt=status.attempt,
        nextRetryInMs=None if wait is None else round(wait * 1000),
    )


def outlook(server: str, status: ServerStatus) -> str:
    """How it is, for one who waits for it."""
    return f"server {server} is {status.state}" + (f": {status.reason}" if status.reason else "")
