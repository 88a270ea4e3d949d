"""`mcpd logout`: end the login at a server, here and at its authorization server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from daemon.authorization.messages import Failed
from daemon.authorization.server_logins import login_url
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
    """Forget a login and have it revoked; the server is started again without it.

    Raises:
        UnknownServer: no server has that name.
        Refused: nobody can log in to this server.
        LoginsTrouble: the login cannot be forgotten.
    """
    server = server_to_log_in_to(context, params.server)
    if (run := context.logins.under_way(server.name)) is not None:
        run.end(Failed("somebody has logged out meanwhile"))
    ended = await end_login(context.logins.logins.kept, server.name, login_url(server))
    if ended.existed:
        context.logins.changed(server.name)
    told = await outcome_of(context, server.name) if ended.existed else context.state_of(server.name)
    return {"server": server.name, **told, **msgspec.to_builtins(ended)}


LOGOUT = Command("logout", LogoutParams, logout)
