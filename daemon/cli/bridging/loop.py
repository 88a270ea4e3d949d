"""The bridge's one poll loop: bytes between stdin, stdout and a socket that is connected anew whenever it ends.

Each direction has a buffer with a bound: over it, the source is not read, so that a slow reader slows its
writer down instead of growing this process. No descriptor is ever written to when that could block: the socket
is non-blocking, and `stdout` takes care of the other. So a client and a daemon that both write before they read
cannot deadlock.
"""

from __future__ import annotations

import _socket
import os
import select
from time import monotonic

from daemon.cli.bridging.conversation import Conversation
from daemon.cli.bridging.ledger import MAX_OPEN
from daemon.cli.bridging.peek import only_answers
from daemon.cli.bridging.reaching import HUNG_UP, MUTE, SILENT, TURNED_AWAY, reach
from daemon.cli.bridging.retry import Retry
from daemon.cli.bridging.stdout import Stdout

READ_BYTES = 256 * 1024
"""Read at once: the largest size that still gains, and what a unix socket holds by default."""

READ_BYTES_ALONE = 16 * 1024
"""Read at once from the client while there is no daemon: each line may have to be answered here, at ten times
its length."""

BUFFERED_BYTES = 256 * 1024
"""A source is not read while this much waits for its sink."""

GREETING_SECONDS = 60.0
"""How long a daemon that has taken the connection may need for its first answer. With socket activation it is
only just being started."""

WORDLESS = 3
"""Connections in a row that the first daemon we meet ends without a word, until we believe that it means us."""

AWAITED_SECONDS = 0.5
"""Between two attempts on a socket that nobody listens on, at the most, while a request waits."""

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_room = memoryview(bytearray(READ_BYTES))
"""Where everything is read to: `os.read` would map and unmap as much memory for each message, however short."""
_all, _less = [_room], [_room[:READ_BYTES_ALONE]]
_GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL


