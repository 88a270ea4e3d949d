"""What a daemon says, and what becomes of open requests from one daemon to the next."""

from __future__ import annotations

from daemon.bridge import peek, stand_in
from daemon.bridge.answers import LOST, TORN
from daemon.bridge.lines import Gatherer, cut
from daemon.bridge.requests import INITIALIZE, MAX_OPEN, WAIT_SECONDS
from daemon.bridge.script import Beginning

TYPE_CHECKING = False
if TYPE_CHECKING:
    from daemon.bridge.client_side import ClientSide
    from daemon.bridge.exchange import Exchange


class DaemonSide:
    """Takes the daemons' lines, one connection after the other."""

    def __init__(self, exchange: Exchange, client: ClientSide) -> None:
        """Begin between two lines; `client` is given what waited, once a daemon takes it."""
        self._exchange = exchange
        self._client = client
        self._gatherer = Gatherer()

    @property
    def is_calm(self) -> bool:
        """Whether a daemon is there and answers, and all that came was whole lines, and could go on."""
        exchange = self._exchange
        return (
            exchange.is_settled
            and not exchange.hidden
            and len(exchange.requests) < MAX_OPEN
            and not exchange.down
            and not exchange.up.unsent
            and self._client.is_between
            and self._gatherer.is_between
        )

    def passed(self, lines: bytes) -> None:
        """Whole lines, which begin as answers do, were given to the client already."""
        calls = self._exchange.requests.calls
        for line in cut(lines):
            request_id = peek.plain_answer(line)
            if request_id is None or calls.pop(request_id, None) is None:
                answer = peek.answered(line)
                if answer is not None:
                    self._settle(*answer)

    def said(self, data: bytes) -> None:
        """Take what the daemon says."""
        exchange = self._exchange
        if exchange.script.began is None:
            exchange.script.began = Beginning()
            exchange.unheard.take()
        for line in self._gatherer.feed(data):
            answer = peek.answered(line)
            if answer is None:
                if not self._is_ours(line):
                    self._give(line)
                continue
            if answer[0] not in exchange.hidden:
                self._give(line)
            elif answer[0] == exchange.awaited:
                exchange.refusal = "" if answer[1] else stand_in.reason(line)
            self._settle(*answer)

    def connected(self) -> None:
        """There is a connection again: begin with what the script says; `through` once that is answered."""
        self._ask_first(*self._exchange.script.opening())

    def lost(self, now: float) -> None:
        """The connection is gone, and everything that came over it was `said`."""
        exchange = self._exchange
        self._gatherer.clear()
        exchange.awaited = None
        exchange.through = False
        exchange.unheard.take()
        if self._client.long is not None:
            self._client.long.lost = True
        gone = exchange.up.gone
        unsent = [line for line in exchange.up.withdraw() if peek.peek(line)[0] not in exchange.hidden]
        exchange.hidden.clear()
        self._deal_with_open(gone, unsent, now + WAIT_SECONDS)

    def _give(self, line: bytes | bytearray) -> None:
        if self._exchange.down or isinstance(line, bytes):
            self._exchange.down += line
        else:
            # Not copied once more: it may be all that a large tool has answered.
            self._exchange.down = line

    def _is_ours(self, line: bytes | bytearray) -> bool:
        """Whether a line that answers nothing is not for the client: it is about what it has not asked."""
        subscription = peek.acknowledged(line)
        if subscription is None:
            return False
        exchange = self._exchange
        told = exchange.script.reopened(subscription, line)
        if told is None:
            entry = exchange.requests.settle(subscription)
            if entry is not None and entry.line is not None:
                exchange.script.subscribed(subscription, entry.line)
            return False
        exchange.down += told
        return True

    def _settle(self, request_id: bytes, succeeded: bool) -> None:  # noqa: FBT001
        """An answer is complete."""
        exchange = self._exchange
        exchange.hidden.discard(request_id)
        if request_id == exchange.awaited:
            self._resume()
            return
        entry = exchange.requests.settle(request_id)
        if entry is None:
            exchange.script.unsubscribed(request_id)
            # A daemon may refuse a long request before it has all of it.
            long = self._client.long
            if long is not None and peek.peek_ends(long.head, b"")[0] == request_id:
                long.answered = True
        elif succeeded and entry.method == INITIALIZE and entry.line is not None:
            exchange.script.shook_hands(request_id, entry.line)

    def _ask_first(self, lines: bytes, request_id: bytes) -> None:
        self._exchange.awaited = request_id
        self._exchange.hidden.add(request_id)
        self._exchange.up.put(lines)

    def _resume(self) -> None:
        """The daemon has answered what it was asked first: it gets all that waits.

        Unless the client's `initialize` was answered here meanwhile: a daemon that never sees one tells the
        client of no new tools.
        """
        exchange = self._exchange
        supplement = exchange.script.supplement()
        if supplement is not None:
            self._ask_first(*supplement)
            return
        exchange.awaited = None
        exchange.through = True
        exchange.up.put(exchange.script.sequel())
        exchange.down += exchange.script.announcement()
        for item in exchange.waiting.take():
            self._client.pass_line(item.line, item.until)

    def _deal_with_open(self, gone: int, unsent: list[bytes], until: float) -> None:
        exchange = self._exchange
        doubtful, safe = exchange.requests.take(gone)
        for entry in doubtful:
            if entry.line is None:
                exchange.refuse(entry.id, entry.method, LOST)
            else:
                exchange.hold(entry.id, entry.method, entry.line, entry.until or until)
        for line in unsent:
            before = safe.pop(peek.peek(line)[0] or b"", None)
            self._client.pass_line(line, (before and before.until) or until)
        for entry in safe.values():
            exchange.refuse(entry.id, entry.method, TORN)
