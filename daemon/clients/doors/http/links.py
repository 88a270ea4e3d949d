"""The link of a session whose messages are HTTP requests: each answer goes to the request that it answers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec
import trio

from daemon import protocol
from daemon.clients.doors.http.replies import PostReply
from daemon.errors import ConnectionLost
from daemon.wire import envelope

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from daemon.wire.envelope import Buffer, Envelope
    from daemon.wire.frames import Line
    from daemon.wire.outbox import Outbox, Receiver

R = TypeVar("R", bound=PostReply)


class ExchangeLink(Generic[R]):
    """A `wire.outbox.Link` whose peer's requests are exchanges."""

    def __init__(self, outbox: Outbox, hello: Mapping[str, object]) -> None:
        """Begin; `hello` is what its session is told first (`protocol.HELLO`)."""
        self.queued = 0
        self.turns = 0
        self.is_held = False
        self.replies: dict[bytes, R] = {}
        """The requests without an answer, by their ids as raw JSON."""
        self._outbox = outbox
        self._hello = b"".join(map(bytes, envelope.notification(protocol.HELLO, msgspec.json.encode(hello))))
        self._receiver: Receiver | None = None
        self._early: list[tuple[Envelope, Line]] = []
        self._ended = trio.Event()
        self._fault: Exception | None = None

    @property
    def is_over(self) -> bool:
        """Whether the link has ended."""
        return self._ended.is_set()

    def send(self, frame: Sequence[Buffer], request_id: bytes | None = None, *, ends: bool = False) -> None:
        """Hand a frame to the request that it belongs to; one of a request that is over is dropped."""
        if request_id is None:
            self.say(frame)
        elif (reply := self.replies.get(request_id)) is None:
            return
        elif ends:
            del self.replies[request_id]
            reply.answer(frame)
        else:
            reply.notify(frame)

    def waiting(self, request_id: bytes | None = None) -> float:
        """Bytes that wait on the connection of a request (`wire.outbox.Link.waiting`)."""
        reply = None if request_id is None else self.replies.get(request_id)
        return math.inf if reply is None else reply.waiting

    def say(self, frame: Sequence[Buffer]) -> None:
        """Send what belongs to no request: there is no way to, in MCP 2026-07-28."""

    async def run(self, receiver: Receiver) -> None:
        """Hand over what was posted until the link is ended."""
        receiver.on_lines([self._hello])
        self._receiver = receiver
        early, self._early = self._early, []
        for message, line in early:
            receiver.on_message(message, line)
        self._outbox.flush()
        try:
            await self._ended.wait()
        finally:
            self._receiver = None
            self.end()
        raise self._fault or ConnectionLost("its session has ended")

    def post(self, message: Envelope, line: Line) -> None:
        """Take a message; what answers it, if it is a request, is in `replies` by now."""
        self.turns += 1
        if self._receiver is None:
            self._early.append((message, line))
            return
        try:
            self._receiver.on_message(message, line)
        except Exception as error:  # noqa: BLE001 - it is the session's fault, and ends `run`: not the connection's
            self._fault = error
            self.end()

    def end(self) -> None:
        """End the session; requests without an answer get none. Idempotent."""
        self._ended.set()
        replies, self.replies = self.replies, {}
        for reply in replies.values():
            reply.give_up()
