"""What passes between one client and one daemon after the other. No descriptors, no clock: `loop` has those.

While a daemon is there (`through`), lines pass in both directions as they are; only their ids are looked at.
When it goes, every open request is dealt with: what may have run is answered with `UpstreamLost`, for a second
time could do damage; what has no effect, and what was not sent to its end, waits for the next daemon. That one
is told the `Script` first.
"""

from __future__ import annotations

from daemon.cli.bridging import peek, stand_in
from daemon.cli.bridging.answers import FULL, LOST, TORN, absent, refuse
from daemon.cli.bridging.ledger import CALL, INITIALIZE, LISTEN, MAX_OPEN, TOOLS_LIST, Ledger
from daemon.cli.bridging.lines import Cutter, Gatherer, cut
from daemon.cli.bridging.outgoing import Outgoing
from daemon.cli.bridging.script import Beginning, Script
from daemon.cli.bridging.waiting import WAIT_SECONDS, Item, Waiting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from daemon.cli.bridging.answers import Refusal
    from daemon.cli.bridging.peek import Seen

HELLO = b'"mcpd/hello"'
INITIALIZED = b'"notifications/initialized"'
CANCELLED = b'"notifications/cancelled"'


class _Long:
    """A request over `LONG_BYTES` that the client is still sending."""

    __slots__ = ("answered", "head", "lost", "tail")

    def __init__(self, head: bytes, *, lost: bool) -> None:
        self.head = head
        self.tail = b""
        self.lost = lost
        """Whether no daemon will get all of it."""
        self.answered = False


