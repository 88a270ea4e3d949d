"""Makes the audit's records of ended calls and of questions to users."""

from __future__ import annotations

from typing import Any

import msgspec

from daemon.audit.record import AuditRecord, Decision, acting, body_of, digest
from daemon.catalog.permissions import ruled
from daemon.clients.calls import MAX_ARGUMENTS, ClientCall, record_key
from daemon.config.names import own_name
from daemon.errors import ToolHeld
from daemon.kit.waiting import keep_latest
from daemon.model import Tool
from daemon.protocol import CALL_TOOL
from daemon.tracing.call_trace import CallTrace, trace_id

NAME = 256
"""Characters of a recorded name that a client may have made up."""

KEPT = 256
"""Decisions of one client whose records' shared part is kept: more than the tools that an agent uses."""

_encode = msgspec.json.Encoder().encode


def note_question(call: ClientCall, server: str, name: str) -> None:
    """Record in the audit that a call's user was asked."""
    asked = {"server": server, "tool": name, "arguments_sha256": digest(call.given)}
    call.calls.context.audit.note(_members(call, Decision.ASKED, **asked))


def record_of(call: ClientCall, sent: bool, trace: CallTrace | None, arguments: bytes, *ended: Any) -> bytes:  # noqa: FBT001 - whether a server has it
    """The record of a call; `ended`: its outcome, seconds, end (since the epoch), bytes of its answer."""
    audit, more = call.calls.context.audit, b""
    if audit.keys.arguments:
        redact = call.calls.context.redact.of("" if call.upstream is None else call.upstream.of)
        shown = redact(arguments[: 5 * MAX_ARGUMENTS].decode(errors="replace"), MAX_ARGUMENTS)
        more = b',"arguments":%b' % msgspec.json.encode(shown)
    if trace is not None:
        more += b',"traceId":"%b"' % trace_id(trace).encode()
    return body_of(_shared(call, sent=sent) + more, arguments, *ended)


def _shared(call: ClientCall, *, sent: bool) -> bytes:
    """Encode the members (`daemon` onwards) that records of a session's sent calls by one decision share."""
    key = record_key(call)
    if sent and (known := call.calls.recorded.get(key)):
        return known[0]
    forward = call.forward
    made = _encode(_record(call, sent=sent)).partition(b",")[2][:-1]
    # Only a remembered decision comes again, and it keeps no arguments, which may be megabytes.
    if sent and forward is not None and forward.arguments == b"{}" and not (forward.ask or forward.repair):
        keep_latest(call.calls.recorded, key, (made, (forward, call.request.session)), KEPT)
    return made


def _record(call: ClientCall, *, sent: bool) -> AuditRecord:
    forward, context = call.forward, call.calls.context
    told = {} if call.refusal is None else call.refusal.details
    server = call.upstream.of if call.upstream is not None else str(told.get("server", ""))
    held = call.refusal.held.definition if isinstance(call.refusal, ToolHeld) else None
    asked = str(told.get("tool", "")) or call.label
    name = held.name if held is not None else own_name(call.tool or asked, server)
    tool = forward.tool if forward is not None else None
    if tool is None and (entry := context.catalog.value.servers.get(server)) is not None:
        tool = (entry.tools or {}).get(name)
    decision, rule = Decision.SENT if sent else Decision.REFUSED, ruled(call.request.profile, tool)
    if sent and forward is not None and forward.repair is not None:
        decision, rule = Decision.REPAIRED, str(forward.repair)
    return _members(
        call,
        decision,
        server=server,
        tool=name if tool is not None else context.redact.of(server)(name, NAME),
        method="" if call.method == CALL_TOOL else call.method,
        schema_hash="" if (judged := held or tool) is None else judged.schema_hash,
        rule=rule,
        by=_who_agreed(call, tool),
    )


def _members(call: ClientCall, decision: Decision, **members: object) -> AuditRecord:
    client = call.calls.client
    return call.calls.context.audit.made(
        decision,
        session=call.request.session.name,
        client=call.request.client[:NAME],
        principal=client.principal.words,
        pid=client.principal.pid,
        **({"details": {"script": call.script}} if call.script else {}),
        **members,
    )


def _who_agreed(call: ClientCall, tool: Tool | None) -> str:
    if tool is None or call.forward is None or call.forward.ask is None:
        return ""
    return user_of(call) if call.agreed else call.request.session.state.grants.author(tool)


def user_of(call: ClientCall) -> str:
    """The person at a call's client, who was asked: `uid 1000 (session #12)`."""
    principal = call.calls.client.principal
    return acting(principal.uid, principal.token, f"session {call.request.session.name}")
