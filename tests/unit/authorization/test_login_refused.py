"""Authorization servers that lie, fail or answer nonsense, without a secret; and the device flow."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest
import trio
import trio.testing

from daemon.authorization.login import DeviceAnswer, LoginFlow, authorize, granted
from daemon.authorization.logins import DeviceCode, Login, LoginPage, NoLogin, Wish
from daemon.authorization.redirect import Redirect
from daemon.config.config_model import OAuth
from tests.unit.authorization import test_machine_login as machine
from tests.unit.authorization.test_machine_login import ORIGIN, RESOURCE, SERVER, URL, Site
from tests.unit.cases import cases, rows_of

METADATA = {
    **machine.METADATA,
    "registration_endpoint": f"{ORIGIN}/register",
    "code_challenge_methods_supported": ["S256"],
}
GOOD: dict[str, Any] = {
    SERVER: METADATA,
    "/register": {"client_id": "id", "redirect_uris": []},
    "/token": {"access_token": "canary", "token_type": "Bearer", "expires_in": "3600"},
}


async def log_in(answers: dict[str, Any], *, with_token: int = 200, **wish: Any) -> tuple[Login, list[str]]:
    """Log in with a browser that agrees, where each path is answered so; returns all requests, too."""
    site, redirect = Site({**GOOD, **answers}, with_token=with_token), Redirect(1)

    async def say(message: LoginPage | DeviceCode) -> None:
        assert isinstance(message, LoginPage)
        state = parse_qs(urlsplit(message.url).query)["state"][0]
        redirect.take(urlencode({"code": "canary", "state": state}))

    wished = Wish(server="notion", url=wish.pop("url", URL), directory="", **wish)
    async with site.client() as client:
        login = await LoginFlow(wished, redirect, client, say).run()
    return login, [f"{each.method} {each.url.path}" for each in site.sent]


async def refused(answers: dict[str, Any], **wish: Any) -> str:
    """Why a login does not come about."""
    with pytest.raises(NoLogin) as caught:
        await log_in(answers, **wish)
    assert "canary" not in str(caught.value)
    return str(caught.value)


async def test_an_honest_authorization_server_is_logged_in_at() -> None:
    login, sent = await log_in({})
    made = login.access_token, login.issuer, login.auth_method, login.resource
    assert (*made, login.renew_at is not None) == ("canary", ORIGIN, "none", URL, True)
    probe = "POST /mcp"
    assert sent == [probe, f"GET {RESOURCE}", f"GET {SERVER}", "POST /register", "POST /token", probe]
    login, _ = await log_in({RESOURCE: {"resource": URL, "authorization_servers": [f"{ORIGIN}/"]}})
    assert login.issuer == ORIGIN, "a slash makes no other authorization server"


@cases("changed", "why")
async def test_metadata_that_leads_astray_is_not_followed(changed: dict[str, Any], why: str) -> None:
    answers: dict[str, Any] = {SERVER: {**METADATA, **changed}}
    if "javascript" in json.dumps(changed):
        answers |= {"/register": 404}
    assert why in await refused(answers)


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        *rows_of(Path(__file__), "each_step_that_fails_has_its_sentence"),
        (
            {"/token": httpx2.Response(307, headers={"location": "http://127.0.0.1:10/x"})},
            "gave no token (HTTP 307)",
        ),
        ({"/token": httpx2.Response(200, content=b"\xff")}, "gave no token"),
        (
            {"/token": httpx2.Response(400, json={"error": "invalid_grant", "error_description": "canary"})},
            "gave no token (HTTP 400, invalid_grant)",
        ),
    ],
)
async def test_each_step_that_fails_has_its_sentence(answers: dict[str, Any], why: str) -> None:
    assert why in await refused(answers)


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        ({"with_token": 401}, f"does not take the token that {ORIGIN} has given for it (HTTP 401)"),
        ({"with_token": 403}, f"does not take the token that {ORIGIN} has given for it (HTTP 403)"),
        ({"url": "http://mcp.example/mcp"}, "not encrypted"),
        ({"oauth": OAuth(metadata_url="http://mcp.example/")}, "metadataUrl must be an https url"),
    ],
)
async def test_a_server_or_a_client_that_does_not_fit_has_its_sentence(wish: dict[str, Any], why: str) -> None:
    assert why in await refused({}, **wish)


async def test_a_client_id_metadata_document_is_used_where_it_is_taken() -> None:
    url = "https://mcpd.example/client.json"
    login, sent = await log_in(
        {SERVER: {**METADATA, "client_id_metadata_document_supported": True}}, oauth=OAuth(metadata_url=url)
    )
    assert login.client_id == url
    assert "POST /register" not in sent
    login, sent = await log_in({}, oauth=OAuth(metadata_url=url))
    assert login.client_id == "id"


async def test_a_secret_that_came_without_a_word_on_its_use_is_shown_as_the_specification_says() -> None:
    login, _ = await log_in({"/register": {"client_id": "id", "client_secret": "s"}})
    assert login.auth_method == "client_secret_basic"


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
