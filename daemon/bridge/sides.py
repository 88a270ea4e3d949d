"""The two sides of a conversation, which handle the client's and the daemon's lines.

`ClientSide` passes the client's lines to the daemon, or keeps them for the next daemon. `DaemonSide` passes
answers back, opens the conversation with each new daemon, and settles open requests when a daemon is lost.
"""

from __future__ import annotations

from daemon.bridge import frames, stand_in
from daemon.bridge.conversation import CANCELLED, INITIALIZED, Beginning, Conversation
from daemon.bridge.frames import Cutter, Gatherer, Seen, cut
from daemon.bridge.requests import CALL, INITIALIZE, MAX_OPEN, WAIT_SECONDS, Item
from daemon.bridge.stand_in import LOST, TORN


class LongRequest:
    """A request longer than `LONG_BYTES` that the client is still sending."""

    __slots__ = ("answered", "head", "lost", "tail")

    def __init__(self, head: bytes, *, lost: bool) -> None:
        self.head = head
        self.tail = b""
        self.lost = lost  # whether no daemon will get all of it
        self.answered = False


class ClientSide:
    """Handles the client's lines, whole or in parts."""

    def __init__(self, conversation: Conversation) -> None:
        self.long: LongRequest | None = None  # the request that is being passed on in parts
        self._conversation = conversation
        self._cutter = Cutter()

    @property
    def is_between(self) -> bool:
        """Whether the next byte begins a line."""
        return self._cutter.is_between

    def passed(self, lines: bytes) -> bool:
        """Record whole lines that `up` already has. Returns whether more requests may be open."""
        requests = self._conversation.requests
        end = self._conversation.up.total - len(lines)
        for line in cut(lines):
            end += len(line)
            request_id = frames.plain_call(line)
            if request_id is None:
                self._note(line, *self._seen(line), end)
            else:
                requests.note_call(request_id, end, line)
        return len(requests) < MAX_OPEN

    def said(self, data: bytes, now: float) -> None:
        """Handle bytes from the client; `now` is in seconds, monotonic."""
        conversation = self._conversation
        for piece, begins, ends in self._cutter.feed(data):
            if begins and ends:
                self.pass_line(piece, 0.0 if conversation.through else now + WAIT_SECONDS)
                if conversation.through and not conversation.heard:
                    self._expect(piece, now)
            else:
                self._pass_part(piece, begins=begins, ends=ends)

    def ended(self) -> None:
        """Handle the end of the client's input: pass on an unfinished line, and answer nothing more."""
        self._conversation.unheard.take()
        self._conversation.up.put(self._cutter.rest())

    def pass_line(self, line: bytes, until: float) -> None:
        """Send a whole line, or keep it for the next daemon until a deadline (seconds, monotonic)."""
        conversation = self._conversation
        request_id, method = self._seen(line)
        if not conversation.through:
            conversation.hold(request_id, method, line, until)
            return
        if (
            conversation.own_tool
            and request_id is not None
            and method == CALL
            and stand_in.asks_for_status(line)
        ):
            modern = not conversation.script.handshaken
            conversation.down += stand_in.arrived(request_id, conversation.refusal, modern=modern)
            return
        conversation.up.put(line)
        self._note(line, request_id, method, conversation.up.total, until)

    def _expect(self, line: bytes, now: float) -> None:
        request_id, method = frames.peek(line)
        if request_id is not None and method in stand_in.ASKED_FIRST:
            self._conversation.unheard.put(Item(request_id, method, line, now + stand_in.patience(method)))

    def _seen(self, line: bytes) -> Seen:
        seen = frames.peek(line)
        if seen[1] == CANCELLED:
            cancelled = frames.cancelled(line)
            if cancelled is not None:
                self._conversation.forget(cancelled)
        elif seen[1] == INITIALIZED:
            self._conversation.script.initialized = True
        return seen

    def _note(
        self, line: bytes, request_id: bytes | None, method: bytes | None, end: int, until: float = 0.0
    ) -> None:
        if request_id is None:
            return
        if method is None:
            self._conversation.asked.discard(request_id)
        else:
            self._conversation.requests.note(request_id, method, end, line=line, until=until)

    def _pass_part(self, piece: bytes, *, begins: bool, ends: bool) -> None:
        """Send a part of a long line, unless its beginning was not sent or its daemon has ended."""
        conversation = self._conversation
        if begins or self.long is None:
            self.long = LongRequest(piece[: frames.ENDS], lost=not conversation.through)
            conversation.unheard.take()  # an answer from here could otherwise come in the middle of this one
        long = self.long
        long.tail = (long.tail + piece[-frames.ENDS :])[-frames.ENDS :]
        if not long.lost:
            conversation.up.put(piece)
        if not ends:
            return
        self.long = None
        request_id, method = frames.peek_ends(long.head, long.tail)
        if request_id is None or long.answered:
            return
        if long.lost:
            conversation.refuse(request_id, method, TORN)
        else:
            conversation.requests.note(request_id, method, conversation.up.total)


