"""An operator's changes to one session: `mcpd sessions KEY --profile NAME`, `mcpd unload` and `mcpd allow`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping

import msgspec
import trio
from loguru import logger

from daemon.clients.sessions import MAX_GRANTS, Grants
from daemon.config.names import matches, pattern_problem, read_shown, spellings
from daemon.errors import InvalidArguments
from daemon.history.event import Event, EventKind
from daemon.kit.waiting import keep_latest
from daemon.model import Tool, ToolKey
from daemon.operators.base import Command, LiveSession, OperatorContext
from daemon.operators.session_commands import session_named
from daemon.surfaces.answers import choices, quoted

MAX_MOVED = 1000
"""Most moved sessions that mcpd remembers, the last ones: an operator moves a few."""


class MoveParams(msgspec.Struct):
    """A session (its key, or `#` and a connection's number) and its new profile."""

    key: str
    profile: str


async def move(context: OperatorContext, params: MoveParams) -> dict[str, object]:
    """Move a session's present and later connections to a profile; raises `InvalidArguments`, `CallError`."""
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
                f"only single requests name session {quoted(params.key)}, and a profile belongs to a whole"
                " connection. Move the connection instead: `mcpd status` has its number."
            )
        keep_latest(context.clients.moves, str(key), params.profile, MAX_MOVED)
    for each in moved:
        each.move(params.profile)
    return {"key": key, "number": number, "profile": params.profile, "moved": len(moved)}


MOVE = Command("move", MoveParams, move)


class UnloadParams(msgspec.Struct):
    """The session and the tool to unload."""

    session: str
    """The session's key, or its connection's number, with or without `#`."""
    tool: str | None = None
    """`server/tool` or `mcp__server__tool`; None for all loaded tools."""


async def unload(context: OperatorContext, params: UnloadParams) -> dict[str, object]:
    """Unload tools from a session, and notify its clients; raises `InvalidArguments` or `CallError`."""
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
        "note": "" if kept else f"this is undone if mcpd ends now: {context.archive.persistence.value.reason}",
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
    return next(each.own.identity for each in context.clients.statistics() if each.number == found["number"])


def _key_of(params: UnloadParams, loaded: Mapping[str, ToolKey]) -> ToolKey:
    word = params.tool or ""
    for key in loaded.values():
        if word in {*spellings(*key)[1:], "__".join(key)}:
            return key
    known = choices(loaded, word) if loaded else "It has loaded none."
    raise InvalidArguments(f"session {params.session} has not loaded {quoted(word)}. {known}")


LONGEST = 30 * 24 * 3600.0
"""Longest grant in seconds: a month, as long as mcpd remembers an unused session."""


class AllowParams(msgspec.Struct):
    """A session, and the tools to allow or to revoke."""

    session: str
    """The session's key, or its connection's number, with or without `#`."""
    tool: str | None = None
    """A tool or a pattern (`config.names.matches`); None to list the grants, or to revoke all."""
    seconds: float | None = None
    """The length of the grant; None for as long as the session is in use."""
    revoke: bool = False
    """Whether to revoke grants, so that the user is asked again."""


class _Session(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    profiles: tuple[str, ...]
    change: Callable[[Callable[[Grants], None]], None]


async def allow(context: OperatorContext, params: AllowParams) -> dict[str, object]:
    """Change which tools a session may call without asking; raises `InvalidArguments` or `CallError`."""
    if params.seconds is not None and not 0 < params.seconds <= LONGEST:
        raise InvalidArguments(f"{params.seconds:g} s is not between 0 and {LONGEST:g} s (30 days)")
    if params.tool is not None and (problem := pattern_problem(params.tool)):
        raise InvalidArguments(problem)
    session = await _found(context, params.session)
    now = trio.current_time()
    report: dict[str, object] = {}

    def change(grants: Grants) -> None:
        if params.revoke:
            current = grants.current(now)
            wanted = [key for key in current if params.tool is None or _is(params.tool, key, current_servers)]
            changed = grants.revoke(wanted)
        else:
            changed = list(fitting)
            for tool in fitting.values():
                grants.allow(tool, context.principal, None if params.seconds is None else now + params.seconds)
        report.update(changed=[_name(key) for key in changed], allowed=list(_listed(grants, now)))

    current_servers = context.catalog.servers
    fitting = {} if params.revoke or params.tool is None else _fitting(context, session, params.tool)
    session.change(change)
    for tool in fitting.values():
        details = {"tool": tool.name, "by": context.principal, "lasts": params.seconds or "session"}
        context.history.note(
            Event(kind=EventKind.ALLOWED, server=tool.server, session=session.name, details=details)
        )
    for name in report["changed"]:  # type: ignore[attr-defined]
        outcome = "is asked about" if params.revoke else "may call"
        logger.info("an operator says: session {} {} {} from now on", session.name, outcome, name)
    return {"session": session.name, **report}


async def _found(context: OperatorContext, wanted: str) -> _Session:
    live = list(context.clients.live())
    report = await session_named(context, wanted)
    key, number = report["key"], report["number"]
    if key is None:
        (one,) = [each for each in live if each.number == number]
        grants = one.statistics().own.grants
        return _Session(name=f"#{number}", profiles=_profiles([one]), change=lambda act: act(grants))
    profiles = _profiles([each for each in live if each.key == key]) or tuple(context.config.profiles)
    return _Session(
        name=str(key), profiles=profiles, change=lambda act: context.clients.change_grants(str(key), act)
    )


def _profiles(sessions: Collection[LiveSession]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.statistics().profile for each in sessions))


def _fitting(context: OperatorContext, session: _Session, pattern: str) -> Mapping[ToolKey, Tool]:
    """The tools that match a pattern and need the user's agreement; raises `InvalidArguments`."""
    catalog = context.catalog
    asked = {
        offered.key: offered.tool
        for name in session.profiles
        if name in context.config.profiles
        for offered in context.services.offers.of(catalog, context.config.profiles[name]).all
        if offered.asks
    }
    found = {key: tool for key, tool in asked.items() if _is(pattern, key, catalog.servers)}
    if not found:
        known = choices([_name(key) for key in asked], pattern) if asked else "It asks about none."
        profiles = ", ".join(session.profiles)
        raise InvalidArguments(
            f"{quoted(pattern)} is not a tool that the user of session {session.name} is asked about (profile"
            f" {profiles}). {known}"
        )
    if len(found) > MAX_GRANTS:
        raise InvalidArguments(f"{quoted(pattern)} fits {len(found)} tools, more than {MAX_GRANTS}: name fewer")
    return found


def _is(pattern: str, key: ToolKey, servers: Collection[str]) -> bool:
    shown = read_shown(pattern, servers)
    return matches(pattern, *key) or (shown.server, shown.tool) == key


def _listed(grants: Grants, now: float) -> Iterator[dict[str, object]]:
    for key, grant in grants.current(now).items():
        left = None if grant.until is None else round(grant.until - now)
        yield {"tool": _name(key), "by": grant.by, "seconds": left}


def _name(key: ToolKey) -> str:
    return "/".join(key)


ALLOW = Command("allow", AllowParams, allow)
