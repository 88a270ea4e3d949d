"""The rules for what ends a connection, without a network. What passes over one is in `test_http`."""

from __future__ import annotations

import pytest
import trio

from daemon.errors import ConnectionLost, NeedsAuth
from daemon.transports.failures import Failure, FailureKind
from daemon.transports.health import FATAL, FATAL_TO_OURS, UNREACHABLE_CALLS, Health

AWAY = Failure(FailureKind.UNREACHABLE, "away")


@pytest.mark.parametrize("kind", sorted(FATAL, key=str))
@pytest.mark.parametrize("own", [False, True])
async def test_these_end_the_connection_whatever_was_asked(kind: FailureKind, own: bool) -> None:
    health = Health()
    end = health.judge(Failure(kind, "over"), own=own)
    assert health.end is end
    assert str(end) == "over"
    assert health.ended.is_set()


@pytest.mark.parametrize("kind", sorted(set(FailureKind) - FATAL - {FailureKind.UNREACHABLE}, key=str))
async def test_these_cost_a_call_only(kind: FailureKind) -> None:
    health = Health()
    for _ in range(10):
        assert health.judge(Failure(kind, "this one"), own=False) is None
    assert (health.judge(Failure(kind, "ours"), own=True) is not None) is (kind in FATAL_TO_OURS)


async def test_calls_that_cannot_connect_count_until_a_sign_of_life() -> None:
    health = Health()
    for _ in range(5):
        for _ in range(UNREACHABLE_CALLS - 1):
            assert health.judge(AWAY, own=False) is None
        health.heard()
    for _ in range(UNREACHABLE_CALLS - 1):
        assert health.judge(AWAY, own=False) is None
    assert str(health.judge(AWAY, own=False)) == "away"
    assert Health().judge(AWAY, own=True) is not None


async def test_the_first_reason_counts() -> None:
    health = Health()
    health.end_with(NeedsAuth("first"))
    health.end_with(ConnectionLost("second"))
    assert isinstance(health.end, NeedsAuth)


async def test_who_wants_to_be_left_alone_is_not_silent_meanwhile() -> None:
    health = Health()
    now = trio.current_time()
    health.judge(Failure(FailureKind.BUSY, "later", 40.0), own=False)
    assert health.busy_until >= now + 40
    assert health.last_heard == health.busy_until
    health.judge(Failure(FailureKind.BUSY, "sooner", 4.0), own=False)
    health.heard()
    assert health.last_heard >= now + 40
