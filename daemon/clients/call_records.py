"""The records of one client's calls: a line in the log for each, and what the daemon counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from daemon import protocol

if TYPE_CHECKING:
    from daemon.clients.call import ClientCall
    from daemon.clients.context import SessionContext
    from daemon.wire.peer_requests import PeerRequest

IS_ERROR = "isError"
"""The outcome in the log of a call that its tool answered with an error: for the protocol it is a result."""


class CallRecords:
    """Logs and counts the calls of one client."""

    def __init__(self, context: SessionContext, number: int) -> None:
        """Begin with nothing to record.

        Args:
            context: what all sessions share.
            number: the connection's number, for the log.
        """
        self._context = context
        self._number = number
        self._clock = trio.lowlevel.current_clock().current_time

    def ended(self, call: ClientCall, outcome: str, *, failed: bool) -> None:
        """Record a call that was answered just now.

        Args:
            call: the call.
            outcome: `ok` or an error code.
            failed: whether the answer is a result in which the tool says that it failed.
        """
        context, upstream, seconds = self._context, call.upstream, self._clock() - call.started
        label = call.told() if upstream is None else call.label
        context.log.note(self._number, label, seconds, IS_ERROR if failed else outcome)
        surface = call.request.surface.name
        if call.method != protocol.CALL_TOOL:
            context.tally.request("" if upstream is None else upstream.of, call.method, outcome)
        elif upstream is not None:
            upstream.record(seconds, ok=outcome == "ok")
            context.tally.call(upstream.of, surface, outcome, seconds, call.tool)
        else:
            context.tally.meta_call(surface, call.label, outcome)
            if outcome != "ok":
                context.tally.refused(outcome)

    def asked(self, request: PeerRequest, *, parked: bool) -> None:
        """Count a request that was put to the client, now or in its next round, or answered in its place."""
        put = "parked" if parked else "relayed"
        became = put if request.is_open else "refused"
        self._context.tally.relayed(request.server, request.method, became)
