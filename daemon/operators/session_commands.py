"""`mcpd sessions`: each session's loaded tools, their validity, and the reason for its surface."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import trio

from daemon.catalog.loaded import LoadedStatus, LoadedTool, SessionRecord, is_anonymous, judge_in
from daemon.errors import CallError, InvalidArguments, McpdError
from daemon.history.event import EventKind
from daemon.operators.base import Archive, Command, OperatorContext
from daemon.operators.tool_reports import explain
from daemon.surfaces.answers import choices, quoted
from daemon.surfaces.table import Grounds, SurfaceChoice

if TYPE_CHECKING:
    from daemon.catalog.snapshot import Catalog
    from daemon.clients.context import SessionStatistics
    from daemon.model import ToolKey
    from daemon.operators.reports import ConnectionReport, LoadedToolReport, SessionReport, SessionsReport


_WORDS: Mapping[Grounds, str] = {
    Grounds.SWITCHED_OFF: "loading on demand is switched off (lazy)",
    Grounds.ASKED_FOR: "asked for with --surface or in the URL",
    Grounds.ASKED_FOR_LAZY: "asked for with --lazy",
    Grounds.DEFERRED_LOADING: "the profile sets it with deferredLoading",
    Grounds.NAMED_SERVERS: "asked for with --server or in the URL",
    Grounds.PROFILE: "the profile names it",
    Grounds.UNKNOWN_CLIENT: "nothing is known of this client ({client})",
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
    report = await session_named(context, params.key)
    await explain(context, report["loaded"])
    return report


SESSIONS = Command("sessions", SessionsParams, sessions, reads=True)


def numbered(context: OperatorContext, session: str) -> str:
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


async def session_named(context: OperatorContext, key: str) -> SessionReport:
    """One session by its key or its connection's number; raises `InvalidArguments` or `CallError`."""
    catalog, now = context.catalog, context.wall()
    record, users = next((held for held in context.clients.in_use() if held[0].key == key), (None, 0))
    live = context.clients.statistics()
    numbered = next((session for session in live if key in {f"#{session.number}", str(session.number)}), None)
    # A key may look like a number; then it is the key that is meant.
    record = record or await _recalled(context.archive, key, needed=numbered is None)
    if record is not None:
        return session_report(record, live, catalog, now, users)
    if numbered is not None and numbered.key is not None:
        return await session_named(context, numbered.key)
    if numbered is not None:
        loaded = _loaded(numbered.own.loaded.tools.values(), catalog, now)
        return {**_about(None, [numbered], 0, catalog, now), "loaded": loaded, "invalid": None}
    if connected := _connected(live)[key]:
        return {**_about(None, connected, 0, catalog, now), "loaded": [], "invalid": None}
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
    connected = _connected(live)
    judged = _Validity(catalog)
    rows: list[SessionReport] = []
    for record in sorted(records, key=lambda record: record.seen_at, reverse=True):
        about = _about(record, connected.pop(record.key, []), users.get(record.key, 0), catalog, now)
        tools = record.loaded.tools.values()
        rows.append({**about, "loaded": len(tools), "invalid": judged.invalid(tools)})
    anonymous = connected.pop(None, [])
    rows += [{**_about(None, each, 0, catalog, now), "invalid": None} for each in connected.values()]
    for session in anonymous:
        about = _about(None, [session], 0, catalog, now)
        rows.append({**about, "invalid": judged.invalid(session.own.loaded.tools.values())})
    return {"sessions": rows}


def session_report(
    record: SessionRecord, live: Iterable[SessionStatistics], catalog: Catalog, now: float, users: int
) -> SessionReport:
    """A session with its loaded tools; `users` counts its connections."""
    about = _about(record, _connected(live)[record.key], users, catalog, now)
    return {**about, "loaded": _loaded(record.loaded.tools.values(), catalog, now)}


def _connected(live: Iterable[SessionStatistics]) -> defaultdict[str | None, list[SessionStatistics]]:
    """Connections by their key, oldest first."""
    found: defaultdict[str | None, list[SessionStatistics]] = defaultdict(list)
    for session in sorted(live, key=lambda session: session.number):
        found[session.key].append(session)
    return found


def _about(
    record: SessionRecord | None,
    connected: Sequence[SessionStatistics],
    users: int,
    catalog: Catalog,
    now: float,
) -> SessionReport:
    """The report of a session, with the number of its tools if it is not recorded: then it is connected."""
    who, first = record or connected[0], connected[0] if connected else None
    connections = max(len(connected), users)
    idle = 0.0 if record is None else now - record.seen_at
    return {
        "key": who.key,
        "number": first.number if first and who.key is None else None,
        "client": who.client,
        "profile": first.profile if first else None,
        "surface": first.surface if first else None,
        "surfaceWhy": why(first.choice) if first else None,
        "connections": connections,
        "createdAt": round(record.created_at if record else connected[0].since, 3),
        "seenAt": round(record.seen_at, 3) if record else None,
        "forgottenInSeconds": None if connections else max(0, round(catalog.config.state.session_idle - idle)),
        "loaded": max((session.loaded for session in connected), default=0),
    }


def connection_status(session: SessionStatistics) -> ConnectionReport:
    """The report of an open connection, with its counts."""
    return {
        "number": session.number,
        "key": session.key,
        "client": session.client,
        "token": session.token or None,
        "protocol": session.protocol,
        "profile": session.profile,
        "surface": session.surface,
        "servers": list(session.servers),
        "surfaceGrounds": str(session.choice.grounds),
        "surfaceWhy": why(session.choice),
        "workspace": session.workspace,
        "instances": list(session.instances),
        "since": round(session.since, 3),
        "calls": session.calls,
        "inFlight": session.in_flight,
        "loadedTools": session.loaded,
        "repairedCalls": session.repaired,
        "estimatedTokensNotSent": session.tokens_not_sent,
        "defersTools": session.tokens_not_sent is None,
    }


def _loaded(tools: Iterable[LoadedTool], catalog: Catalog, now: float) -> list[LoadedToolReport]:
    return [loaded_tool(tool, catalog, now) for tool in tools]


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
    """Checks loaded tools against one catalog; each verdict is kept, as many sessions load the same tools."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known: dict[tuple[ToolKey, str], bool] = {}

    def invalid(self, tools: Iterable[LoadedTool]) -> int:
        for tool in tools:
            asked = tool.key, tool.schema_hash
            if asked not in self._known:
                self._known[asked] = judge_in(self._catalog, tool).status is LoadedStatus.VALID
        return sum(not self._known[tool.key, tool.schema_hash] for tool in tools)
