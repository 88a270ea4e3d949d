"""Logins at oidc-provider: what is asked, answered and kept, and what each failure says."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from daemon.authorization.redirect import Outcome
from tests.process.authorization.serving import (
    browse,
    call,
    fetch,
    logged_in,
    login,
    oidc_provider,
    protected,
    protected_by,
    spawned_login,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.process

BY_HAND = {"client_id": "by-hand", "client_secret": "canary-secret&+%"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server that oidc-provider protects."""
    with protected() as url:
        yield url


async def test_whoever_logs_in_has_a_token_that_nobody_is_told(tmp_path: Path, url: str) -> None:
    async with spawned_login(tmp_path, url) as running:
        page = await running.page()
        asked = parse_qs(urlsplit(page.url).query)
        assert asked["resource"] == [url]
        assert asked["code_challenge_method"] == ["S256"]
        assert asked["redirect_uri"] == [page.redirect]
        status, text = await fetch(await browse(page.url))
        assert (status, Outcome.TAKEN.text in text) == (200, True)
        done = await running.done()
        assert await running.next() is None
        kept = running.kept
        assert kept is not None
        assert await call(url, kept.access_token) == "it was you"
        assert (kept.resource, kept.scope, kept.expires_at) == (url, done.scope, done.expires_at)
        assert "read" in (kept.scope or "").split()
        for secret in (kept.access_token, kept.refresh_token):
            assert secret is not None
            assert secret.encode() not in running.heard


@pytest.mark.parametrize(
    "method",
    ["none", *(pytest.param(f"client_secret_{each}", marks=pytest.mark.nightly) for each in ("post", "basic"))],
)
async def test_the_client_shows_itself_as_the_authorization_server_wants(tmp_path: Path, method: str) -> None:
    """And without a device flow there is a page."""
    with protected(methods=[method, "client_secret_post"], device=False) as url:
        kept = await logged_in(tmp_path, url, device=True)
        assert kept.auth_method == method
        assert (kept.client_secret is None) == (method == "none")
        assert await call(url, kept.access_token) == "it was you"


async def test_a_client_that_was_registered_by_hand_needs_no_registration(tmp_path: Path) -> None:
    with protected(registration=False) as url:
        async with login(tmp_path, url) as running:
            told = await running.failed()
            assert "does not register mcpd as a client" in told
            assert "clientId" in told
        kept = await logged_in(tmp_path, url, **BY_HAND)
        assert (kept.client_id, kept.auth_method) == ("by-hand", "client_secret_basic")
        assert await call(url, kept.access_token) == "it was you"


async def test_the_browser_comes_back_to_the_chosen_port_unless_it_is_taken(tmp_path: Path, url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with login(tmp_path, url, redirect_port=port) as running:
            assert f"port {port} of 127.0.0.1" in await running.failed()
    async with login(tmp_path, url, redirect_port=port) as running:
        page = await running.page()
        assert page.redirect == f"http://127.0.0.1:{port}/callback"
        await fetch(await browse(page.url))
        await running.done()


async def test_what_is_no_answer_to_this_login_does_not_disturb_it(tmp_path: Path, url: str) -> None:
    async with login(tmp_path, url) as running:
        page = await running.page()
        answer = await browse(page.url)
        for query, outcome in {
            "code=x&state=another": Outcome.OTHER_LOGIN,
            "code=x": Outcome.OTHER_LOGIN,
            "error=access_denied": Outcome.OTHER_LOGIN,
            "<script>": Outcome.GARBAGE,
            urlsplit(answer).query + "&state=another": Outcome.GARBAGE,
        }.items():
            status, text = await fetch(f"{page.redirect}?{query}")
            assert (status, outcome.text in text) == (outcome.status, True), query
            assert "<script" not in text
        assert (await fetch(f"{page.redirect[:-1]}?{urlsplit(answer).query}"))[0] == Outcome.NOT_HERE.status
        await fetch(answer)
        await running.done()


@pytest.mark.parametrize(
    ("pasted", "why"),
    [
        ("{redirect}?code=x&state=another", "another login"),
        ("{redirect}", "no answer in it"),
        ("https://elsewhere.example/callback?code=x", "does not begin with"),
        ("http://[", "does not begin with"),
        ("what?", "does not begin with"),
    ],
)
async def test_what_is_pasted_by_mistake_ends_the_login(
    tmp_path: Path, url: str, pasted: str, why: str
) -> None:
    async with login(tmp_path, url) as running:
        page = await running.page()
        await running.paste(pasted.format(redirect=page.redirect))
        assert why in await running.failed()
        assert running.kept is None


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"error": "access_denied"}, "agree to it"),
        ({"error": "server_error"}, "(server_error)"),
        ({"error": "<b>canary</b>"}, "has refused the login"),
        # A mix-up (RFC 9207): the code of one authorization server as if it came from another.
        ({"code": "canary", "iss": "https://evil.example"}, "another authorization server"),
        ({"code": "canary"}, "another authorization server"),
        ({"code": "canary", "iss": "{issuer}"}, "gave no token (HTTP 400, invalid_grant)"),
    ],
)
async def test_an_answer_that_is_no_good_ends_the_login_and_keeps_the_one_before(
    tmp_path: Path, url: str, fields: dict[str, str], why: str
) -> None:
    before = await logged_in(tmp_path, url)
    async with login(tmp_path, url) as running:
        page = await running.page()
        state = parse_qs(urlsplit(page.url).query)["state"][0]
        given = {name: value.format(issuer=before.issuer) for name, value in fields.items()}
        await fetch(f"{page.redirect}?{urlencode({**given, 'state': state})}")
        told = await running.failed()
        assert why in told
        assert "canary" not in told
        assert running.kept == before


async def test_an_authorization_server_that_lies_about_its_issuer_gets_nobody_to_log_in(tmp_path: Path) -> None:
    with oidc_provider() as issuer:
        otherwise = issuer.replace("127.0.0.1", "localhost")
        with protected_by(otherwise, otherwise) as url:
            async with login(tmp_path, url) as running:
                assert f"claims to be another one than {otherwise}" in await running.failed()
