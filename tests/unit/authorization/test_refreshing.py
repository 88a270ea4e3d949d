"""Renewals that fail: what ends a login, what is only an outage, and how often somebody is asked."""

import base64
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import attrs
import httpx2
import msgspec
import pytest
import trio
import trio.testing

from daemon.authorization import guarded_http
from daemon.authorization.guarded_http import (
    RENEWAL_SECONDS,
    AuthorizationUnavailable,
    LoginOver,
    TokenGrant,
    credentials,
    error_code,
    fresh,
    revoke,
    times,
)
from daemon.authorization.logins import FileLogins, ServerLogins
from tests.unit.authorization.test_logins import LOGIN, URL
from tests.unit.cases import cases

GRANTED = {"access_token": "new", "token_type": "Bearer", "expires_in": 3600}


@attrs.define
class Endpoint:
    """A token endpoint that answers so, and remembers what it was sent."""

    answer: Any
    status: int = 200
    forms: list[dict[str, str]] = attrs.field(factory=list)

    async def handle(self, request: httpx2.Request) -> httpx2.Response:
        self.forms.append(dict(parse_qsl(request.content.decode())))
        match self.answer:
            case None:
                await trio.sleep_forever()
            case Exception():
                raise self.answer
            case bytes():
                return httpx2.Response(self.status, content=self.answer)
        return httpx2.Response(self.status, json=self.answer)


@pytest.fixture
def logins(tmp_path: Path) -> ServerLogins:
    """One login, which has expired."""
    logins = ServerLogins(FileLogins(tmp_path))
    logins.kept.write("notion", msgspec.structs.replace(LOGIN, renew_at=0.0, expires_at=1.0))
    return logins


def served(monkeypatch: pytest.MonkeyPatch, answer: Any, status: int = 200) -> Endpoint:
    endpoint = Endpoint(answer, status)

    @asynccontextmanager
    async def client(url: str) -> AsyncIterator[httpx2.AsyncClient]:
        assert url == URL
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(endpoint.handle)) as made:
            yield made

    monkeypatch.setattr(guarded_http, "guarded_client", client)
    return endpoint


async def test_a_token_that_its_server_refuses_does_not_serve_to_its_end(logins: ServerLogins) -> None:
    alone = msgspec.structs.replace(LOGIN, renew_at=0.0, expires_at=time.time() + 3600, refresh_token=None)
    logins.kept.write("notion", alone)
    assert await fresh(logins, "notion", URL, rejected=None) == alone
    with pytest.raises(LoginOver, match="the server rejected the login"):
        await fresh(logins, "notion", URL, rejected=alone.access_token)


async def test_what_a_grant_leaves_out_stays(logins: ServerLogins, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = served(monkeypatch, GRANTED)
    login = await fresh(logins, "notion", URL, rejected=None)
    assert login is not None
    assert (login.access_token, login.refresh_token) == ("new", LOGIN.refresh_token)
    assert login.renew_at is not None
    assert time.time() < login.renew_at < (login.expires_at or 0)
    assert logins.kept.read("notion", URL) == login
    assert endpoint.forms == [
        {"grant_type": "refresh_token", "refresh_token": "canary-refresh", "client_id": "client"}
    ]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({"error": "temporarily_unavailable"}, 400),
        ({"error": "invalid_grant"}, 503),
        (b"<html>canary</html>", 404),
        (b"<html>canary</html>", 200),
        ({"access_token": 1}, 200),
        ({"access_token": "canary\r\nx: y"}, 200),
        (httpx2.ConnectError("no"), 0),
        (httpx2.ReadTimeout("no"), 0),
        (httpx2.DecodingError("no"), 0),
    ],
)
async def test_an_outage_ends_no_login(
    logins: ServerLogins, monkeypatch: pytest.MonkeyPatch, answer: Any, status: int
) -> None:
    served(monkeypatch, answer, status)
    before = logins.kept.read("notion", URL)
    with pytest.raises(httpx2.TransportError) as caught:
        await fresh(logins, "notion", URL, rejected=None)
    assert "canary" not in str(caught.value)
    assert logins.kept.read("notion", URL) == before


@pytest.mark.parametrize("code", ["invalid_grant", "invalid_client", "unauthorized_client"])
async def test_a_refusal_ends_the_login_and_is_asked_for_once(
    logins: ServerLogins, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    endpoint = served(monkeypatch, {"error": code, "error_description": "canary"}, 401)
    for _ in range(2):
        with pytest.raises(LoginOver) as caught:
            await fresh(logins, "notion", URL, rejected=None)
        assert "canary" not in str(caught.value)
    assert len(endpoint.forms) == 1


@pytest.mark.parametrize("answer", [httpx2.ConnectError("no"), None])
async def test_all_who_wait_for_a_renewal_that_fails_hear_of_it_at_once(
    logins: ServerLogins,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: trio.testing.MockClock,
    answer: Exception | None,
) -> None:
    endpoint = served(monkeypatch, answer)
    failed: list[Exception] = []

    async def one() -> None:
        with pytest.raises(httpx2.TransportError) as caught:
            await fresh(logins, "notion", URL, rejected=None)
        failed.append(caught.value)

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(one)
    assert len(failed) == 20
    assert len(endpoint.forms) == 1
    assert trio.current_time() <= RENEWAL_SECONDS + 1


async def test_a_revocation_that_is_refused_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = served(monkeypatch, {}, 503)
    login = msgspec.structs.replace(LOGIN, revocation_endpoint="https://login.example/revoke")
    with pytest.raises(AuthorizationUnavailable, match="HTTP 503"):
        await revoke(login)
    endpoint.status = 200
    assert await revoke(login)
    assert [(form["token"], form["token_type_hint"]) for form in endpoint.forms[1:]] == [
        ("canary-refresh", "refresh_token"),
        ("canary-access", "access_token"),
    ]


def test_a_secret_is_shown_as_was_agreed_and_only_where_there_is_one() -> None:
    assert credentials("id", None, "client_secret_basic") == ({}, {"client_id": "id"})
    assert credentials("id", "s", "none") == ({}, {"client_id": "id"})
    assert credentials("id", "s", "client_secret_post") == ({}, {"client_id": "id", "client_secret": "s"})
    headers, form = credentials("a:b", "ü&+%", "client_secret_basic")
    assert form == {}
    assert base64.b64decode(headers["authorization"].removeprefix("Basic ")) == b"a%3Ab:%C3%BC%26%2B%25"


def test_a_token_is_renewed_some_time_before_its_end_where_that_is_known() -> None:
    for expires_in, renew_in, ends_in in (
        (3600, 3540, 3600),
        ("3600", 3540, 3600),
        (30, 24, 30),
        (90.5, 72.4, 90.5),
    ):
        assert times(expires_in, 1000.0) == (1000.0 + renew_in, 1000.0 + ends_in)
    for unknown in (None, 0, -1, "soon", "nan", "inf", ""):
        assert times(unknown, 1000.0) == (None, None), unknown


@cases("content", "code", raw={"content"})
def test_only_what_looks_like_an_error_code_is_one(content: bytes, code: str) -> None:
    assert error_code(content) == code


def test_a_grant_does_not_show_its_tokens() -> None:
    assert "canary" not in repr(TokenGrant(access_token="canary", refresh_token="canary"))
