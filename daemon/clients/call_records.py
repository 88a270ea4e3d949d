"""Records of ended calls and of questions, for the audit and for traces."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

from daemon.audit.audit_log import Audit
from daemon.audit.record import AuditRecord, Decision, digest, moment
from daemon.catalog.permissions import described, rule_for
from daemon.counting.tally import CANCELLED, OK
from daemon.protocol import CALL_TOOL, MODERN_VERSION
from daemon.tracing.call_trace import CallTrace, trace_id

if TYPE_CHECKING:
    from daemon.clients.calls import ClientCall
    from daemon.model import Tool

LARGE = 4096
"""Bytes of arguments above which a record is made at once, so that what waits for the disk stays small."""

MAX_ARGUMENTS = 64 * 1024
"""Characters of recorded arguments."""


NAME = 256
"""Characters of a name that a client may have made up."""


def ended(call: ClientCall, outcome: str, seconds: float, at: float, size: int) -> None:
    """Have an ended call recorded in the audit, unless mcpd answered it, and as a trace.

    `size` is the bytes of its answer, `at` its end in seconds since the epoch.
    """
    audit, trace = call.calls.context.audit, call.trace
    if trace is not None:
        call.trace = None
        _trace(call, trace, outcome, at, size)
    sent = call.key is not None and not call.in_line
    if not sent and outcome in {OK, CANCELLED}:
        return
    if len(call.given) <= LARGE:
        audit.note(_record, audit, call, trace, outcome, seconds, at, size)
    elif audit.on:
        record = _record(audit, call, trace, outcome, seconds, at, size)
        audit.note(lambda: record)


def note_question(call: ClientCall, server: str, name: str) -> None:
    """Have a question to a call's user recorded."""
    audit, arguments = call.calls.context.audit, call.given
    members = partial(_members, audit, call, Decision.ASKED, audit.now(), server=server, tool=name)
    audit.note(lambda: members(arguments_sha256=digest(arguments)))


def _trace(call: ClientCall, trace: CallTrace, outcome: str, at: float, size: int) -> None:
    context, client, request, upstream = call.calls.context, call.calls.client, call.request, call.upstream
    if context.tracer is None:
        return
    trace.ended, trace.at, state = trio.current_time(), at, request.session.state
    # A client can make up any name, and there may only be so many.
    known = upstream is not None or call.name in request.surface.meta_tools
    name = (call.name or call.label.partition("/prompt:")[2]) if known else ""
    own = call.method, call.tool or name, "" if upstream is None else upstream.of
    session = (state.key if state.named else None) or f"#{client.number}"
    version = MODERN_VERSION if request.modern else client.protocol
    arguments = call.given[:MAX_ARGUMENTS] if context.tracer.arguments else b""
    trace.about, trace.size = (request.id, arguments, session, version, len(call.given)), size
    context.tracer.ended(trace, (call.client_method, name, ""), own, outcome)


def _record(
    audit: Audit,
    call: ClientCall,
    trace: CallTrace | None,
    outcome: str,
    seconds: float,
    at: float,
    size: int,
) -> AuditRecord:
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
        trace_id=trace_id(trace),
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
