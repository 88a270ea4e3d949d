"""The device flow: how often an authorization server is asked, and how it ends."""

import json
from typing import Any

import httpx2
import pytest
import trio
import trio.testing

from daemon.authorization.login import DeviceAnswer, authorize, granted
from daemon.authorization.logins import NoLogin
from tests.unit.cases import cases

ANSWER = {
    "device_code": "canary",
    "user_code": "WDJB-MJHT",
    "verification_uri": "https://login.example/device",
    "verification_uri_complete": "https://login.example/device?user_code=WDJB-MJHT",
    "expires_in": 60,
}


def client(*answers: Any) -> httpx2.AsyncClient:
    """A client of a token endpoint that answers so, one after the other: an object, or an exception."""
    left = list(answers)

    def answer(request: httpx2.Request) -> httpx2.Response:
        told = left.pop(0)
        if isinstance(told, Exception):
            raise told
        return httpx2.Response(400 if "error" in told else 200, json=told)

    return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))


async def begun(answer: dict[str, Any], *, status: int = 200) -> DeviceAnswer:
    transport = httpx2.MockTransport(lambda _: httpx2.Response(status, content=json.dumps(answer).encode()))
    async with httpx2.AsyncClient(transport=transport) as asking:
        return await authorize(asking, "https://login.example/begin", {}, {}, local=False)


async def ended(*answers: Any, **answer: Any) -> httpx2.Response:
    device = await begun({**ANSWER, **answer})
    async with client(*answers) as asking:
        return await granted(
            asking, device, lambda: asking.build_request("POST", "https://login.example/token")
        )


@cases("changed", "why")
async def test_what_nobody_should_be_shown_is_not(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(NoLogin, match=why):
        await begun({**ANSWER, **changed})
    with pytest.raises(NoLogin, match="HTTP 500"):
        await begun(ANSWER, status=500)


async def test_it_is_asked_every_few_seconds_and_less_often_where_that_is_too_much(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pending, slow = {"error": "authorization_pending"}, {"error": "slow_down"}
    answers = pending, slow, httpx2.ConnectError("no"), pending, {"access_token": "x"}
    response = await ended(*answers, expires_in=99)
    assert response.status_code == 200
    assert trio.current_time() == pytest.approx(5 + 5 + 10 + 15 + 15, abs=0.5)
    assert (await ended({"error": "invalid_grant"})).status_code == 400, "any other end is handed over"


@pytest.mark.parametrize(("interval", "seconds"), [(0, 1), (-5, 1), (1e9, 60), (7, 7)])
async def test_the_interval_has_bounds(
    autojump_clock: trio.testing.MockClock, interval: float, seconds: float
) -> None:
    await ended({"access_token": "x"}, interval=interval, expires_in=99)
    assert trio.current_time() == pytest.approx(seconds, abs=0.5)


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([{"error": "access_denied"}], "was refused"),
        ([{"error": "expired_token"}], "in time"),
        ([{"error": "authorization_pending"}] * 20, "in time"),
    ],
)
async def test_a_code_that_nobody_types_or_somebody_refuses_is_no_login(
    autojump_clock: trio.testing.MockClock, answers: list[Any], why: str
) -> None:
    with pytest.raises(NoLogin, match=why):
        await ended(*answers)
