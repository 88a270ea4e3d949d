"""`mcpd login` and `mcpd logout`: log in to a server that wants OAuth, and end that login.

A notification gives the operator the page. The login ends with the last command that waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio

from daemon.authorization.login_runs import LOGIN_SECONDS, LoginRun
from daemon.authorization.logins import DeviceCode, Done, Failed, LoginPage, login_url
from daemon.config.names import SERVER_NAME
from daemon.history.event import Event, EventKind
from daemon.kit.later import later
from daemon.operators.base import OUTCOME_SECONDS, Command, OneServer, OperatorContext, Refused
from daemon.operators.server_changes import named

if TYPE_CHECKING:
    from daemon.authorization.guarded_http import end_login
    from daemon.config.config_model import Server


LINK = "notifications/login/link"
"""The notification of a page to open in a browser: `url`, `redirect`."""

DEVICE_CODE = "notifications/login/device"
"""The notification of a page for any device and the code to type there: `url`, `code`, `completeUrl`."""


class LoginParams(msgspec.Struct):
    """The server and the way to log in."""

    server: str
    scope: str | None = None
    """Scopes separated by blanks; None for those of the configuration and those that the server asks for."""
    device: bool = False
    """Whether to use a device code, where the server offers one."""
    seconds: float = LOGIN_SECONDS
    """Seconds that the user has to log in."""
    wait: bool = True
    """Whether to wait for the user; otherwise the answer is the login page, and the login continues."""


class LoginAnswerParams(msgspec.Struct):
    """The address at which the user's browser arrived, for the login under way at a server."""

    server: str
    url: str


async def login(context: OperatorContext, params: LoginParams) -> dict[str, object]:
    """Log in, start the server, and report it; raises `UnknownServer`, `Refused` or `LoginRefused`."""
    server = server_to_log_in_to(context, params.server)
    run = await context.logins.join(server, scope=params.scope, device=params.device)
    if not params.wait:
        return await _begun(run, params.seconds)
    outcome: Done | Failed = Failed(f"nobody has logged in within {params.seconds:g} s")
    try:
        with trio.move_on_after(params.seconds):
            outcome = await _carried_out(context, run)
    finally:
        run.leave()
    if isinstance(outcome, Failed):
        raise Refused(f"not logged in to {server.name}: {outcome.message}")
    return {**await outcome_of(context, server.name), "scope": outcome.scope, "expiresAt": outcome.expires_at}


async def login_answer(context: OperatorContext, params: LoginAnswerParams) -> dict[str, object]:
    """Pass the browser's final address to the login under way; raises `Refused` or `LoginRefused`."""
    run = context.logins.under_way(params.server)
    if run is None:
        raise Refused(
            f"no login is under way at {params.server}: begin again with `mcpd login {params.server}`"
        )
    run.answer(params.url)
    return {"server": params.server}


LOGIN = Command("login", LoginParams, login)
LOGIN_ANSWER = Command("login_answer", LoginAnswerParams, login_answer)


def server_to_log_in_to(context: OperatorContext, name: str) -> Server:
    """The configuration of a server that logins are possible for; raises `UnknownServer` or `Refused`."""
    server = context.config.mcp_servers.get(name)
    if server is None or not server.enabled:
        raise context.unknown(name)
    if server.login is not None:
        return server
    if server.url is None or server.type == "unix":
        raise Refused(f"server {name} has no login: it is not reached over HTTP (its type is {server.type})")
    if server.auth is not None:
        raise Refused(
            f"server {name} needs no login by a user: mcpd logs in by itself, with `auth` of the entry"
        )
    if server.oauth is False:
        raise Refused(f'logins to server {name} are off in its configuration ("oauth": false)')
    raise Refused(f"server {name} has an Authorization header in its configuration: remove the header first")


async def outcome_of(context: OperatorContext, name: str) -> dict[str, object]:
    """Waits a few seconds for a restarted server; returns its state and tools."""
    with trio.move_on_after(OUTCOME_SECONDS):
        for each in named(context, name):
            await each.child.status.wait_settled()
    await context.registry.settle()
    entry = context.catalog.servers.get(name)
    tools = list(entry.tools or ()) if entry is not None else []
    return {"server": name, **context.state_of(name), "tools": tools}


async def _begun(run: LoginRun, seconds: float) -> dict[str, object]:
    """Returns the page of a login that continues without the command, for `LOGIN_SECONDS` at most."""
    page = None
    with trio.move_on_after(seconds):
        page = await run.wait_shown()
    if page is None:
        run.leave()
        outcome = run.outcome
        why = outcome.message if isinstance(outcome, Failed) else "there is no page to open yet"
        raise Refused(f"not logged in to {run.wish.server}: {why}")
    method, params = _notification(page)
    return {"server": run.wish.server, "kind": method.rpartition("/")[2], **params}


async def _carried_out(context: OperatorContext, run: LoginRun) -> Done | Failed:
    page = await run.wait_shown()
    if page is not None and context.operator is not None:
        context.operator.tell(*_notification(page))
    return await run.wait_over()


def _notification(page: LoginPage | DeviceCode) -> tuple[str, dict[str, object]]:
    if isinstance(page, LoginPage):
        return LINK, {"url": page.url, "redirect": page.redirect}
    return DEVICE_CODE, {"url": page.url, "code": page.code, "completeUrl": page.complete_url}


if not TYPE_CHECKING:
    end_login = later("daemon.authorization.guarded_http", "end_login")


async def logout(context: OperatorContext, params: OneServer) -> dict[str, object]:
    """Delete and revoke a login, restart the server; raises `UnknownServer`, `Refused`, `LoginsTrouble`."""
    configured = context.config.mcp_servers.get(params.server)
    if configured is None or not configured.enabled:
        return await _forget(context, params.server)
    server = server_to_log_in_to(context, params.server)
    if (run := context.logins.under_way(server.name)) is not None:
        run.end(Failed("somebody has logged out meanwhile"))
    ended = await end_login(context.logins.logins.kept, server.name, login_url(server))
    if ended.existed:
        context.logins.changed(server.name)
        context.history.note(Event(kind=EventKind.LOGIN, server=server.name, details={"outcome": "ended"}))
    outcome = await outcome_of(context, server.name) if ended.existed else context.state_of(server.name)
    return {"server": server.name, **outcome, **msgspec.to_builtins(ended)}


async def _forget(context: OperatorContext, name: str) -> dict[str, object]:
    """End the login of a server that is no longer in the configuration, or is switched off there."""
    # Whatever is not a name of a server would be a path.
    if not SERVER_NAME.fullmatch(name):
        raise context.unknown(name)
    ended = await end_login(context.logins.logins.kept, name, None)
    if not ended.existed:
        raise context.unknown(name)
    context.history.note(Event(kind=EventKind.LOGIN, server=name, details={"outcome": "ended"}))
    return {"server": name, **context.state_of(name), **msgspec.to_builtins(ended)}


LOGOUT = Command("logout", OneServer, logout)
