"""An exposition that runs over real TCP, and those who talk to it."""

import http.client
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing

import attrs
import trio

from daemon.actors.local_doors import RETRY_SECONDS, Exposition
from daemon.config.config_model import Config, Metrics
from daemon.host.notify import Readiness
from daemon.kit.waiting import Watch
from daemon.wire.outbox import Outbox
from tests.unit.counting.samples import catalog
from tests.waiting import PATIENCE, beside

VIRTUAL = 1000 * RETRY_SECONDS
"""The same where the test turns the clock."""

TEXT = "mcpd_servers 3.0\n"
ANY_PORT = "127.0.0.1:0"
PLAIN = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


def configured(listen: str | None = ANY_PORT, *, enabled: bool = True) -> Config:
    """A configuration that wants metrics there; port 0 is any that is free."""
    return attrs.evolve(catalog().config, metrics=Metrics(enabled=enabled, listen=listen))


async def given() -> str:
    """An export that is always the same."""
    return TEXT


class Exposed:
    """A running exposition, and those who talk to it."""

    def __init__(self, exposition: Exposition, config: Watch[Config]) -> None:
        self.config = config
        self.exposition = exposition

    async def address(self) -> tuple[str, int]:
        """Where it listens, once it does."""
        found = await self.exposition.address.wait_until(lambda address: address is not None)
        assert found is not None
        return found

    async def ask(
        self, method: str = "GET", path: str = "/metrics", **headers: str
    ) -> http.client.HTTPResponse:
        """A request of a real HTTP client; the answer is read."""
        host, port = await self.address()
        return await trio.to_thread.run_sync(_ask, host, port, method, path, headers)

    async def connect(self) -> trio.SocketStream:
        """A client of bare bytes."""
        return await trio.open_tcp_stream(*await self.address())

    async def say(self, *chunks: bytes) -> bytes:
        """What bare bytes are answered with, until the other side hangs up."""
        async with await self.connect() as stream:
            for chunk in chunks:
                await stream.send_all(chunk)
            return await everything(stream)


def _ask(host: str, port: int, method: str, path: str, headers: dict[str, str]) -> http.client.HTTPResponse:
    with closing(http.client.HTTPConnection(host, port, timeout=PATIENCE)) as connection:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        answer.body = answer.read()  # type: ignore[attr-defined]
        return answer


def body(answer: http.client.HTTPResponse) -> str:
    read: bytes = answer.body  # type: ignore[attr-defined]
    return read.decode()


async def everything(stream: trio.SocketStream) -> bytes:
    """All that comes until the other side hangs up."""
    return b"".join([chunk async for chunk in stream])


@asynccontextmanager
async def exposed(
    export: Callable[[], Awaitable[str]] = given,
    first: Config | None = None,
    readiness: Readiness = Readiness.SERVING,
) -> AsyncIterator[Exposed]:
    """An exposition that runs, and ends."""
    watched = Watch(first or configured())
    exposition = Exposition(watched, export, readiness=lambda: readiness, outbox=Outbox())
    with trio.fail_after(VIRTUAL):
        async with beside(exposition.run):
            yield Exposed(exposition, watched)
