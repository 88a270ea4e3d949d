"""The bridge's only poll loop: moves bytes between stdin, stdout and a socket that it dials again when lost.

A direction whose buffer is above its limit is not read. No write blocks, so there is no deadlock.
"""

from __future__ import annotations

import _socket
import os
import select
from collections.abc import Callable
from time import monotonic

from daemon.bridge.conversation import Conversation
from daemon.bridge.ends import GONE, HUNG_UP, MUTE, SILENT, TURNED_AWAY, Dialer, Starting, Stdout
from daemon.bridge.frames import only_answers
from daemon.bridge.requests import MAX_OPEN
from daemon.bridge.sides import ClientSide, DaemonSide

READ_BYTES = 256 * 1024
"""Bytes of one read: larger reads do not help, and a unix socket's default buffer is as large."""

READ_BYTES_ALONE = 16 * 1024
"""Bytes of one read while there is no daemon: each line may need an answer ten times as long."""

BUFFERED_BYTES = 256 * 1024  # A source is not read while this much waits for its sink

GREETING_SECONDS = 60.0
"""Seconds for a daemon to answer after it has accepted: socket activation may only be starting it."""

WORDLESS = 3  # connections in a row that the first daemon ends silently before it counts as refusing us

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_room = memoryview(bytearray(READ_BYTES))
"""The buffer of all reads; `os.read` would map and unmap as much memory for each message."""
_all, _less = [_room], [_room[:READ_BYTES_ALONE]]


class Bridge:
    """Moves bytes between the client on stdin and stdout and the daemon."""

    def __init__(self, path: str, hello: bytes, starts: Callable[[], bool] = bool) -> None:
        self._path = path
        self._starting = Starting(starts)
        self._dialer = Dialer(path, self._starting)
        self._since = monotonic()
        self._link, trouble = self._dialer.dial(self._since)
        self._conversation = Conversation(hello, through=self._link is not None, starts=starts)
        self._client = ClientSide(self._conversation)
        self._daemon = DaemonSide(self._conversation, self._client)
        self._wordless = 0
        self._lost = False  # whether a daemon that had answered the client has gone
        self._stdin_open = True
        self._poll = select.poll()
        self._stdout = Stdout(_STDOUT)
        self._masks: dict[int, int | None] = {}
        self._conversation.trouble = trouble or SILENT.format(path=path)
        if self._link is None:
            _say(f"{trouble}\nUntil it runs, this bridge answers for it.")

    def run(self) -> str:
        """Move bytes until the client has ended; returns the trouble if no daemon served the client."""
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
        """Pass on whole lines while no other bytes come or wait; every call takes this path.

        A line is examined after it is passed on. Events of poll that are not handled here are reported again.
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
            self._stdout.gone |= bool(events & GONE)
            self._stdout.drain(self._conversation.down)
        elif descriptor == self._starting.pipe:
            if self._starting.hear():
                self._register(descriptor, None)
        else:
            if self._conversation.up.unsent:
                self._send()
            if events & (select.POLLIN | GONE) and len(self._conversation.down) < BUFFERED_BYTES:
                self._hear(descriptor, _read(descriptor, _all))

    def _hear(self, descriptor: int, data: bytes | None) -> None:
        """Handle bytes that were read; empty means the end of the stream, None that there was nothing."""
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
        """Whether to stop. A client that has only finished writing still gets its answers."""
        if self._stdout.gone or self._is_unwanted():
            return True
        conversation = self._conversation
        awaits = self._link is not None and (conversation.through or len(conversation.requests) > 0)
        return not self._stdin_open and not conversation.down and not awaits

    def _is_unwanted(self) -> bool:
        """Whether the daemon refuses the bridge by hanging up; a client that got answers here is kept."""
        return self._wordless >= WORDLESS and not self._conversation.stands_in

    def _watch(self) -> None:
        """Register usable descriptors only: poll reports hangups of all others too, and the loop would spin."""
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
        # Always, because this reports that nobody reads our stdout.
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
        """Milliseconds until the next deadline; None if there is none."""
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
        # Rounded up: a fraction too little would wake the loop repeatedly before the time.
        return max(0, int((min(times) - monotonic()) * 1000) + 1)

    def _send(self) -> None:
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
                self._since = monotonic()  # `GREETING_SECONDS` to finish start here.
            self._stdout.drain(conversation.down)
        else:
            self._wordless += not conversation.heard
            self._lose((HUNG_UP if conversation.heard else TURNED_AWAY).format(path=self._path))

    def _tend(self, now: float) -> None:
        """Do the due work: give up a silent daemon, dial the next, answer requests that waited too long."""
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
            # A client that had a daemon waits: the daemon may be about to come back.
            conversation.expire(now, hopeless=not conversation.heard)
        conversation.expire(now)
        if through and not conversation.through:
            # The time starts when the daemon is first missed: the client may have been idle before.
            self._since = now
            _say(f"{conversation.trouble}\nUntil the daemon answers, this bridge answers in its place.")

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
            return  # The client has gone or is satisfied: its end of input ended the connection.
        if served:
            _say("the daemon closed the connection; waiting for it to come back.")
        self._daemon.lost(now)


def _read(descriptor: int, rooms: list[memoryview]) -> bytes | None:
    """The bytes that can be read now: empty at the end or on a broken connection, None if there are none."""
    try:
        return bytes(_room[: os.readv(descriptor, rooms)])
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _say(text: str) -> None:
    """Write a line to stderr if there is room: an unread stderr must not stop the bridge."""
    ready = select.poll()
    ready.register(_STDERR, select.POLLOUT)
    if any(not events & GONE for _, events in ready.poll(0)):
        try:
            os.write(_STDERR, f"mcpd connect: {text}\n".encode())
        except OSError:
            return
