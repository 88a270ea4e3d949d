"""Calls of one client in flight, and the record of each in log and counters."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
import trio
from msgspec import Raw, Struct

from daemon import protocol
from daemon.clients.input_rounds import InputRounds
from daemon.clients.links import linked_in
from daemon.clients.parking import Parking
from daemon.clients.server_requests import ServerRequests
from daemon.clients.subscribers import takes
from daemon.errors import Overloaded
from daemon.history.event import Event, EventKind
from daemon.wire.envelope import is_utf8

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from daemon.clients.call import ClientCall
    from daemon.clients.client import Client
    from daemon.clients.context import SessionContext
    from daemon.errors import CallError
    from daemon.ports import Upstream
    from daemon.wire.envelope import Buffer
    from daemon.wire.peer import Peer
    from daemon.wire.requests import PeerRequest


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


LOOKED_THROUGH = 64 * 1024
"""Bytes of the longest result that is searched for `isError`, in a quarter of a millisecond at most.

Failures are described in fewer. A longer result counts as a success.
"""

_SAYS_ERROR = re.compile(rb'"isError"\s*:\s*true')
"""Most results say `false`: a result without a match does not have to be decoded."""


class _IsError(Struct):
    isError: bool = False  # noqa: N815 - the wire's name


class _RefusedCall(Struct):
    structuredContent: dict[str, dict[str, object]]  # noqa: N815 - the wire's name


_decode_refusal = msgspec.json.Decoder(_RefusedCall).decode
_decode_is_error = msgspec.json.Decoder(_IsError).decode


class CallsInFlight:
    """The calls of one client that have no answer yet."""

    def __init__(
        self,
        peer: Peer,
        number: int,
        context: SessionContext,
        client: Client,
        recheck: Callable[[ClientCall], bool],
        act_after: Callable[[ClientCall, Callable[[], Awaitable[None]]], None],
    ) -> None:
        """Begin without any.

        Args:
            peer: the client's end.
            number: the connection's number, for the log.
            context: what all sessions share.
            client: the client.
            recheck: judges a call again that has waited in a queue (`ports.CallToSend.check`).
            act_after: judges and sends a call again after a wait.
        """
        self.open: dict[bytes, ClientCall] = {}
        """By the ids of their requests, raw."""
        self.log_level: int | None = None
        """The level that the client has set for the logs of servers; None if it has set none."""
        self.total = 0
        """How many calls the client has made so far."""
        self.recheck, self.act_after = recheck, act_after
        self.client = client
        self.number = number
        self.parking = Parking(context.states, self)
        self.park, self.goes_on = self.parking.ask, InputRounds(context, act_after).goes_on
        self.server_requests = ServerRequests(peer, context.audience, self.open)
        self.redact = context.redact
        self._peer = peer
        self._context = context
        records = CallRecords(context, client)
        self.count_asked, self._record, self._failed = records.asked, records.ended, records.failed
        self._overloaded = records.overloaded

    def finish(self, call: ClientCall, result: Buffer, outcome: str) -> None:
        """Answer a call and forget it; one that was abandoned is not answered (MCP, cancellation)."""
        request = call.request
        # As `_end`, here too: each call comes here, and another Python call would cost it more than this look.
        if self.open.get(request.id) is call:
            del self.open[request.id]
        else:
            if call.parked is not None:
                # Copied: what it was read into is used again.
                kept = bytes(result)
                call.parked.hold(lambda: call.calls.finish(call, kept, outcome), len(kept))
            return
        if request.modern:
            result = protocol.completed(bytes(result))
        self._peer.answer(request.id, result)
        if call.upstream is not None and call.upstream.has_resources:
            request.session.links.note(call.upstream.of, linked_in(result))
        failed = outcome == "ok" and is_error(result)
        self._record(call, outcome, failed=failed)
        if failed or outcome != "ok":
            self._failed(call, IS_ERROR if failed else outcome, text_in(result))
            if outcome == Overloaded.code:
                self._overloaded(call, _decode_refusal(result).structuredContent["error"])

    def refuse(self, call: ClientCall, code: int, message: str, data: object, outcome: str) -> None:
        """Answer a request with a JSON-RPC error and forget it, as `finish`."""
        if self._end(call):
            self._peer.refuse(call.request.id, code, message, data)
            self._record(call, outcome, failed=False)
            self._failed(call, outcome, message)
            if outcome == Overloaded.code and isinstance(data, dict):
                self._overloaded(call, data)
        elif call.parked is not None:
            call.parked.hold(lambda: call.calls.refuse(call, code, message, data, outcome), len(message))

    def is_open(self, call: ClientCall) -> bool:
        """Whether the client waits for an answer to a call."""
        return self.open.get(call.request.id) is call

    def interrupt(self, call: ClientCall, result: bytes) -> None:
        """Answer the client's request, but not its call: another request takes its place."""
        self.forget(call)
        # Progress belongs to the request that has ended.
        call.token = None
        self._peer.answer(call.request.id, result)
        self._context.outbox.flush()

    def take_over(self, call: ClientCall, retry: ClientCall) -> None:
        """Have a call that was interrupted answer the request of another one."""
        call.calls, call.request = self, retry.request
        call.declared, call.token = retry.declared, retry.token
        self.open[retry.request.id] = call

    def _end(self, call: ClientCall) -> bool:
        """Forget a call; False if it was not waited for any more."""
        if not self.is_open(call):
            return False
        del self.open[call.request.id]
        return True

    def forget(self, call: ClientCall) -> None:
        """Drop a call without an answer."""
        self.open.pop(call.request.id, None)

    def send_progress(self, call: ClientCall, params: dict[str, Raw]) -> None:
        """Send the client a progress report that already has its own token."""
        self._peer.notify(protocol.PROGRESS, msgspec.json.encode(params), call.request.id)

    def notify(self, call: ClientCall, method: str, params: Raw) -> None:
        """Send the client a notification that came with its call; a log that it takes, if it is not behind."""
        request, raw = call.request, bytes(params)
        if method == protocol.LOG_MESSAGE:
            limit = self._context.catalog.value.config.limits.client_queue_bytes
            if self._peer.link.waiting(request.id) > limit or not takes(
                params, asked=call.level, modern=request.modern, level=self.log_level
            ):
                return
        if is_utf8(raw):
            self._peer.notify(method, raw, request.id)

    def cancel(self, request_id: bytes) -> None:
        """Abandon a call that the client cancels; it is not answered (MCP, cancellation)."""
        call = self.open.get(request_id)
        if call is not None:
            call.abandon("the client cancelled it")

    def lose_all(self, error: CallError) -> None:
        """Answer every call, if need be with an error: the daemon is stopping, nothing answers later."""
        for call in self._newest_first():
            self.lose(call, error)
        self._context.outbox.flush()

    def lose(self, call: ClientCall, error: CallError) -> None:
        """End a call wherever it is, and answer it: with an error unless its result is there already."""
        call.withdraw(error.message)
        if call.finished is None:
            call.lost(error)
        else:
            call.answered(call.finished)

    def give_back(self) -> list[bytes]:
        """Forget the calls that their servers were sent nothing of; return the ids of their requests, raw."""
        unsent = [call for call in self._newest_first() if call.is_unsent]
        for call in unsent:
            call.abandon("the daemon is stopping")
        return [call.request.id for call in unsent]

    def abandon_all(self, reason: str) -> None:
        """Abandon every call: the client is gone."""
        for call in self._newest_first():
            call.abandon(reason)
        self.parking.leave()
        self.server_requests.elicitations.leave()
        self._context.outbox.flush()

    def _newest_first(self) -> list[ClientCall]:
        """The newest calls may still be queued; ended first, they do not move up and get sent."""
        return list(reversed(self.open.values()))


def is_error(result: Buffer) -> bool:
    """Whether a tool reports failure in its result; False if the result has more than `LOOKED_THROUGH` bytes.

    The result is decoded only if `"isError": true` occurs anywhere in it; then the result's own member decides,
    not a text that quotes it.
    """
    if len(result) > LOOKED_THROUGH:
        return False
    # Most results do not have the member at all, which a plain search tells in a third of the time.
    raw = bytes(result)
    if b"isError" not in raw or _SAYS_ERROR.search(raw) is None:
        return False
    try:
        return _decode_is_error(result).isError
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


class _Text(Struct):
    text: str = ""


class _Content(Struct):
    content: list[_Text] = []


_decode_content = msgspec.json.Decoder(_Content).decode


def text_in(result: Buffer) -> str:
    """The first text in a result that says what went wrong; empty if it has none, or is too large to look."""
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        if memoryview(result).nbytes <= LOOKED_THROUGH:
            return next((each.text for each in _decode_content(result).content if each.text), "")
    return ""
