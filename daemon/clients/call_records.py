"""The audit's records of clients' calls."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from daemon.audit.audit_log import Audit
from daemon.audit.record import AuditRecord, Decision, digest, moment
from daemon.catalog.permissions import described, rule_for
from daemon.protocol import CALL_TOOL

if TYPE_CHECKING:
    from daemon.clients.calls import ClientCall
    from daemon.model import Tool

LARGE = 4096
"""Bytes of arguments above which a record is made at once, so that what waits for the disk stays small."""

MAX_ARGUMENTS = 64 * 1024
"""Characters of recorded arguments."""

NAME = 256
"""Characters of a name that a client may have made up."""


def note_call(call: ClientCall, outcome: str, seconds: float, at: float, size: int) -> None:
    """Have an ended call recorded, unless mcpd answered it itself; `size` is the bytes of its answer."""
    audit = call.calls.context.audit
    if call.upstream is None and outcome == "ok":
        return
    if len(call.given) <= LARGE:
        audit.note(_record, audit, call, outcome, seconds, at, size)
    elif audit.on:
        record = _record(audit, call, outcome, seconds, at, size)
        audit.note(lambda: record)


def note_question(call: ClientCall, server: str, name: str) -> None:
    """Have a question to a call's user recorded."""
    audit, arguments = call.calls.context.audit, call.given
    members = partial(_members, audit, call, Decision.ASKED, audit.now(), server=server, tool=name)
    audit.note(lambda: members(arguments_sha256=digest(arguments)))


def _record(audit: Audit, call: ClientCall, outcome: str, seconds: float, at: float, size: int) -> AuditRecord:
    forward, context = call.forward, call.calls.context
    sent = call.key is not None and not call.in_line
    told = {} if call.refusal is None else call.refusal.details
    server = call.upstream.of if call.upstream is not None else str(told.get("server", ""))
    redact = context.redact.of(server)
    name = call.tool or str(told.get("tool", "")) or call.label
    tool = forward.tool if forward is not None else None
    if tool is None and (entry := context.catalog.value.servers.get(server)) is not None:
        tool = (entry.tools or {}).get(name)
    decision, rule = Decision.SENT if sent else Decision.REFUSED, _rule(call, tool)
    if sent and forward is not None and forward.repair is not None:
        decision, rule = Decision.REPAIRED, str(forward.repair)
    arguments = bytes(call.params[-1]) if call.params else call.given
    shown = ""
    if audit.keys.arguments:
        shown = redact(arguments[: 2 * MAX_ARGUMENTS].decode(errors="replace"), MAX_ARGUMENTS)
    return _members(
        audit,
        call,
        decision,
        at,
        server=server,
        tool=name if tool is not None else redact(name, NAME),
        method="" if call.method == CALL_TOOL else call.method,
        schema_hash="" if tool is None else tool.schema_hash,
        rule=rule,
        by=_who_agreed(call, tool),
        outcome=outcome,
        duration_ms=round(seconds * 1000, 3),
        bytes=size,
        arguments_sha256=digest(arguments),
        arguments=shown,
    )


def _members(audit: Audit, call: ClientCall, decision: Decision, at: float, **members: object) -> AuditRecord:
    client, state = call.calls.client, call.request.session.state
    key = state.key if state.named else None
    return audit.made(
        decision,
        at=moment(at),
        session=f"#{client.number}" if key is None else key,
        client=call.request.client[:NAME],
        principal=client.principal.words,
        pid=client.principal.pid,
        **members,
    )


def _rule(call: ClientCall, tool: Tool | None) -> str:
    profile = call.request.profile
    rule = None if tool is None or not profile.permissions else rule_for(profile.permissions, tool)
    return "" if rule is None else f"{profile.name}: {described(rule)}: {rule.then}"


def _who_agreed(call: ClientCall, tool: Tool | None) -> str:
    if tool is None or call.forward is None or call.forward.ask is None:
        return ""
    return "its user" if call.agreed else call.request.session.state.grants.author(tool)
