"""One JSON-RPC peer over a link: requests by ids that never repeat and also serve as progress tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from secrets import randbelow
from typing import Protocol

import msgspec
import trio
from msgspec import UNSET, Raw, Struct, UnsetType

from daemon.causes import Cause
from daemon.errors import CallError, ProtocolFault, RequestTooLarge, RunError, UpstreamLost, UpstreamTimeout
from daemon.protocol import decode_members, decoded
from daemon.wire import envelope
from daemon.wire.outbox import Link, Outbox


class Responder(Protocol):
    """Returns the answer to one request to the peer that asked."""

    def answer(self, result: envelope.Buffer) -> None:
        """Give the raw result."""

    def refuse(self, code: int, message: str, data: object = None) -> None:
        """Give a JSON-RPC error that mcpd makes itself."""

    def refuse_as(self, error: envelope.Buffer) -> None:
        """Pass on the raw JSON-RPC error object of the peer that was asked."""

    def report(self, params: dict[str, Raw]) -> None:
        """Report progress; `progressToken` is the one in the request."""


class PeerRequest:
    """One open request of a peer, and the responder for its answer."""

    __slots__ = ("_responder", "method", "on_withdrawn", "otherwise", "params", "server")

    def __init__(self, method: str, params: Raw | None, responder: Responder) -> None:
        self.method = method
        self.params = params
        self.server = ""  # the name of the asking server; its actor sets this
        self.otherwise: bytes | None = None
        """mcpd's own answer, used in place of a refusal; None without one."""
        self.on_withdrawn: Callable[[str], None] | None = None
        """Called with the reason when the peer no longer wants the answer."""
        self._responder: Responder | None = responder

    @property
    def is_open(self) -> bool:
        """Whether the request was neither answered nor withdrawn."""
        return self._responder is not None

    def answer(self, result: envelope.Buffer) -> None:
        """Answer with a result."""
        if (responder := self._end()) is not None:
            responder.answer(result)

    def refuse(self, code: int, message: str, data: object = None) -> None:
        """Answer with an error of mcpd, or with `otherwise` if set."""
        if (responder := self._end()) is None:
            return
        if self.otherwise is not None:
            responder.answer(self.otherwise)
        else:
            responder.refuse(code, message, data)

    def refuse_as(self, error: envelope.Buffer) -> None:
        """Answer with a raw error object."""
        if (responder := self._end()) is not None:
            responder.refuse_as(error)

    def report(self, params: dict[str, Raw]) -> None:
        """Pass progress on to the asker."""
        if self._responder is not None:
            self._responder.report(params)

    def withdraw(self, reason: str) -> None:
        """End the request without an answer: the peer no longer wants one."""
        if self._end() is not None and self.on_withdrawn is not None:
            self.on_withdrawn(reason)

    def end(self, reason: str) -> None:
        """End the request on both sides: the call behind it has ended."""
        if (responder := self._end()) is not None:
            responder.refuse(envelope.INVALID_REQUEST, reason)
            if self.on_withdrawn is not None:
                self.on_withdrawn(reason)

    def _end(self) -> Responder | None:
        responder, self._responder = self._responder, None
        return responder


MAX_GIVEN_UP = 1000
"""Most cancelled requests remembered, in 100 kB; beyond this, attribution is uncertain until all expire."""


class GivenUp:
    """The cancelled requests of one connection that the peer may still work on."""

    def __init__(self) -> None:
        self.seconds = math.inf  # longest time that a request may still run
        self._known: dict[int, tuple[object, float, frozenset[str]]] = {}
        self._forgotten = -math.inf

    def __len__(self) -> int:
        return len(self._known)

    def add(self, uid: int, asker: object, now: float, answerable: frozenset[str] = frozenset()) -> None:
        """Remember a request, its asker, and the methods that the asker can answer (`Exchange`)."""
        self._prune(now)
        if len(self._known) >= MAX_GIVEN_UP:
            _, self._forgotten, _ = self._known.pop(next(iter(self._known)))
        self._known[uid] = asker, now, answerable

    def answered(self, uid: int) -> None:
        """Forget a request: nothing follows its answer."""
        self._known.pop(uid, None)

    def askers(self, now: float) -> list[object]:
        """The askers of requests that may still run; this object itself stands for forgotten askers."""
        self._prune(now)
        found = [asker for asker, _, _ in self._known.values()]
        return [*found, self] if now - self._forgotten < self.seconds else found

    def may_answer(self, method: str, now: float) -> bool:
        """Whether the asker of a request that may still run can answer this method."""
        self._prune(now)
        return now - self._forgotten < self.seconds or any(
            method in answerable for _, _, answerable in self._known.values()
        )

    def _prune(self, now: float) -> None:
        """Forget expired requests; the oldest are first."""
        while self._known:
            oldest = next(iter(self._known))
            if now - self._known[oldest][1] < self.seconds:
                return
            del self._known[oldest]


