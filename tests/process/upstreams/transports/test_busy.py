"""A server that says when to come back (Retry-After): to a new stream, to a call, to a request of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from daemon.config.config_model import TransportType
from daemon.errors import Busy, UpstreamUnavailable
from tests.unit.upstreams.transports.serving import Request, connected, context_for, reply, scripted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LONG = 30


def declining(status: str, **headers: str) -> Callable[[Request], Awaitable[bytes]]:
    async def decline(_request: Request) -> bytes:
        return reply(b"", status, **headers)

    return decline


async def test_its_silence_is_not_held_against_it(nursery: trio.Nursery) -> None:
    port = await scripted(nursery, declining("503 Service Unavailable", retry_after="40"))
    async with connected(context_for(TransportType.HTTP, f"http://127.0.0.1:{port}/mcp")) as client:
        before = trio.current_time()
        assert isinstance((await client.call("echo")).loss, UpstreamUnavailable)
        assert client.connection.last_heard >= before + 40
        assert not client.over.is_set()


async def test_a_request_of_ours_that_meets_it_ends_the_connection_for_so_long(nursery: trio.Nursery) -> None:
    port = await scripted(nursery, declining("503 Service Unavailable", retry_after="40"))
    async with connected(context_for(TransportType.HTTP, f"http://127.0.0.1:{port}/mcp")) as client:
        with pytest.raises(Busy, match="retry after 40 s") as refused:
            await client.ask("server/discover")
        assert refused.value.wait == 40
        with trio.fail_after(LONG):
            await client.over.wait()
        assert client.end is refused.value
