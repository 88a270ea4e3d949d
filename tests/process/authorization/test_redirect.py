"""The listener that browsers come back to, and whatever else comes to it."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest
import trio

from daemon.authorization.redirect import MAX_CONNECTIONS, MAX_REQUEST, Outcome, Redirect, listen
from tests.process.authorization.serving import fetch
from tests.waiting import WAIT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.process


@asynccontextmanager
async def listened() -> AsyncIterator[Redirect]:
    async with trio.open_nursery() as nursery:
        redirect = await listen(nursery, None)
        redirect.state = "state"
        yield redirect
        nursery.cancel_scope.cancel()


async def sent(redirect: Redirect, request: bytes) -> bytes:
    """What a connection is answered before it is closed."""
    with trio.fail_after(WAIT):
        stream = await trio.open_tcp_stream("127.0.0.1", redirect.port)
        async with stream:
            await stream.send_all(request)
            return b"".join([chunk async for chunk in stream])


async def test_the_first_answer_counts_and_the_next_is_told_so() -> None:
    async with listened() as redirect:
        assert (await fetch(f"{redirect.url}?code=first&state=state&iss=x"))[0] == 200
        status, text = await fetch(f"{redirect.url}?code=second&state=state")
        assert (status, Outcome.AGAIN.text in text) == (409, True)
        assert await redirect.answer() == {"code": "first", "state": "state", "iss": "x"}


async def test_the_page_is_kept_by_nobody_and_runs_nothing() -> None:
    async with listened() as redirect:
        head, _, page = (
            await sent(redirect, b"GET /callback?code=x&state=state HTTP/1.1\r\nHost: x\r\n\r\n")
        ).partition(b"\r\n\r\n")
        for header in (b"cache-control: no-store", b"default-src 'none'", b"referrer-policy: no-referrer"):
            assert header in head.lower()
        assert Outcome.TAKEN.text.encode() in page


async def test_a_browser_that_looks_ahead_does_not_use_up_the_answer() -> None:
    async with listened() as redirect:
        for method in (b"HEAD", b"POST", b"OPTIONS"):
            told = await sent(redirect, method + b" /callback?code=x&state=state HTTP/1.1\r\nHost: x\r\n\r\n")
            assert told.startswith(b"HTTP/1.1 405")
        assert (await fetch(f"{redirect.url}?code=x&state=state"))[0] == 200


@pytest.mark.parametrize(
    "request_sent",
    [b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"GET /callback HTTP/1.1\r\nX: " + b"x" * (MAX_REQUEST + 1)],
)
async def test_what_is_no_request_gets_no_page(request_sent: bytes) -> None:
    async with listened() as redirect:
        # What was not read is thrown away together with the connection.
        with suppress(trio.BrokenResourceError):
            assert await sent(redirect, request_sent) == b""
        assert (await fetch(f"{redirect.url}?code=x&state=state"))[0] == 200


async def test_connections_that_say_nothing_keep_nobody_out() -> None:
    async with listened() as redirect, trio.open_nursery() as nursery:
        idle = [await trio.open_tcp_stream("127.0.0.1", redirect.port) for _ in range(3 * MAX_CONNECTIONS)]
        with trio.fail_after(WAIT):
            assert (await fetch(f"{redirect.url}?code=x&state=state"))[0] == 200
        for each in idle:
            nursery.start_soon(each.aclose)


async def test_before_there_is_a_link_nothing_answers_it() -> None:
    async with listened() as redirect:
        redirect.state = None
        for state in ("", "&state=", "&state=None"):
            assert redirect.take(f"code=x{state}") is Outcome.OTHER_LOGIN
