"""`mcpd unload`: take a loaded tool, or all, away from a session; calls are then told to load it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from loguru import logger

from daemon.config.names import spellings
from daemon.errors import InvalidArguments
from daemon.operators.base import Command
from daemon.operators.sessions import session_named
from daemon.surfaces.answers import choices, quoted

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from daemon.model import ToolKey
    from daemon.operators.base import OperatorContext


class UnloadParams(msgspec.Struct):
    """A session, and the tool that leaves it."""

    session: str
    """The session's key, or the number of a connection, perhaps with `#` before it."""
    tool: str | None = None
    """`server/tool` or `mcp__server__tool`; None: all that it has loaded."""


async def unload(context: OperatorContext, params: UnloadParams) -> dict[str, object]:
    """Take a tool, or all, away from a session, and tell its clients; what they have loaded since stays.

    Raises:
        InvalidArguments: there is no such session, or it has not loaded that tool.
        CallError: what the session has loaded cannot be read now.
    """
    found = await session_named(context, params.session)
    loaded = _loaded(found)
    keys = list(loaded.values()) if params.tool is None else [_key_of(params, loaded)]
    kept = await context.clients.unload(_identity(context, found), keys) if keys else True
    session = found["key"] or f"#{found['number']}"
    for key in keys:
        logger.bind(server=key[0]).info("an operator has unloaded {} from session {}", "/".join(key), session)
    return {
        "session": session,
        "unloaded": ["/".join(key) for key in keys],
        "note": "" if kept else f"it is back if mcpd ends now: {context.archive.persistence.value.reason}",
    }


UNLOAD = Command("unload", UnloadParams, unload)


def _loaded(found: Mapping[str, object]) -> dict[str, ToolKey]:
    rows = found["loaded"]
    if not isinstance(rows, list):
        return {}
    return {f"{row['server']}/{row['name']}": (row["server"], row["name"]) for row in rows}


def _identity(context: OperatorContext, found: Mapping[str, object]) -> Hashable:
    if found["key"] is not None:
        return str(found["key"])
    return next(each.identity for each in context.clients.statistics() if each.number == found["number"])


def _key_of(params: UnloadParams, loaded: Mapping[str, ToolKey]) -> ToolKey:
    word = params.tool or ""
    for key in loaded.values():
        if word in {*spellings(*key)[1:], "__".join(key)}:
            return key
    known = choices(loaded, word) if loaded else "It has loaded none."
    raise InvalidArguments(f"session {params.session} has not loaded {quoted(word)}. {known}")
