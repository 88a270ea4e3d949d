"""One JSON-RPC peer over a link: its requests to mcpd, and mcpd's requests to it.

Our ids are integers that never repeat on a connection; each doubles as progress token.
"""

from __future__ import annotations

from collections.abc import Callable
from secrets import randbelow
from typing import Protocol

import msgspec
import trio
from msgspec import UNSET, Raw

from daemon.causes import Cause
from daemon.errors import ProtocolFault, RequestTooLarge, RunError, UpstreamTimeout
from daemon.wire import envelope
from daemon.wire.envelope import BadMessage, Buffer, Line, id_answered, id_in_head, id_of_unreadable, mended
from daemon.wire.outbox import Link, Outbox
from daemon.wire.requests import AwaitedAnswer, Exchange, Requests, as_uid

FIRST_IDS = 2**40
"""Upper bound of our random first id: behind a bridge a client may still answer a dead daemon's requests."""

MAX_FAULTS = 100
"""Malformed messages after which a client is cut off: it does not speak JSON-RPC."""


class PeerEvents(Protocol):
    """Receives a peer's requests, notifications and faults, and the end of its link."""

    def on_request(self, request_id: bytes, method: str, params: Raw | None) -> None:
        """Take a request; answer through `Peer.answer` or `Peer.refuse`, now or later."""

    def on_notification(self, method: str, params: Raw | None) -> None:
        """Take a notification; progress of our requests goes to `Requests.progress`."""

    def on_bad_message(self, fault: BadMessage, line: bytes) -> None:
        """Take a line that is not a JSON-RPC message."""

    def on_lost(self, reason: str) -> None:
        """Learn that the link has ended, before the exchanges do: nothing may be sent afterwards."""


class Peer:
    """Speaks JSON-RPC over one link. `run` owns the receiving side; everything else is synchronous."""

    def __init__(
        self,
        link: Link,
        outbox: Outbox,
        events: PeerEvents,
        *,
        strict: bool,
        take_quickly: Callable[[Line], bool] | None = None,
        cancelled: Callable[[int, str], tuple[str, bytes]] | None = None,
    ) -> None:
        """`strict` checks a client's messages; `take_quickly` sees each undecoded line and may deal with it.

        `cancelled` makes the method and params of a cancellation from id and reason; None: the peer gets none.
        """
        self.link = link
        self.requests = Requests(after=randbelow(FIRST_IDS) if strict else 0)
        self.last_heard = trio.current_time()  # time of the peer's last sign of life (seconds, trio's clock)
        self._outbox = outbox
        self._events = events
        self._take_quickly = self.requests.take_plain if take_quickly is None else take_quickly
        self._cancelled = cancelled
        self._clock = trio.lowlevel.current_clock().current_time
        self._decode = envelope.decode_strictly if strict else envelope.decode
        self._strict = strict
        self._faults = 0
        self._who = "the client" if strict else "the server"

    def __repr__(self) -> str:
        return f"<Peer: {self.requests!r}, last heard at {self.last_heard:.3f}>"

    def send_request(
        self, uid: int, method: str, params: tuple[Buffer, ...], request_id: bytes | None = None
    ) -> None:
        """Queue the request with a reserved `uid`; `request_id` is the peer's request behind it."""
        self.link.send(envelope.request(uid, method, params), request_id)

    def notify(self, method: str, params: bytes = b"{}", request_id: bytes | None = None) -> None:
        """Queue a notification; `request_id` is the peer's request behind it."""
        self.link.send(envelope.notification(method, params), request_id)

    def answer(self, request_id: bytes, result: Buffer) -> None:
        """Queue the result of one of the peer's requests."""
        self.link.send(envelope.response(request_id, result), request_id, ends=True)

    def refuse_as(self, request_id: bytes, error: Buffer) -> None:
        """Queue a foreign JSON-RPC error object for one of the peer's requests."""
        self.link.send(envelope.refusal(request_id, error), request_id, ends=True)

    def refuse(self, request_id: bytes, code: int, message: str, data: object = None) -> None:
        """Queue an error of mcpd's own for one of the peer's requests."""
        self.link.send(envelope.error_response(request_id, code, message, data), request_id, ends=True)

    def refuse_malformed(self, fault: BadMessage) -> None:
        """Queue the error for a client's malformed message. Raises `ProtocolFault` at `MAX_FAULTS`."""
        self._faults += 1
        self.refuse(fault.request_id, fault.code, fault.message)
        if self._faults >= MAX_FAULTS:
            self._outbox.flush()
            raise ProtocolFault(f"{self._faults} malformed messages")

    def cancel(self, uid: int, reason: str) -> Exchange | None:
        """Give up a request: cancel it at the peer and return the exchange; a late answer is dropped."""
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
        """Ask, and wait for the raw result; unless `tells`, the peer does not learn that we have given up.

        Raises:
            RemoteError: the peer answered with an error.
            UpstreamTimeout: no answer within `timeout` seconds.
            UpstreamLost: the connection ended first.
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
        """Receive until the link ends, lose every open request, and raise ConnectionLost."""
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

    def on_lines(self, lines: list[Line]) -> None:
        """Take undecoded lines (`outbox.Receiver`)."""
        self.last_heard = self._clock()
        take_quickly = self._take_quickly
        for line in lines:
            if take_quickly(line):
                continue
            try:
                message = self._decode(line)
            except BadMessage as fault:
                self._take_bad(fault, line)
                continue
            self.on_message(message, line)

    def _take_bad(self, fault: BadMessage, line: Line) -> None:
        """Repair a malformed line if possible, else end the request that it answers."""
        whole = mended(line) if fault.code == envelope.PARSE_ERROR else None
        if whole is not None:
            self.on_lines([whole])
            return
        exchange = self.requests.take(as_uid(Raw(id_answered(line))))
        if exchange is not None:
            ran = "" if self._strict else " The call may have run."
            message = f"{self._who} has answered, but not in JSON-RPC ({fault}).{ran}"
            exchange.refused(msgspec.json.encode({"code": fault.code, "message": message}))
            return
        if self._strict and fault.code == envelope.PARSE_ERROR:
            fault.request_id = id_of_unreadable(line)
        if line.strip():
            self._events.on_bad_message(fault, bytes(line))

    def on_message(self, message: envelope.Envelope, line: Line) -> None:
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
            fault = BadMessage(envelope.PARSE_ERROR, "Parse error: not UTF-8")
            self._events.on_bad_message(fault, bytes(line))

    def _settle(self, message: envelope.Envelope, line: Line) -> None:
        if message.id is UNSET or (message.result is UNSET and message.error is UNSET):
            text = "neither a request, a notification nor an answer"
            fault = BadMessage(envelope.INVALID_REQUEST, text, envelope.id_of(message))
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

        Raises:
            ProtocolFault: a server answers no known request with it, so a caller would wait in vain.
        """
        request_id = id_in_head(head)
        # A client's request may have the same id as ours.
        answered = id_answered(head) if self._strict else request_id
        exchange = self.requests.take(as_uid(Raw(answered)))
        if exchange is not None:
            ran = "" if self._strict else " The call ran; ask for less per call."
            exchange.lost(RequestTooLarge(f"the answer is over the limit (limits.messageBytes).{ran}"))
        elif self._strict:
            text = "RequestTooLarge: the message is over the limit; send less in one message"
            self._events.on_bad_message(BadMessage(envelope.INVALID_REQUEST, text, request_id), head)
        else:
            raise ProtocolFault("sent a message over the limit (limits.messageBytes)", Cause.MESSAGE_TOO_LARGE)
