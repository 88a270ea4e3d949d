"""The bridge's one poll loop: bytes between stdin, stdout and a socket that is dialled again when it ends.

Each direction has a bounded buffer. Over the bound the source is not read, so that a slow reader slows its
writer down instead of making this process grow. No descriptor is ever written to when that could block: the
socket is non-blocking, and `ends.Stdout` takes care of the other. So a client and a daemon that both write
before they read cannot deadlock.
"""

from __future__ import annotations

import _socket
import os
import select
from time import monotonic

from daemon.bridge.conversation import Conversation
from daemon.bridge.ends import HUNG_UP, MUTE, SILENT, TURNED_AWAY, Dialer, Stdout
from daemon.bridge.peek import only_answers
from daemon.bridge.requests import MAX_OPEN
from daemon.bridge.sides import ClientSide, DaemonSide
from daemon.bridge.starting import Starting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

READ_BYTES = 256 * 1024
"""Bytes read at once: the largest size that still helps, and what a unix socket holds by default."""

READ_BYTES_ALONE = 16 * 1024
"""Bytes read at once from the client while there is no daemon: each line may have to be answered here, at ten
times its length."""

BUFFERED_BYTES = 256 * 1024
"""A source is not read while this much waits for its sink."""

GREETING_SECONDS = 60.0
"""How long a daemon that has accepted the connection may take to answer first. With socket activation it is
only just being started."""

WORDLESS = 3
"""Connections in a row that the first daemon ends without a word before we conclude that it refuses us."""

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_room = memoryview(bytearray(READ_BYTES))
"""The buffer for all reads: `os.read` would map and unmap this much memory for each message, however short."""
_all, _less = [_room], [_room[:READ_BYTES_ALONE]]
_GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL


