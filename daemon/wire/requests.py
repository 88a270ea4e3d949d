"""Requests of ours that wait for the other side's answer, by the ids that they were sent under.

An id is never used twice on a connection, so an answer that comes late, or comes again, finds nobody.
Completing a request is a method call, never a task or an event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec
import trio
from msgspec import UNSET, Raw, Struct, UnsetType

from daemon.errors import CallError, UpstreamLost
from daemon.wire import envelope

if TYPE_CHECKING:
    from daemon.wire.envelope import Buffer
    from daemon.wire.frames import Line


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


class _PlainAnswer(Struct, gc=False):
    id: int
    result: Raw
    jsonrpc: str | UnsetType = UNSET
    method: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


_decode_answer = msgspec.json.Decoder(_PlainAnswer).decode
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode


class Requests:
    """The open requests of one connection."""

    def __init__(self) -> None:
        """Begin with none."""
        self.forwarded = 0
        """How many are somebody else's: our own (a ping, a subscription) do not count as work."""
        self.unmatched = 0
        """How many answers and progress reports were for no open request."""
        self._pending: dict[int, _Pending] = {}
        self._last_id = 0
        self._clock = trio.lowlevel.current_clock().current_time

    def __repr__(self) -> str:
        return f"<Requests: {len(self._pending)} open, {self.forwarded} of them forwarded>"

    def open(self, exchange: Exchange, *, forwarded: bool = True) -> int:
        """Reserve an id (which is also the progress token) for a request to be sent next.

        Args:
            exchange: who waits.
            forwarded: whether it is somebody else's request: only those count as work, and expire.
        """
        uid = self._last_id = self._last_id + 1
        self.forwarded += forwarded
        now = self._clock()
        self._pending[uid] = _Pending(exchange, now, now, forwarded)
        return uid

    def take(self, uid: int) -> Exchange | None:
        """Who waits under an id, who then waits no longer: the caller ends the exchange."""
        entry = self._pending.pop(uid, None)
        if entry is None:
            return None
        self.forwarded -= entry.forwarded
        return entry.exchange

    def take_answered(self, raw_id: Raw) -> Exchange | None:
        """As `take`, by an id as the peer wrote it; one that is nobody's is counted."""
        exchange = self.take(as_uid(raw_id))
        self.unmatched += exchange is None
        return exchange

    def take_plain(self, line: Line) -> bool:
        """Hand over a result as nearly all are written, read in one look; False if it is worth a closer one."""
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
        """Pass a progress report on to who waits under its `progressToken`; drop one that cannot be read."""
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

    def overdue(self, *, idle: float, total: float) -> list[int]:
        """The ids of forwarded requests without life for `idle` seconds, or sent `total` seconds ago."""
        now = self._clock()
        return [
            uid
            for uid, entry in self._pending.items()
            if entry.forwarded and (now - entry.touched >= idle or now - entry.sent >= total)
        ]

    def lose_all(self, reason: str) -> None:
        """Tell everybody who waits that no answer will come."""
        pending, self._pending = self._pending, {}
        self.forwarded = 0
        for entry in pending.values():
            entry.exchange.lost(UpstreamLost(f"{reason}; whether the call ran is unknown"))


class Reply:
    """An exchange that one task waits for: the control plane's way to ask."""

    def __init__(self) -> None:
        """Nothing has come yet."""
        self._done = trio.Event()
        self._result: bytes | None = None
        self._error: Exception | None = None

    async def wait(self) -> bytes:
        """The result, once it is there.

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

    def progressed(self, params: dict[str, Raw]) -> None:
        """Nobody asked for progress on the control plane."""


def as_uid(raw_id: Raw) -> int:
    """Our id as the peer echoed it: some servers turn 5 into "5". Anything else is nobody's: 0."""
    text = bytes(raw_id).strip(b'"')
    return int(text) if text.isdigit() and len(text) < 19 else 0  # noqa: PLR2004 - ids never reach 10^18
