"""Users whose calls meet a server that wants an OAuth login are handed the link to it, if their clients can.

That is an elicitation that sends the user to a URL, as a server's own would be in either era. It is done for
one client of a server's at a time, since there is one login for all; every other call, and every other client,
gets the error that names `mcpd login`. Only the daemon's own user is asked: whose login it is, all clients use
it. The call was not sent before, and is judged again once there is a login.
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
import trio
from msgspec import Raw, Struct

from daemon.authorization.logins import DeviceCode, Done, Failed
from daemon.authorization.running import LoginRefused
from daemon.catalog.authorship import OURS
from daemon.causes import CURED_BY_LOGIN
from daemon.clients.identity import NOTHING, has
from daemon.clients.input_required import InputRequest, asking_result, fits
from daemon.clients.parking import client_of, owner_of
from daemon.clients.permissions.asking import ELICIT
from daemon.clients.server_requests import COMPLETE, UserAnswer
from daemon.clients.waits import keep_patient
from daemon.config.labels import server_of
from daemon.errors import UpstreamUnavailable
from daemon.states import COMING, ServerState
from daemon.wire.requests import PeerRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from daemon.authorization.logins import LoginPage
    from daemon.authorization.running import LoginRun
    from daemon.clients.call import ClientCall
    from daemon.clients.context import SessionContext
    from daemon.config.model import Server

AGAIN_SECONDS = 600.0
"""Seconds after a client was handed the link to a server in which nobody else is: who has just declined, or
let it lie, is not asked again with the next call of an agent that tries all it has."""

START_SECONDS = 10.0
"""Seconds that a call waits for its server to start with the new login: to connect, and shake hands."""

KEY = "login"
"""The key of the link among what a client of MCP 2026-07-28 is asked."""

_STILL = COMING | {ServerState.NEEDS_AUTH, ServerState.STOPPING}


class _Answered(Struct):
    action: str = ""


_decode = msgspec.json.Decoder(_Answered).decode


class LoginLinks:
    """Hands one connection's client the links."""

    def __init__(
        self,
        context: SessionContext,
        act_after: Callable[[ClientCall, Callable[[], Awaitable[None]]], None],
    ) -> None:
        """Begin without any.

        Args:
            context: what all sessions share.
            act_after: judges and sends a call again after a wait.
        """
        self._context = context
        self._act_after = act_after

    def hand(self, call: ClientCall, error: UpstreamUnavailable) -> bool:
        """Hand a call's client the link to its server. Returns False if the call gets the error instead."""
        server = self._server_of(error)
        if server is None or call.calls.client.visitor.owner:
            return False
        declared = call.declared if call.request.modern else call.calls.server_requests.capabilities
        now = trio.current_time()
        if now < self._context.offered.get(server.name, 0.0) or not has(
            declared or NOTHING, "elicitation", "url"
        ):
            return False
        self._context.offered[server.name] = now + AGAIN_SECONDS
        ask = self._park if call.request.modern else self._ask
        self._act_after(call, partial(ask, call, server, error))
        return True

    def _server_of(self, error: UpstreamUnavailable) -> Server | None:
        """The server that a call has met, if a login would help."""
        name, cause = error.details.get("server"), error.details.get("cause")
        if self._context.logins is None or cause not in CURED_BY_LOGIN or not isinstance(name, str):
            return None
        server = self._context.catalog.value.config.mcp_servers.get(server_of(name))
        return None if server is None or server.login is None else server

    async def _ask(self, call: ClientCall, server: Server, error: UpstreamUnavailable) -> None:
        """Ask a client of the handshake era, and wait for the login.

        Raises:
            UpstreamUnavailable: the error that the call has met: there is no login.
        """
        login = await self._begun(server, error)
        try:
            page = await login.page()
            answer, elicitation = UserAnswer(), secrets.token_urlsafe(16)
            request = PeerRequest(ELICIT, _params(server, page, elicitation), answer)
            try:
                call.calls.server_requests.ask(request, call.request.id)
                self._context.outbox.flush()
                await login.wait_over(call, answer)
            finally:
                request.end("the login has ended")
            call.calls.notify(call, COMPLETE, Raw(msgspec.json.encode({"elicitationId": elicitation})))
        finally:
            login.run.leave()

    async def _park(self, call: ClientCall, server: Server, error: UpstreamUnavailable) -> None:
        """Answer a client of MCP 2026-07-28 with the link.

        Raises:
            UpstreamUnavailable: the error that the call has met: there is no login, or no room for a state.
        """
        login = await self._begun(server, error)
        kept = False
        try:
            params = _params(server, await login.page(), None)
            states = self._context.states
            asked = CallWithoutLogin(call, login)
            state = states.give(asked) if states.may_hold(asked.held) else None
            if state is None:
                raise error
            kept = True
            call.calls.interrupt(call, asking_result({KEY: InputRequest(ELICIT, params)}, state))
        finally:
            if not kept:
                login.run.leave()

    async def _begun(self, server: Server, error: UpstreamUnavailable) -> _SharedLogin:
        assert self._context.logins is not None
        try:
            run = await self._context.logins.join(server)
        except LoginRefused:
            raise error from None
        return _SharedLogin(self._context, server.name, run, error)


