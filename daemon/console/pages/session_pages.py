"""The page of all sessions, and a session's page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemon.config.labels import server_of
from daemon.console.page import ConsolePage, Holders, Viewer, command_action, element_id, part, steady
from daemon.errors import McpdError
from daemon.operators.base import OperatorContext
from daemon.operators.change_reports import allowed, moved, unloaded
from daemon.operators.report_words import session_name
from daemon.operators.session_commands import (
    ALLOW,
    MOVE,
    UNLOAD,
    AllowParams,
    SessionsParams,
    allow,
    connection_status,
    sessions,
)

SHOWN = 200
"""Connections on the page, and sessions."""


async def _fragments(viewer: Viewer) -> Holders:
    live = viewer.context.clients.statistics()
    report: Any = await sessions(viewer.context, SessionsParams())
    kept = [each for each in report["sessions"] if each["key"] is not None]
    notes = part(
        "notes",
        "sessions_notes",
        connections=len(live),
        kept=len(kept),
        more=bool(report.get("more")) or max(len(live), len(kept)) > SHOWN,
        incomplete=report.get("incomplete", ""),
    )
    return {
        "connections": [
            part(f"connection-{each.number}", "sessions_connection", connection=connection_status(each))
            for each in live[:SHOWN]
        ],
        "kept": [
            part(element_id("session", each["key"]), "sessions_row", session=_steady(each))
            for each in kept[:SHOWN]
        ],
        "sessions-notes": [notes],
    }


SESSIONS_PAGE = ConsolePage(path="/sessions", title="Sessions", template="sessions.html", fragments=_fragments)


def _steady(report: Mapping[str, Any]) -> dict[str, Any]:
    # The last use of a session in use is always now.
    passing = ("seenAt",) if report["connections"] else ()
    return {"seenAt": None, **steady(report, "forgottenInSeconds", *passing)}


_STEP = 60
"""Seconds to which the end of a permission is rounded; otherwise the page would never be at rest."""


async def _session_fragments(viewer: Viewer) -> Holders:
    context, name = viewer.context, viewer.path["session"]
    report: Any = await sessions(context, SessionsParams(name))
    name = session_name(report)
    live = [each for each in context.clients.statistics() if (each.key or f"#{each.number}") == name]
    return {
        "session": [
            part(
                "session-overview",
                session=steady(_steady(report), "loaded"),
                connections=[_with_instances(context, connection_status(each)) for each in live],
                profiles=list(context.config.profiles),
                name=name,
            ),
            part("session-loaded", loaded=[steady(each, "age") for each in report["loaded"]], name=name),
            part("session-grants", grants=await _grants(context, name), name=name),
        ]
    }


SESSION_PAGE = ConsolePage(
    path="/sessions/{session}",
    title="Session",
    template="session.html",
    fragments=_session_fragments,
    in_navigation=False,
    calls_every=2.0,  # A load may be nothing but a call.
)


SESSION_ACTIONS = (
    command_action("/sessions/{session}/unload", UNLOAD, unloaded),
    command_action("/sessions/{key}/move", MOVE, moved),
    command_action("/sessions/{session}/revoke", ALLOW, allowed, revoke=True),
)


def _with_instances(context: OperatorContext, connection: Mapping[str, Any]) -> dict[str, Any]:
    instances = [
        {"name": each, "server": server_of(each), **context.state_of(each)} for each in connection["instances"]
    ]
    return {**connection, "instances": instances}


async def _grants(context: OperatorContext, name: str) -> list[dict[str, Any]]:
    try:
        told: Any = await allow(context, AllowParams(name))
    except McpdError:  # the session has ended, or is only kept
        return []
    return [
        {
            **steady(each, "seconds"),
            "until": None
            if each["seconds"] is None
            else round((context.wall() + each["seconds"]) / _STEP) * _STEP,
        }
        for each in told["allowed"]
    ]
