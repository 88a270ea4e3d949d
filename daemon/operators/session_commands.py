"""`mcpd sessions`, `unload` and `allow`: sessions, their loaded tools, and an operator's changes to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import attrs
import msgspec
import trio
from loguru import logger

from daemon.catalog.loaded import LoadedStatus, LoadedTool, SessionRecord, is_anonymous, judge_in
from daemon.clients.sessions import MAX_GRANTS, Grants
from daemon.config.names import matches, pattern_problem, read_shown, spellings
from daemon.errors import CallError, InvalidArguments, McpdError
from daemon.history.event import Event, EventKind
from daemon.kit.waiting import keep_latest
from daemon.kit.wording import camel
from daemon.operators.base import Archive, Command, OperatorContext
from daemon.operators.tool_reports import explain
from daemon.surfaces.answers import choices, quoted
from daemon.surfaces.table import Grounds, SurfaceChoice

if TYPE_CHECKING:
    from daemon.catalog.snapshot import Catalog
    from daemon.clients.context import SessionStatistics
    from daemon.model import Tool, ToolKey
    from daemon.operators.reports import ConnectionReport, LoadedToolReport, SessionReport, SessionsReport


_WORDS: Mapping[Grounds, str] = {
    Grounds.SWITCHED_OFF: "loading on demand is switched off (lazy)",
    Grounds.ASKED_FOR: "asked for with --surface or in the URL",
    Grounds.ASKED_FOR_LAZY: "asked for with --lazy",
    Grounds.DEFERRED_LOADING: "the profile sets it with deferredLoading",
    Grounds.NAMED_SERVERS: "asked for with --server or in the URL",
    Grounds.PROFILE: "the profile names it",
    Grounds.UNKNOWN_CLIENT: "mcpd knows nothing of this client ({client})",
    Grounds.SILENT_CLIENT: "the client has not given its name",
    Grounds.OLDER_CLIENT: "{client} is older than {since}, the first that searches tools itself",
    Grounds.UNREADABLE_VERSION: "{client} may be older than {since}, the first that searches tools itself",
    Grounds.SEARCHES_ITSELF: "{client} searches tools itself, {tools:,} tools are within its {most:,}",
    Grounds.TOO_MANY_TOOLS: "{client} searches tools itself, but {tools:,} tools are more than its {most:,}",
}


def why(choice: SurfaceChoice) -> str:
    """The reason for a surface, as a clause that follows its name and a colon."""
    since = ".".join(map(str, choice.since))
    return _WORDS[choice.grounds].format(
        client=choice.client.text, since=since, tools=choice.tools, most=choice.most
    )


MAX_LISTED = 200
"""Most keyed sessions in one list, the latest: the store needs a tenth of a second to read them."""


class SessionsParams(msgspec.Struct):
    """A session's key, or its connection's number with or without `#`; None for all sessions."""

    key: str | None = None


async def sessions(context: OperatorContext, params: SessionsParams) -> SessionsReport | SessionReport:
    """All sessions, or one with its loaded tools; raises `InvalidArguments` or `CallError`."""
    if params.key is None:
        return await _all(context)
    report = session_report(await session_named(context, params.key), context.catalog, context.wall())
    await explain(context, report["loaded"])
    return report


SESSIONS = Command("sessions", SessionsParams, sessions, reads=True)


def name_in_events(context: OperatorContext, session: str) -> str:
    """The name of a session in events: its key, or `#12` for a present or past connection without a key."""
    is_key = any(record.key == session for record, _users in context.clients.in_use())
    number = session.removeprefix("#")
    if is_key or not number.isdecimal():
        return session
    for live in context.clients.statistics():
        if str(live.number) == number:
            return live.key or f"#{number}"
    began = (event for event in context.history.after(0) if event.kind is EventKind.SESSION_BEGAN)
    keys = (event.session for event in began if str(event.details.get("connection")) == number)
    return next(keys, f"#{number}")


async def loaded_by(context: OperatorContext, session: str) -> Mapping[tuple[str, str], float]:
    """The tools that a session has loaded, each with its time; empty if the store cannot be read."""
    for live in context.clients.statistics():
        if session == f"#{live.number}":
            return {tool.key: tool.at for tool in live.own.loaded.tools.values()}
    record = next((record for record, _users in context.clients.in_use() if record.key == session), None)
    if record is None:
        record = await _recalled(context.archive, session, needed=False)
    return {} if record is None else {tool.key: tool.at for tool in record.loaded.tools.values()}


class NamedSession(msgspec.Struct, frozen=True):
    """A session, with its record if it has a key that is in use or stored, and its open connections."""

    record: SessionRecord | None
    connections: Sequence[SessionStatistics] = ()
    users: int = 0  # connections, with those that named it in a single request

    @property
    def key(self) -> str | None:
        """The session's key; None if it ends with its connection."""
        return (self.record or self.connections[0]).key

    @property
    def number(self) -> int | None:
        """The number of a connection without a key."""
        return self.connections[0].number if self.key is None else None

    @property
    def name(self) -> str:
        """The key, or the number as `#12`."""
        return self.key or f"#{self.number}"

    @property
    def tools(self) -> Collection[LoadedTool]:
        """The loaded tools; empty for a key without a record."""
        if self.record is not None:
            return self.record.loaded.tools.values()
        return self.connections[0].own.loaded.tools.values() if self.key is None else ()


