"""Requests in both directions: ours to a peer, by the ids they were sent under, and those it makes in return.

An id is never used twice on a connection, so an answer that comes late or twice matches no request. Completing
a request is a method call, never a task or an event. A request of the peer's is answered exactly once; the peer
may withdraw it, and then whoever was going to answer is told.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import msgspec
import trio
from msgspec import UNSET, Raw, Struct, UnsetType

from daemon.errors import CallError, UpstreamLost
from daemon.wire import envelope
from daemon.wire.envelope import INVALID_REQUEST, read_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from daemon.wire.envelope import Buffer
    from daemon.wire.frames import Line


class Responder(Protocol):
    """Takes the answer to one request to whoever has asked it."""

    def answer(self, result: Buffer) -> None:
        """Give the result, raw."""

    def refuse(self, code: int, message: str, data: object = None) -> None:
        """Give an error of ours (JSON-RPC)."""

    def refuse_as(self, error: Buffer) -> None:
        """Give a JSON-RPC error object as the one who was asked wrote it."""

    def report(self, params: dict[str, Raw]) -> None:
        """Report progress; its `progressToken` is that of the request."""


class PeerRequest:
    """One open request, and the way back for its answer."""

    __slots__ = ("_responder", "method", "on_withdrawn", "otherwise", "params", "server")

    def __init__(self, method: str, params: Raw | None, responder: Responder) -> None:
        """Begin open.

        Args:
            method: the method of the request.
            params: its params, raw.
            responder: takes the answer back.
        """
        self.method = method
        self.params = params
        self.server = ""
        """The name of the server that asks; set by its actor."""
        self.otherwise: bytes | None = None
        """What is answered in place of a refusal of ours: what mcpd knows without a client."""
        self.on_withdrawn: Callable[[str], None] | None = None
        """Told why nobody wants the answer any more; set by whoever is going to answer."""
        self._responder: Responder | None = responder

    def __repr__(self) -> str:
        """Without params: they may hold a secret."""
        return f"<PeerRequest {self.method} of {self.server}{'' if self.is_open else ', ended'}>"

    @property
    def is_open(self) -> bool:
        """Whether it was neither answered nor withdrawn."""
        return self._responder is not None

    def answer(self, result: Buffer) -> None:
        """Answer with a result."""
        if (responder := self._end()) is not None:
            responder.answer(result)

    def refuse(self, code: int, message: str, data: object = None) -> None:
        """Answer with an error of ours, or with what is known without a client."""
        if (responder := self._end()) is None:
            return
        if self.otherwise is not None:
            responder.answer(self.otherwise)
        else:
            responder.refuse(code, message, data)

    def refuse_as(self, error: Buffer) -> None:
        """Answer with an error object, raw."""
        if (responder := self._end()) is not None:
            responder.refuse_as(error)

    def report(self, params: dict[str, Raw]) -> None:
        """Pass progress on to the one who has asked."""
        if self._responder is not None:
            self._responder.report(params)

    def withdraw(self, reason: str) -> None:
        """End it without an answer: whoever has asked does not want one any more, or is gone."""
        if self._end() is not None and self.on_withdrawn is not None:
            self.on_withdrawn(reason)

    def end(self, reason: str) -> None:
        """End it on both sides: what it was asked for has ended."""
        if (responder := self._end()) is not None:
            responder.refuse(INVALID_REQUEST, reason)
            if self.on_withdrawn is not None:
                self.on_withdrawn(reason)

    def _end(self) -> Responder | None:
        responder, self._responder = self._responder, None
        return responder


MAX_GIVEN_UP = 1000
"""Requests that are remembered one by one, a hundred kilobytes: when there are more, it is only remembered that
there were, and then nobody's request is certain until they have run out."""


