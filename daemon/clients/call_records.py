"""The records of one client's calls: a line in the log for each, and what the daemon counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from daemon import protocol
from daemon.history.event import Event, EventKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.clients.call import ClientCall
    from daemon.clients.client import Client
    from daemon.clients.context import SessionContext
    from daemon.ports import Upstream
    from daemon.wire.peer_requests import PeerRequest

IS_ERROR = "isError"
"""The outcome in the log of a call that its tool answered with an error: for the protocol it is a result."""


class CallRecords:
    """Logs and counts the calls of one client: those that end in one turn of the loop together.

    Nobody looks at a counter in the middle of a turn, so it is done just after their answers are
    written (`wire.outbox.Flushable`), with one look at the clock.
    """

    def __init__(self, context: SessionContext, client: Client) -> None:
        """Begin with nothing to record.

        Args:
            context: what all sessions share.
            client: the client.
        """
        self._context = context
        self._client = client
        self._clock = trio.lowlevel.current_clock().current_time
        self._ended: list[tuple[ClientCall, str, bool]] = []
        """The calls that were answered since the last flush: outcome, and whether the tool reports failure."""

    def ended(self, call: ClientCall, outcome: str, *, failed: bool) -> None:
        """Have a call recorded that was answered just now.

        Args:
            call: the call.
            outcome: `ok` or an error code.
            failed: whether the answer is a result in which the tool says that it failed.
        """
        if not self._ended:
            self._context.outbox.touch(self)
        self._ended.append((call, outcome, failed))

    def flush(self) -> None:
        """Record what has ended."""
        ended, self._ended = self._ended, []
        note, client, now, at = self._context.log.note, self._client, self._clock(), self._context.wall()
        alike: dict[tuple[Upstream, str, str, str], list[float]] = {}
        for call, outcome, failed in ended:
            upstream, request, tool, seconds = call.upstream, call.request, call.tool, now - call.started
            label, server = (call.told(), "") if upstream is None else (call.label, upstream.of)
            noted = IS_ERROR if failed else outcome
            # One tuple, made once: what becomes of it is not the call's business.
            note((client, request.key, label, seconds, noted, server, tool, at))
            if upstream is None or call.method != protocol.CALL_TOOL:
                self._count(call, outcome)
            elif (key := (upstream, tool, request.surface.name, outcome)) in alike:
                alike[key].append(seconds)
            else:
                alike[key] = [seconds]
        for (upstream, tool, surface, outcome), took in alike.items():
            upstream.record(took, ok=outcome == "ok")
            self._context.tally.call(upstream.of, surface, outcome, took, tool)

    def _count(self, call: ClientCall, outcome: str) -> None:
        """Count a request that is no call, or a call that reached no server."""
        tally = self._context.tally
        if call.method != protocol.CALL_TOOL:
            tally.request("" if call.upstream is None else call.upstream.of, call.method, outcome)
            return
        tally.meta_call(call.request.surface.name, call.label, outcome)
        if outcome != "ok":
            tally.refused(outcome)

    def overloaded(self, call: ClientCall, told: Mapping[str, object]) -> None:
        """Have it noted by which bound a call was refused.

        Args:
            call: the call.
            told: what its client was told beside the text (`Overloaded.details`).
        """
        server = str(told.get("server", "" if call.upstream is None else call.upstream.of))
        details = {"bound": str(told["bound"])} if "bound" in told else {}
        self._context.gather(Event(kind=EventKind.OVERLOADED, server=server, details=details))

    def failed(self, call: ClientCall, code: str, text: str) -> None:
        """Keep what a client was told about a call that a server has failed at; nothing of mcpd's own refusals.

        Args:
            call: the call.
            code: an error code, or `IS_ERROR`.
            text: what the client was told.
        """
        if call.upstream is not None:
            self._context.recent.failed(call.upstream.of, call.tool or call.label, code, text)

    def asked(self, request: PeerRequest, *, parked: bool) -> None:
        """Count a request that was put to the client, now or in its next round, or answered in its place."""
        put = "parked" if parked else "relayed"
        became = put if request.is_open else "refused"
        self._context.tally.relayed(request.server, request.method, became)
