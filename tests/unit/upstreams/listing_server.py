"""A connection to a server that only lists, for those who read its lists."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import trio

from daemon.config.config_model import Server
from daemon.model import Era
from daemon.safety.redact import Redactor
from daemon.upstreams.handshake import Greeting
from daemon.upstreams.server_lists import Listing, ServerLists
from tests.unit.upstreams.transports.replies import TableConnection

GREETING = Greeting(era=Era.HANDSHAKE, version="2025-11-25", lists_tools=True, server_info="alpha 1")


def unread(server: Server) -> ServerLists:
    """The lists of a server, which nobody reads."""

    async def settled() -> None: ...

    made = partial(Listing, server, tell=lambda _fact: None, wall=lambda: 0.0, redact=Redactor(()))
    return ServerLists(partial(made, settle=settled))


class ListingServer(TableConnection):
    """A connection to a server that only lists: what it lists, and when, is the test's."""

    def __init__(self) -> None:
        super().__init__()
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
