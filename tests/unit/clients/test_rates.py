"""Calls a minute: a burst goes at once, more wait for their turn, and who would wait too long is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from daemon.clients.rates import CallRates, is_metered
from daemon.errors import Overloaded
from tests.unit.clients.asking import called, greeted, on_full_surface
from tests.unit.config.reading import config_of

if TYPE_CHECKING:
    from daemon.config.config_model import Config


def limited(server: int | None = None, profile: int | None = None) -> Config:
    entry: dict[str, object] = {"command": "x", "timeouts": {"queue": 5}}
    if server is not None:
        entry["limits"] = {"callsPerMinute": server}
    default = {} if profile is None else {"limits": {"callsPerMinute": profile}}
    return config_of({"mcpServers": {"a": entry, "b": {"command": "x"}}, "profiles": {"default": default}})


def test_ten_seconds_worth_goes_at_once_and_the_rest_a_call_at_a_time() -> None:
    now = 100.0
    rates, config = CallRates(lambda: now), limited(server=30)
    profile = config.profiles["default"]
    assert [rates.take(config, profile, "a") for _ in range(7)] == [0, 0, 0, 0, 0, 2, 4]
    with pytest.raises(
        Overloaded, match=r"server a may have 30 calls a minute .* try again in about 1 s"
    ) as caught:
        rates.take(config, profile, "a")
    assert caught.value.details["bound"] == "limits.callsPerMinute of server a"
    assert caught.value.details["retryAfterMs"] == 1000
    assert rates.take(config, profile, "b") == 0, "it has no limit"
    assert rates.take(config, profile, "gone") == 0, "a reload is removing it"
    now += 4
    assert rates.take(config, profile, "a") == 2, "what was refused has spent nothing"


def test_clients_of_a_profile_share_its_calls_over_all_servers() -> None:
    rates, config = CallRates(lambda: 0.0), limited(profile=6)
    profile = config.profiles["default"]
    assert rates.take(config, profile, "a") == 0
    with pytest.raises(Overloaded, match="profile default may have 6 calls a minute"):
        rates.take(config, profile, "a")
    assert rates.take(config, profile, "b") == 10, "the queue of the server that is called decides"


def test_where_nothing_is_limited_nothing_is_counted() -> None:
    for config, metered in ((limited(), False), (limited(server=1), True), (limited(profile=1), True)):
        assert is_metered(config, config.profiles["default"]) is metered


async def test_a_call_over_the_limit_waits_for_its_turn(
    nursery: trio.Nursery, mock_clock: trio.testing.MockClock
) -> None:
    stage = on_full_surface(profiles={"default": {"surface": "full", "limits": {"callsPerMinute": 6}}})
    guest = await greeted(stage, nursery)
    await called(stage, guest.client)
    await guest.client.ask("tools/call", {"name": "echo", "arguments": {}}, request_id=8)
    await trio.testing.wait_all_tasks_blocked()
    assert len(stage.alpha.sent) == 1
    mock_clock.jump(10)
    await stage.alpha.wait_sent(2)
    await guest.client.ask("tools/call", {"name": "echo", "arguments": {}}, request_id=9)
    await guest.client.tell("notifications/cancelled", {"requestId": 9})
    await trio.testing.wait_all_tasks_blocked()
    mock_clock.jump(60)
    await trio.testing.wait_all_tasks_blocked()
    assert len(stage.alpha.sent) == 2, "the client has taken it back"
