"""A client as what all clients share knows it, which keeps what it is told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
from msgspec import Raw

from daemon.clients.notifications import ConnectedClient

if TYPE_CHECKING:
    from collections.abc import Hashable

    from daemon.wire.requests import PeerRequest


@attrs.define(eq=False)
class TestMember(ConnectedClient):
    """A client that keeps what it is told."""

    __test__ = False

    level: int | None = None
    servers: set[str] = attrs.field(factory=lambda: {"alpha", "beta"})
    told: list[tuple[str, Any, bytes | None]] = attrs.field(factory=list)
    asked: list[tuple[PeerRequest, float]] = attrs.field(factory=list)
    is_behind: bool = False
    owed: dict[Hashable, Any] = attrs.field(factory=dict)

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


def raw(value: object) -> Any:
    """A value as it comes off the wire."""
    return Raw(json.dumps(value).encode())
