"""A `ports.UpstreamConnection` that answers from a table and keeps the calls that it is sent."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from daemon.errors import Overloaded, UpstreamLost, UpstreamTimeout
from daemon.model import Era
from daemon.ports import CallToSend
from daemon.protocol import CLIENT_CAPABILITIES
from daemon.wire.envelope import RemoteError
from daemon.wire.requests import Exchange, GivenUp

SILENCE = UpstreamTimeout("no answer")
DEATH = UpstreamLost("killed by SIGKILL; whether the call ran is unknown")


def refusal(code: int = -32601, message: str = "Method not found") -> RemoteError:
    """An error answer."""
    return RemoteError(code, message)


class TableConnection:
    """Answers the k-th request for a method with the k-th reply, an exception is raised; keeps calls open."""

    last_heard = 0.0
    capabilities = CLIENT_CAPABILITIES

    def __init__(self, **replies: list[Any]) -> None:
        self.given_up = GivenUp()
        self.said: list[tuple[str, dict[str, object]]] = []
        self.adopted: list[tuple[Era, str]] = []
        self.patience: list[float] = []
        self.open: dict[int, tuple[str, Exchange]] = {}
        self.sent: list[str] = []
        self.cancelled: list[int] = []
        self.refuses = False
        self._replies = {method.replace("__", "/"): list(found) for method, found in replies.items()}

    @property
    def in_flight(self) -> int:
        return len(self.open)

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
        if self.refuses:
            raise Overloaded("the server does not read")
        key = len(self.sent) + 1
        self.sent.append(call.method)
        self.open[key] = (call.method, exchange)
        return key

    def cancel(self, key: int, reason: str) -> None:
        self.cancelled.append(key)
        del self.open[key]

    async def wait_answered(self) -> None:
        """Nothing is asked."""

    def expire(self, *, idle: float, total: float, alive: Iterable[int] = ()) -> Iterator[tuple[int, Exchange]]:
        return iter(())

    async def run(self) -> None:
        raise NotImplementedError

    def answer(self, method: str) -> None:
        """The oldest call of this method is answered."""
        key = next(key for key, (name, _) in self.open.items() if name == method)
        self.open.pop(key)[1].answered(b"{}")
