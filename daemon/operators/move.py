"""`mcpd sessions KEY --profile NAME`: give a session another profile while its client is connected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from daemon.errors import InvalidArguments
from daemon.operators.base import Command
from daemon.operators.sessions import session_named
from daemon.surfaces.answers import choices, quoted

if TYPE_CHECKING:
    from daemon.operators.base import OperatorContext


class MoveParams(msgspec.Struct):
    """A session, by its key or `#` and a connection's number, and the name of its new profile."""

    key: str
    profile: str


async def move(context: OperatorContext, params: MoveParams) -> dict[str, object]:
    """Give another profile to all connections that name the session, including later ones (`clients.client`).

    Raises:
        InvalidArguments: there is no such profile, or no such session.
        CallError: whether there is such a session cannot be known now.
    """
    found = await session_named(context, params.key)
    profiles = context.config.profiles
    if params.profile not in profiles:
        known = choices(profiles, params.profile)
        raise InvalidArguments(f"no profile is named {quoted(params.profile)}. {known}")
    key, number = found["key"], found["number"]
    live = list(context.clients.live())
    if key is None:
        moved = [each for each in live if each.number == number]
    else:
        moved = [each for each in live if each.key == key]
        if found["connections"] and not moved:
            raise InvalidArguments(
                f"session {quoted(params.key)} is named by single requests only, and a profile belongs to a"
                " whole connection. Move that: `mcpd status` has its number."
            )
        context.clients.moves.note(str(key), params.profile)
    for each in moved:
        each.move(params.profile)
    return {"key": key, "number": number, "profile": params.profile, "moved": len(moved)}


MOVE = Command("move", MoveParams, move)
