"""Records ended calls and questions to users in the audit and in traces."""

from __future__ import annotations

from functools import partial

import msgspec
import trio

from daemon.audit.audit_log import Audit
from daemon.audit.record import AuditRecord, Decision, acting, digest, moment, timestamp
from daemon.catalog.permissions import ruled
from daemon.clients.calls import ClientCall
from daemon.config.names import own_name
from daemon.counting.tally import CANCELLED, OK
from daemon.kit.waiting import keep_latest
from daemon.model import Tool
from daemon.protocol import CALL_TOOL, MODERN_VERSION
from daemon.tracing.call_trace import CallTrace, trace_id

LARGE = 4096
"""Bytes of arguments above which a record is made at once: an unwritten record would keep them in memory."""

MAX_ARGUMENTS = 64 * 1024
"""Characters of a call's arguments in a record."""

NAME = 256
"""Characters of a recorded name that a client may have made up."""

KEPT = 256
"""Decisions of one client for which a part of their records is kept: more than an agent uses tools."""

_encode = msgspec.json.Encoder().encode


def ended(call: ClientCall, outcome: str, seconds: float, at: float, size: int) -> None:
    """Record and trace a call that ended `at` (seconds since the epoch) with an answer of `size` bytes."""
    audit, trace = call.calls.context.audit, call.trace
    if trace is not None:
        call.trace = None
        _trace(call, trace, outcome, at, size)
    if outcome in {OK, CANCELLED} and (call.key is None or call.in_line) and not _was_sent(call):
        return  # a call that was sent asks no function here: its bound of Python calls is reached
    if len(call.given) <= LARGE:
        audit.note(_body, audit, call, trace, outcome, seconds, at, size)
    elif audit.on:
        body = _body(audit, call, trace, outcome, seconds, at, size)
        audit.note(lambda: body)


def note_question(call: ClientCall, server: str, name: str) -> None:
    """Record in the audit that a call's user was asked."""
    audit, at, given = call.calls.context.audit, moment(call.calls.context.wall()), call.given
    members = partial(_members, audit, call, Decision.ASKED, at=at, server=server, tool=name)
    audit.note(lambda: members(arguments_sha256=digest(given)))


def _trace(call: ClientCall, trace: CallTrace, outcome: str, at: float, size: int) -> None:
    context, client, request, upstream = call.calls.context, call.calls.client, call.request, call.upstream
    if context.tracer is None:
        return
    trace.ended, trace.at = trio.current_time(), at
    # A client can make up any name, and there may only be so many.
    known = upstream is not None or call.name in request.surface.meta_tools
    name = (call.name.rstrip("\n") or call.label.partition("/prompt:")[2]) if known else ""
    own = call.method, call.tool or name, "" if upstream is None else upstream.of
    version = MODERN_VERSION if request.modern else client.protocol
    arguments = call.given[:MAX_ARGUMENTS] if context.tracer.arguments else b""
    trace.about, trace.size = (request.id, arguments, session_of(call), version, len(call.given)), size
    context.tracer.ended(trace, (call.client_method, name, ""), own, outcome)


def _body(
    audit: Audit, call: ClientCall, trace: CallTrace | None, outcome: str, seconds: float, at: float, size: int
) -> bytes:
    arguments = bytes(call.params[-1]) if call.params else call.given
    own = b'%b,"outcome":"%b","durationMs":%.3f,"bytes":%d,"argumentsSha256":"%b"' % (
        _shared(audit, call),
        outcome.encode(),
        seconds * 1000,
        size,
        digest(arguments).encode(),
    )
    if audit.keys.arguments:
        redact = call.calls.context.redact.of("" if call.upstream is None else call.upstream.of)
        shown = redact(arguments[: 5 * MAX_ARGUMENTS].decode(errors="replace"), MAX_ARGUMENTS)
        own += b',"arguments":%b' % msgspec.json.encode(shown)
    if trace is not None:
        own += b',"traceId":"%b"' % trace_id(trace).encode()
    return b'{"at":"%b",%b}' % (timestamp(at), own)


def _shared(audit: Audit, call: ClientCall) -> bytes:
    """Encode what the records of a session's sent calls by one decision share: the members from `daemon` on."""
    forward, request, known = call.forward, call.request, call.calls.recorded
    lasts = _was_sent(call)
    found = known.get(id(forward)) if lasts else None
    if found is not None and found[:3] == (forward, request.session, request.client):
        return found[3]
    made = _encode(_record(audit, call)).partition(b",")[2][:-1]
    # Only a remembered decision comes again, and it keeps no arguments, which may be megabytes.
    if lasts and forward is not None and forward.arguments == b"{}" and not (forward.ask or forward.repair):
        keep_latest(known, id(forward), (forward, request.session, request.client, made), KEPT)
    return made


def _record(audit: Audit, call: ClientCall) -> AuditRecord:
    forward, context = call.forward, call.calls.context
    sent = _was_sent(call)
    told = {} if call.refusal is None else call.refusal.details
    server = call.upstream.of if call.upstream is not None else str(told.get("server", ""))
    name = own_name(call.tool or str(told.get("tool", "")) or call.label, server)
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
        schema_hash="" if tool is None else tool.schema_hash,
        rule=rule,
        by=_who_agreed(call, tool),
    )


def _members(audit: Audit, call: ClientCall, decision: Decision, **members: object) -> AuditRecord:
    client = call.calls.client
    return audit.made(
        decision,
        session=session_of(call),
        client=call.request.client[:NAME],
        principal=client.principal.words,
        pid=client.principal.pid,
        **({"details": {"script": call.script}} if call.script else {}),
        **members,
    )


def session_of(call: ClientCall) -> str:
    """The session in records, traces and events: a key that a client has chosen, or a number such as `#12`."""
    state = call.request.session.state
    return (state.key if state.named else None) or f"#{call.calls.client.number}"


def _was_sent(call: ClientCall) -> bool:
    """Whether a server has received the call; a script counts as sent once it runs."""
    runs = call.makes is not None and call.upstream is not None
    return runs or (call.key is not None and not call.in_line)


def _who_agreed(call: ClientCall, tool: Tool | None) -> str:
    if tool is None or call.forward is None or call.forward.ask is None:
        return ""
    return user_of(call) if call.agreed else call.request.session.state.grants.author(tool)


def user_of(call: ClientCall) -> str:
    """The person at a call's client, who was asked: `uid 1000 (session #12)`."""
    principal = call.calls.client.principal
    return acting(principal.uid, principal.token, f"session {session_of(call)}")
