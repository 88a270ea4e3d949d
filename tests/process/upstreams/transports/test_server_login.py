"""The login that requests are sent with, against a server and an authorization server on loopback."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import attrs
import msgspec
import pytest
import trio

from daemon.authorization.logins import FileLogins, Login, NoLogin, NotNow, ServerLogins
from daemon.causes import Cause
from daemon.config.config_model import Server, TransportType
from daemon.config.login_keys import Auth, AuthType
from daemon.config.redaction import Redactors
from daemon.errors import ConnectionLost, NeedsAuth, RunError, UpstreamUnavailable
from daemon.model import Era
from daemon.protocol import MODERN_VERSION
from daemon.safety.redact import HIDDEN
from daemon.upstreams.transports.server_connection import OpenContext
from tests.unit.upstreams.transports.serving import (
    SECONDS,
    Client,
    Request,
    answer,
    connected,
    context_for,
    reply,
    scripted,
)
from tests.waiting import background

UNAUTHORIZED = "401 Unauthorized"


@attrs.define(eq=False)
class Site:
    """An MCP server and its authorization server: what they take, and what they were asked."""

    good: str = "token-0"
    """The access token that the server takes."""
    challenge: str = 'Bearer error="invalid_token"'
    metadata: bool = False
    renews: bool = True
    fickle: bool = False
    """It does not take what it has just given."""
    grants: str = ""
    """The scope that a call needs, and that no token has."""
    port: int = 0
    sent: list[str] = attrs.field(factory=list)
    """The `Authorization` of each request to the server."""
    renewed: int = 0
    ran: int = 0

    async def __call__(self, request: Request) -> bytes:
        if request.path.startswith("/.well-known/oauth-protected-resource"):
            found = {"authorization_servers": ["https://as.example"]}
            return reply(found) if self.metadata else reply({}, "404 Not Found")
        return self._token(request) if request.path == "/token" else self._mcp(request)

    def _token(self, request: Request) -> bytes:
        self.renewed += 1
        form = parse_qs(request.raw.decode())
        if not self.renews or form["refresh_token"] != [f"refresh-{self.renewed - 1}"]:
            return reply({"error": "invalid_grant"}, "400 Bad Request")
        given = f"token-{self.renewed}"
        self.good = self.good if self.fickle else given
        granted = {"access_token": given, "refresh_token": f"refresh-{self.renewed}", "expires_in": 3600}
        return reply({**granted, "token_type": "Bearer"})

    def _mcp(self, request: Request) -> bytes:
        shown = request.headers.get("authorization", "")
        self.sent.append(shown)
        if shown != f"Bearer {self.good}":
            return reply({}, UNAUTHORIZED, **({"www_authenticate": self.challenge} if self.challenge else {}))
        if self.grants and request.body["method"] == "tools/call":
            challenge = f'Bearer error="insufficient_scope", scope="{self.grants}"'
            return reply({}, "403 Forbidden", www_authenticate=challenge)
        self.ran += 1
        return answer(request, {"content": []})


def kept(port: int, **changed: Any) -> Login:
    base = f"http://127.0.0.1:{port}"
    login = Login(
        url=f"{base}/mcp",
        issuer=base,
        token_endpoint=f"{base}/token",
        client_id="c",
        access_token="token-0",
        refresh_token="refresh-0",
    )
    return msgspec.structs.replace(login, **changed)


@asynccontextmanager
async def at(site: Site, state: Path) -> AsyncIterator[tuple[OpenContext, ServerLogins]]:
    """The server, and what a connection to it is opened with; there is no login yet."""
    logins = ServerLogins(FileLogins(state))
    async with background() as nursery:
        site.port = await scripted(nursery, site)
        context = context_for(TransportType.HTTP, f"http://127.0.0.1:{site.port}/mcp")
        with trio.fail_after(SECONDS):
            yield attrs.evolve(context, logins=logins), logins


@asynccontextmanager
async def talking(site: Site, state: Path, **changed: Any) -> AsyncIterator[tuple[Client, ServerLogins]]:
    """A connection to the server with a login like this."""
    async with at(site, state) as (context, logins):
        logins.kept.write("s", kept(site.port, **changed))
        async with connected(context) as client:
            client.connection.adopt(Era.MODERN, MODERN_VERSION)
            yield client, logins


async def test_without_a_login_nothing_is_sent_and_the_server_is_said_to_need_one(tmp_path: Path) -> None:
    site = Site(challenge='Bearer scope="read write"')
    async with at(site, tmp_path) as (context, logins), connected(context) as client:
        client.connection.adopt(Era.MODERN, MODERN_VERSION)
        with pytest.raises(NeedsAuth, match="wants an OAuth login") as caught:
            await client.ask("tools/list")
        assert caught.value.reason.cause is Cause.LOGIN_NEEDED
        assert logins.wanted("s") == "read write"
    assert site.sent == [""]


@pytest.mark.parametrize(("metadata", "cause"), [(True, Cause.LOGIN_NEEDED), (False, Cause.UNAUTHORIZED)])
async def test_a_401_that_says_nothing_is_about_a_login_if_the_metadata_does(
    metadata: bool, cause: Cause, tmp_path: Path
) -> None:
    async with (
        at(Site(challenge="", metadata=metadata), tmp_path) as (context, _),
        connected(context) as client,
    ):
        client.connection.adopt(Era.MODERN, MODERN_VERSION)
        with pytest.raises(NeedsAuth) as caught:
            await client.ask("tools/list")
        assert caught.value.reason.cause is cause


async def test_a_server_with_a_configured_token_is_not_logged_in_to(tmp_path: Path) -> None:
    site = Site(good="mine")
    async with at(site, tmp_path) as (context, logins):
        logins.kept.write("s", kept(site.port))
        server = attrs.evolve(context.server, headers={"Authorization": "Bearer mine"})
        async with connected(attrs.evolve(context, server=server)) as client:
            client.connection.adopt(Era.MODERN, MODERN_VERSION)
            await client.ask("tools/list")
            site.good = "other"
            with pytest.raises(NeedsAuth) as caught:
                await client.ask("tools/list")
            assert caught.value.reason.cause is Cause.UNAUTHORIZED
    assert site.sent == ["Bearer mine"] * 2


async def test_a_login_that_is_about_to_end_is_renewed_before_it_is_sent(tmp_path: Path) -> None:
    site = Site()
    async with talking(site, tmp_path, renew_at=time.time() - 1, expires_at=time.time() + 5) as (
        client,
        logins,
    ):
        await client.ask("tools/list")
        await client.ask("tools/list")
        found = logins.kept.read("s", f"http://127.0.0.1:{site.port}/mcp")
        assert found is not None
        assert (found.access_token, found.refresh_token) == ("token-1", "refresh-1")
    assert (site.sent, site.renewed) == (["Bearer token-1"] * 2, 1)


async def needs_login(client: Client) -> None:
    """The connection ends, and the next one needs a login."""
    await client.over.wait()
    assert isinstance(client.end, NeedsAuth)
    assert client.end.reason.cause is Cause.LOGIN_NEEDED


async def test_fifty_calls_with_a_login_that_has_ended_are_one_renewal_and_all_run_once(tmp_path: Path) -> None:
    site = Site(good="token-1")
    async with talking(site, tmp_path) as (client, _):
        callers = [client.start("echo")[1] for _ in range(50)]
        for caller in callers:
            await caller.ended.wait()
        assert all(caller.result is not None for caller in callers)
    assert (site.renewed, site.ran) == (1, 50)


@pytest.mark.parametrize(
    ("given", "sent"), [({"good": "token-7", "fickle": True}, 2), ({"good": "token-1", "renews": False}, 1)]
)
async def test_a_login_that_is_refused_after_its_renewal_or_cannot_be_renewed_is_tried_no_more(
    given: dict[str, Any], sent: int, tmp_path: Path
) -> None:
    site = Site(**given)
    async with talking(site, tmp_path) as (client, _):
        caller = await client.call("echo")
        assert isinstance(caller.loss, UpstreamUnavailable)
        assert "was not run. Tell the user to run `mcpd login s`" in caller.loss.message
        await needs_login(client)
    assert (site.sent, site.renewed, site.ran) == ([f"Bearer token-{number}" for number in range(sent)], 1, 0)


async def test_while_the_authorization_server_is_away_a_login_is_used_as_long_as_it_is_good(
    tmp_path: Path,
) -> None:
    site, now = Site(), time.time()
    gone = {"token_endpoint": "http://127.0.0.1:9/token", "renew_at": now - 1}
    async with talking(site, tmp_path, **gone, expires_at=now + 600) as (client, _):
        await client.ask("tools/list")
    assert site.sent == ["Bearer token-0"]


async def test_while_the_authorization_server_is_away_an_ended_login_costs_calls_and_then_the_connection(
    tmp_path: Path,
) -> None:
    site, now = Site(), time.time()
    gone = {"token_endpoint": "http://127.0.0.1:9/token", "renew_at": now - 2, "expires_at": now - 1}
    async with talking(site, tmp_path, **gone) as (client, _):
        caller = await client.call("echo")
        assert isinstance(caller.loss, UpstreamUnavailable)
        assert "cannot be renewed just now" in caller.loss.message
        assert "safe to try again" in caller.loss.message
        with pytest.raises(ConnectionLost) as caught:
            await client.ask("tools/list")
        assert caught.value.reason.cause is Cause.LOGIN_NOT_RENEWED
    assert site.sent == []


async def test_a_call_that_needs_more_than_was_granted_costs_that_call_and_the_wish_is_remembered(
    tmp_path: Path,
) -> None:
    site = Site(grants="admin:write")
    async with talking(site, tmp_path, scope="read") as (client, logins):
        caller = await client.call("drop")
        assert isinstance(caller.loss, UpstreamUnavailable)
        assert "does not grant enough: admin:write" in caller.loss.message
        assert "mcpd login s" in caller.loss.message
        assert logins.wanted("s", "read") == "read admin:write"
        await client.ask("tools/list")
    assert (site.renewed, site.ran) == (0, 1)


async def test_a_login_goes_to_no_other_origin(tmp_path: Path) -> None:
    site, other = Site(), Site()

    async def elsewhere(request: Request) -> bytes:
        site.sent.append(request.headers.get("authorization", ""))
        return reply({}, "307 Temporary Redirect", location=f"http://localhost:{other.port}/mcp")

    async with background() as nursery:
        other.port = await scripted(nursery, other)
        port = await scripted(nursery, elsewhere)
        logins = ServerLogins(FileLogins(tmp_path))
        logins.kept.write("s", kept(port))
        context = attrs.evolve(context_for(TransportType.HTTP, f"http://127.0.0.1:{port}/mcp"), logins=logins)
        async with connected(context) as client:
            client.connection.adopt(Era.MODERN, MODERN_VERSION)
            assert (await client.call("echo")).error is not None
    assert (site.sent, other.sent) == (["Bearer token-0"], [])


async def test_a_login_that_cannot_be_read_is_said_and_nothing_is_sent(tmp_path: Path) -> None:
    site = Site()
    async with at(site, tmp_path) as (context, logins):
        logins.kept.write("s", kept(site.port))
        (tmp_path / "logins" / "s.json").write_text("{")
        with pytest.raises(NeedsAuth, match="damaged"):
            async with connected(context):
                raise AssertionError
    assert site.sent == []


async def test_the_tokens_that_are_sent_are_hidden_in_all_that_is_shown(tmp_path: Path) -> None:
    site, redact = Site(good="token-1"), Redactors()
    async with at(site, tmp_path) as (context, logins):
        shown = ServerLogins(logins.kept, redact.hide_login)
        shown.kept.write("s", kept(site.port))
        async with connected(attrs.evolve(context, logins=shown)) as client:
            assert redact.of("s")("no token-0 and no refresh-0") == f"no {HIDDEN} and no {HIDDEN}"
            client.connection.adopt(Era.MODERN, MODERN_VERSION)
            await client.ask("tools/list")
            assert redact("token-1, refresh-1, token-0") == f"{HIDDEN}, {HIDDEN}, {HIDDEN}"


async def test_over_sse_the_stream_is_opened_with_the_login(tmp_path: Path) -> None:
    site = Site(good="token-1")

    async def stream(request: Request) -> bytes:
        if request.method == "GET" and request.headers.get("authorization") == f"Bearer {site.good}":
            return reply(b"event: endpoint\ndata: /post\n\n", content_type="text/event-stream")
        return await site(request)

    async with background() as nursery:
        port = await scripted(nursery, stream)
        logins = ServerLogins(FileLogins(tmp_path))
        logins.kept.write("s", kept(port))
        context = attrs.evolve(context_for(TransportType.SSE, f"http://127.0.0.1:{port}/mcp"), logins=logins)
        with trio.fail_after(SECONDS):
            async with connected(context):
                pass
        assert site.renewed == 1
        logins.kept.remove("s")
        with pytest.raises(NeedsAuth) as caught, trio.fail_after(SECONDS):
            async with connected(context):
                raise AssertionError
        assert caught.value.reason.cause is Cause.LOGIN_NEEDED


@asynccontextmanager
async def by_itself(
    site: Site, state: Path, *gives: str | NoLogin
) -> AsyncIterator[tuple[OpenContext, list[str | None]]]:
    """A server with `auth`, and the tokens that were rejected as mcpd was given these in turn."""
    asked: list[str | None] = []
    auth = Auth(type=AuthType.CLIENT_CREDENTIALS, issuer="https://as.example", client_id="c", client_secret="x")

    async def obtain(server: Server, rejected: str | None) -> Login:
        assert server.auth == auth
        asked.append(rejected)
        given = gives[len(asked) - 1]
        if isinstance(given, NoLogin):
            raise given
        return kept(site.port, access_token=given, refresh_token=None)

    async with at(site, state) as (context, logins):
        logins.obtain = obtain
        yield attrs.evolve(context, server=attrs.evolve(context.server, auth=auth)), asked


async def test_mcpds_own_login_is_made_as_the_connection_opens_and_again_after_a_401(tmp_path: Path) -> None:
    site = Site()
    async with (
        by_itself(site, tmp_path, "token-0", "token-9") as (context, asked),
        connected(context) as client,
    ):
        client.connection.adopt(Era.MODERN, MODERN_VERSION)
        assert asked == [None]
        await client.ask("tools/list")
        site.good = "token-9"
        assert (await client.call("echo")).result is not None
        assert asked == [None, "token-0"]
    assert (site.sent, site.ran) == (["Bearer token-0", "Bearer token-0", "Bearer token-9"], 2)


async def test_mcpds_own_login_that_is_refused_twice_ends_the_connection_and_sends_nobody_to_log_in(
    tmp_path: Path,
) -> None:
    site = Site(good="other")
    async with by_itself(site, tmp_path, "token-0", "token-1") as (context, _), connected(context) as client:
        client.connection.adopt(Era.MODERN, MODERN_VERSION)
        caller = await client.call("echo")
        assert isinstance(caller.loss, UpstreamUnavailable)
        assert "The call was not run. Tell the user to correct `auth` of s" in caller.loss.message
        await client.over.wait()
        assert isinstance(client.end, NeedsAuth)
        assert client.end.reason.cause is Cause.LOGIN_REFUSED
    assert site.ran == 0


@pytest.mark.parametrize(
    ("failure", "kind", "cause"),
    [
        (NoLogin("a wrong secret"), NeedsAuth, Cause.LOGIN_REFUSED),
        (NotNow("a pause"), ConnectionLost, Cause.LOGIN_NOT_RENEWED),
    ],
)
async def test_a_connection_for_which_mcpd_cannot_log_in_is_not_opened(
    failure: NoLogin, kind: type[RunError], cause: Cause, tmp_path: Path
) -> None:
    site = Site()
    async with by_itself(site, tmp_path, failure) as (context, _):
        with pytest.raises(kind, match=str(failure)) as caught:
            async with connected(context):
                raise AssertionError
        assert caught.value.reason.cause is cause
        assert caught.value.reason.data.get("issuer") == (None if kind is NeedsAuth else "https://as.example")
    assert site.sent == []


async def test_a_call_that_needs_more_than_mcpds_own_login_grants_costs_that_call_alone(tmp_path: Path) -> None:
    site = Site(grants="admin:write")
    async with by_itself(site, tmp_path, "token-0") as (context, _), connected(context) as client:
        client.connection.adopt(Era.MODERN, MODERN_VERSION)
        caller = await client.call("drop")
        assert isinstance(caller.loss, UpstreamUnavailable)
        assert "does not grant enough: admin:write" in caller.loss.message
        assert "Tell the user to correct `auth` of s" in caller.loss.message
        await client.ask("tools/list")
    assert site.ran == 1
