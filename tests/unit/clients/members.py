"""A client as what all clients share knows it, which keeps what it is told."""

import json
from collections.abc import Hashable, Iterable
from typing import Any

from daemon.clients.notifications import ConnectedClient
from daemon.wire.requests import PeerRequest


class TestMember(ConnectedClient):
    """A client that keeps what it is told."""

    __test__ = False

    level: int | None = None

    def __init__(
        self, level: int | None = None, servers: Iterable[str] = ("alpha", "beta"), *, is_behind: bool = False
    ) -> None:
        self.level, self.servers, self.is_behind = level, set(servers), is_behind
        self.told: list[tuple[str, Any, bytes | None]] = []
        self.asked: list[tuple[PeerRequest, float]] = []
        self.owed: dict[Hashable, Any] = {}

    @property
    def asker(self) -> object:
        return self

    def sees(self, server: str) -> bool:
        return server in self.servers

    def say(self, method: str, params: bytes) -> None:
        self.told.append((method, json.loads(params), None))

    def enqueue(self, key: Hashable, method: str, params: bytes, request_id: bytes | None = None) -> None:
        if self.is_behind:
            self.owed[key] = json.loads(params)
        else:
            self.told.append((method, json.loads(params), request_id))

    def is_pending(self, key: Hashable) -> bool:
        return key in self.owed

    def discard_pending(self, key: Hashable) -> None:
        self.owed.pop(key, None)

    def ask(self, request: PeerRequest, until: float, too_late: str = "") -> None:
        self.asked.append((request, until))

    def params(self) -> list[Any]:
        """What it was told, and is not asked about again."""
        told, self.told = self.told, []
        return [params for _method, params, _request in told]
