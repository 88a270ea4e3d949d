"""One JSON-RPC peer over a link: the id map, progress and cancellation.

Our ids are integers that never repeat on a connection, and each doubles as the progress token of its request,
so one dictionary finds the owner of an answer and of a progress report alike. An owner is an `Exchange`;
completing one is a method call, never a task or an event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec
import trio
from msgspec import UNSET, Raw, Struct

from daemon.errors import (
    CallError,
    ProtocolFault,
    RequestTooLarge,
    RunError,
    UpstreamLost,
    UpstreamTimeout,
)
from daemon.wire import envelope
from daemon.wire.envelope import BadMessage, Buffer
from daemon.wire.malformed import id_answered, id_in_head, id_of_unreadable, mended
from daemon.wire.plain import PlainCall, plain_answer, plain_call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from daemon.wire.frames import Line
    from daemon.wire.outbox import Link, Outbox

_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode


class Exchange(Protocol):
    """Who waits for the answer to one request. Exactly one of the three endings is called, once."""

    def answered(self, result: Buffer) -> None:
        """The peer's result, as it came."""

    def refused(self, error: Buffer) -> None:
        """The peer's JSON-RPC error object, as it came."""

    def lost(self, error: CallError) -> None:
        """No answer will come."""

    def progressed(self, params: dict[str, Raw]) -> None:
        """A progress report; its `progressToken` is ours, not the caller's."""


class PeerEvents(Protocol):
    """What a peer wants from us, and what it got wrong."""

    def on_request(self, request_id: bytes, method: str, params: Raw | None) -> None:
        """A request; answer through `Peer.answer` or `Peer.refuse`, now or later."""

    def on_notification(self, method: str, params: Raw | None) -> None:
        """A notification other than progress for a request of ours."""

    def on_bad_message(self, fault: BadMessage, line: bytes) -> None:
        """A line that is no JSON-RPC message."""

    def on_lost(self, reason: str) -> None:
        """The link has ended; told before the exchanges are, so that nobody sends into the void."""


