"""The rules for what ends a connection, without a network. What passes over one is in `test_http`."""

from __future__ import annotations

import itertools

import pytest
import trio

from daemon.config.model import TransportType
from daemon.errors import ConnectionLost, NeedsAuth, RunError, UpstreamLost
from daemon.transports.failures import Failure, Kind
from daemon.transports.sdk import UNREACHABLE_CALLS, SdkConnection
from tests.transports.serving import Events, context_for


def connection() -> SdkConnection:
    return SdkConnection(context_for(TransportType.HTTP, "http://h/"), place="h:80")


async def end_of(met: SdkConnection) -> RunError:
    with trio.fail_after(30), pytest.raises(RunError) as caught:
        await met.run()
    return caught.value


@pytest.mark.parametrize("kind", [Kind.UNAUTHORIZED, Kind.UNTRUSTED, Kind.SESSION_OVER])
async def test_these_end_the_connection_whatever_was_asked(kind: Kind) -> None:
    met = connection()
    met.failed(None, Failure(kind, "over"))
    assert str(await end_of(met)) == "over"


@pytest.mark.parametrize("kind", [Kind.BROKEN, Kind.BUSY, Kind.GATEWAY, Kind.FORBIDDEN, Kind.TOO_LARGE])
async def test_these_cost_a_call_only(kind: Kind) -> None:
    met = connection()
    for key in range(10):
        met.failed(key, Failure(kind, "this one"))
    met.end(ConnectionLost("later"))
    assert str(await end_of(met)) == "later"


async def test_calls_that_cannot_connect_count_until_a_sign_of_life() -> None:
    met = connection()
    away = Failure(Kind.UNREACHABLE, "away")
    for _ in itertools.repeat(None, 5):
        for key in range(UNREACHABLE_CALLS - 1):
            met.failed(key, away)
        met.heard()
    for key in range(UNREACHABLE_CALLS - 1):
        met.failed(key, away)
    assert await ended_early(met) is False
    met = connection()
    for key in range(UNREACHABLE_CALLS):
        met.failed(key, away)
    assert str(await end_of(met)) == "away"


async def ended_early(met: SdkConnection) -> bool:
    with trio.move_on_after(0.01) as waited:
        await met.run()
    return not waited.cancelled_caught


async def test_the_first_reason_counts() -> None:
    met = connection()
    met.end(NeedsAuth("first"))
    met.end(ConnectionLost("second"))
    assert isinstance(await end_of(met), NeedsAuth)
    with pytest.raises(NeedsAuth):
        await met.request("ping", {}, timeout=30)


async def test_an_ended_connection_takes_no_requests_and_drops_notifications() -> None:
    met = connection()
    met.end(ConnectionLost("gone"))
    met.notify("notifications/x")
    with pytest.raises(UpstreamLost, match="gone"):
        await met.request("ping", {}, timeout=30)


async def test_an_interrupted_stream_may_have_missed_a_change() -> None:
    context = context_for(TransportType.HTTP, "http://h/")
    SdkConnection(context, place="h:80").reopened()
    assert isinstance(context.events, Events)
    assert context.events.changes == 1