class Bridge:
    """Moves bytes between the client on stdin and stdout and the daemon."""

    def __init__(self, path: str, hello: bytes, starts: Callable[[], bool] = bool) -> None:
        """Start with a connection, if a daemon is listening.

        Args:
            path: of the daemon's socket.
            hello: sent over each connection before anything from stdin.
            starts: whether to have a daemon started where none runs; asked only then.
        """
        self._path = path
        self._starting = Starting(starts)
        self._dialer = Dialer(path, self._starting)
        self._since = monotonic()
        self._link, trouble = self._dialer.dial(self._since)
        self._conversation = Conversation(hello, through=self._link is not None, starts=starts)
        self._client = ClientSide(self._conversation)
        self._daemon = DaemonSide(self._conversation, self._client)
        self._wordless = 0
        self._lost = False
        """Whether a daemon that had answered the client has gone."""
        self._stdin_open = True
        self._poll = select.poll()
        self._stdout = Stdout(_STDOUT)
        self._masks: dict[int, int | None] = {}
        self._conversation.trouble = trouble or SILENT.format(path=path)
        if self._link is None:
            _say(f"{trouble}\nUntil it runs, this bridge answers for it.")

    def run(self) -> str:
        """Move bytes until the client has ended.

        Returns:
            Empty if the client was served; else why not: no daemon has ever said a word, and either one hangs
            up whenever we connect or the client ended without an answer.
        """
        while not self._is_over():
            if not self._conversation.is_settled:
                self._tend(monotonic())
            self._watch()
            is_calm = self._daemon.is_calm and self._stdin_open and self._starting.pipe is None
            if is_calm and self._link is not None:
                self._relay(self._link)
                continue
            for descriptor, events in self._poll.poll(self._patience()):
                self._use(descriptor, events)
        conversation = self._conversation
        asked = len(conversation.requests) > 0 or conversation.deadline is not None
        if conversation.heard or conversation.stands_in or self._stdout.gone:
            return ""
        return conversation.trouble if asked or self._is_unwanted() else ""

    def _relay(self, link: _socket.socket) -> None:
        """Pass on whole lines as long as nothing else comes and nothing has to wait.

        This is the usual case, and every step in it is paid by every call. It does what the rest of the loop
        does in another order: a line is looked at after it was passed on, while the other side works on it.

        Events that poll has reported and that are not dealt with when this returns are reported again.
        """
        client, daemon, conversation = self._client, self._daemon, self._conversation
        up, poll, stdout, own = conversation.up, self._poll.poll, self._stdout, conversation.own_tool
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
                    calm = client.passed(data) and sent
                elif only_answers(data):
                    taken = stdout.give(data)
                    calm = taken == len(data)
                    if not calm:
                        conversation.down += data[taken:]
                    daemon.passed(data)
                else:
                    self._hear(descriptor, data)
                    return
                if not calm:
                    return

    def _use(self, descriptor: int, events: int) -> None:
        if descriptor == _STDIN:
            self._hear(_STDIN, _read(_STDIN, _all if self._conversation.through else _less))
        elif descriptor == _STDOUT:
            self._stdout.gone |= bool(events & _GONE)
            self._stdout.drain(self._conversation.down)
        elif descriptor == self._starting.pipe:
            if self._starting.hear():
                self._register(descriptor, None)
        else:
            if self._conversation.up.unsent:
                self._send()
            if events & (select.POLLIN | _GONE) and len(self._conversation.down) < BUFFERED_BYTES:
                self._hear(descriptor, _read(descriptor, _all))

    def _hear(self, descriptor: int, data: bytes | None) -> None:
        """Take what was read; empty means the end, None that nothing was read."""
        if data is None:
            return
        if descriptor != _STDIN:
            self._told(data)
            return
        if data:
            self._client.said(data, monotonic())
        else:
            self._stdin_open = False
            self._client.ended()
        self._send()

    def _is_over(self) -> bool:
        """Whether to stop. A client that has only finished writing still gets its answers from a daemon."""
        if self._stdout.gone or self._is_unwanted():
            return True
        conversation = self._conversation
        awaits = self._link is not None and (conversation.through or len(conversation.requests) > 0)
        return not self._stdin_open and not conversation.down and not awaits

    def _is_unwanted(self) -> bool:
        """Whether the daemon refuses us by hanging up. A client that was answered here is not given up."""
        return self._wordless >= WORDLESS and not self._conversation.stands_in

    def _watch(self) -> None:
        """Register what can be used now.

        A source that must wait is not registered at all: poll reports a hangup unasked, so the loop would spin.
        """
        conversation, up = self._conversation, self._conversation.up
        room = len(conversation.down) < BUFFERED_BYTES
        passes = up.unsent < BUFFERED_BYTES and len(conversation.requests) < MAX_OPEN
        takes = passes if conversation.through else room
        self._register(_STDIN, select.POLLIN if takes and self._stdin_open else None)
        if self._link is not None:
            writes = up.unsent and not up.deaf
            mask = (select.POLLIN if room else 0) | (select.POLLOUT if writes else 0)
            self._register(self._link.fileno(), mask or None)
        if self._starting.pipe is not None:
            self._register(self._starting.pipe, select.POLLIN)
        # Always: that is how we learn that nobody reads our stdout.
        self._register(_STDOUT, select.POLLOUT if conversation.down else 0)

    def _register(self, descriptor: int, mask: int | None) -> None:
        if self._masks.get(descriptor) == mask:
            return
        self._masks[descriptor] = mask
        if mask is None:
            self._poll.unregister(descriptor)
        else:
            self._poll.register(descriptor, mask)

    def _patience(self) -> int | None:
        """Milliseconds until something is due that no event announces; None if nothing is."""
        conversation = self._conversation
        if conversation.is_settled:
            return None
        deadline = conversation.deadline
        times = [] if deadline is None else [deadline]
        if self._link is None:
            times.append(self._dialer.due(awaited=deadline is not None))
        elif not conversation.through:
            times.append(self._since + GREETING_SECONDS)
        if not times:
            return None
        # Rounded up: a fraction too little would wake the loop again and again before the time.
        return max(0, int((min(times) - monotonic()) * 1000) + 1)

    def _send(self) -> None:
        """Give the daemon what it takes now, and the end of input after the client's last byte."""
        up = self._conversation.up
        if self._link is not None and up.send(self._link) and not self._stdin_open:
            try:
                self._link.shutdown(_socket.SHUT_WR)
            except OSError:
                up.deaf = True

    def _told(self, data: bytes) -> None:
        conversation = self._conversation
        if data:
            was_through = conversation.through
            self._daemon.said(data)
            if conversation.through and not was_through:
                _say("connected again." if self._lost else "connected.")
                self._since = monotonic()
                self._send()
            elif conversation.is_leaving and was_through:
                self._since = monotonic()  # It has `GREETING_SECONDS` from here on to finish.
            self._stdout.drain(conversation.down)
        else:
            self._wordless += not conversation.heard
            self._lose((HUNG_UP if conversation.heard else TURNED_AWAY).format(path=self._path))

    def _tend(self, now: float) -> None:
        """Do what is due while no daemon answers: give one up, dial the next, answer what waited too long."""
        conversation = self._conversation
        through = conversation.through
        if self._link is not None and not through and now >= self._since + GREETING_SECONDS:
            self._lose(MUTE.format(path=self._path, seconds=GREETING_SECONDS))
        started = self._starting.take_ended()
        due = started or now >= self._dialer.due(awaited=conversation.deadline is not None)
        if self._link is None and due:
            self._connect(now)
        if started and self._starting.reason and self._link is None:
            _say(self._starting.reason)
            # Who had a daemon waits for it: it may be about to come back.
            conversation.expire(now, hopeless=not conversation.heard)
        conversation.expire(now)
        if through and not conversation.through:
            self._since = now  # its time starts when it is first missed: the client may have been idle before
            _say(f"{conversation.trouble}\nUntil it answers, this does so in its place.")

    def _connect(self, now: float) -> None:
        conversation = self._conversation
        awaited = conversation.deadline is not None
        self._link, trouble = self._dialer.dial(now, awaited=awaited, known=conversation.heard)
        conversation.trouble = trouble or SILENT.format(path=self._path)
        if self._link is not None:
            self._since = now
            self._daemon.connected()
            self._send()

    def _lose(self, trouble: str) -> None:
        """Close a connection that has ended, settle what is open and plan the next attempt."""
        assert self._link is not None
        self._register(self._link.fileno(), None)
        self._link.close()
        self._link = None
        now = monotonic()
        self._conversation.trouble = trouble
        served = self._conversation.is_settled or self._conversation.is_leaving
        self._lost |= served
        if served:
            self._starting.lost()
        self._dialer.ended(now, now - self._since if served else None)
        if not self._stdin_open:
            return  # A client that has finished is gone, or had all that it wanted: the daemon ended for that.
        if served:
            _say("the daemon closed the connection; waiting for it to come back.")
        self._daemon.lost(now)


def _read(descriptor: int, rooms: list[memoryview]) -> bytes | None:
    """The bytes that can be read now; empty at the end or on a broken connection, None if there are none."""
    try:
        return bytes(_room[: os.readv(descriptor, rooms)])
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _say(text: str) -> None:
    """Write a line to stderr if it has room: a client that never reads it must not stop its own bridge."""
    ready = select.poll()
    ready.register(_STDERR, select.POLLOUT)
    if any(not events & _GONE for _, events in ready.poll(0)):
        try:
            os.write(_STDERR, f"mcpd connect: {text}\n".encode())
        except OSError:
            return
