"""`mcpd logout`: end the login at a server, here and at its authorization server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from daemon.authorization.messages import Failed
from daemon.authorization.server_logins import login_url
from daemon.config.names import SERVER_NAME
from daemon.history.event import Event, EventKind
from daemon.kit.later import later
from daemon.operators.base import Command
from daemon.operators.login import outcome_of, server_to_log_in_to

if TYPE_CHECKING:
    from daemon.authorization.ending import end_login
    from daemon.operators.base import OperatorContext
else:  # an HTTP client, which a daemon without servers over HTTP never needs
    end_login = later("daemon.authorization.ending", "end_login")


class LogoutParams(msgspec.Struct):
    """Where to log out."""

    server: str


async def logout(context: OperatorContext, params: LogoutParams) -> dict[str, object]:
    """Forget a login and have it revoked; the server is started again without it, if there still is one.

    Raises:
        UnknownServer: no server has that name, and nothing is kept of one.
        Refused: nobody can log in to this server.
        LoginsTrouble: the login cannot be forgotten.
    """
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
    told = await outcome_of(context, server.name) if ended.existed else context.state_of(server.name)
    return {"server": server.name, **told, **msgspec.to_builtins(ended)}


async def _forget(context: OperatorContext, name: str) -> dict[str, object]:
    """End the login that is kept of a server which is not configured any more, or switched off there."""
    # Whatever is no name of a server would be a path.
    if not SERVER_NAME.fullmatch(name):
        raise context.unknown(name)
    ended = await end_login(context.logins.logins.kept, name, None)
    if not ended.existed:
        raise context.unknown(name)
    context.history.note(Event(kind=EventKind.LOGIN, server=name, details={"outcome": "ended"}))
    return {"server": name, **context.state_of(name), **msgspec.to_builtins(ended)}


LOGOUT = Command("logout", LogoutParams, logout)
