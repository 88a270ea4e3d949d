"""The link whose frames are POSTs: their order, how they are given up, and what they are bounded by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2
import pytest
import trio
import trio.testing

from daemon.causes import Cause
from daemon.errors import (
    ConnectionLost,
    NeedsAuth,
    Overloaded,
    UpstreamLost,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from daemon.model import Era
from daemon.upstreams.transports.posting import ABANDONED_SECONDS, NOTE_SECONDS
from daemon.upstreams.transports.server_connection import UPSTREAM_QUEUE_BYTES
from tests.process.upstreams.transports.posts import posting, result, said
from tests.unit.upstreams.transports.serving import HANDSHAKE_VERSION

if TYPE_CHECKING:
    from tests.unit.upstreams.transports.serving import Client


async def silent(request: httpx2.Request) -> httpx2.Response:
    await trio.sleep_forever()
    raise AssertionError


async def echo(request: httpx2.Request) -> httpx2.Response:
    return result(request, said(request)["params"]) if "id" in said(request) else httpx2.Response(202)


async def accept(request: httpx2.Request) -> httpx2.Response:
    await trio.lowlevel.checkpoint()
    return result(request, {})


async def mute(request: httpx2.Request) -> httpx2.Response:
    """Answers nothing, takes notifications."""
    return await silent(request) if "id" in said(request) else httpx2.Response(202)


async def test_a_notification_goes_before_the_requests_that_follow_it() -> None:
    async with posting(echo) as (client, _, sent):
        for step in range(3):
            client.connection.notify(f"note/{step}")
            await client.ask(f"ask/{step}")
    assert sent == ["note/0", "ask/0", "note/1", "ask/1", "note/2", "ask/2"]


@pytest.mark.parametrize(
    ("era", "seconds", "told"),
    [(Era.HANDSHAKE, ABANDONED_SECONDS, ["notifications/cancelled"]), (Era.MODERN, 0, [])],
)
async def test_a_request_that_is_given_up_is_closed(
    era: Era, seconds: float, told: list[str], autojump_clock: trio.testing.MockClock
) -> None:
    closed = trio.Event()

    async def script(request: httpx2.Request) -> httpx2.Response:
        try:
            return await mute(request)
        finally:
            if "id" in said(request):
                closed.set()

    async with posting(script) as (client, _, sent):
        client.connection.adopt(era, HANDSHAKE_VERSION)
        key, caller = client.start("wait")
        await trio.testing.wait_all_tasks_blocked()
        client.connection.cancel(key, "enough")
        await closed.wait()
        assert trio.current_time() == seconds
        assert sent[1:] == told
        assert not caller.ended.is_set()


@pytest.mark.parametrize(
    ("era", "method", "told"),
    [
        (Era.HANDSHAKE, "initialize", []),
        (Era.MODERN, "server/discover", []),
        (Era.HANDSHAKE, "ping", ["notifications/cancelled"]),
    ],
)
async def test_the_handshake_is_given_up_without_a_word(
    era: Era, method: str, told: list[str], autojump_clock: trio.testing.MockClock
) -> None:
    async with posting(mute) as (client, _, sent):
        client.connection.adopt(era, HANDSHAKE_VERSION)
        with pytest.raises(UpstreamTimeout):
            await client.connection.request(method, {}, timeout=5)
        await trio.testing.wait_all_tasks_blocked()
    assert sent == [method, *told]


async def test_an_ended_connection_takes_nothing() -> None:
    async with posting(echo) as (client, link, sent):
        link.state.end_with(ConnectionLost("gone"))
        client.connection.notify("notifications/x")
        with pytest.raises(UpstreamLost, match="gone"):
            await client.ask("ping")
        with pytest.raises(UpstreamUnavailable, match="not sent"):
            client.start("echo")
    assert sent == []
    async with posting(echo) as (client, link, _):
        link.state.end_with(NeedsAuth("who?"))
        with pytest.raises(NeedsAuth):
            await client.ask("ping")


def fill(client: Client) -> None:
    """More notifications than may wait for a server, as it has not begun to take any."""
    for _ in range(5):
        client.connection.notify("notifications/x", {"much": "x" * (UPSTREAM_QUEUE_BYTES // 4)})


async def test_a_server_that_takes_no_notifications_is_given_up_in_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with posting(silent) as (client, link, _):
        for _ in range(3):
            fill(client)
            with pytest.raises(Overloaded):
                client.start("echo")
            assert not client.over.is_set()
            await trio.sleep(NOTE_SECONDS + 1)
        fill(client)
        await client.over.wait()
        assert link.queued == 0
    assert "does not read" in str(client.end)
    assert isinstance(client.end, ConnectionLost)
    assert client.end.reason.cause is Cause.NOT_READING


async def test_calls_behind_a_slow_notification_wait_however_large_they_are(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def script(request: httpx2.Request) -> httpx2.Response:
        return await (accept if "id" in said(request) else silent)(request)

    async with posting(script) as (client, _, sent):
        client.connection.notify("notifications/x")
        await trio.testing.wait_all_tasks_blocked()
        calls = [client.start("echo", much="x" * (UPSTREAM_QUEUE_BYTES // 4)) for _ in range(6)]
        client.connection.cancel(calls.pop()[0], "enough")
        for _, caller in calls:
            await caller.ended.wait()
            assert caller.result is not None
    # The one that was given up meanwhile was never sent, so there was nothing to cancel.
    assert sent == ["notifications/x", *["tools/call"] * 5]