class Bridge:
    """Moves bytes between the client on stdin and stdout and the daemon."""

    def __init__(self, path: str, hello: bytes) -> None:
        """Begin with a connection, if there is one to be had.

        Args:
            path: of the daemon's socket.
            hello: sent over each connection before anything from stdin.
        """
        self._path = path
        self._link, trouble = reach(path)
        self._talk = Conversation(hello, through=self._link is not None)
        self._retry = Retry()
        self._since = monotonic()
        self._next = 0.0
        self._vain: float | None = None
        """When nobody was found; None: somebody was, and more attempts would trouble him."""
        self._wordless = 0
        self._lost = False
        """Whether a daemon that answered the client has gone."""
        self._stdin_open = True
        self._poll = select.poll()
        self._stdout = Stdout(_STDOUT)
        self._masks: dict[int, int | None] = {}
        if self._link is None:
            self._found_nobody(trouble, self._since)
            _say(f"{trouble}\nUntil it runs, this bridge answers for it.")
        else:
            self._talk.trouble = SILENT.format(path=path)

    def run(self) -> str:
        """Move bytes until the client has ended.

        Returns:
            Empty; else why the client was not served: no daemon has ever said a word, and one hangs up on us
            whenever we connect, or the client has ended and was not answered.
        """
        while not self._is_over():
            if not self._talk.is_settled:
                self._tend(monotonic())
            self._watch()
            if self._talk.is_calm and self._stdin_open and self._link is not None:
                self._relay(self._link)
                continue
            for descriptor, events in self._poll.poll(self._patience()):
                self._use(descriptor, events)
        return self._failure()

    def _failure(self) -> str:
        talk = self._talk
        asked = talk.open > 0 or talk.deadline is not None
        if talk.heard or talk.stands_in or self._stdout.gone:
            return ""
        return talk.trouble if asked or self._is_unwanted() else ""

    def _relay(self, link: _socket.socket) -> None:
        """Pass on whole lines as long as nothing else comes, and nothing has to wait.

        The usual case, hence short: each step here is a step more for every call. It does what all else here
        does, in another order: what is passed on is looked at when the other side already works on it.

        Whatever else poll has said when this returns, it says again.
        """
        talk, up, poll = self._talk, self._talk.up, self._poll.poll
        own = talk.own_tool
        while True:
            for descriptor, events in poll():
                if events != select.POLLIN:
                    self._use(descriptor, events)
                    return
                data = _read(descriptor, _all)
                if not data or not data.endswith(b"\n") or (own and own in data):
                    self._hear(descriptor, data)
                    return
                if descriptor == _STDIN:
                    sent = up.pass_on(data, link)
                    calm = talk.passed_up(data) and sent
                elif only_answers(data):
                    calm = self._tell(data)
                    talk.passed_down(data)
                else:
                    self._hear(descriptor, data)
                    return
                if not calm:
                    return

    def _use(self, descriptor: int, events: int) -> None:
        if descriptor == _STDIN:
            self._hear(_STDIN, _read(_STDIN, _all if self._talk.through else _less))
        elif descriptor == _STDOUT:
            self._stdout.gone |= bool(events & _GONE)
            self._write()
        else:
            self._on_link(events)

    def _hear(self, descriptor: int, data: bytes | None) -> None:
        """Take what was read; empty: that was the end; None: nothing was."""
        if data is None:
            return
        if descriptor == _STDIN:
            self._said(data)
        else:
            self._told(data)

    def _is_over(self) -> bool:
        """A client that has only finished writing still gets its answers, if a daemon is there to give them."""
        if self._stdout.gone or self._is_unwanted():
            return True
        awaits = self._link is not None and (self._talk.through or self._talk.open)
        return not self._stdin_open and not self._talk.down and not awaits

    def _is_unwanted(self) -> bool:
        """Whether a daemon means us when it hangs up. A client that was answered here is not given up."""
        return self._wordless >= WORDLESS and not self._talk.stands_in

    def _watch(self) -> None:
        """Ask poll for what can be used now.

        A source that must wait is not registered at all: poll reports a hangup unasked, and would spin on it.
        """
        talk = self._talk
        room = len(talk.down) < BUFFERED_BYTES
        takes = talk.up.unsent < BUFFERED_BYTES and talk.open < MAX_OPEN if talk.through else room
        self._register(_STDIN, select.POLLIN if takes and self._stdin_open else None)
        if self._link is not None:
            writes = talk.up.unsent and not talk.up.deaf
            mask = (select.POLLIN if room else 0) | (select.POLLOUT if writes else 0)
            self._register(self._link.fileno(), mask or None)
        # Always: that is how we learn that nobody reads our stdout any more.
        self._register(_STDOUT, select.POLLOUT if talk.down else 0)

    def _register(self, descriptor: int, mask: int | None) -> None:
        if self._masks.get(descriptor) == mask:
            return
        self._masks[descriptor] = mask
        if mask is None:
            self._poll.unregister(descriptor)
        else:
            self._poll.register(descriptor, mask)

    def _patience(self) -> int | None:
        """Milliseconds until something is to be done unasked; None: never."""
        if self._talk.is_settled:
            return None
        times = []
        if self._link is None:
            times.append(self._due())
        elif not self._talk.through:
            times.append(self._since + GREETING_SECONDS)
        if (deadline := self._talk.deadline) is not None:
            times.append(deadline)
        if not times:
            return None
        # One more than needed rather than a fraction less: that would come here again at once, and again.
        return max(0, int((min(times) - monotonic()) * 1000) + 1)

    # --- the client -----------------------------------------------------------------------------------------

    def _said(self, data: bytes) -> None:
        if data:
            self._talk.said(data, monotonic())
        else:
            self._stdin_open = False
            self._talk.said_all()
        self._send()

    def _write(self) -> None:
        """Give the client what it takes now: waiting for it in the loop would cost every answer a turn."""
        down = self._talk.down
        while down and (taken := self._stdout.give(down)):
            del down[:taken]

    def _tell(self, data: bytes) -> bool:
        """Give the client something while nothing else waits, without a copy. True: it took all of it."""
        taken = self._stdout.give(data)
        if taken == len(data):
            return True
        self._talk.down += data[taken:]
        return False

    # --- the daemon -----------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Give the daemon what it takes now; after the client's last byte, tell it that there is no more."""
        if self._link is not None and self._talk.up.send(self._link) and not self._stdin_open:
            try:
                self._link.shutdown(_socket.SHUT_WR)
            except OSError:
                self._talk.up.deaf = True

    def _on_link(self, events: int) -> None:
        if self._talk.up.unsent:
            self._send()
        if self._link is None or not events & (select.POLLIN | _GONE) or len(self._talk.down) >= BUFFERED_BYTES:
            return
        self._hear(self._link.fileno(), _read(self._link.fileno(), _all))

    def _told(self, data: bytes) -> None:
        if data:
            was_through = self._talk.through
            self._talk.told(data)
            if self._talk.through and not was_through:
                _say("connected again." if self._lost else "connected.")
                self._since = monotonic()
                self._send()
            self._write()
        else:
            self._wordless += not self._talk.heard
            self._lose((HUNG_UP if self._talk.heard else TURNED_AWAY).format(path=self._path))

    def _tend(self, now: float) -> None:
        """While no daemon answers, do what is to be done at a time of its own."""
        through = self._talk.through
        if self._link is not None and not through and now >= self._since + GREETING_SECONDS:
            self._lose(MUTE.format(path=self._path, seconds=GREETING_SECONDS))
        if self._link is None and now >= self._due():
            self._connect(now)
        self._talk.expire(now)
        if through and not self._talk.through:
            self._since = now  # its time begins when it was first missed: the client may have been idle before
            _say(f"{self._talk.trouble}\nUntil it answers, this does so in its place.")

    def _due(self) -> float:
        """When the next attempt is made."""
        if self._vain is None or self._talk.deadline is None:
            return self._next
        return min(self._next, self._vain + AWAITED_SECONDS)

    def _connect(self, now: float) -> None:
        self._link, trouble = reach(self._path)
        if self._link is None:
            self._found_nobody(trouble, now)
            return
        self._since = now
        self._talk.trouble = SILENT.format(path=self._path)
        self._talk.greet()
        self._send()

    def _found_nobody(self, trouble: str, now: float) -> None:
        self._talk.trouble = trouble
        self._retry.failed()
        self._next = now + self._retry.delay()
        self._vain = now

    def _lose(self, trouble: str) -> None:
        """The connection has ended: deal with what is open, and plan the next one."""
        assert self._link is not None
        self._register(self._link.fileno(), None)
        self._link.close()
        self._link = None
        now = monotonic()
        self._talk.trouble = trouble
        self._vain = None
        if self._talk.is_settled:
            self._lost = True
            self._retry.ended(now - self._since)
        else:
            self._retry.failed()
        self._next = now + self._retry.delay()
        if not self._stdin_open:
            return  # A client that has finished is gone, or had all that it wanted: the daemon ends then, too.
        if self._talk.is_settled:
            _say("the daemon closed the connection; waiting for it to come back.")
        self._talk.lose(now)


def _read(descriptor: int, rooms: list[memoryview]) -> bytes | None:
    """What can be read now; empty at the end, which a broken connection is too; None: nothing yet after all."""
    try:
        return bytes(_room[: os.readv(descriptor, rooms)])
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _say(text: str) -> None:
    """A line on stderr, if that can take it: a client that never reads it must not stop its own bridge."""
    ready = select.poll()
    ready.register(_STDERR, select.POLLOUT)
    if any(not events & _GONE for _, events in ready.poll(0)):
        try:
            os.write(_STDERR, f"mcpd connect: {text}\n".encode())
        except OSError:
            return