class RemoteError(Exception):
    """The peer answered a request of ours with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: bytes = b"null") -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.data = data
        """JSON, and of a long one the beginning."""

    @classmethod
    def from_wire(cls, error: Buffer) -> RemoteError:
        """Read a JSON-RPC error object, however sloppy (`envelope.read_error`)."""
        return cls(*envelope.read_error(error))


class _Pending(Struct, eq=False):
    """An open request: its owner, and when it was sent and last showed life (seconds, trio's clock).

    A struct of msgspec's, for one is made for each call, in a quarter of the time of an object of Python's.
    """

    exchange: Exchange
    sent: float
    touched: float
    forwarded: bool


class Peer:
    """Speaks JSON-RPC over one link. `run` owns the receiving side; everything else is synchronous."""

    def __init__(
        self,
        link: Link,
        outbox: Outbox,
        events: PeerEvents,
        *,
        strict: bool,
        on_call: Callable[[PlainCall], None] | None = None,
    ) -> None:
        """Attach to a link.

        Args:
            link: where the peer is.
            outbox: flushed by `request`, which is not called from within a pump.
            events: receives what is not an answer to us.
            strict: check everything that a client may get wrong (S8); a server's messages are only routed.
            on_call: takes the calls that need no closer look; None: it goes the same way, too.
        """
        self.link = link
        self._outbox = outbox
        self._events = events
        self._on_call = on_call
        self._clock = trio.lowlevel.current_clock().current_time
        self._decode = envelope.decode_strictly if strict else envelope.decode
        self._strict = strict
        self._pending: dict[int, _Pending] = {}
        self._forwarded = 0
        self._last_id = 0
        self.unmatched = 0
        self.last_heard = trio.current_time()

    @property
    def in_flight(self) -> int:
        """Forwarded requests that wait for an answer; our own (a ping, a subscription) do not count."""
        return self._forwarded

    @property
    def turn(self) -> int:
        """Counts what was there to be read at once, in whatever portions: nobody had read an answer to it."""
        return self.link.turns

    def open(self, exchange: Exchange, *, forwarded: bool = True) -> int:
        """Reserve an id (which is also the progress token) for a request to be sent next.

        Args:
            exchange: who waits.
            forwarded: whether it is somebody else's request: only those count as work, and expire.
        """
        uid = self._last_id = self._last_id + 1
        self._forwarded += forwarded
        now = self._clock()
        self._pending[uid] = _Pending(exchange, now, now, forwarded)
        return uid

    def send_request(self, uid: int, method: str, params: tuple[Buffer, ...]) -> None:
        """Queue the request that `open` reserved `uid` for."""
        self.link.send(envelope.request(uid, method, params))

    def notify(self, method: str, params: bytes = b"{}") -> None:
        """Queue a notification."""
        self.link.send(envelope.notification(method, params))

    def answer(self, request_id: bytes, result: Buffer) -> None:
        """Queue the result of a request of the peer's."""
        self.link.send(envelope.response(request_id, result))

    def refuse(self, request_id: bytes, code: int, message: str, data: object = None) -> None:
        """Queue a JSON-RPC error for a request of the peer's."""
        self.link.send(envelope.error_response(request_id, code, message, data))

    def cancel(self, uid: int, reason: str) -> None:
        """Give a request up: tell the peer, and forget it, so that a late answer finds nobody."""
        if self._take(uid) is not None:
            params = msgspec.json.encode({"requestId": uid, "reason": reason})
            self.notify("notifications/cancelled", params)

    async def request(self, method: str, params: object, *, timeout: float) -> bytes:  # noqa: ASYNC109 - a cancel scope outside could not tell the peer
        """Ask, and wait for the result (raw JSON).

        Raises:
            RemoteError: the peer answered with an error.
            UpstreamTimeout: no answer within `timeout` seconds; the request was cancelled.
            UpstreamLost: the connection ended first.
        """
        reply = _Reply()
        uid = self.open(reply, forwarded=False)
        self.send_request(uid, method, (msgspec.json.encode(params),))
        self._outbox.flush()
        try:
            with trio.move_on_after(timeout):
                return await reply.wait()
        finally:
            self.cancel(uid, "no longer wanted")
            self._outbox.flush()
        raise UpstreamTimeout(f"no answer to {method} within {timeout:g} s")

    async def run(self) -> None:
        """Receive until the link ends; then every open request is lost.

        Raises:
            ConnectionLost: always, in the end.
        """
        reason = "the connection was closed"
        try:
            await self.link.run(self._on_lines, self._on_oversized)
        except RunError as error:
            reason = str(error)
            raise
        finally:
            # Also when cancelled: whoever is told by `abandon` may want to send the next thing at once.
            self._events.on_lost(reason)
            self.abandon(reason)

    def abandon(self, reason: str) -> None:
        """Tell everybody who waits that no answer will come."""
        pending, self._pending = self._pending, {}
        self._forwarded = 0
        for entry in pending.values():
            entry.exchange.lost(UpstreamLost(f"{reason}; whether the call ran is unknown"))
        self._outbox.flush()

    def expire(self, *, idle: float, total: float) -> Iterator[tuple[int, Exchange]]:
        """Cancel and yield forwarded requests without life for `idle` seconds, or of `total` in all."""
        now = trio.current_time()
        for uid, entry in list(self._pending.items()):
            if entry.forwarded and (now - entry.touched >= idle or now - entry.sent >= total):
                self.cancel(uid, "timed out")
                yield uid, entry.exchange

    def _take(self, uid: int) -> _Pending | None:
        entry = self._pending.pop(uid, None)
        if entry is not None:
            self._forwarded -= entry.forwarded
        return entry

    def _on_lines(self, lines: list[Line]) -> None:
        self.last_heard = self._clock()
        on_call = self._on_call
        for line in lines:
            if on_call is None:
                if self._pending and self._take_answer(line):
                    continue
            elif (call := plain_call(line)) is not None:
                on_call(call)
                continue
            try:
                message = self._decode(line)
            except BadMessage as fault:
                self._take_bad(fault, line)
                continue
            self._dispatch(message, line)

    def _take_bad(self, fault: BadMessage, line: Line) -> None:
        """What is no message: mended if that can be, else an end for whoever waits for it."""
        whole = mended(line) if fault.code == envelope.PARSE_ERROR else None
        if whole is not None:
            self._on_lines([whole])
            return
        if self._strict and fault.code == envelope.PARSE_ERROR:
            fault.request_id = id_of_unreadable(line)
        entry = None if self._strict else self._take(_as_uid(Raw(id_answered(line))))
        if entry is not None:
            message = f"the server has answered, but not in JSON-RPC ({fault}). The call may have run."
            entry.exchange.refused(msgspec.json.encode({"code": fault.code, "message": message}))
        elif line.strip():
            self._events.on_bad_message(fault, bytes(line))

    def _take_answer(self, line: Line) -> bool:
        """Hand an answer over that needs no closer look; False leaves the line to `_dispatch`."""
        answer = plain_answer(line)
        if answer is None or not (line.isascii() or envelope.is_utf8(line)):
            return False
        entry = self._pending.pop(answer[0], None)
        if entry is None:
            return False
        self._forwarded -= entry.forwarded
        entry.exchange.answered(answer[1])
        return True

    def _dispatch(self, message: envelope.Envelope, line: Line) -> None:
        params = None if message.params is UNSET else message.params
        if message.method is UNSET:
            self._settle(message, line)
        elif message.id is not UNSET:
            if not self._is_sound(line):
                fault = BadMessage(envelope.PARSE_ERROR, "Parse error: not UTF-8")
                self._events.on_bad_message(fault, bytes(line))
                return
            self._events.on_request(bytes(message.id), message.method, params)
        elif message.method == "notifications/progress" and params is not None:
            if self._is_sound(line):
                self._progress(params)
        else:
            self._events.on_notification(message.method, params)

    def _settle(self, message: envelope.Envelope, line: Line) -> None:
        if message.id is UNSET or (message.result is UNSET and message.error is UNSET):
            text = "neither a request, a notification nor an answer"
            fault = BadMessage(envelope.INVALID_REQUEST, text, envelope.id_of(message))
            self._events.on_bad_message(fault, bytes(line))
            return
        entry = self._take(_as_uid(message.id))
        if entry is None:
            self.unmatched += 1
        elif not self._is_sound(line):
            entry.exchange.refused(b'{"code":-32603,"message":"the answer was not valid UTF-8"}')
        elif message.error is not UNSET:
            entry.exchange.refused(message.error)
        else:
            assert message.result is not UNSET
            entry.exchange.answered(message.result)

    def _is_sound(self, line: Line) -> bool:
        """Whether a payload may be passed on; a client's line was looked at when it was decoded."""
        return self._strict or line.isascii() or envelope.is_utf8(line)

    def _progress(self, params: Raw) -> None:
        try:
            fields = _decode_object(params)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return
        entry = self._pending.get(_as_uid(fields.get("progressToken", Raw(b""))))
        if entry is None:
            self.unmatched += 1
            return
        entry.touched = trio.current_time()
        entry.exchange.progressed(fields)

    def _on_oversized(self, head: bytes) -> None:
        """A message over the limit: its sender is told, or whoever waits for it.

        Raises:
            ProtocolFault: a server's, and there is no telling whose answer it was: nobody must wait for it.
        """
        request_id = id_in_head(head)
        if self._strict:
            text = "RequestTooLarge: the message is over the limit; send less in one message"
            self._events.on_bad_message(BadMessage(envelope.INVALID_REQUEST, text, request_id), head)
            return
        entry = self._take(_as_uid(Raw(request_id)))
        if entry is None:
            raise ProtocolFault("sent a message over the limit (limits.messageBytes)")
        text = "the answer is over the limit (limits.messageBytes). The call ran; ask for less at once."
        entry.exchange.lost(RequestTooLarge(text))


class _Reply:
    """An exchange that one task waits for: the control plane's way to ask."""

    def __init__(self) -> None:
        self._done = trio.Event()
        self._result: bytes | None = None
        self._error: Exception | None = None

    async def wait(self) -> bytes:
        await self._done.wait()
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def answered(self, result: Buffer) -> None:
        self._result = bytes(result)
        self._done.set()

    def refused(self, error: Buffer) -> None:
        self._error = RemoteError.from_wire(error)
        self._done.set()

    def lost(self, error: CallError) -> None:
        self._error = error
        self._done.set()

    def progressed(self, params: dict[str, Raw]) -> None:
        """Nobody asked for progress on the control plane."""


def _as_uid(raw_id: Raw) -> int:
    """Our id as the peer echoed it: some servers turn 5 into "5". Anything else is nobody's: 0."""
    text = bytes(raw_id).strip(b'"')
    return int(text) if text.isdigit() and len(text) < 19 else 0  # noqa: PLR2004 - ids never reach 10^18
