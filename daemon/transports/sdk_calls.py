"""The tool calls in flight over an SDK transport. Whoever takes one out ends it, so each ends exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import msgspec
import trio
from msgspec import Raw

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.errors import CallError
    from daemon.wire.requests import Exchange

_encode = msgspec.json.encode


@attrs.define(eq=False)
class _Call:
    """One call. Times in seconds, trio's clock."""

    exchange: Exchange
    sent: float
    touched: float
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)


class Calls:
    """Calls by key."""

    def __init__(self) -> None:
        self._open: dict[int, _Call] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, key: int, exchange: Exchange) -> trio.CancelScope:
        """Begin a call. Its task runs in the scope, which is cancelled when the call is ended from outside."""
        now = trio.current_time()
        entry = self._open[key] = _Call(exchange, sent=now, touched=now)
        return entry.scope

    def take(self, key: int) -> Exchange | None:
        """End a call without a word; None if it has ended already."""
        entry = self._open.pop(key, None)
        if entry is None:
            return None
        entry.scope.cancel()
        return entry.exchange

    def answered(self, key: int, result: dict[str, Any]) -> None:
        """End a call with its result."""
        if (exchange := self.take(key)) is not None:
            exchange.answered(_encode(result))

    def refused(self, key: int, error: Mapping[str, object]) -> None:
        """End a call with the server's JSON-RPC error."""
        if (exchange := self.take(key)) is not None:
            exchange.refused(_encode(error))

    def lost(self, key: int, error: CallError) -> None:
        """End a call that gets no answer."""
        if (exchange := self.take(key)) is not None:
            exchange.lost(error)

    def progressed(self, params: Mapping[str, Any]) -> None:
        """Hand a progress report on; one for nobody is dropped."""
        token = params.get("progressToken")
        # Some servers turn 5 into "5".
        key = int(token) if isinstance(token, str) and token.isdecimal() else token
        entry = self._open.get(key) if isinstance(key, int) else None
        if entry is not None:
            entry.touched = trio.current_time()
            entry.exchange.progressed({name: Raw(_encode(value)) for name, value in params.items()})

    def overdue(self, *, idle: float, total: float) -> list[int]:
        """The calls without a sign of life for `idle` seconds, or older than `total`."""
        now = trio.current_time()
        return [
            key for key, entry in self._open.items() if now - entry.touched >= idle or now - entry.sent >= total
        ]

    @property
    def keys(self) -> list[int]:
        """All of them."""
        return list(self._open)
