"""A `ports.ConnectionEvents` that remembers."""

import trio
from msgspec import Raw

from daemon.model import Kind
from daemon.protocol import LOG_MESSAGE
from daemon.wire.requests import Exchange, PeerRequest


class Listener:
    """What a connection told its owner."""

    def __init__(self) -> None:
        self.changes = 0
        self.noise: list[tuple[bytes, str]] = []
        self.children: list[tuple[int, int]] = []
        self.logged: list[str] = []
        self.lost: list[str] = []
        self.questions: list[tuple[PeerRequest, Exchange | None]] = []
        self.messages: list[tuple[str, bytes]] = []
        self.told = trio.Event()

    def on_list_changed(self, kinds: tuple[Kind, ...] = (Kind.TOOL,)) -> None:
        del kinds
        self.changes += 1
        self._tell()

    def on_noise(self, line: bytes, problem: str) -> None:
        self.noise.append((line, problem))
        self._tell()

    def on_child(self, pid: int, mark: int) -> None:
        self.children.append((pid, mark))
        self._tell()

    def on_lost(self, reason: str) -> None:
        self.lost.append(reason)
        self._tell()

    def on_log(self, said: bytes) -> None:
        self.logged.append(said.decode(errors="replace"))
        self._tell()

    def on_server_request(self, question: PeerRequest, cause: Exchange | None) -> None:
        self.questions.append((question, cause))
        self._tell()

    def on_message(self, method: str, params: Raw, cause: Exchange | None) -> None:
        del cause
        if method == LOG_MESSAGE:
            self.on_log(bytes(params))
        else:
            self.messages.append((method, bytes(params)))
            self._tell()

    def _tell(self) -> None:
        self.told.set()
        self.told = trio.Event()