class GivenUp:
    """The requests of one connection that were given up."""

    def __init__(self) -> None:
        """Begin without any."""
        self.seconds = math.inf
        """How long a request may still run."""
        self._known: dict[int, tuple[object, float, frozenset[str]]] = {}
        self._forgotten = -math.inf

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._known)

    def add(self, uid: int, asker: object, now: float, answerable: frozenset[str] = frozenset()) -> None:
        """Remember a request, whose it was, and what that client can answer (`Exchange`)."""
        self._prune(now)
        if len(self._known) >= MAX_GIVEN_UP:
            _, self._forgotten, _ = self._known.pop(next(iter(self._known)))
        self._known[uid] = asker, now, answerable

    def answered(self, uid: int) -> None:
        """Forget a request: its answer has come, and nothing follows it."""
        self._known.pop(uid, None)

    def askers(self, now: float) -> list[object]:
        """Whose requests may still run; this object itself stands for those that are not remembered."""
        self._prune(now)
        found = [asker for asker, _, _ in self._known.values()]
        return [*found, self] if now - self._forgotten < self.seconds else found

    def may_answer(self, method: str, now: float) -> bool:
        """Whether one of the clients whose requests may still run can answer such a request."""
        self._prune(now)
        return now - self._forgotten < self.seconds or any(
            method in answerable for _, _, answerable in self._known.values()
        )

    def _prune(self, now: float) -> None:
        """Forget what has run out: the oldest come first."""
        while self._known:
            oldest = next(iter(self._known))
            if now - self._known[oldest][1] < self.seconds:
                return
            del self._known[oldest]


class Exchange(Protocol):
    """Receives the answer to one request: exactly one of `answered`, `refused` and `lost` is called, once."""

    def answered(self, result: Buffer) -> None:
        """Take the peer's result, raw."""

    def refused(self, error: Buffer) -> None:
        """Take the peer's JSON-RPC error object, raw."""

    def lost(self, error: CallError) -> None:
        """Learn that no answer will come."""

    def progressed(self, params: dict[str, Raw]) -> None:
        """Take a progress report; its `progressToken` is ours, not the caller's."""

    def asked(self, request: PeerRequest) -> None:
        """Take a request that the peer asks while it works on this request; answer it now or later."""

    def notified(self, method: str, params: Raw) -> None:
        """Take a notification of the peer's that came with this request: a line of its log."""

    @property
    def spared_until(self) -> float:
        """Until when it is not given up, however long the peer is silent about it (seconds, trio's clock)."""

    @property
    def asker(self) -> object:
        """Who has made the request: two exchanges belong to one client exactly if this is the same object."""

    @property
    def answerable(self) -> frozenset[str]:
        """The methods of requests that the asker can answer in return, as it has declared."""


class RemoteError(Exception):
    """The peer answered a request of ours with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: bytes = b"null") -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.data = data
        """The error's `data` as JSON; cut if it is long."""

    @classmethod
    def from_wire(cls, error: Buffer) -> RemoteError:
        """Read a JSON-RPC error object, however sloppy (`envelope.read_error`)."""
        return cls(*read_error(error))


class HttpRefusal(RemoteError):
    """The peer answered a request of ours with an HTTP error, and no JSON-RPC error in it.

    A class and not a member of the error's `data`, which the peer may write as it likes.
    """

    def __init__(self, code: int, message: str, *, status: int, place: str) -> None:
        super().__init__(code, message)
        self.status = status
        self.place = place
        """The peer's host and port."""


class _Pending(Struct, eq=False):
    """An open request: its exchange, and when it was sent and last showed life (seconds, trio's clock).

    A msgspec struct, as each call makes one, in a quarter of the time of an attrs object.
    """

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


NO_CLIENT = "no client has caused this request: it is not passed on to any"
"""The answer to a request of a server that belongs to no client's call."""

_decode_answer = msgspec.json.Decoder(_PlainAnswer).decode
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode


