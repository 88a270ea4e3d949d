"""HTTP as a whole daemon has it: what is served besides MCP, and what ends only one connection."""

from __future__ import annotations

import http.client
import socket
import struct
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any

import trio

from daemon.clients.doors.http.binding import bind_http
from daemon.host.notify import Readiness
from tests.houses import house
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.houses import House

TOKEN = "0123456789abcdef-all"
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER that makes close(2) a reset."""


@asynccontextmanager
async def served(directory: Path, **config: Any) -> AsyncIterator[tuple[House, tuple[str, int]]]:
    """A daemon that serves HTTP, and its address."""
    wanted = {"listen": {"http": {"tokens": TOKEN}}, **config}
    with closing(bind_http("127.0.0.1:0")) as listener:
        async with house(directory, wanted, http=listener) as daemon:
            yield daemon, listener.getsockname()


async def ask(address: tuple[str, int], path: str, token: str = "", method: str = "GET") -> tuple[int, str]:
    """Status and text of what a real HTTP client gets."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return await trio.to_thread.run_sync(_ask, address, method, path, headers)


def _ask(address: tuple[str, int], method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
    with closing(http.client.HTTPConnection(*address, timeout=PATIENCE)) as connection:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


async def test_metrics_are_for_those_with_a_token(sockets: Path) -> None:
    async with served(sockets, metrics={"enabled": True}) as (_, address):
        assert (await ask(address, "/metrics"))[0] == 401
        assert (await ask(address, "/metrics", TOKEN, "POST"))[0] == 405
        status, text = await ask(address, "/metrics", TOKEN)
    assert status == 200
    assert "mcpd_build_info" in text


async def test_probes_need_no_token_and_learn_of_the_stop(sockets: Path) -> None:
    async with served(sockets) as (daemon, address):
        assert await ask(address, "/healthz") == (200, "ok\n")
        assert await ask(address, "/readyz") == (200, "ready\n")
        assert (await ask(address, "/readyz", method="DELETE"))[0] == 405
    assert daemon.tree.readiness is Readiness.DRAINING


async def test_whoever_resets_a_connection_before_it_is_accepted_ends_only_that(sockets: Path) -> None:
    async with served(sockets) as (_, address):
        for _ in range(20):
            with socket.create_connection(address, PATIENCE) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        assert await ask(address, "/healthz") == (200, "ok\n")
