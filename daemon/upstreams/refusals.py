"""What is said of a server that is not up: to one whose call is not sent, and to one who waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.errors import UpstreamUnavailable
from daemon.states import ServerState

if TYPE_CHECKING:
    from daemon.facts import ServerStatus

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
