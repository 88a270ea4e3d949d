"""A request and the response to it: what is due is called once."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

import trio
import trio.testing

from tests.unit.clients.doors.http.visiting import visiting

if TYPE_CHECKING:
    from daemon.clients.doors.http.exchange import HttpExchange


async def test_what_is_due_is_called_once_and_the_last_wish_counts(
    autojump_clock: trio.testing.MockClock,
) -> None:
    called: list[str] = []

    def serve(exchange: HttpExchange) -> None:
        exchange.wait_until(1.0, lambda: called.append("never"))
        exchange.wait_until(2.0, lambda: called.append("once"))

    async with visiting(serve) as visit:
        await visit.client.send("GET", "/")
        await trio.testing.wait_all_tasks_blocked()
        for now in (1.5, 2.0, 2.5):
            visit.connection.tick(now)
    assert called == ["once"]


async def test_only_the_first_response_counts(autojump_clock: trio.testing.MockClock) -> None:
    def serve(exchange: HttpExchange) -> None:
        before = exchange.is_open
        exchange.respond(HTTPStatus.NO_CONTENT)
        assert (before, exchange.is_open) == (True, False)
        exchange.respond(HTTPStatus.OK, (b"again",))

    with trio.fail_after(100):
        async with visiting(serve) as visit:
            assert (await visit.client.ask("GET", "/")).status == 204
