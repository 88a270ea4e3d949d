"""Stand-ins at the seams of the wire: a link without descriptors, an owner and a receiver of messages."""

from collections.abc import Callable, Iterable

import trio
from msgspec import Raw

from daemon.errors import CallError, ConnectionLost
from daemon.protocol import ASKED_OF_CLIENTS
from daemon.wire.envelope import BadMessage, Buffer, Envelope, Line, decode
from daemon.wire.outbox import Outbox, Receiver
from daemon.wire.requests import OwnExchange


class RecordingReceiver:
    """A `Receiver` that notes what it is handed; `then` happens after each time that lines are."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.lines: list[bytes] = []
        self.heads: list[bytes] = []
        self._then = then

    def on_lines(self, lines: list[Line]) -> None:
        self.lines += map(bytes, lines)
        self._then()

    def on_oversized(self, head: bytes) -> None:
        self.heads.append(head)

    def on_message(self, message: Envelope, line: Line) -> None:
        raise AssertionError("a link that carries no request apart decodes nothing")


class ScriptedLink:
    """A `Link` whose peer is the test: `sent` is what the peer got, `receive` is what it says."""

    def __init__(self, outbox: Outbox) -> None:
        self.queued = 0
        self.turns = 0
        self.is_held = False
        self.sent: list[bytes] = []
        self.belong: list[tuple[bytes | None, bool]] = []
        """The request that each frame belongs to, and whether it ends it."""
        self._outbox = outbox
        self._waiting: list[bytes] = []
        self._ended = trio.Event()
        self._reason = ""
        self._receiver: Receiver | None = None

    def send(self, frame: Iterable[Buffer], request_id: bytes | None = None, *, ends: bool = False) -> None:
        self._waiting.append(b"".join(map(bytes, frame)))
        self.belong.append((request_id, ends))
        self.queued = sum(map(len, self._waiting))
        self._outbox.touch(self.flush)

    def waiting(self, request_id: bytes | None = None) -> float:
        return self.queued

    def flush(self) -> None:
        self.sent += self._waiting
        self._waiting.clear()
        self.queued = 0

    async def run(self, receiver: Receiver) -> None:
        self._receiver = receiver
        await self._ended.wait()
        raise ConnectionLost(self._reason)

    def receive(self, *lines: bytes) -> None:
        """The peer says these lines, in one chunk."""
        assert self._receiver is not None
        self.turns += 1
        self._receiver.on_lines(list(lines))

    def receive_decoded(self, line: bytes) -> None:
        """The peer says a line, which the link decodes itself."""
        assert self._receiver is not None
        self._receiver.on_message(decode(line), line)

    def receive_oversized(self, head: bytes) -> None:
        """The peer says a line over the limit that begins with `head`."""
        assert self._receiver is not None
        self._receiver.on_oversized(head)

    def hang_up(self, reason: str) -> None:
        self._reason = reason
        self._ended.set()


class RecordingExchange(OwnExchange):
    """An owner of a request: what it was told, in order."""

    answerable = ASKED_OF_CLIENTS

    def __init__(self) -> None:
        self.endings: list[tuple[str, str]] = []
        self.progress: list[dict[str, bytes]] = []

    def answered(self, result: Buffer) -> None:
        self.endings.append(("answered", bytes(result).decode()))

    def refused(self, error: Buffer) -> None:
        self.endings.append(("refused", bytes(error).decode()))

    def lost(self, error: CallError) -> None:
        self.endings.append(("lost", f"{error.code}: {error.message}"))

    def progressed(self, params: dict[str, Raw]) -> None:
        self.progress.append({key: bytes(value) for key, value in params.items()})


class RecordingHandler:
    """Notes what it receives besides answers; `at_the_end` happens when it is told that the link ended."""

    def __init__(self, at_the_end: Callable[[], None] = lambda: None) -> None:
        self.requests: list[tuple[bytes, str, bytes | None]] = []
        self.notifications: list[tuple[str, bytes | None]] = []
        self.faults: list[BadMessage] = []
        self.ends: list[str] = []
        self.at_the_end = at_the_end

    def on_request(self, request_id: bytes, method: str, params: Raw | None) -> None:
        self.requests.append((request_id, method, None if params is None else bytes(params)))

    def on_notification(self, method: str, params: Raw | None) -> None:
        self.notifications.append((method, None if params is None else bytes(params)))

    def on_bad_message(self, fault: BadMessage, line: bytes) -> None:
        self.faults.append(fault)

    def on_lost(self, reason: str) -> None:
        self.ends.append(reason)
        self.at_the_end()
