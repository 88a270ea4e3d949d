"""Calls in flight end once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.errors import UpstreamLost
from daemon.transports.sdk_calls import Calls
from tests.transports.serving import Caller

if TYPE_CHECKING:
    import trio.testing


async def test_each_ends_once_whoever_ends_it() -> None:
    calls = Calls()
    first, second, third = Caller(), Caller(), Caller()
    scopes = [calls.open(key, caller) for key, caller in enumerate((first, second, third))]
    assert (len(calls), calls.keys) == (3, [0, 1, 2])
    calls.answered(0, {"a": 1})
    calls.refused(1, {"code": 1})
    calls.lost(2, UpstreamLost("gone"))
    for key in range(4):
        calls.answered(key, {})
        calls.refused(key, {})
        calls.lost(key, UpstreamLost("gone"))
        assert calls.take(key) is None
    assert (first.result, second.error) == ({"a": 1}, {"code": 1})
    assert third.loss is not None
    assert all(scope.cancel_called for scope in scopes)
    assert not len(calls)


async def test_progress_finds_its_call_by_a_token_that_may_have_become_a_string() -> None:
    calls = Calls()
    caller = Caller()
    calls.open(5, caller)
    for token in (5, "5", 6, "x", None, [5]):
        calls.progressed({"progressToken": token, "progress": 0.5, "x-vendor": [1]})
    calls.progressed({})
    assert caller.progress == [
        {"progressToken": 5, "progress": 0.5, "x-vendor": [1]},
        {"progressToken": "5", "progress": 0.5, "x-vendor": [1]},
    ]


async def test_progress_puts_off_the_idle_limit_but_not_the_total(mock_clock: trio.testing.MockClock) -> None:
    calls = Calls()
    calls.open(1, Caller())
    calls.open(2, Caller())
    mock_clock.jump(50)
    calls.progressed({"progressToken": 2, "progress": 1})
    mock_clock.jump(20)
    assert calls.overdue(idle=60, total=600) == [1]
    assert calls.overdue(idle=60, total=70) == [1, 2]
    assert calls.overdue(idle=100, total=600) == []