class Requests:
    """The open requests of one connection."""

    def __init__(self, *, after: int = 0) -> None:
        """Start with no open request; the first id is the one after `after`."""
        self.forwarded = 0
        """Open requests that are forwarded calls: the daemon's own (pings, subscriptions) are not counted."""
        self.unmatched = 0
        """Answers and progress reports so far that matched no open request."""
        self.given_up = GivenUp()
        """Forwarded calls that were given up, and may still run."""
        self._pending: dict[int, _Pending] = {}
        self._last_id = after
        self._clock = trio.lowlevel.current_clock().current_time

    def __repr__(self) -> str:
        return f"<Requests: {len(self._pending)} open, {self.forwarded} of them forwarded>"

    def open(self, exchange: Exchange, *, forwarded: bool = True) -> int:
        """Reserve an id, which is also the progress token, for a request that is about to be sent.

        Args:
            exchange: receives the answer.
            forwarded: whether it is a forwarded call: only those count as work, and expire.
        """
        uid = self._last_id = self._last_id + 1
        self.forwarded += forwarded
        now = self._clock()
        self._pending[uid] = _Pending(exchange, now, now, forwarded)
        return uid

    def take(self, uid: int) -> Exchange | None:
        """Remove the request of an id and return its exchange, which the caller then ends."""
        entry = self._pending.pop(uid, None)
        if entry is None:
            return None
        self.forwarded -= entry.forwarded
        return entry.exchange

    def give_up(self, uid: int) -> Exchange | None:
        """As `take`, for a request that the peer has not answered, and may still work on."""
        entry = self._pending.get(uid)
        if entry is not None and entry.forwarded:
            self.given_up.add(uid, entry.exchange.asker, self._clock(), entry.exchange.answerable)
        return self.take(uid)

    def exchange_of(self, uid: int | None) -> Exchange | None:
        """The exchange of an open request that is a forwarded call; None if there is no such call."""
        entry = None if uid is None else self._pending.get(uid)
        return None if entry is None or not entry.forwarded else entry.exchange

    def is_forwarded(self, uid: int | None) -> bool | None:
        """Whether the open request of an id is a forwarded call; None if there is no such request."""
        entry = None if uid is None else self._pending.get(uid)
        return None if entry is None else entry.forwarded

    def lose(self, uid: int, error: CallError) -> None:
        """End one request without an answer, if it is still open; the connection goes on."""
        exchange = self.take(uid)
        if exchange is not None:
            exchange.lost(error)

    def take_answered(self, raw_id: Raw) -> Exchange | None:
        """As `take`, by an id as the peer wrote it; an id that matches no request is counted."""
        uid = as_uid(raw_id)
        exchange = self.take(uid)
        if exchange is None:
            self.unmatched += 1
            self.given_up.answered(uid)
        return exchange

    def take_plain(self, line: Line) -> bool:
        """Hand over a plain result, decoded in one step; False if the line needs a closer look."""
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
        """Pass on a progress report by its `progressToken`; drop one that cannot be read."""
        try:
            # Its members are passed on unread, and must be UTF-8.
            bytes(params).decode()
            fields = _decode_object(params)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return
        entry = self._pending.get(as_uid(fields.get("progressToken", Raw(b""))))
        if entry is None:
            self.unmatched += 1
            return
        entry.touched = self._clock()
        entry.exchange.progressed(fields)

    def overdue(self, *, idle: float, total: float, alive: Iterable[int] = ()) -> list[int]:
        """The ids of forwarded requests without life for `idle` seconds, or sent `total` seconds ago.

        Those that are `alive` have shown it just now. If all are asked for, for 0 seconds each, none is spared.
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
    """What the exchanges of the daemon's own requests have in common: no client is behind them."""

    spared_until = 0.0

    def progressed(self, params: dict[str, Raw]) -> None:
        """Ignore progress: the control plane asks for none."""

    def asked(self, request: PeerRequest) -> None:
        """Refuse: there is no client behind a request of the daemon's own."""
        request.refuse(envelope.INVALID_REQUEST, NO_CLIENT)

    def notified(self, method: str, params: Raw) -> None:
        """Ignore it: the daemon's log has it already."""

    @property
    def asker(self) -> object:
        """The request itself: it is nobody else's."""
        return self

    @property
    def answerable(self) -> frozenset[str]:
        """None: there is no client behind it."""
        return frozenset()


class AwaitedAnswer(OwnExchange):
    """An exchange that one task waits for: how the control plane asks."""

    def __init__(self) -> None:
        """Start without an answer."""
        self._done = trio.Event()
        self._result: bytes | None = None
        self._error: Exception | None = None

    async def wait(self) -> bytes:
        """Wait for the result.

        Raises:
            RemoteError: the peer answered with an error.
            CallError: no answer will come.
        """
        await self._done.wait()
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def answered(self, result: Buffer) -> None:
        """Keep the result."""
        self._result = bytes(result)
        self._done.set()

    def refused(self, error: Buffer) -> None:
        """Keep the peer's error."""
        self._error = RemoteError.from_wire(error)
        self._done.set()

    def lost(self, error: CallError) -> None:
        """Keep why there is no answer."""
        self._error = error
        self._done.set()


def as_uid(raw_id: Raw) -> int:
    """Our id as the peer echoed it: some servers turn 5 into "5". 0, which is never used, for anything else."""
    text = bytes(raw_id).strip(b'"')
    return int(text) if text.isdigit() and len(text) < 19 else 0  # noqa: PLR2004 - ids never reach 10^18
