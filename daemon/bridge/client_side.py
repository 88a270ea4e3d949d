"""What the client says: passed on to the daemon, or kept for the next one."""

from __future__ import annotations

from daemon.bridge import peek, stand_in
from daemon.bridge.answers import TORN
from daemon.bridge.exchange import CANCELLED, INITIALIZED
from daemon.bridge.lines import Cutter, cut
from daemon.bridge.requests import CALL, MAX_OPEN, WAIT_SECONDS, Item

TYPE_CHECKING = False
if TYPE_CHECKING:
    from daemon.bridge.exchange import Exchange
    from daemon.bridge.peek import Seen


class LongRequest:
    """A request over `LONG_BYTES` that the client is still sending."""

    __slots__ = ("answered", "head", "lost", "tail")

    def __init__(self, head: bytes, *, lost: bool) -> None:
        self.head = head
        self.tail = b""
        self.lost = lost
        """Whether no daemon will get all of it."""
        self.answered = False


class ClientSide:
    """Takes the client's lines, whole or in parts."""

    def __init__(self, exchange: Exchange) -> None:
        """Begin between two lines."""
        self.long: LongRequest | None = None
        """The request that is passing in parts."""
        self._exchange = exchange
        self._cutter = Cutter()

    @property
    def is_between(self) -> bool:
        """Whether the next byte begins a line."""
        return self._cutter.is_between

    def passed(self, lines: bytes) -> bool:
        """Whole lines were given to `up` already, so that the daemon need not wait for this.

        False: no more requests can be open.
        """
        requests = self._exchange.requests
        end = self._exchange.up.total - len(lines)
        for line in cut(lines):
            end += len(line)
            request_id = peek.plain_call(line)
            if request_id is None:
                self._note(line, *self._seen(line), end)
            else:
                requests.note_call(request_id, end)
        return len(requests) < MAX_OPEN

    def said(self, data: bytes, now: float) -> None:
        """Take what the client says; `now` in seconds, monotonic."""
        exchange = self._exchange
        for piece, begins, ends in self._cutter.feed(data):
            if begins and ends:
                self.pass_line(piece, now + WAIT_SECONDS if not exchange.through else None)
                if exchange.through and not exchange.heard:
                    self._expect(piece, now)
            else:
                self._pass_part(piece, begins=begins, ends=ends)

    def ended(self) -> None:
        """The client has ended; what it left without a newline is passed on as it is.

        It asks nothing more, so that nothing is gained by an answer which is not the daemon's.
        """
        self._exchange.unheard.take()
        self._exchange.up.put(self._cutter.rest())

    def pass_line(self, line: bytes, until: float | None) -> None:
        """Send a whole line, or keep it.

        Args:
            line: with its newline.
            until: when it has waited long enough (seconds, monotonic); None: it has not waited.
        """
        exchange = self._exchange
        request_id, method = self._seen(line)
        if not exchange.through:
            exchange.hold(request_id, method, line, until or 0.0)
            return
        if exchange.own_tool and request_id is not None and method == CALL and stand_in.asks_for_status(line):
            modern = not exchange.script.handshaken
            exchange.down += stand_in.arrived(request_id, exchange.refusal, modern=modern)
            return
        exchange.up.put(line)
        self._note(line, request_id, method, exchange.up.total, until)

    def _expect(self, line: bytes, now: float) -> None:
        """Nobody knows yet whether anybody answers this line, which was sent."""
        request_id, method = peek.peek(line)
        if request_id is not None and method in stand_in.ASKED_FIRST:
            self._exchange.unheard.put(Item(request_id, method, line, now + stand_in.patience(method)))

    def _seen(self, line: bytes) -> Seen:
        """Id and method of a line, which counts from now on."""
        seen = peek.peek(line)
        if seen[1] == CANCELLED:
            cancelled = peek.cancelled(line)
            if cancelled is not None:
                self._exchange.forget(cancelled)
        elif seen[1] == INITIALIZED:
            self._exchange.script.initialized = True
        return seen

    def _note(
        self,
        line: bytes,
        request_id: bytes | None,
        method: bytes | None,
        end: int,
        until: float | None = None,
    ) -> None:
        """A line is on its way, and open if it is a request."""
        if request_id is not None and method is not None:
            self._exchange.requests.note(request_id, method, end, line=line, until=until)

    def _pass_part(self, piece: bytes, *, begins: bool, ends: bool) -> None:
        """Send a part of a long line, unless its beginning was not sent or its daemon is gone."""
        exchange = self._exchange
        if begins or self.long is None:
            self.long = LongRequest(piece[: peek.ENDS], lost=not exchange.through)
            exchange.unheard.take()  # else a line of ours could come in the middle of this one
        long = self.long
        long.tail = (long.tail + piece[-peek.ENDS :])[-peek.ENDS :]
        if not long.lost:
            exchange.up.put(piece)
        if not ends:
            return
        self.long = None
        request_id, method = peek.peek_ends(long.head, long.tail)
        if request_id is None or long.answered:
            return
        if long.lost:
            exchange.refuse(request_id, method, TORN)
        else:
            exchange.requests.note(request_id, method, exchange.up.total)
