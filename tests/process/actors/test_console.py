"""The console where HTTP is not served: once somebody asks, pages are served on loopback, and only they."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from daemon.actors.local_doors import ConsoleOpening
from daemon.wire.outbox import Outbox
from tests.unit.clients.doors.http.test_asgi import Recorded, whole
from tests.unit.clients.doors.http.visiting import HttpClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BOUND = 30.0
"""Seconds that a test may take."""


@pytest.fixture
async def opening() -> AsyncIterator[ConsoleOpening]:
    made = ConsoleOpening(lambda: Recorded(whole), Outbox())
    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(made.run)
            yield made
            nursery.cancel_scope.cancel()


async def ask(opening: ConsoleOpening, path: str, **headers: str) -> tuple[int, bytes]:
    port = int((await opening.address()).rpartition(":")[2])
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        answer = await HttpClient(stream).ask("GET", path, {"host": f"127.0.0.1:{port}", **headers})
    return answer.status, answer.body


async def test_pages_are_served_once_somebody_has_asked_and_the_port_stays(opening: ConsoleOpening) -> None:
    assert (await opening.address()).startswith("http://127.0.0.1:")
    assert await ask(opening, "/ui") == (404, b"whole")
    assert await opening.address() == await opening.address()


@pytest.mark.parametrize("path", ["/mcp", "/metrics", "/healthz", "/", "/uix"])
async def test_nothing_else_is(opening: ConsoleOpening, path: str) -> None:
    status, body = await ask(opening, path)
    assert status == 404
    assert b"the console is at /ui" in body


async def test_pages_of_others_are_refused(opening: ConsoleOpening) -> None:
    assert (await ask(opening, "/ui", host="evil.example"))[0] == 403
    assert (await ask(opening, "/ui", origin="http://evil.example"))[0] == 403
    assert (await ask(opening, "/ui", origin="http://127.0.0.1:1"))[0] == 403
