"""The end of all calls when the daemon stops: a moment to finish, then an answer that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import trio

from daemon.errors import UpstreamLost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.errors import CallError

DRAIN_SECONDS = 0.5
"""Seconds that calls in flight have to finish before the daemon answers them with an error."""

POLL_SECONDS = 0.02
"""Seconds between checks of the calls in flight during the drain: 25 in all."""


class Calling(Protocol):
    """A client's session, as its end needs it."""

    @property
    def in_flight(self) -> int:
        """The number of calls without an answer yet."""

    def give_back(self) -> None:
        """Have a bridge hold what was passed on to nobody, and all that follows, for the next daemon."""

    def lose_calls(self, error: CallError) -> None:
        """Answer all calls in flight with an error."""


class Queueing(Protocol):
    """A server, as the end of its callers needs it."""

    def close_line(self) -> None:
        """Send nothing any more that still waits for a place."""


async def drain(sessions: Mapping[int, Calling], servers: Mapping[str, Queueing]) -> None:
    """Let calls in flight finish for `DRAIN_SECONDS`, then answer the rest with an error.

    Bridges get back what was sent to no server: once at the beginning, and what came until they had read that.
    """
    _give_back(sessions)
    with trio.move_on_after(DRAIN_SECONDS):
        while any(session.in_flight for session in sessions.values()):  # noqa: ASYNC110
            await trio.sleep(POLL_SECONDS)
    _give_back(sessions)
    for server in servers.values():
        server.close_line()
    gone = UpstreamLost("mcpd is shutting down (reconnect); whether the call ran is unknown")
    for session in list(sessions.values()):
        session.lose_calls(gone)


def _give_back(sessions: Mapping[int, Calling]) -> None:
    for session in list(sessions.values()):
        session.give_back()
