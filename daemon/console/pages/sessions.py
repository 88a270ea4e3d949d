"""The page of all sessions: clients that are connected, and sessions that are kept for when they come back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.console.page import ConsolePage, Fragment
from daemon.console.pages.links import element_id, session_page
from daemon.operators.grounds import why
from daemon.operators.sessions import SESSIONS, SessionsParams

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from daemon.clients.context import SessionStatistics
    from daemon.console.page import Viewer

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


def connection_facts(session: SessionStatistics) -> dict[str, Any]:
    """What pages say of an open connection."""
    name = session.key or f"#{session.number}"
    return {
        "name": name,
        "address": session_page(name),
        "number": session.number,
        "client": session.client,
        "token": session.token,
        "profile": session.profile,
        "surface": session.surface,
        "why": why(session.choice),
        "servers": list(session.servers),
        "workspace": session.workspace,
        "protocol": session.protocol,
        "calls": session.calls,
        "in_flight": session.in_flight,
        "loaded": session.loaded,
        "instances": list(session.instances),
        "since": round(session.since),
    }


def _connection(session: SessionStatistics) -> Fragment:
    element = element_id("connection", str(session.number))
    values = {"element": element, **connection_facts(session)}
    return Fragment(id=element, template="sessions_connection.html", values=values)


def _kept(report: Mapping[str, Any]) -> Fragment:
    element = element_id("session", report["key"])
    values = {
        "element": element,
        "name": report["key"],
        "address": session_page(report["key"]),
        "client": report["client"],
        "profile": report["profile"],
        "connections": report["connections"],
        "loaded": report["loaded"],
        "invalid": report["invalid"] or 0,
        "created_at": round(report["createdAt"]),
        # That of a session in use is now, and differs all the time.
        "seen_at": None if report["connections"] or report["seenAt"] is None else round(report["seenAt"]),
    }
    return Fragment(id=element, template="sessions_row.html", values=values)