async def session_named(context: OperatorContext, key: str) -> NamedSession:
    """One session by its key or its connection's number; raises `InvalidArguments` or `CallError`."""
    record, users = next((held for held in context.clients.in_use() if held[0].key == key), (None, 0))
    live = context.clients.statistics()
    numbered = next((session for session in live if key in {f"#{session.number}", str(session.number)}), None)
    # A key may look like a number; then it is the key that is meant.
    record = record or await _recalled(context.archive, key, needed=numbered is None)
    if record is None and numbered is not None:
        if numbered.key is not None:
            return await session_named(context, numbered.key)
        return NamedSession(None, [numbered])
    connected = _connected(live)[key]
    if record is not None or connected:
        return NamedSession(record, connected, users)
    kept, problem = await _kept(context.archive)
    keys = [record.key for record in _named(kept)]
    keys += [
        session.key or f"#{session.number}" for session in live if session.key or key.strip("#").isdecimal()
    ]
    known = choices(dict.fromkeys(keys), key)
    if key.strip("#").isdecimal():
        known += (
            " A number ends with its connection; `mcpd connect --session KEY` gives a client a name that stays."
        )
    raise InvalidArguments(f"no session is named {quoted(key)}. {known}{problem and f' But {problem}'}")


async def _all(context: OperatorContext) -> SessionsReport:
    kept, problem = await _kept(context.archive)
    held = list(context.clients.in_use())
    records = {record.key: record for record in (*_named(kept), *(record for record, _users in held))}
    users = {record.key: users for record, users in held}
    live = context.clients.statistics()
    # Thousands of sessions with hundreds of tools each are judged: too long for the event loop.
    report = await trio.to_thread.run_sync(
        sessions_report, tuple(records.values()), live, context.catalog, context.wall(), users
    )
    if len(kept) >= MAX_LISTED:
        report["more"] = True
    if problem:
        report["incomplete"] = problem
    return report


async def _recalled(archive: Archive, key: str, *, needed: bool) -> SessionRecord | None:
    try:
        found = await archive.recall(key)
        if found is None or not found.partial:
            return found
        why = archive.persistence.value.reason
    except McpdError as error:
        why = str(error)
    if not needed:
        return None
    raise CallError(f"the tools that session {quoted(key)} has loaded cannot be read now: {why}")


async def _kept(archive: Archive) -> tuple[tuple[SessionRecord, ...], str]:
    """The most recently used sessions of the store, and why some may be missing."""
    try:
        kept = await archive.sessions(MAX_LISTED)
    except McpdError as error:
        return (), f"only sessions in use are shown, as the store cannot be read now: {error}"
    persistence = archive.persistence.value
    if persistence.state == "ok":
        return kept, ""
    return kept, f"persistence is degraded, older sessions may be missing: {persistence.reason}"


def _named(records: Iterable[SessionRecord]) -> list[SessionRecord]:
    return [record for record in records if not is_anonymous(record.key)]


def sessions_report(
    records: Iterable[SessionRecord],
    live: Iterable[SessionStatistics],
    catalog: Catalog,
    now: float,
    users: Mapping[str, int],
) -> SessionsReport:
    """All sessions, latest first, then connections without a key; `users` counts connections by key."""
    connected, judged = _connected(live), _Validity(catalog)
    latest_first = sorted(records, key=lambda record: record.seen_at, reverse=True)
    found = [NamedSession(each, connected.pop(each.key, ()), users.get(each.key, 0)) for each in latest_first]
    anonymous = connected.pop(None, [])
    found += [NamedSession(None, each) for each in (*connected.values(), *([each] for each in anonymous))]
    rows: list[SessionReport] = []
    for each in found:
        is_known = each.record is not None or each.key is None
        rows.append({**_about(each, catalog, now), "invalid": judged.invalid(each.tools) if is_known else None})
    return {"sessions": rows}


