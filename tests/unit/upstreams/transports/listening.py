"""A `ports.ConnectionEvents` that remembers."""

from __future__ import annotations

import trio


class Listener:
    """What a connection told its owner."""

    def __init__(self) -> None:
        self.changes = 0
        self.noise: list[tuple[bytes, str]] = []
        self.children: list[tuple[int, int]] = []
        self.logged: list[str] = []
        self.lost: list[str] = []
        self.told = trio.Event()

    def on_list_changed(self) -> None:
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

    def _tell(self) -> None:
        self.told.set()
        self.told = trio.Event()