class Exchange(Protocol):
    """Receives the answer to one request: exactly one call of `answered`, `refused` or `lost`."""

    def answered(self, result: envelope.Buffer) -> None:
        """Take the peer's raw result."""

    def refused(self, error: envelope.Buffer) -> None:
        """Take the peer's raw JSON-RPC error object."""

    def lost(self, error: CallError) -> None:
        """Note that no answer will come."""

    def progressed(self, params: dict[str, Raw]) -> None:
        """Take a progress report; its `progressToken` is mcpd's, not the caller's."""

    def asked(self, request: PeerRequest) -> None:
        """Take a request that the peer makes while it works on this one, and answer it now or later."""

    def notified(self, method: str, params: Raw) -> None:
        """Take a notification that came with this request: a line of the server's log."""

    @property
    def spared_until(self) -> float:
        """The time (trio's clock) before which the request does not expire, even if the peer is silent."""

    @property
    def asker(self) -> object:
        """Identifies the asking client: two exchanges have the same client only if this is the same object."""

    @property
    def answerable(self) -> frozenset[str]:
        """The request methods, such as sampling, that the calling client can answer."""


class _Pending(Struct, eq=False):
    """An open request, with times on trio's clock; a msgspec struct is four times as fast as attrs."""

    exchange: Exchange
    sent: float
    touched: float
    forwarded: bool


class _PlainAnswer(Struct, gc=False):
    id: int
    result: Raw
    jsonrpc: str | UnsetType = UNSET
    method: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


NO_CLIENT = "no client's call has caused this request, so mcpd passes it to no client"
"""The answer to a server's request that belongs to no client's call."""

_decode_answer = msgspec.json.Decoder(_PlainAnswer).decode