class DaemonSide:
    """Handles the lines of successive daemons."""

    def __init__(self, conversation: Conversation, client: ClientSide) -> None:
        self._conversation = conversation
        self._client = client
        self._gatherer = Gatherer()

    @property
    def is_calm(self) -> bool:
        """Whether a daemon answers, all lines so far are whole, and nothing waits in either direction."""
        conversation = self._conversation
        return (
            conversation.is_settled
            and not conversation.hidden
            and len(conversation.requests) < MAX_OPEN
            and not conversation.down
            and not conversation.up.unsent
            and self._client.is_between
            and self._gatherer.is_between
        )

    def passed(self, lines: bytes) -> None:
        """Record whole lines that look like answers and that the client already has."""
        requests = self._conversation.requests
        self._yield_to(lines)
        for line in cut(lines):
            request_id = frames.plain_answer(line)
            call = None if request_id is None else requests.calls.pop(request_id, None)
            if call is not None:
                # As `settle` does, without making an object: each answer to a call comes here.
                requests.kept -= len(call[0])
            else:
                answer = frames.answered(line)
                if answer is not None:
                    self._settle(*answer)
                elif (asked := frames.asked(line)) is not None:
                    self._conversation.was_asked(asked)

    def said(self, data: bytes) -> None:
        """Handle bytes from the daemon."""
        conversation = self._conversation
        if conversation.script.began is None:
            conversation.script.began = Beginning()
            conversation.unheard.take()
        for line in self._gatherer.feed(data):
            answer = frames.answered(line)
            if answer is None:
                if (asked := frames.asked(line)) is not None:
                    conversation.was_asked(asked)
                if not self._is_ours(line):
                    self._give(line)
                continue
            if answer[0] not in conversation.hidden:
                self._yield_to(line)
                self._give(line)
            elif answer[0] == conversation.awaited:
                conversation.refusal = "" if answer[1] else stand_in.reason(line)
            self._settle(*answer)

    def _yield_to(self, lines: bytes | bytearray) -> None:
        """Stop answering calls of the bridge's own tool once the daemon lists its better tool of that name."""
        if self._conversation.own_tool and stand_in.LISTED in lines:
            self._conversation.own_tool = b""

    def connected(self) -> None:
        """Open a new connection with the script; `through` becomes true with the answer."""
        self._ask_first(*self._conversation.script.opening())

    def lost(self, now: float) -> None:
        """Settle the open requests of a lost connection, after all its bytes were handled by `said`."""
        conversation = self._conversation
        self._gatherer.clear()
        conversation.awaited = None
        conversation.through = conversation.is_leaving = False
        conversation.unheard.take()
        if self._client.long is not None:
            self._client.long.lost = True
        gone = conversation.up.gone
        unsent = [
            line for line in conversation.up.withdraw() if frames.peek(line)[0] not in conversation.hidden
        ]
        conversation.hidden.clear()
        conversation.take_back()
        self._deal_with_open(gone, unsent, now + WAIT_SECONDS)

    def _give(self, line: bytes | bytearray) -> None:
        if self._conversation.down or isinstance(line, bytes):
            self._conversation.down += line
        else:
            # Not copied: it may be the whole answer of a large tool.
            self._conversation.down = line

    def _is_ours(self, line: bytes | bytearray) -> bool:
        """Whether to hide a line other than an answer from the client, which did not ask for it."""
        conversation = self._conversation
        unsent = frames.unsent(line)
        if unsent is not None:
            conversation.leaves(unsent)
            return True
        subscription = frames.acknowledged(line)
        if subscription is None:
            return False
        notifications = conversation.script.reopened(subscription, line)
        if notifications is None:
            entry = conversation.requests.settle(subscription)
            if entry is not None and entry.line:
                conversation.script.subscribed(subscription, entry.line)
            return False
        conversation.down += notifications
        return True

    def _settle(self, request_id: bytes, succeeded: bool) -> None:  # noqa: FBT001
        conversation = self._conversation
        conversation.hidden.discard(request_id)
        if request_id == conversation.awaited:
            self._resume()
            return
        entry = conversation.requests.settle(request_id)
        if entry is None:
            conversation.script.unsubscribed(request_id)
            # A daemon may refuse a long request before it has received all of it.
            long = self._client.long
            if long is not None and frames.peek_ends(long.head, b"")[0] == request_id:
                long.answered = True
        elif succeeded and entry.line:
            if entry.method == INITIALIZE:
                conversation.script.shook_hands(request_id, entry.line)
            else:
                conversation.script.was_set(request_id, entry.method, entry.line)

    def _ask_first(self, lines: bytes, request_id: bytes) -> None:
        self._conversation.awaited = request_id
        self._conversation.hidden.add(request_id)
        self._conversation.up.put(lines)

    def _resume(self) -> None:
        """Send everything that waits after the opening answer, first an `initialize` answered here."""
        conversation = self._conversation
        supplement = conversation.script.supplement()
        if supplement is not None:
            self._ask_first(*supplement)
            return
        conversation.awaited = None
        conversation.through = True
        conversation.hidden.update(request_id for request_id, _line in conversation.script.settings.values())
        conversation.up.put(conversation.script.sequel())
        conversation.down += conversation.script.announcement()
        for item in conversation.waiting.take():
            self._client.pass_line(item.line, item.until)

    def _deal_with_open(self, gone: int, unsent: list[bytes], until: float) -> None:
        conversation = self._conversation
        doubtful, safe = conversation.requests.take(gone, conversation.unsent)
        conversation.unsent.clear()
        for entry in doubtful:
            if not entry.line or entry.method == CALL:
                conversation.refuse(entry.id, entry.method, LOST)
            else:
                conversation.hold(entry.id, entry.method, entry.line, entry.until or until)
        for line in unsent:
            before = safe.pop(frames.peek(line)[0] or b"", None)
            self._client.pass_line(line, (before and before.until) or until)
        for entry in safe.values():
            if not entry.line:
                conversation.refuse(entry.id, entry.method, TORN)
            else:
                conversation.hold(entry.id, entry.method, entry.line, entry.until or until)