def session_report(session: NamedSession, catalog: Catalog, now: float) -> SessionReport:
    """A session with its loaded tools."""
    loaded = [loaded_tool(tool, catalog, now) for tool in session.tools]
    report: SessionReport = {**_about(session, catalog, now), "loaded": loaded}
    if session.record is None:
        report["invalid"] = None
    return report


def _connected(live: Iterable[SessionStatistics]) -> defaultdict[str | None, list[SessionStatistics]]:
    """Connections by their key, oldest first."""
    found: defaultdict[str | None, list[SessionStatistics]] = defaultdict(list)
    for session in sorted(live, key=lambda session: session.number):
        found[session.key].append(session)
    return found


def _about(session: NamedSession, catalog: Catalog, now: float) -> SessionReport:
    """The report of a session, with the number of its tools."""
    record, connected = session.record, session.connections
    first = connected[0] if connected else None
    connections = max(len(connected), session.users)
    idle = 0.0 if record is None else now - record.seen_at
    most = max((each.loaded for each in connected), default=0)
    return {
        "key": session.key,
        "number": session.number,
        "client": (record or connected[0]).client,
        "profile": first.profile if first else None,
        "surface": first.surface if first else None,
        "surfaceWhy": why(first.choice) if first else None,
        "connections": connections,
        "createdAt": round(record.created_at if record else connected[0].since, 3),
        "seenAt": round(record.seen_at, 3) if record else None,
        "forgottenInSeconds": None if connections else max(0, round(catalog.config.state.session_idle - idle)),
        "loaded": most if record is None else len(session.tools),
    }


# Names in a report that differ from those of the statistics.
_NAMES = {
    "loaded": "loadedTools",
    "repaired": "repairedCalls",
    "tokens_not_sent": "estimatedTokensNotSent",
}


def connection_status(session: SessionStatistics) -> ConnectionReport:
    """The report of an open connection, with its counts."""
    own = attrs.asdict(session, recurse=False, filter=attrs.filters.exclude("own", "choice"))
    report = {
        **{_NAMES.get(name, camel(name)): value for name, value in own.items()},
        "token": session.token or None,
        "surfaceGrounds": str(session.choice.grounds),
        "surfaceWhy": why(session.choice),
        "since": round(session.since, 3),
        "defersTools": session.tokens_not_sent is None,
    }
    return cast("ConnectionReport", report)


def loaded_tool(tool: LoadedTool, catalog: Catalog, now: float) -> LoadedToolReport:
    """The report of a tool that a session has loaded."""
    server, name = tool.key
    verdict = judge_in(catalog, tool)
    report: LoadedToolReport = {
        "server": server,
        "name": name,
        "status": str(verdict.status),
        "reason": verdict.reason,
        "source": str(tool.source),
        "loadedAt": round(tool.at, 3),
        "age": max(0, round(now - tool.at)),
        "schemaHash": tool.schema_hash,
        "epoch": tool.epoch,
    }
    if verdict.renamed_to is not None:
        report["renamedTo"] = verdict.renamed_to
    return report


