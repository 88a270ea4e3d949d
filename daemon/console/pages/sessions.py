"""The pages of all sessions and of one session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.config.labels import server_of
from daemon.console.page import (
    ConsoleAction,
    ConsolePage,
    Fragment,
    element_id,
    steady,
)
from daemon.errors import McpdError
from daemon.operators.report_words import session_name
from daemon.operators.session_changes import ALLOW, MOVE, UNLOAD, AllowParams, MoveParams, UnloadParams
from daemon.operators.sessions import SESSIONS, SessionsParams, connection_status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from daemon.clients.context import SessionStatistics
    from daemon.console.page import Viewer
    from daemon.operators.base import OperatorContext


SHOWN = 200
"""Most connections, and most sessions, that are shown."""


async def _fragments(viewer: Viewer) -> Mapping[str, Sequence[Fragment]]:
    live = viewer.context.clients.statistics()
    report: Any = await SESSIONS.run(viewer.context, SessionsParams())
    kept = [each for each in report["sessions"] if each["key"] is not None]
    return {
        "connections": [_connection(each) for each in live[:SHOWN]],
        "kept": [_kept(each) for each in kept[:SHOWN]],
        "sessions-notes": [
            Fragment(
                id="notes",
                template="sessions_notes.html",
                values={
                    "connections": len(live),
                    "kept": len(kept),
                    "more": bool(report.get("more")) or max(len(live), len(kept)) > SHOWN,
                    "incomplete": report.get("incomplete", ""),
                },
            )
        ],
    }


SESSIONS_PAGE = ConsolePage(path="/sessions", title="Sessions", template="sessions.html", fragments=_fragments)


def _connection(session: SessionStatistics) -> Fragment:
    element = element_id("connection", str(session.number))
    values = {"connection": connection_status(session)}
    return Fragment(id=element, template="sessions_connection.html", values=values)


def _kept(report: Mapping[str, Any]) -> Fragment:
    values = {"session": _steady(report)}
    return Fragment(id=element_id("session", report["key"]), template="sessions_row.html", values=values)


def _steady(report: Mapping[str, Any]) -> dict[str, Any]:
    # A session in use was used just now.
    passing = ("seenAt",) if report["connections"] else ()
    return {"seenAt": None, **steady(report, "forgottenInSeconds", *passing)}


_STEP = 60
"""Until when something is allowed is shown to one minute, or it would seem to change all the time."""


async def _session_fragments(viewer: Viewer) -> Mapping[str, Sequence[Fragment]]:
    context, name = viewer.context, viewer.path["session"]
    report: Any = await SESSIONS.run(context, SessionsParams(name))
    name = session_name(report)
    live = [each for each in context.clients.statistics() if (each.key or f"#{each.number}") == name]
    facts = {"name": name, "may_change": viewer.may_change}
    overview = {
        **facts,
        "session": steady(_steady(report), "loaded"),
        "connections": [_with_instances(context, connection_status(each)) for each in live],
        "profiles": list(context.config.profiles),
    }
    loaded = {**facts, "loaded": [steady(each, "age") for each in report["loaded"]]}
    grants = {**facts, **await _grants(context, name)}
    return {
        "session": [
            Fragment(id=f"session-{part}", template=f"session_{part}.html", values=values)
            for part, values in (("overview", overview), ("loaded", loaded), ("grants", grants))
        ]
    }


SESSION_PAGE = ConsolePage(
    path="/sessions/{session}",
    title="Session",
    template="session.html",
    fragments=_session_fragments,
    in_navigation=False,
    calls_every=2.0,  # What is loaded is loaded by a call, which is all that happens then.
)


async def _unload(viewer: Viewer, fields: Mapping[str, str]) -> str:
    params = UnloadParams(viewer.path["session"], fields.get("tool") or None)
    told: Any = await UNLOAD.run(viewer.context, params)
    names = ", ".join(told["unloaded"]) or "Nothing"
    note = f" {told['note']}." if told["note"] else ""
    return f"{names} {'is' if len(told['unloaded']) <= 1 else 'are'} not loaded any more.{note}"


async def _move(viewer: Viewer, fields: Mapping[str, str]) -> str:
    params = MoveParams(viewer.path["session"], fields.get("profile", ""))
    told: Any = await MOVE.run(viewer.context, params)
    who = "Who comes next" if not told["moved"] else "The session"
    return f"{who} has profile {told['profile']} now."


async def _revoke(viewer: Viewer, fields: Mapping[str, str]) -> str:
    params = AllowParams(viewer.path["session"], fields.get("tool") or None, revoke=True)
    told: Any = await ALLOW.run(viewer.context, params)
    return f"The user is asked again about: {', '.join(told['changed']) or 'nothing'}."


SESSION_ACTIONS = (
    ConsoleAction(path="/sessions/{session}/unload", act=_unload),
    ConsoleAction(path="/sessions/{session}/move", act=_move),
    ConsoleAction(path="/sessions/{session}/revoke", act=_revoke),
)


def _with_instances(context: OperatorContext, connection: Mapping[str, Any]) -> dict[str, Any]:
    instances = [
        {"name": each, "server": server_of(each), **context.state_of(each)} for each in connection["instances"]
    ]
    return {**connection, "instances": instances}


async def _grants(context: OperatorContext, name: str) -> dict[str, Any]:
    try:
        told: Any = await ALLOW.run(context, AllowParams(name))
    except McpdError:  # it has ended meanwhile, or is only kept
        return {"grants": []}
    now = context.wall()
    return {
        "grants": [
            {
                "tool": each["tool"],
                "by": each["by"],
                "until": None if each["seconds"] is None else round((now + each["seconds"]) / _STEP) * _STEP,
            }
            for each in told["allowed"]
        ]
    }
