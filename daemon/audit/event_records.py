"""Makes records of events that are decisions, and of operators' commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from daemon.audit.audit_log import Audit
from daemon.audit.record import AuditRecord, Decision, digest, moment
from daemon.history.event import Event, EventKind

DECISIONS: Mapping[EventKind, Decision] = {
    EventKind.ALLOWED: Decision.AGREED,
    EventKind.DECLINED: Decision.DECLINED,
    EventKind.HELD: Decision.HELD,
    EventKind.APPROVED: Decision.APPROVED,
    EventKind.LOGIN: Decision.LOGIN,
    EventKind.SWITCHED: Decision.SWITCHED,
    EventKind.RELOADED: Decision.CONFIGURED,
    EventKind.REFUSED: Decision.REFUSED,
    EventKind.QUESTION_REFUSED: Decision.REFUSED,
    EventKind.HOST_REFUSED: Decision.REFUSED,
}
"""The decision that each kind of event means; refused calls are recorded elsewhere."""

SHOWN = frozenset({
    *("action", "approve", "change", "name", "names", "off", "on", "pattern", "profile", "profiles"),
    *("readOnly", "revoke", "seconds", "session", "shown", "tool", "tools", "workspaces"),
})  # fmt: skip
"""Parameters of operators' commands that records show; others may be secrets, or very long."""

_MEMBERS = {"client": "client", "principal": "principal", "by": "by", "trace_id": "traceId", "rule": "reason"}

LONGEST = 4096
"""Most bytes of the shown parameters as JSON."""


def note_event(audit: Audit, event: Event) -> None:
    """Record an event if it is a decision."""
    if event.kind in DECISIONS:
        audit.note(_of_event, audit, event)


def note_command(
    audit: Audit, principal: str, name: str, params: object, outcome: str, *, pid: int = 0
) -> None:
    """Record an operator's command, with its decoded parameters, and the process that sent it."""
    who = {"at": moment(audit.now()), "principal": principal, "pid": pid}
    audit.note(_of_command, audit, who, name, params, outcome)


def _of_event(audit: Audit, event: Event) -> AuditRecord:
    details, decision = dict(event.details), DECISIONS[event.kind]
    members = {name: str(details.pop(key, "")) for name, key in _MEMBERS.items()}
    # Of a switch, `tool git_log` or `the server`.
    kind, _, name = str(details.get("what", "")).partition(" ")
    return audit.made(
        decision,
        at=moment(event.at),
        server=event.server,
        session=event.session,
        tool=str(details.pop("tool", "" if kind == "the" else name)),
        outcome=event.text,
        details={"event": str(event.kind), **details} if decision is Decision.REFUSED else details,
        **members,
    )


def _of_command(audit: Audit, who: Mapping[str, Any], name: str, params: object, outcome: str) -> AuditRecord:
    given: dict[str, Any] = msgspec.to_builtins(params)
    shown = {key: value for key, value in given.items() if key in SHOWN and value not in (None, (), "")}
    return audit.made(
        Decision.COMMAND,
        **who,
        server=str(given.get("server") or ""),
        tool=name,
        outcome=outcome,
        arguments_sha256=digest(msgspec.json.encode(given)),
        details=shown if len(msgspec.json.encode(shown)) <= LONGEST else {"more": len(shown)},
    )
