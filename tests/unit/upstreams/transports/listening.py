"""A `ports.ConnectionEvents` that remembers."""

import attrs
import trio
from msgspec import Raw

from daemon.model import Kind
from daemon.protocol import LOG_MESSAGE
from daemon.wire.envelope import METHOD_NOT_FOUND
from daemon.wire.requests import Exchange, PeerRequest


@attrs.define
class Listener:
    """What a connection told its owner."""

    refuses: bool = False
    """Whether it refuses what the server asks."""
    changes: int = 0
    changed: trio.Event = attrs.field(factory=trio.Event)
    noise: list[tuple[bytes, str]] = attrs.field(factory=list)
    children: list[tuple[int, int]] = attrs.field(factory=list)
    logged: list[str] = attrs.field(factory=list)
    lost: list[str] = attrs.field(factory=list)
    questions: list[tuple[PeerRequest, Exchange | None]] = attrs.field(factory=list)
    messages: list[tuple[str, bytes]] = attrs.field(factory=list)

    def on_list_changed(self, kinds: tuple[Kind, ...] = (Kind.TOOL,)) -> None:
        del kinds
        self.changes += 1
        self.changed.set()

    def on_noise(self, line: bytes, problem: str) -> None:
        self.noise.append((line, problem))

    def on_child(self, pid: int, mark: int) -> None:
        self.children.append((pid, mark))

    def on_lost(self, reason: str) -> None:
        self.lost.append(reason)

    def on_log(self, said: bytes) -> None:
        self.logged.append(said.decode(errors="replace"))

    def on_server_request(self, question: PeerRequest, cause: Exchange | None) -> None:
        self.questions.append((question, cause))
        if self.refuses:
            question.refuse(METHOD_NOT_FOUND, f"nobody is asked {question.method} here")

    def on_message(self, method: str, params: Raw, cause: Exchange | None) -> None:
        del cause
        if method == LOG_MESSAGE:
            self.on_log(bytes(params))
        else:
            self.messages.append((method, bytes(params)))
