"""Hands a user the link to an OAuth login when a call meets a server that needs one.

For each server one client of the daemon's own user gets the link (elicitation in mode `url`). Other calls get
the error that names `mcpd login`.
"""

from __future__ import annotations

import secrets
from functools import partial
from urllib.parse import urlsplit

import msgspec
import trio
from msgspec import Raw

from daemon.authorization.login_runs import LoginRefused, LoginRun
from daemon.authorization.logins import DeviceCode, Done, Failed, LoginPage
from daemon.catalog.authorship import OURS
from daemon.causes import CURED_BY_LOGIN
from daemon.clients.asking import ELICIT, Questions, can_elicit, hold, patient
from daemon.clients.calls import ClientCall
from daemon.clients.context import SessionContext
from daemon.clients.input_required import decode_elicited
from daemon.clients.server_requests import COMPLETE
from daemon.config.config_model import Server
from daemon.config.labels import server_of
from daemon.errors import UpstreamUnavailable
from daemon.protocol import decoded
from daemon.states import COMING, ServerState

AGAIN_SECONDS = 600.0
"""Seconds between links to one server: the next call of an agent must not ask a user who has just declined."""

START_SECONDS = 10.0
"""Seconds for a server to connect and shake hands after a login."""

KEY = "login"
"""The link's key in `inputRequests` (MCP 2026-07-28)."""

_STILL = COMING | {ServerState.NEEDS_AUTH, ServerState.STOPPING}


def hand_link(call: ClientCall, error: UpstreamUnavailable) -> bool:
    """Send a call's client the link to its server's login. Returns False if the call gets the error instead."""
    context = call.calls.context
    server = _server_of(context, error)
    if server is None or call.calls.client.principal.owner:
        return False
    now = trio.current_time()
    if now < context.offered.get(server.name, 0.0) or not can_elicit(call, "url"):
        return False
    context.offered[server.name] = now + AGAIN_SECONDS
    call.calls.act_after(call, partial(_ask, call, server, error))
    return True


def _server_of(context: SessionContext, error: UpstreamUnavailable) -> Server | None:
    name, cause = error.details.get("server"), error.details.get("cause")
    if context.logins is None or cause not in CURED_BY_LOGIN or not isinstance(name, str):
        return None
    server = context.catalog.value.config.mcp_servers.get(server_of(name))
    return None if server is None or server.login is None else server


async def _ask(call: ClientCall, server: Server, error: UpstreamUnavailable) -> None:
    """Send the link and wait for the login, or have the client's retry wait for it."""
    context, is_held = call.calls.context, False
    assert context.logins is not None
    try:
        login = _SharedLogin(context, server.name, await context.logins.join(server), error)
    except LoginRefused:
        raise error from None
    try:
        page = await login.page()
        if call.request.modern:
            go_on = partial(_go_on, login)
            is_held = hold(call, KEY, _params(server, page, None), go_on, login.run.leave)
            if not is_held:
                raise error
            return
        elicitation = secrets.token_urlsafe(16)
        with Questions() as asked:
            asked.put(call, KEY, ELICIT, _params(server, page, elicitation))
            context.outbox.flush()
            await login.wait_over(call, asked)
        call.calls.notify(call, COMPLETE, Raw(msgspec.json.encode({"elicitationId": elicitation})))
    finally:
        if not is_held:
            login.run.leave()


def _go_on(login: _SharedLogin, retry: ClientCall, response: Raw | None) -> bool:
    if not _is_accepted(response):
        login.run.leave()
        raise login.error
    retry.calls.act_after(retry, partial(_wait, login, retry))
    return True


async def _wait(login: _SharedLogin, retry: ClientCall) -> None:
    try:
        await login.wait_over(retry)
    finally:
        login.run.leave()


class _SharedLogin(msgspec.Struct, frozen=True, eq=False):
    _context: SessionContext
    _server: str
    run: LoginRun
    error: UpstreamUnavailable

    async def page(self) -> LoginPage | DeviceCode:
        page = await self.run.wait_shown()
        if page is None:
            raise self._failed(await self.run.wait_over())
        return page

    async def wait_over(self, call: ClientCall, asked: Questions | None = None) -> None:
        """Return once the login is over and the server had time to start; a declined `asked` ends the wait."""
        async with patient(call, f"the user is logging in to {self._server}") as nursery:
            if asked is not None:
                nursery.start_soon(_until_declined, asked, nursery.cancel_scope)
            await self.run.wait_over()
        if not isinstance(self.run.outcome, Done):
            raise self._failed(self.run.outcome)
        with trio.move_on_after(START_SECONDS):
            await self._context.catalog.wait_until(
                lambda now: (entry := now.servers.get(self._server)) is None or entry.status.state not in _STILL
            )
        # The call's timeout counts from now, and it may wait for its server again.
        call.started, call.patient, call.woken = trio.current_time(), True, False

    def _failed(self, outcome: Done | Failed | None) -> UpstreamUnavailable:
        why = f" ({outcome.message})" if isinstance(outcome, Failed) else ""
        text = f"{self.error.message} The user got the link to the login, but has not logged in{why}."
        return UpstreamUnavailable(text, **self.error.details)


async def _until_declined(asked: Questions, scope: trio.CancelScope) -> None:
    await asked.over.wait()
    if not _is_accepted(asked.answers.get(KEY)):
        scope.cancel()


def _is_accepted(result: Raw | None) -> bool:
    answer = None if result is None else decoded(decode_elicited, result)
    return answer is not None and answer.action == "accept"


def _params(server: Server, page: LoginPage | DeviceCode, elicitation: str | None) -> Raw:
    code = f" and type the code {page.code}" if isinstance(page, DeviceCode) else ""
    place = urlsplit(page.url).netloc
    text = (
        f"{OURS}server {server.name} wants you to log in at {place}{code}. The call continues after the login."
    )
    params = {"mode": "url", "message": text, "url": page.url}
    # 2025-11-25 requires an id, 2026-07-28 has none.
    return Raw(msgspec.json.encode(params if elicitation is None else {**params, "elicitationId": elicitation}))
