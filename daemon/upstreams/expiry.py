"""The ends of calls that take too long: in line, without a sign of life, or in all."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import trio

from daemon.errors import UpstreamTimeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.config.tuning import Timeouts
    from daemon.upstreams.admission import Admission

EXPIRY_CHECKS = 1.0
"""Seconds between checks for calls that timed out, while any are in flight."""


async def keep_expiring(
    admission: Admission,
    timeouts: Timeouts,
    flush: Callable[[], None],
    problem: Callable[[], str] = str,
) -> None:
    """Give up calls that show no sign of life, or take or wait too long, until cancelled.

    A call whose server waits for its client is no silent one: only `callMax` bounds it.

    Args:
        admission: the calls of one connection.
        timeouts: the server's timeouts.
        flush: writes the frames that this queues.
        problem: says what else the server does not answer, its pings; empty if it answers them.
    """
    server, connection = admission.server, admission.connection
    every = min(EXPIRY_CHECKS, timeouts.call / 4, timeouts.queue / 4)
    while True:
        await admission.used.wait()
        admission.used = trio.Event()
        while connection.in_flight:
            await trio.sleep(every)
            for _key, exchange in connection.expire(idle=math.inf, total=timeouts.call_max):
                exchange.lost(timed_out(server, f"took more than {timeouts.call_max:g} s in all", "callMax"))
            alive = admission.attribution.alive()
            for _key, exchange in connection.expire(idle=timeouts.call, total=math.inf, alive=alive):
                beside = f"; it {silent}" if (silent := problem()) else ""
                exchange.lost(timed_out(server, f"showed no life for {timeouts.call:g} s", "call", beside))
            admission.expire(timeouts.queue)
            flush()


def timed_out(server: str, what: str, key: str, beside: str = "") -> UpstreamTimeout:
    """The error for a call that took too long: what it did, by which of the `timeouts`, and what else is so."""
    return UpstreamTimeout(
        f"server {server} {what} (timeouts.{key}){beside}; it was told to cancel, whether the call ran is"
        " unknown. Find out before you repeat it, and ask for less at once.",
        server=server,
    )