class _Validity:
    """Checks loaded tools against one catalog; keeps each verdict: many sessions load the same tools."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known: dict[tuple[ToolKey, str], bool] = {}

    def invalid(self, tools: Iterable[LoadedTool]) -> int:
        for tool in tools:
            asked = tool.key, tool.schema_hash
            if asked not in self._known:
                self._known[asked] = judge_in(self._catalog, tool).status is LoadedStatus.VALID
        return sum(not self._known[tool.key, tool.schema_hash] for tool in tools)


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
    key, number = found.key, found.number
    moved = [each for each in context.clients.live() if (each.key or each.number) == (key or number)]
    if key is not None:
        if found.users and not moved:
            raise InvalidArguments(
                f"only single requests name session {quoted(params.key)}, but a profile belongs to a whole"
                " connection. Move the connection instead, by its number in `mcpd status`."
            )
        keep_latest(context.clients.moves, key, params.profile, MAX_MOVED)
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
    loaded = [tool.key for tool in found.tools]
    keys = loaded if params.tool is None else [_key_of(params, loaded)]
    identity = found.connections[0].own.identity if found.key is None else found.key
    kept = await context.clients.unload(identity, keys) if keys else True
    for key in keys:
        logger.bind(server=key[0]).info("an operator has unloaded {} from session {}", _name(key), found.name)
    return {
        "session": found.name,
        "unloaded": [*map(_name, keys)],
        "note": "" if kept else f"this is undone if mcpd ends now: {context.archive.persistence.value.reason}",
    }


UNLOAD = Command("unload", UnloadParams, unload)


def _key_of(params: UnloadParams, loaded: Collection[ToolKey]) -> ToolKey:
    word = params.tool or ""
    for key in loaded:
        if word in {*spellings(*key)[1:], "__".join(key)}:
            return key
    known = choices([*map(_name, loaded)], word) if loaded else "It has loaded none."
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


async def allow(context: OperatorContext, params: AllowParams) -> dict[str, object]:
    """Change which tools a session may call without asking; raises `InvalidArguments` or `CallError`."""
    if params.seconds is not None and not 0 < params.seconds <= LONGEST:
        raise InvalidArguments(f"{params.seconds:g} s is not between 0 and {LONGEST:g} s (30 days)")
    if params.tool is not None and (problem := pattern_problem(params.tool)):
        raise InvalidArguments(problem)
    session = await session_named(context, params.session)
    now = trio.current_time()
    report: dict[str, object] = {}

    def change(grants: Grants) -> None:
        if params.revoke:
            current = grants.current(now)
            wanted = [key for key in current if params.tool is None or _matches(params.tool, key, servers)]
            changed = grants.revoke(wanted)
        else:
            changed = list(fitting)
            for tool in fitting.values():
                grants.allow(tool, context.principal, None if params.seconds is None else now + params.seconds)
        report.update(changed=[_name(key) for key in changed], allowed=list(_listed(grants, now)))

    servers = context.catalog.servers
    fitting = {} if params.revoke or params.tool is None else _fitting(context, session, params.tool)
    if session.key is None:
        change(session.connections[0].own.grants)
    else:
        context.clients.change_grants(session.key, change)
    for tool in fitting.values():
        details = {"tool": tool.name, "by": context.principal, "lasts": params.seconds or "session"}
        context.history.note(
            Event(kind=EventKind.ALLOWED, server=tool.server, session=session.name, details=details)
        )
    for name in report["changed"]:  # type: ignore[attr-defined]
        outcome = "is asked about" if params.revoke else "may call"
        logger.info("an operator says: session {} {} {} from now on", session.name, outcome, name)
    return {"session": session.name, **report}


def _fitting(context: OperatorContext, session: NamedSession, pattern: str) -> Mapping[ToolKey, Tool]:
    """The tools that match a pattern and need the user's agreement; raises `InvalidArguments`."""
    catalog = context.catalog
    profiles = dict.fromkeys(each.profile for each in session.connections) or context.config.profiles
    asked = {
        offered.key: offered.tool
        for name in profiles
        if name in context.config.profiles
        for offered in context.services.offers.of(catalog, context.config.profiles[name]).all
        if offered.asks
    }
    found = {key: tool for key, tool in asked.items() if _matches(pattern, key, catalog.servers)}
    if not found:
        known = choices([_name(key) for key in asked], pattern) if asked else "It asks about none."
        raise InvalidArguments(
            f"session {session.name} does not ask its user about {quoted(pattern)} (profile"
            f" {', '.join(profiles)}). {known}"
        )
    if len(found) > MAX_GRANTS:
        raise InvalidArguments(f"{quoted(pattern)} fits {len(found)} tools, more than {MAX_GRANTS}: name fewer")
    return found


def _matches(pattern: str, key: ToolKey, servers: Collection[str]) -> bool:
    shown = read_shown(pattern, servers)
    return matches(pattern, *key) or (shown.server, shown.tool) == key


def _listed(grants: Grants, now: float) -> Iterator[dict[str, object]]:
    for key, grant in grants.current(now).items():
        left = None if grant.until is None else round(grant.until - now)
        yield {"tool": _name(key), "by": grant.by, "seconds": left}


def _name(key: ToolKey) -> str:
    return "/".join(key)


ALLOW = Command("allow", AllowParams, allow)
