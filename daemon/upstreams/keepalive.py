"""Pings: whether a server that says nothing is still there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from daemon.causes import Cause, Reason
from daemon.errors import UpstreamTimeout
from daemon.model import Era
from daemon.wire.requests import RemoteError

if TYPE_CHECKING:
    from daemon.config.model import Timeouts
    from daemon.ports import UpstreamConnection


async def fallen_silent(connection: UpstreamConnection, era: Era, timeouts: Timeouts) -> Reason:
    """Ping a server after each silence; return the reason once it has left too many pings unanswered.

    Any sign of life counts, and calls in flight are one: a server may be too busy with them to answer pings.
    """
    method = "ping" if era is Era.HANDSHAKE else "server/discover"
    missed = 0
    while missed < timeouts.missed_pings:
        # A deadline rather than a duration: the rest of a duration may be too short to advance the clock.
        due = connection.last_heard + timeouts.ping_interval
        if trio.current_time() < due and not missed:
            await trio.sleep_until(due)
            continue
        try:
            await connection.request(method, {}, timeout=timeouts.ping)
            missed = 0
        except RemoteError:
            missed = 0
        except UpstreamTimeout:
            silent = trio.current_time() - connection.last_heard >= timeouts.ping
            missed = missed + 1 if silent and not connection.in_flight else 0
        if not missed:
            await trio.sleep(timeouts.ping_interval)
    text = f"no answer to {missed} pings of {timeouts.ping:g} s"
    return Reason(text, Cause.NOT_ANSWERING, {"count": missed, "seconds": timeouts.ping})
