"""Makes the audit's records of ended calls and of questions to users."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from daemon.audit.audit_log import Audit
from daemon.audit.record import AuditRecord, Decision, acting, digest, moment, timestamp
from daemon.catalog.permissions import ruled
from daemon.clients.calls import MAX_ARGUMENTS, ClientCall
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

LARGE = 4096
"""Bytes of arguments above which a record is made at once: an unwritten record would keep them in memory."""

_encode = msgspec.json.Encoder().encode


def note_question(call: ClientCall, server: str, name: str) -> None:
    """Record in the audit that a call's user was asked."""
    audit, at, given = call.calls.context.audit, moment(call.calls.context.wall()), call.given
    members = partial(_members, audit, call, Decision.ASKED, at=at, server=server, tool=name)
    audit.note(lambda: members(arguments_sha256=digest(given)))


def note_call(call: ClientCall, sent: bool, trace: CallTrace | None, *ended: Any) -> None:  # noqa: FBT001 - whether a server has it
    """Record a call in the audit; `ended`: its outcome, seconds, end (since the epoch), bytes of its answer."""
    audit = call.calls.context.audit
    if not audit.on:
        return
    arguments = bytes(call.params[-1]) if call.params else call.given
    known = _known(call) if sent and trace is None and not audit.keys.arguments else b""
    if len(call.given) > LARGE:
        audit.note(bytes, _made(call, sent, trace, arguments, *ended))
    elif known:
        # Thousands of calls that wait to be recorded would fill the processor's caches.
        audit.note(_line, known, arguments, b"", *ended)
    else:
        audit.note(_made, call, sent, trace, arguments, *ended)


def _made(call: ClientCall, sent: bool, trace: CallTrace | None, arguments: bytes, *ended: Any) -> bytes:  # noqa: FBT001 - as above
    audit, more = call.calls.context.audit, b""
    if audit.keys.arguments:
        redact = call.calls.context.redact.of("" if call.upstream is None else call.upstream.of)
        shown = redact(arguments[: 5 * MAX_ARGUMENTS].decode(errors="replace"), MAX_ARGUMENTS)
        more = b',"arguments":%b' % msgspec.json.encode(shown)
    if trace is not None:
        more += b',"traceId":"%b"' % trace_id(trace).encode()
    return _line(_shared(audit, call, sent=sent), arguments, more, *ended)


def _line(
    shared: bytes, arguments: bytes, more: bytes, outcome: str, took: float, at: float, size: int
) -> bytes:
    told = timestamp(at), shared, outcome.encode(), took * 1000, size, digest(arguments).encode(), more
    return b'{"at":"%b",%b,"outcome":"%b","durationMs":%.3f,"bytes":%d,"argumentsSha256":"%b"%b}' % told


def _known(call: ClientCall) -> bytes:
    # The shared members, if an earlier call by this decision has made them.
    found = call.calls.recorded.get(id(call.forward))
    is_same = found is not None and found[:3] == (call.forward, call.request.session, call.request.client)
    return found[3] if found is not None and is_same else b""


def _shared(audit: Audit, call: ClientCall, *, sent: bool) -> bytes:
    """Encode the members (`daemon` onwards) that records of a session's sent calls by one decision share."""
    if sent and (known := _known(call)):
        return known
    forward = call.forward
    made = _encode(_record(audit, call, sent=sent)).partition(b",")[2][:-1]
    # Only a remembered decision comes again, and it keeps no arguments, which may be megabytes.
    if sent and forward is not None and forward.arguments == b"{}" and not (forward.ask or forward.repair):
        about = forward, call.request.session, call.request.client, made
        keep_latest(call.calls.recorded, id(forward), about, KEPT)
    return made


def _record(audit: Audit, call: ClientCall, *, sent: bool) -> AuditRecord:
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
        audit,
        call,
        decision,
        server=server,
        tool=name if tool is not None else context.redact.of(server)(name, NAME),
        method="" if call.method == CALL_TOOL else call.method,
        schema_hash="" if (judged := held or tool) is None else judged.schema_hash,
        rule=rule,
        by=_who_agreed(call, tool),
    )


def _members(audit: Audit, call: ClientCall, decision: Decision, **members: object) -> AuditRecord:
    client = call.calls.client
    return audit.made(
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