class Conversation:
    """One client's; `up` is for the daemon, `down` for the client."""

    def __init__(self, hello: bytes, *, through: bool = True) -> None:
        """Begin.

        Args:
            hello: sent to each daemon before all else.
            through: whether a daemon is there.
        """
        self.up = Outgoing()
        self.down = bytearray()
        self.through = through
        """Whether a daemon takes what the client sends."""
        self.trouble = ""
        """Why there is none, and what to do."""
        self.stands_in = False
        """Whether the client was answered here, for want of a daemon's word."""
        self.own_tool = b""
        """The name of our own tool, if the client was given it: its model may call it ever after."""
        self._script = Script(hello)
        self._ledger = Ledger()
        self._waiting = Waiting()
        self._unheard = Waiting()
        """What the client began with, and a daemon has that never said a word: it is in the ledger as well."""
        self._from_client = Cutter()
        self._from_daemon = Gatherer()
        self._awaited: bytes | None = None
        """The request whose answer makes a daemon one that takes what the client sends."""
        self._refusal = ""
        """Why the present daemon does not serve this client, if it said so to what it was asked first."""
        self._hidden: set[bytes] = set()
        """Requests whose answers are not for the client: they were our own, or were answered here."""
        self._long: _Long | None = None
        if through:
            self.up.put(hello)

    @property
    def open(self) -> int:
        """Requests without an answer."""
        return len(self._ledger)

    @property
    def heard(self) -> bool:
        """Whether any daemon has said anything."""
        return self._script.began is not None

    @property
    def is_settled(self) -> bool:
        """Whether a daemon takes what the client sends, and one has ever answered: nothing is due unasked."""
        return self.through and self.heard

    @property
    def is_calm(self) -> bool:
        """Whether a daemon is there and answers, and all that came was whole lines, and could go on."""
        return (
            self.is_settled
            and not self._hidden
            and len(self._ledger) < MAX_OPEN
            and not self.down
            and not self.up.unsent
            and self._from_client.is_between
            and self._from_daemon.is_between
        )

    @property
    def deadline(self) -> float | None:
        """When `expire` has something to do (seconds, monotonic); None: nothing waits."""
        deadlines = [self._waiting.deadline(), self._unheard.deadline()]
        return min((each for each in deadlines if each is not None), default=None)

    def expire(self, now: float) -> None:
        """Answer what has waited long enough."""
        for item in self._waiting.expired(now):
            if item.id is not None and not self._stood_in(item.id, item):
                waited = WAIT_SECONDS if self.heard else stand_in.patience(item.method)
                self._refuse(item.id, item.method, absent(self.trouble, waited))
        for item in self._unheard.expired(now):
            if item.id is not None and self._stood_in(item.id, item):
                self._doubt(item.id)

    def _doubt(self, request_id: bytes) -> None:
        """Whoever has this request may never answer it: what follows waits until he does, unseen."""
        self._ledger.settle(request_id)
        self._hidden.add(request_id)
        self._script.overheard()
        if self.through:
            self.through = False
            self._awaited = request_id

    def _stood_in(self, request_id: bytes, item: Item) -> bool:
        """Whether a request was answered as the first daemon would have."""
        line = None if self.heard else stand_in.answer(item, self.trouble)
        if line is None:
            return False
        self.down += line
        self.stands_in = True
        if item.method == TOOLS_LIST:
            self.own_tool = stand_in.STATUS.encode()
        elif item.method == INITIALIZE:
            self._script.shook_hands(request_id, item.line)
        elif item.method == LISTEN:
            self._script.subscribed(request_id, item.line)
        return True

    # --- the client -----------------------------------------------------------------------------------------

    def passed_up(self, lines: bytes) -> bool:
        """Whole lines of the client's were given to `up` already, so that the daemon need not wait for this.

        False: no more requests can be open.
        """
        end = self.up.total - len(lines)
        for line in cut(lines):
            end += len(line)
            request_id = peek.plain_call(line)
            if request_id is None:
                self._note(line, *self._seen(line), end)
            else:
                self._ledger.note_call(request_id, end)
        return len(self._ledger) < MAX_OPEN

    def said(self, data: bytes, now: float) -> None:
        """Take what the client says; `now` in seconds, monotonic."""
        for piece, begins, ends in self._from_client.feed(data):
            if begins and ends:
                self._pass_line(piece, now + WAIT_SECONDS if not self.through else None)
                if self.through and not self.heard:
                    self._expect(piece, now)
            else:
                self._pass_part(piece, begins=begins, ends=ends)

    def said_all(self) -> None:
        """The client has ended; what it left without a newline is passed on as it is.

        It asks nothing more, so that nothing is gained by an answer which is not the daemon's.
        """
        self._unheard.take()
        self.up.put(self._from_client.rest())

    def _pass_line(self, line: bytes, until: float | None) -> None:
        """Send a whole line, or keep it.

        Args:
            line: with its newline.
            until: when it has waited long enough (seconds, monotonic); None: it has not waited.
        """
        request_id, method = self._seen(line)
        if not self.through:
            self._hold(request_id, method, line, until or 0.0)
            return
        if self.own_tool and request_id is not None and method == CALL and stand_in.asks_for_status(line):
            self.down += stand_in.arrived(request_id, self._refusal, modern=not self._script.handshaken)
            return
        self.up.put(line)
        self._note(line, request_id, method, self.up.total, until)

    def _expect(self, line: bytes, now: float) -> None:
        """Nobody knows yet whether anybody answers this line, which was sent."""
        request_id, method = peek.peek(line)
        if request_id is not None and method in stand_in.ASKED_FIRST:
            self._unheard.put(Item(request_id, method, line, now + stand_in.patience(method)))

    def _seen(self, line: bytes) -> Seen:
        """Id and method of a line, which counts from now on."""
        seen = peek.peek(line)
        if seen[1] == CANCELLED:
            self._cancel(line)
        elif seen[1] == INITIALIZED:
            self._script.initialized = True
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
            self._ledger.note(request_id, method, end, line=line, until=until)

    def _pass_part(self, piece: bytes, *, begins: bool, ends: bool) -> None:
        """Send a part of a long line, unless its beginning was not sent or its daemon is gone."""
        if begins or self._long is None:
            self._long = _Long(piece[: peek.ENDS], lost=not self.through)
            self._unheard.take()  # else a line of ours could come in the middle of this one
        long = self._long
        long.tail = (long.tail + piece[-peek.ENDS :])[-peek.ENDS :]
        if not long.lost:
            self.up.put(piece)
        if not ends:
            return
        self._long = None
        request_id, method = peek.peek_ends(long.head, long.tail)
        if request_id is None or long.answered:
            return
        if long.lost:
            self._refuse(request_id, method, TORN)
        else:
            self._ledger.note(request_id, method, self.up.total)

    def _cancel(self, line: bytes) -> None:
        request_id = peek.cancelled(line)
        if request_id is not None:
            self._ledger.settle(request_id)
            self._script.unsubscribed(request_id)
            self._waiting.cancel(request_id)
            self._unheard.cancel(request_id)

    def _hold(self, request_id: bytes | None, method: bytes | None, line: bytes, until: float) -> None:
        """Keep a line for the next daemon, if it is any business of that one.

        It is told the hello, the end of the handshake and the subscriptions anyway; an answer, or what cancels
        a request, was for the last one.
        """
        if method is None or method in {HELLO, INITIALIZED, CANCELLED}:
            return
        if method == LISTEN and request_id in self._script.subscriptions:
            return
        if not self.heard:
            until -= WAIT_SECONDS - stand_in.patience(method)
        if not self._waiting.put(Item(request_id, method, line, until)) and request_id is not None:
            self._refuse(request_id, method, FULL)

    # --- the daemon -----------------------------------------------------------------------------------------

    def passed_down(self, lines: bytes) -> None:
        """Whole lines of the daemon's, which begin as answers do, were given to the client already."""
        for line in cut(lines):
            request_id = peek.plain_answer(line)
            if request_id is None or self._ledger.calls.pop(request_id, None) is None:
                answer = peek.answered(line)
                if answer is not None:
                    self._settle(*answer)

    def told(self, data: bytes) -> None:
        """Take what the daemon says."""
        if self._script.began is None:
            self._script.began = Beginning()
            self._unheard.take()
        for line in self._from_daemon.feed(data):
            answer = peek.answered(line)
            if answer is None:
                if not self._is_ours(line):
                    self._give(line)
                continue
            if answer[0] not in self._hidden:
                self._give(line)
            elif answer[0] == self._awaited:
                self._refusal = "" if answer[1] else stand_in.reason(line)
            self._settle(*answer)

    def _give(self, line: bytes | bytearray) -> None:
        if self.down or isinstance(line, bytes):
            self.down += line
        else:
            # Not copied once more: it may be all that a large tool has answered.
            self.down = line

    def _is_ours(self, line: bytes | bytearray) -> bool:
        """Whether a line that answers nothing is not for the client: it is about what it has not asked."""
        subscription = peek.acknowledged(line)
        if subscription is None:
            return False
        told = self._script.reopened(subscription, line)
        if told is None:
            entry = self._ledger.settle(subscription)
            if entry is not None and entry.line is not None:
                self._script.subscribed(subscription, entry.line)
            return False
        self.down += told
        return True

    def _settle(self, request_id: bytes, succeeded: bool) -> None:  # noqa: FBT001
        """An answer is complete."""
        self._hidden.discard(request_id)
        if request_id == self._awaited:
            self._resume()
            return
        entry = self._ledger.settle(request_id)
        if entry is None:
            self._script.unsubscribed(request_id)
            # A daemon may refuse a long request before it has all of it.
            if self._long is not None and peek.peek_ends(self._long.head, b"")[0] == request_id:
                self._long.answered = True
        elif succeeded and entry.method == INITIALIZE and entry.line is not None:
            self._script.shook_hands(request_id, entry.line)

    # --- one daemon after the other -------------------------------------------------------------------------

    def greet(self) -> None:
        """There is a connection again: begin with what the script says; `through` once that is answered."""
        self._ask_first(*self._script.opening())

    def _ask_first(self, lines: bytes, request_id: bytes) -> None:
        self._awaited = request_id
        self._hidden.add(request_id)
        self.up.put(lines)

    def _resume(self) -> None:
        """The daemon has answered what it was asked first: it gets all that waits.

        Unless the client's `initialize` was answered here meanwhile: a daemon that never sees one tells the
        client of no new tools.
        """
        supplement = self._script.supplement()
        if supplement is not None:
            self._ask_first(*supplement)
            return
        self._awaited = None
        self.through = True
        self.up.put(self._script.sequel())
        self.down += self._script.announcement()
        for item in self._waiting.take():
            self._pass_line(item.line, item.until)

    def lose(self, now: float) -> None:
        """The connection is gone, and everything that came over it was `told`."""
        self._from_daemon.clear()
        self._awaited = None
        self.through = False
        self._unheard.take()
        if self._long is not None:
            self._long.lost = True
        gone = self.up.gone
        lines = [line for line in self.up.withdraw() if peek.peek(line)[0] not in self._hidden]
        self._hidden.clear()
        self._deal_with_open(gone, lines, now + WAIT_SECONDS)

    def _deal_with_open(self, gone: int, unsent: list[bytes], until: float) -> None:
        doubtful, safe = self._ledger.take(gone)
        for entry in doubtful:
            if entry.line is None:
                self._refuse(entry.id, entry.method, LOST)
            else:
                self._hold(entry.id, entry.method, entry.line, entry.until or until)
        for line in unsent:
            before = safe.pop(peek.peek(line)[0] or b"", None)
            self._pass_line(line, (before and before.until) or until)
        for entry in safe.values():
            self._refuse(entry.id, entry.method, TORN)

    def _refuse(self, request_id: bytes, method: bytes | None, refusal: Refusal) -> None:
        self.down += refuse(request_id, method, refusal, modern=not self._script.handshaken)