class Requests:
    """The open requests of one connection."""

    def __init__(self, *, after: int = 0) -> None:
        self.forwarded = 0  # open forwarded calls: the daemon's own pings and subscriptions do not count
        self.given_up = GivenUp()  # abandoned forwarded calls, which may still run
        self._pending: dict[int, _Pending] = {}
        self._last_id = after
        self._clock = trio.lowlevel.current_clock().current_time

    def open(self, exchange: Exchange, *, forwarded: bool = True) -> int:
        """Reserve an id, which is also the progress token; only `forwarded` calls count as work and expire."""
        uid = self._last_id = self._last_id + 1
        self.forwarded += forwarded
        now = self._clock()
        self._pending[uid] = _Pending(exchange, now, now, forwarded)
        return uid

    def take(self, uid: int) -> Exchange | None:
        """Remove a request and return its exchange, which the caller then ends."""
        entry = self._pending.pop(uid, None)
        if entry is None:
            return None
        self.forwarded -= entry.forwarded
        return entry.exchange

    def give_up(self, uid: int) -> Exchange | None:
        """Like `take`, for a cancelled request that the peer may still work on."""
        entry = self._pending.get(uid)
        if entry is not None and entry.forwarded:
            self.given_up.add(uid, entry.exchange.asker, self._clock(), entry.exchange.answerable)
        return self.take(uid)

    def exchange_of(self, uid: int | None) -> Exchange | None:
        """The exchange of an open forwarded call; None if there is no such call."""
        entry = None if uid is None else self._pending.get(uid)
        return None if entry is None or not entry.forwarded else entry.exchange

    def is_forwarded(self, uid: int | None) -> bool | None:
        """Whether an open request is a forwarded call; None if there is no such request."""
        entry = None if uid is None else self._pending.get(uid)
        return None if entry is None else entry.forwarded

    def lose(self, uid: int, error: CallError) -> None:
        """End an open request without an answer; the connection continues."""
        exchange = self.take(uid)
        if exchange is not None:
            exchange.lost(error)

    def take_answered(self, raw_id: Raw) -> Exchange | None:
        """Like `take`, with the id as the peer wrote it."""
        uid = as_uid(raw_id)
        exchange = self.take(uid)
        if exchange is None:
            self.given_up.answered(uid)
        return exchange

    def take_plain(self, line: envelope.Line) -> bool:
        """Deliver a plain result, decoded in one step; False if the line needs full decoding."""
        try:
            answer = _decode_answer(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False
        if answer.method is not UNSET or answer.error is not UNSET:
            return False
        entry = self._pending.get(answer.id)
        if entry is None or not (line.isascii() or envelope.is_utf8(line)):
            return False
        del self._pending[answer.id]
        self.forwarded -= entry.forwarded
        entry.exchange.answered(answer.result)
        return True

    def progress(self, params: Raw) -> None:
        """Pass on a progress report by its `progressToken`; drop an unreadable one."""
        # Its members are passed on unread, and must be UTF-8.
        fields = decoded(decode_members, params) if envelope.is_utf8(bytes(params)) else None
        if fields is None:
            return
        entry = self._pending.get(as_uid(fields.get("progressToken", Raw(b""))))
        if entry is not None:
            entry.touched = self._clock()
            entry.exchange.progressed(fields)

    def overdue(self, *, idle: float, total: float, alive: Iterable[int] = ()) -> list[int]:
        """The ids of forwarded calls that were silent for `idle` seconds, or sent `total` seconds ago.

        Calls in `alive` count as heard just now. If both times are 0, every call is overdue.
        """
        now = self._clock()
        for uid in alive:
            if (entry := self._pending.get(uid)) is not None:
                entry.touched = now
        return [
            uid
            for uid, entry in self._pending.items()
            if entry.forwarded
            and (now - entry.touched >= idle or now - entry.sent >= total)
            and (now >= entry.exchange.spared_until or not (idle or total))
        ]

    def lose_all(self, reason: str) -> None:
        """End every open request without an answer."""
        pending, self._pending = self._pending, {}
        self.forwarded = 0
        for entry in pending.values():
            entry.exchange.lost(UpstreamLost(f"{reason}; whether the call ran is unknown"))


class OwnExchange:
    """The common part of exchanges for mcpd's own requests, which have no client."""

    spared_until = 0.0

    def progressed(self, params: dict[str, Raw]) -> None:
        """Ignore progress, which mcpd does not ask for."""

    def asked(self, request: PeerRequest) -> None:
        """Refuse, as mcpd's own request has no client."""
        request.refuse(envelope.INVALID_REQUEST, NO_CLIENT)

    def notified(self, method: str, params: Raw) -> None:
        """Ignore the notification, which is already in the daemon's log."""

    @property
    def asker(self) -> object:
        """The request itself: it has no client."""
        return self

    @property
    def answerable(self) -> frozenset[str]:
        """Empty: there is no client."""
        return frozenset()


class AwaitedAnswer(OwnExchange):
    """An exchange that one task of the daemon waits for."""

    def __init__(self) -> None:
        self._done = trio.Event()
        self._result: bytes | None = None
        self._error: Exception | None = None

    async def wait(self) -> bytes:
        """Wait for the result; raises RemoteError for the peer's error, CallError if no answer will come."""
        await self._done.wait()
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def answered(self, result: envelope.Buffer) -> None:
        """Keep the result."""
        self._result = bytes(result)
        self._done.set()

    def refused(self, error: envelope.Buffer) -> None:
        """Keep the peer's error."""
        self._error = envelope.RemoteError.from_wire(error)
        self._done.set()

    def lost(self, error: CallError) -> None:
        """Keep the reason."""
        self._error = error
        self._done.set()


def as_uid(raw_id: Raw) -> int:
    """Our id as the peer echoed it (some servers turn 5 into "5"); 0, never used, for anything else."""
    text = bytes(raw_id).strip(b'"')
    return int(text) if text.isdigit() and len(text) < 19 else 0  # noqa: PLR2004 - ids never reach 10^18


FIRST_IDS = 2**40
"""Upper bound of the random first id: behind a bridge, a client may still answer a dead daemon's requests."""

MAX_FAULTS = 100
"""Malformed messages after which a client is disconnected: it does not speak JSON-RPC."""


class PeerEvents(Protocol):
    """Receives a peer's requests, notifications and faults, and the end of its link."""

    def on_request(self, request_id: bytes, method: str, params: Raw | None) -> None:
        """Take a request; answer through `Peer.answer` or `Peer.refuse`, now or later."""

    def on_notification(self, method: str, params: Raw | None) -> None:
        """Take a notification; progress of mcpd's requests goes to `Requests.progress`."""

    def on_bad_message(self, fault: envelope.BadMessage, line: bytes) -> None:
        """Take a line that is not a JSON-RPC message."""

    def on_lost(self, reason: str) -> None:
        """Note that the link has ended, before the exchanges do; nothing may be sent afterwards."""


class Peer:
    """Speaks JSON-RPC over one link. `run` owns the receiving side; everything else is synchronous."""

    def __init__(
        self,
        link: Link,
        outbox: Outbox,
        events: PeerEvents,
        *,
        strict: bool,
        cancelled: Callable[[int, str], tuple[str, bytes]] | None = None,
    ) -> None:
        """`strict` checks a client's messages; `cancelled` makes a cancellation, and None sends none."""
        self.link = link
        self.requests = Requests(after=randbelow(FIRST_IDS) if strict else 0)
        self.last_heard = trio.current_time()  # time of the peer's last sign of life (seconds, trio's clock)
        self._outbox = outbox
        self._events = events
        self.take_quickly: Callable[[envelope.Line], bool] = self.requests.take_plain
        """Sees each undecoded line first; returns whether it has handled the line."""
        self._cancelled = cancelled
        self._clock = trio.lowlevel.current_clock().current_time
        self._decode = envelope.decode_strictly if strict else envelope.decode
        self._strict = strict
        self._faults = 0
        self._who = "the client" if strict else "the server"

    def send_request(
        self, uid: int, method: str, params: tuple[envelope.Buffer, ...], request_id: bytes | None = None
    ) -> None:
        """Queue the request with a reserved `uid`; `request_id` is the peer's request that caused it."""
        self.link.send(envelope.request(uid, method, params), request_id)

    def notify(self, method: str, params: bytes = b"{}", request_id: bytes | None = None) -> None:
        """Queue a notification; `request_id` is the peer's request that it belongs to."""
        self.link.send(envelope.notification(method, params), request_id)

    def answer(self, request_id: bytes, result: envelope.Buffer) -> None:
        """Queue the result of one of the peer's requests."""
        self.link.send(envelope.response(request_id, result), request_id, ends=True)

    def refuse_as(self, request_id: bytes, error: envelope.Buffer) -> None:
        """Queue another peer's JSON-RPC error object as the answer to one of this peer's requests."""
        self.link.send(envelope.refusal(request_id, error), request_id, ends=True)

    def refuse(self, request_id: bytes, code: int, message: str, data: object = None) -> None:
        """Queue an error of mcpd as the answer to one of the peer's requests."""
        self.link.send(envelope.error_response(request_id, code, message, data), request_id, ends=True)

    def refuse_malformed(self, fault: envelope.BadMessage) -> None:
        """Queue the error for a client's malformed message. Raises `ProtocolFault` at `MAX_FAULTS`."""
        self._faults += 1
        self.refuse(fault.request_id, fault.code, fault.message)
        if self._faults >= MAX_FAULTS:
            self._outbox.flush()
            raise ProtocolFault(f"{self._faults} malformed messages")

    def cancel(self, uid: int, reason: str) -> Exchange | None:
        """Cancel a request at the peer and return its exchange; a late answer is dropped."""
        exchange = self.requests.give_up(uid)
        if exchange is not None and self._cancelled is not None:
            self.notify(*self._cancelled(uid, reason))
        return exchange

    async def request(
        self,
        method: str,
        params: object,
        *,
        timeout: float,  # noqa: ASYNC109 - an outer cancel scope could not notify the peer
        tells: bool = True,
        request_id: bytes | None = None,
    ) -> bytes:
        """Send a request, and wait for the raw result; `tells`: a timeout cancels it at the peer.

        Raises RemoteError: the peer answered with an error; UpstreamTimeout: no answer within `timeout`
        seconds; UpstreamLost: the connection ended first.
        """
        reply = AwaitedAnswer()
        uid = self.requests.open(reply, forwarded=False)
        self.send_request(uid, method, (msgspec.json.encode(params),), request_id)
        self._outbox.flush()
        try:
            with trio.move_on_after(timeout):
                return await reply.wait()
        finally:
            if tells:
                self.cancel(uid, "no longer wanted")
            else:
                self.requests.take(uid)
            self._outbox.flush()
        raise UpstreamTimeout(f"no answer to {method} within {timeout:g} s")

    async def run(self) -> None:
        """Receive until the link ends, report open requests as lost, and raise ConnectionLost."""
        reason = "the connection was closed"
        try:
            await self.link.run(self)
        except RunError as error:
            reason = str(error)
            raise
        finally:
            # On cancellation, too: an exchange that `lose_all` ends may send its next request at once.
            self._events.on_lost(reason)
            self.requests.lose_all(reason)
            self._outbox.flush()

    def on_lines(self, lines: list[envelope.Line]) -> None:
        """Take undecoded lines (`outbox.Receiver`)."""
        self.last_heard = self._clock()
        take_quickly = self.take_quickly
        for line in lines:
            if take_quickly(line):
                continue
            try:
                message = self._decode(line)
            except envelope.BadMessage as fault:
                self._take_bad(fault, line)
                continue
            self.on_message(message, line)

    def _take_bad(self, fault: envelope.BadMessage, line: envelope.Line) -> None:
        """Repair a malformed line if possible; otherwise end the request that it answers."""
        whole = envelope.mended(line) if fault.code == envelope.PARSE_ERROR else None
        if whole is not None:
            self.on_lines([whole])
            return
        exchange = self.requests.take(as_uid(Raw(envelope.id_answered(line))))
        if exchange is not None:
            ran = "" if self._strict else " The call may have run."
            message = f"{self._who} has answered with invalid JSON-RPC ({fault}).{ran}"
            exchange.refused(envelope.made_error(fault.code, message))
            return
        if self._strict and fault.code == envelope.PARSE_ERROR:
            fault.request_id = envelope.id_of_unreadable(line)
        if line.strip():
            self._events.on_bad_message(fault, bytes(line))

    def on_message(self, message: envelope.Envelope, line: envelope.Line) -> None:
        """Take a decoded message (`outbox.Receiver`)."""
        self.last_heard = self._clock()
        params = None if message.params is UNSET else message.params
        if message.method is UNSET:
            self._settle(message, line)
        elif message.id is UNSET:
            self._events.on_notification(message.method, params)
        elif self._strict or envelope.is_utf8(line):
            self._events.on_request(bytes(message.id), message.method, params)
        else:
            fault = envelope.BadMessage(envelope.PARSE_ERROR, "Parse error: not UTF-8")
            self._events.on_bad_message(fault, bytes(line))

    def _settle(self, message: envelope.Envelope, line: envelope.Line) -> None:
        if message.id is UNSET or (message.result is UNSET and message.error is UNSET):
            text = "neither a request, a notification nor an answer"
            fault = envelope.BadMessage(envelope.INVALID_REQUEST, text, envelope.id_of(message))
            self._events.on_bad_message(fault, bytes(line))
            return
        exchange = self.requests.take_answered(message.id)
        if exchange is None:
            return
        # A client's line was checked while decoding.
        if not (self._strict or envelope.is_utf8(line)):
            exchange.refused(b'{"code":-32603,"message":"the answer was not valid UTF-8"}')
        elif message.error is not UNSET:
            exchange.refused(message.error)
        else:
            assert message.result is not UNSET
            exchange.answered(message.result)

    def on_oversized(self, head: bytes) -> None:
        """Report a message over the limit to its sender, or end the request that it answers.

        Raises ProtocolFault if a server's message answers no known request, as a caller might wait in vain.
        """
        request_id = envelope.id_in_head(head)
        # A client's request may have the same id as ours.
        answered = envelope.id_answered(head) if self._strict else request_id
        exchange = self.requests.take(as_uid(Raw(answered)))
        if exchange is not None:
            ran = "" if self._strict else " The call ran; ask for less per call."
            exchange.lost(RequestTooLarge(f"the answer is over the limit (limits.messageBytes).{ran}"))
        elif self._strict:
            text = "RequestTooLarge: the message is over the limit; send less in one message"
            self._events.on_bad_message(envelope.BadMessage(envelope.INVALID_REQUEST, text, request_id), head)
        else:
            raise ProtocolFault("sent a message over the limit (limits.messageBytes)", Cause.MESSAGE_TOO_LARGE)
