"""A `ports.UpstreamConnection` that answers from a table; what the handshake and the paging are tested with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from daemon.errors import UpstreamLost, UpstreamTimeout
from daemon.protocol import CLIENT_CAPABILITIES
from daemon.wire.requests import GivenUp, RemoteError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from daemon.model import Era
    from daemon.ports import CallToSend
    from daemon.wire.requests import Exchange

SILENCE = UpstreamTimeout("no answer")
DEATH = UpstreamLost("killed by SIGKILL; whether the call ran is unknown")


def refusal(code: int = -32601, message: str = "Method not found") -> RemoteError:
    """An error answer."""
    return RemoteError(code, message)


class TableConnection:
    """Answers the k-th request for a method with the k-th reply; an exception is raised."""

    def __init__(self, **replies: list[Any]) -> None:
        self.last_heard = 0.0
        self.given_up = GivenUp()
        self.capabilities = CLIENT_CAPABILITIES
        self.in_flight = 0
        self.said: list[tuple[str, dict[str, object]]] = []
        self.adopted: list[tuple[Era, str]] = []
        self.patience: list[float] = []
        self._replies = {method.replace("__", "/"): list(found) for method, found in replies.items()}

    def adopt(self, era: Era, version: str) -> None:
        self.adopted.append((era, version))

    async def request(self, method: str, params: dict[str, object], *, timeout: float) -> bytes:  # noqa: ASYNC109
        self.said.append((method, params))
        self.patience.append(timeout)
        found = self._replies[method].pop(0)
        if isinstance(found, Exception):
            raise found
        return found if isinstance(found, bytes) else json.dumps(found).encode()

    def notify(self, method: str, params: dict[str, object] | None = None) -> None:
        self.said.append((method, params or {}))

    def call(self, call: CallToSend, exchange: Exchange) -> int:
        raise NotImplementedError

    def cancel(self, key: int, reason: str) -> None:
        raise NotImplementedError

    async def wait_answered(self) -> None:
        """Nothing is asked."""

    def expire(self, *, idle: float, total: float, alive: Iterable[int] = ()) -> Iterator[tuple[int, Exchange]]:
        return iter(())

    async def run(self) -> None:
        raise NotImplementedError