class _SharedLogin:
    """A login under way that a call waits for, and the error that the call gets without one."""

    def __init__(self, context: SessionContext, server: str, run: LoginRun, error: UpstreamUnavailable) -> None:
        self.run = run
        self.error = error
        self._context = context
        self._server = server

    async def page(self) -> LoginPage | DeviceCode:
        """What the user has to open."""
        page = await self.run.wait_shown()
        if page is None:
            raise self._failed(await self.run.wait_over())
        return page

    async def wait_over(self, call: ClientCall, answer: UserAnswer | None = None) -> None:
        """Return once there is a login and the server is up with it, or as good as.

        Args:
            call: the call that waits.
            answer: what its client answers meanwhile: nobody waits for a user who does not want to.
        """
        async with trio.open_nursery() as nursery:
            what = f"the user is logging in to {self._server}"
            nursery.start_soon(keep_patient, call, what, self._context.outbox.flush)
            if answer is not None:
                nursery.start_soon(_until_declined, answer, nursery.cancel_scope)
            await self.run.wait_over()
            nursery.cancel_scope.cancel()
        if not isinstance(self.run.outcome, Done):
            raise self._failed(self.run.outcome)
        with trio.move_on_after(START_SECONDS):
            await self._context.catalog.wait_until(
                lambda now: (entry := now.servers.get(self._server)) is None or entry.status.state not in _STILL
            )
        # How long a call takes, and may take, counts from now; that it may wait for its server, too.
        call.started, call.patient, call.woken = trio.current_time(), True, False

    def _failed(self, outcome: Done | Failed | None) -> UpstreamUnavailable:
        why = f" ({outcome.message})" if isinstance(outcome, Failed) else ""
        text = f"{self.error.message} The user was handed the link, and has not logged in{why}."
        return UpstreamUnavailable(text, **self.error.details)


class CallWithoutLogin:
    """What is remembered of a call of MCP 2026-07-28 whose user was handed a link (`AwaitsClient`)."""

    server: str | None = None

    def __init__(self, call: ClientCall, login: _SharedLogin) -> None:
        """Remember a call that is answered with the link of a login."""
        self.owner = owner_of(call)
        self.client = client_of(call.calls, call.request.key)
        self.held = len(call.given)
        self._given, self._others = call.given, call.others
        self._login = login

    def __repr__(self) -> str:
        """Without arguments: they may hold a secret."""
        return f"<CallWithoutLogin {self._login.run!r}>"

    def resume(self, retry: ClientCall, responses: Mapping[str, Raw]) -> bool:
        """Have the client's new request wait for the login, if its user wants to log in.

        Raises:
            UpstreamUnavailable: the user does not.
        """
        retry.given, retry.others = self._given, self._others
        response = responses.get(KEY)
        if response is None or not fits(ELICIT, response) or not _is_accepted(bytes(response)):
            self._login.run.leave()
            raise self._login.error
        retry.calls.act_after(retry, partial(self._wait, retry))
        return True

    def give_up(self, reason: str) -> None:
        """Leave the login: the client will not come back."""
        del reason
        self._login.run.leave()

    async def _wait(self, retry: ClientCall) -> None:
        try:
            await self._login.wait_over(retry)
        finally:
            self._login.run.leave()


async def _until_declined(answer: UserAnswer, scope: trio.CancelScope) -> None:
    await answer.given.wait()
    if answer.result is None or not _is_accepted(answer.result):
        scope.cancel()


def _is_accepted(result: bytes) -> bool:
    try:
        return _decode(result).action == "accept"
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def _params(server: Server, page: LoginPage | DeviceCode, elicitation: str | None) -> Raw:
    """The params of the elicitation (MCP, `elicitation/create`, mode `url`)."""
    code = f" and type the code {page.code}" if isinstance(page, DeviceCode) else ""
    place = urlsplit(page.url).netloc
    text = f"{OURS}server {server.name} wants you to log in at {place}{code}. What was called goes on then."
    params = {"mode": "url", "message": text, "url": page.url}
    # 2025-11-25 wants an id, 2026-07-28 has none.
    return Raw(msgspec.json.encode(params if elicitation is None else {**params, "elicitationId": elicitation}))
