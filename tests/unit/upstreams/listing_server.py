"""A connection to a server that only lists, for those who read its lists."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import trio

from daemon.model import Era
from daemon.protocol import CLIENT_CAPABILITIES
from daemon.upstreams.handshake import Greeting
from daemon.wire.requests import GivenUp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from daemon.ports import CallToSend
    from daemon.wire.requests import Exchange


GREETING = Greeting(era=Era.HANDSHAKE, version="2025-11-25", lists_tools=True, server_info="alpha 1")


class ListingServer:
    """A connection to a server that only lists: what it lists, and when, is the test's."""

    last_heard = 0.0
    given_up = GivenUp()
    capabilities = CLIENT_CAPABILITIES
    in_flight = 0

    def __init__(self) -> None:
        self.tools = ["echo"]
        self.members: dict[str, Any] = {}
        self.failure: Exception | None = None
        self.before_answer: Callable[[], None] = lambda: None
        self.held = False
        self.release = trio.Event()
        self.listed: list[float] = []

    async def request(self, method: str, params: dict[str, object], *, timeout: float) -> bytes:  # noqa: ASYNC109
        assert method == "tools/list"
        self.listed.append(trio.current_time())
        if self.held:
            await self.release.wait()
        common = {"inputSchema": {"type": "object"}, **self.members}
        tools: list[dict[str, Any]] = [{"name": name, **common} for name in self.tools]
        if self.failure is not None:
            raise self.failure
        self.before_answer()
        return json.dumps({"tools": tools}).encode()

    def adopt(self, era: Era, version: str) -> None: ...

    def notify(self, method: str, params: dict[str, object] | None = None) -> None: ...

    def call(self, call: CallToSend, exchange: Exchange) -> int:
        return 0

    def cancel(self, key: int, reason: str) -> None: ...

    async def wait_answered(self) -> None:
        """Nothing is asked."""

    def expire(self, *, idle: float, total: float, alive: Iterable[int] = ()) -> Any:
        return iter(())

    async def run(self) -> None: ...
