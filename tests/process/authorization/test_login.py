"""Logins at oidc-provider: what is asked, answered and kept, and what each failure says."""

import socket
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import msgspec
import pytest
import trio

from daemon.authorization import guarded_http
from daemon.authorization.guarded_http import Ended, LoginOver, end_login, fresh, renew, revoke
from daemon.authorization.logins import DeviceCode, FileLogins, Login, LoginsTrouble, ServerLogins
from daemon.authorization.redirect import Outcome
from tests.e2e.harness import ROOT
from tests.process.authorization.serving import (
    browse,
    call,
    example,
    fetch,
    logged_in,
    login,
    oidc_provider,
    protected,
    protected_by,
    spawned_login,
    tools,
)
from tests.unit.cases import cases
from tests.unit.upstreams.transports.serving import SECONDS, Request, reply, scripted
from tests.waiting import WAIT, background

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


async def test_a_code_is_typed_elsewhere(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.authorization.login.MAX_INTERVAL", 0.1)
    async with login(tmp_path, url, device=True, scopes=("read",)) as running:
        told = await running.next()
        assert isinstance(told, DeviceCode)
        await browse(str(told.complete_url), until="")
        assert (await running.done()).scope == "read"


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


@cases("pasted", "why")
async def test_what_is_pasted_by_mistake_ends_the_login(
    tmp_path: Path, url: str, pasted: str, why: str
) -> None:
    async with login(tmp_path, url) as running:
        page = await running.page()
        await running.paste(pasted.format(redirect=page.redirect))
        assert why in await running.failed()
        assert running.kept is None


@cases("fields", "why")
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
                assert f"names itself otherwise than {otherwise}" in await running.failed()


# --- logins at the SDK's example of authorization, whose two sides are apart, and at the one fr --------------


@pytest.mark.nightly
async def test_a_login_at_the_example_serves_its_tool_and_ends_without_a_refresh_token(tmp_path: Path) -> None:
    with (
        example("auth_server") as issuer,
        example("server", f"--auth-server={issuer}", "--oauth-strict") as server,
    ):
        url = f"{server}/mcp"
        kept = await logged_in(tmp_path, url)
        assert urlsplit(kept.issuer).netloc == urlsplit(issuer).netloc
        assert kept.scope == "user"
        assert await tools(url, kept.access_token) == ["get_time"]
        logins = FileLogins(tmp_path)
        logins.write("notion", msgspec.structs.replace(kept, renew_at=0.0, expires_at=0.0))
        with pytest.raises(LoginOver, match="the login has expired"):
            await fresh(ServerLogins(logins), "notion", url, rejected=None)


@pytest.mark.nightly
async def test_a_server_of_2025_03_26_is_its_own_authorization_server(tmp_path: Path) -> None:
    """It publishes no metadata of a protected resource: where to log in is at its own origin."""
    with example("legacy_as_server") as server:
        url = f"{server}/mcp"
        async with login(tmp_path, url) as running:
            page = await running.page()
            assert urlsplit(page.url).netloc == urlsplit(url).netloc
            assert parse_qs(urlsplit(page.url).query)["resource"] == [url]
            await fetch(await browse(page.url))
            await running.done()
            kept = running.kept
        assert kept is not None
        assert await tools(url, kept.access_token) == ["get_time"]
        assert await revoke(kept) is (kept.revocation_endpoint is not None)


# --- logins renewed and ended at oidc-provider, which takes who comes with an old refresh token --------------


AT_ONCE = 50


def expire(logins: FileLogins, login: Login, *, left: float = -1.0) -> Login:
    """Have a login be renewed: it ends in `left` seconds."""
    old = msgspec.structs.replace(login, renew_at=0.0, expires_at=time.time() + left)
    logins.write("notion", old)
    return old


async def test_fifty_calls_with_an_expired_token_are_one_renewal_and_so_are_several_daemons(
    tmp_path: Path, url: str
) -> None:
    logins = FileLogins(tmp_path)
    old, shared = expire(logins, await logged_in(tmp_path, url)), ServerLogins(logins)
    found: list[Login | None] = []

    async def one() -> None:
        found.append(await fresh(shared, "notion", url, rejected=None))

    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(one)
    (renewed,) = {each.access_token for each in found if each is not None}
    kept = logins.read("notion", url)
    assert len(found) == AT_ONCE
    assert kept is not None
    assert kept.access_token == renewed != old.access_token
    assert kept.refresh_token != old.refresh_token
    assert await call(url, renewed) == "it was you"
    # And again with the one that came in its place.
    expire(logins, kept)
    again = await fresh(ServerLogins(logins), "notion", url, rejected=None)
    assert again is not None
    assert await call(url, again.access_token) == "it was you"
    expire(logins, again)
    code = (
        "import sys, trio; from pathlib import Path; from daemon.authorization.guarded_http import fresh;"
        "from daemon.authorization.logins import FileLogins, ServerLogins;"
        "logins = ServerLogins(FileLogins(Path(sys.argv[1])));"
        "got = trio.run(lambda: fresh(logins, 'notion', sys.argv[2], rejected=None)); print(got.access_token)"
    )
    said: list[bytes] = []

    async def daemon() -> None:
        done = await trio.run_process(
            [sys.executable, "-c", code, str(tmp_path), url], cwd=ROOT, capture_stdout=True
        )
        said.append(done.stdout.strip())

    with trio.fail_after(WAIT):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(daemon)
    kept = logins.read("notion", url)
    assert kept is not None
    assert said == [kept.access_token.encode()] * 3
    assert kept.access_token != again.access_token


async def test_a_login_that_somebody_else_has_renewed_with_is_over_and_not_tried_again(
    tmp_path: Path, url: str
) -> None:
    logins = FileLogins(tmp_path)
    first = await logged_in(tmp_path, url)
    assert await fresh(ServerLogins(logins), "notion", url, rejected=first.access_token) is not None
    # A copy from before, as a backup or a thief has it.
    expire(logins, first)
    for _ in range(2):
        with pytest.raises(LoginOver, match=r"\(invalid_grant\)|gave no refresh token"):
            await fresh(ServerLogins(logins), "notion", url, rejected=None)


async def test_what_could_not_be_kept_is_not_renewed_and_a_renewal_that_was_given_up_is_kept_all_the_same(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    logins = FileLogins(tmp_path)
    old = expire(logins, await logged_in(tmp_path, url))

    def full(self: FileLogins, server: str, login: Login) -> None:
        raise LoginsTrouble("no space")

    with monkeypatch.context() as patch:
        patch.setattr(FileLogins, "write", full)
        with pytest.raises(LoginsTrouble):
            await fresh(ServerLogins(logins), "notion", url, rejected=None)
    assert logins.read("notion", url) == old
    with trio.CancelScope() as scope:

        async def given_up(login: Login, client: httpx2.AsyncClient) -> Login:
            scope.cancel()
            return await renew(login, client)

        monkeypatch.setattr(guarded_http, "renew", given_up)
        await fresh(ServerLogins(logins), "notion", url, rejected=None)
    kept = logins.read("notion", url)
    assert scope.cancel_called
    assert kept is not None
    assert kept.access_token != old.access_token


# --- A login that ends, here and at its authorization server -------------------------------------------------


URL = "http://127.0.0.1:1/mcp"


def kept(state: Path, port: int | None) -> FileLogins:
    logins = FileLogins(state)
    endpoint = None if port is None else f"http://127.0.0.1:{port}/revoke"
    place: dict[str, Any] = {"url": URL, "issuer": "i", "token_endpoint": "t", "client_id": "c"}
    tokens: dict[str, Any] = {"access_token": "access-1", "refresh_token": "refresh-1"}
    logins.write("s", Login(**place, **tokens, revocation_endpoint=endpoint))
    return logins


@pytest.mark.parametrize(("status", "revoked"), [("200 OK", True), ("503 Service Unavailable", False)])
async def test_it_is_forgotten_whether_or_not_its_authorization_server_can_be_told(
    status: str, revoked: bool, tmp_path: Path
) -> None:
    asked: list[bytes] = []

    async def revoke(logins: list[FileLogins], request: Request) -> bytes:
        assert logins[0].read("s", URL) is None
        asked.append(request.raw)
        return reply({}, status)

    found: list[FileLogins] = []
    with trio.fail_after(SECONDS):
        async with background() as nursery:
            found.append(kept(tmp_path, await scripted(nursery, partial(revoke, found))))
            ended = await end_login(found[0], "s", URL)
    assert (ended.existed, ended.revoked, bool(ended.problem)) == (True, revoked, not revoked)
    assert b"refresh-1" in asked[0]
    assert found[0].read("s", URL) is None


async def test_a_damaged_login_is_forgotten_and_without_one_nothing_is_made(tmp_path: Path) -> None:
    logins, state = kept(tmp_path, None), tmp_path / "state"
    ended = await end_login(logins, "s", URL)
    assert ended == Ended(existed=True, problem="its authorization server cannot end logins")
    (tmp_path / "logins" / "s.json").write_text("{")
    assert await end_login(logins, "s", URL) == Ended(existed=True, problem="it could not be read")
    assert await end_login(logins, "s", URL) == Ended(existed=False)
    assert await end_login(FileLogins(state), "mistyped", None) == Ended(existed=False)
    assert not state.exists()
