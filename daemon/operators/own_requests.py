"""`mcpd call`, and any other request of an operator to one server, sent like a client's call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import trio
from msgspec import UNSET, Raw, UnsetType, structs

from daemon.audit.record import Decision, digest
from daemon.catalog.entry import ServerEntry
from daemon.catalog.extensions import with_tasks
from daemon.catalog.naming import mcpd_uri
from daemon.catalog.offer import Offered
from daemon.catalog.permissions import ruled
from daemon.catalog.tool_results import text_in
from daemon.clients.approvals import ASK_SECONDS, KEY, UserChoice, choice_in, denied, question
from daemon.clients.asking import ELICIT, Questions
from daemon.clients.requests.forwarding import find_prompt, find_resource
from daemon.clients.server_requests import MISSING_CAPABILITY, has, read_refusal
from daemon.clients.task_results import is_task, polled
from daemon.config.config_model import Permission
from daemon.counting.recent_calls import NAME, TEXT, RecentCall
from daemon.counting.tally import CANCELLED, IS_ERROR, OK, OPERATOR
from daemon.errors import (
    AuditUnavailable,
    CallError,
    InvalidArguments,
    PermissionDenied,
    PromptDisabled,
    ResourceDisabled,
    ToolDisabled,
    UnknownPrompt,
    UnknownServer,
    UpstreamCallError,
    UpstreamUnavailable,
)
from daemon.model import Kind, Tool
from daemon.operators.base import Command, OperatorCall, OperatorContext, OperatorPeer
from daemon.operators.server_changes import Whereabouts, own_instance
from daemon.operators.tool_reports import view_of
from daemon.ports import CallToSend, OwnCall, Upstream
from daemon.protocol import (
    ASKED_OF_CLIENTS,
    CALL_TOOL,
    CAPABILITIES_KEY,
    GET_PROMPT,
    READ_RESOURCE,
    TASKS_EXTENSION,
    is_error,
    members_before,
    tool_params,
)
from daemon.surfaces.answers import error_result
from daemon.surfaces.calling import find, unknown_tool
from daemon.surfaces.explaining import check_arguments
from daemon.wire.envelope import Buffer
from daemon.wire.requests import OwnExchange, PeerRequest

Members = tuple[Buffer, ...]
"""The raw members of a request's `params` (`ports.CallToSend.params`)."""

METHODS = {Kind.TOOL: CALL_TOOL, Kind.PROMPT: GET_PROMPT, Kind.RESOURCE: READ_RESOURCE}

ASKS = b'"input_required"'
"""Marks an unfinished result (MCP 2026-07-28); other results hardly ever contain it."""


class Forwarding(Whereabouts, kw_only=True):
    """The operator's profile, place and capabilities, and answers to the server's earlier questions."""

    profile: str | None = None
    """The profile whose rules apply; None for the operator's own request, which no profile's rules restrict."""
    progress: bool = False
    capabilities: Raw = Raw(b"{}")
    """The capabilities of the operator, which say what a server may ask (MCP, `ClientCapabilities`)."""
    inputResponses: Raw | UnsetType = UNSET  # noqa: N815 - the wire's name
    """Answers to an `input_required` result (MCP 2026-07-28)."""
    requestState: Raw | UnsetType = UNSET  # noqa: N815 - the wire's name
    """The `requestState` of that result."""


def known_server(context: OperatorContext, name: str) -> tuple[Upstream, ServerEntry]:
    """The server or instance to ask, and its server's entry in the catalog; raises `UnknownServer`."""
    upstream = context.upstreams.get(name) or context.actors.get(name)
    if upstream is None:
        raise context.unknown(name)
    entry = upstream.own_catalog(context.catalog).servers.get(upstream.of)
    if entry is None:
        # A new configuration leaves the server out, and its child is being stopped.
        raise UnknownServer(f"server {upstream.of} is no longer in mcpd's configuration", server=upstream.of)
    return upstream, entry


async def serve(
    context: OperatorContext,
    given: Forwarding,
    kind: Kind,
    named: tuple[str, str],
    members: Members,
    check: Callable[[ServerEntry], None] = lambda _entry: None,
) -> Raw:
    """Forward a request that the profile permits, and record it; `members` are the raw `params`.

    `named` is the server or instance, and the server's own name of the tool, prompt or resource; `check` raises
    a `CallError` for unsuitable arguments. Raises CallError: there is no result.
    """
    server, name = named
    details = {"asOperator": True} if given.profile is None else {"profile": given.profile}
    recorded: dict[str, Any] = {"rule": "", "details": details}
    context = structs.replace(context, recorded=recorded)
    try:
        upstream, entry = known_server(context, server)
        recorded["rule"] = ruled(view_of(context, given.profile)[1].profile, entry.all_tools.get(name))
        recorded["by"] = await _permit(context, given, kind, named, members[-1])
        check(entry)
        if refuses := context.audit.refuses:
            raise AuditUnavailable(refuses)
    except CallError as error:
        rule = recorded["rule"]
        by_rule = isinstance(error, ToolDisabled | PermissionDenied) and not rule.endswith(": allow")
        place = server[:NAME], name[:NAME], 0.0, error.code, rule if by_rule else "", str(error)[:TEXT]
        ended = RecentCall(context.wall(), None, None, OPERATOR, "", *place)
        _record(context, Decision.REFUSED, ended, OwnCall(method=METHODS[kind], params=members))
        context.counters.recent.publish((1, [ended]))
        raise
    return await forward(context, upstream, METHODS[kind], members, given, what=name)


async def _permit(
    context: OperatorContext, given: Forwarding, kind: Kind, named: tuple[str, str], arguments: Buffer
) -> str:
    """Decide as for a client of the profile; returns the person who agreed, if a rule needs agreement.

    Raises CallError: the profile does not show the definition, a rule denies it, it is held, or nobody agrees.
    """
    upstream, entry = known_server(context, named[0])
    if given.profile is not None:
        if entry.list_of(kind).listed:
            _decide(context, given, kind, named)
        await upstream.wake_to_list()
        await context.registry.settle()
    offered = _decide(context, given, kind, named)
    if offered is None or not offered.asks:
        return ""
    await _agree(context, given, offered.tool, arguments)
    # Of the present catalog: the person takes a while.
    now = _decide(context, given, kind, named)
    if now is None or now.tool.schema_hash != offered.tool.schema_hash:
        raise denied(offered.tool, "it has changed since. Nothing was sent: call it again.")
    return context.principal


def _decide(context: OperatorContext, given: Forwarding, kind: Kind, named: tuple[str, str]) -> Offered | None:
    """The tool as the profile offers it; None for another kind or an unknown tool. Raises as `_permit` does."""
    upstream, entry = known_server(context, named[0])
    catalog = upstream.own_catalog(context.catalog)
    view = attrs.evolve(view_of(context, given.profile)[1], catalog=catalog)
    key, offer, is_listed = (entry.name, named[1]), view.offer, entry.list_of(kind).listed
    if kind is not Kind.TOOL and entry.disabled:
        refused = PromptDisabled if kind is Kind.PROMPT else ResourceDisabled
        raise refused(f"server {key[0]} is switched off; `mcpd enable {key[0]}` switches it on again")
    if kind is Kind.RESOURCE:
        find_resource(view, mcpd_uri(*key), {})
    elif kind is Kind.PROMPT:
        if (is_listed or key[0] not in offer.servers_of(kind)) and find_prompt(view, "/".join(key)) != key:
            raise UnknownPrompt(f"there is no prompt {'/'.join(key)!r}")
    elif is_listed or not offer.rules.allows(key) or offer.rules.permission(key) is not Permission.ALLOW:
        apart = offer.apps.hidden if given.profile is None else {}
        if (found := offer.tools.get(key) or apart.get(key)) is None:
            find(view, "/".join(key), patient=False)
            # Another server's tool has this name.
            raise unknown_tool(view, "/".join(key))
        return found
    return None


async def _agree(context: OperatorContext, given: Forwarding, tool: Tool, arguments: Buffer) -> None:
    """Ask the person at the terminal; raises `PermissionDenied` without a terminal or without agreement."""
    operator, profile = context.operator, context.config.profiles[given.profile or ""]
    if operator is None or not has(given.capabilities, "elicitation", "form"):
        rule = f'{{"match": "{tool.server}/{tool.name}", "then": "allow"}}'
        why = f"there is no terminal to ask in. Nothing was sent. Your user can call it in one, or write {rule}"
        raise denied(tool, f"{why} before the rule that asks, in `permissions` of profile {profile.name}.")
    about = {"server": tool.server, "tool": tool.name, "rule": ruled(profile, tool)}
    made = context.audit.made(Decision.ASKED, principal=context.principal, pid=context.pid, **about)
    context.audit.note(made)
    operator.declare(given.capabilities)
    with Questions() as asked:
        params = question(tool, arguments, context.redact.of(tool.server), profile, session=False)
        operator.ask(asked.made(KEY, ELICIT, params))
        await asked.wait(trio.current_time() + ASK_SECONDS)
    choice = choice_in(asked.answers[KEY]) if KEY in asked.answers else None
    if choice is not UserChoice.ONCE:
        why = choice or f"the user has not answered within {ASK_SECONDS:g} s"
        raise denied(tool, f"{why}. Nothing was sent. Do not call it again unless the user asks you to.")


async def forward(
    context: OperatorContext,
    upstream: Upstream,
    method: str,
    params: Members,
    given: Forwarding,
    *,
    what: str = "",
) -> Raw:
    """Ask a server and return its result, undecoded; `mcpd calls` shows it as `what`. Raises CallError."""
    answers = {"inputResponses": given.inputResponses, "requestState": given.requestState}
    others = members_before({key: value for key, value in answers.items() if value is not UNSET})
    own = OwnCall(
        method=method,
        params=(others, *params) if others else params,
        wants_progress=given.progress and context.operator is not None,
        envelope={CAPABILITIES_KEY: bytes(given.capabilities)},
    )
    if context.operator is not None:
        context.operator.declare(given.capabilities)
    async with own_instance(upstream, given) as held:
        result = await _ended(context, held.upstream, own, what)
        held.goes_on = ASKS in result
        return Raw(result)


async def _ended(context: OperatorContext, upstream: Upstream, own: OwnCall, what: str) -> bytes:
    # A call that becomes a task (SEP-2663), or must become one, ends with the task.
    try:
        return await _asked(context, upstream, own, what)
    except UpstreamCallError as refused:
        told: Any = refused.details.get("upstream", {})
        needs_tasks = told.get("code") == MISSING_CAPABILITY and TASKS_EXTENSION in str(told)
        if own.method != CALL_TOOL or not needs_tasks:
            raise
        own = attrs.evolve(own, envelope={CAPABILITIES_KEY: with_tasks(own.envelope[CAPABILITIES_KEY])})
        return await _asked(context, upstream, own, what)


async def _asked(context: OperatorContext, upstream: Upstream, own: OwnCall, what: str) -> bytes:
    outcome = _Outcome(context.redact.of(upstream.of), context.operator, reports=own.wants_progress)
    call = OperatorCall(sent=own, tool=what, upstream=upstream, started=trio.current_time(), lose=outcome.lost)
    context.own_calls[call] = None
    try:
        with call.waiting:
            call.key = await _send(upstream, own, outcome)
        context.outbox.flush()
        result = await outcome.wait()
        if own.method == CALL_TOOL and is_task(result):
            await _end_task(context, call, outcome)
        return await outcome.wait()
    except CallError as error:
        outcome.error = error
        raise
    finally:
        del context.own_calls[call]
        seconds = trio.current_time() - call.started
        if call.key is not None:
            why = "the operator went away" if outcome.error is None else outcome.error.message
            upstream.cancel(call.key, why)
            if own.method == CALL_TOOL:
                upstream.record((seconds,), ok=outcome.ok)
        _keep(context, call, seconds, outcome)


async def _end_task(context: OperatorContext, call: OperatorCall, outcome: _Outcome) -> None:
    server, redact = call.upstream.of, context.redact.of(call.upstream.of)
    longest = context.config.mcp_servers[server].timeouts.call_max
    outcome.reopen()
    with (scope := trio.CancelScope()):
        call.waiting = scope
        try:
            ended = polled(context.outbox, call.upstream, outcome.result, call.sent, longest, redact)
            outcome.answered(await ended)
        except CallError as error:
            outcome.lost(error)


def _keep(context: OperatorContext, call: OperatorCall, seconds: float, outcome: _Outcome) -> None:
    """Record an operator's call in the audit, and among the recent calls unless the operator cancelled it."""
    server, tool, recent = call.upstream.of, call.tool[:NAME] or call.sent.method, context.counters.recent
    code, text = OK if outcome.is_settled else CANCELLED, ""
    if outcome.error is not None:
        code, text = outcome.error.code, outcome.error.message
    elif is_error(outcome.result):
        code, text = IS_ERROR, text_in(outcome.result)
    place = server, tool, seconds, code, "", text[:TEXT]
    ended = RecentCall(context.wall(), None, None, OPERATOR, "", *place)
    if call.key is not None or outcome.error is not None:
        _record(context, Decision.SENT if call.key is not None else Decision.REFUSED, ended, call.sent)
    if not outcome.is_settled:
        return
    recent.publish((1, [ended]))
    if code != OK:
        recent.failed(server, tool, code, text)


def _record(context: OperatorContext, decision: Decision, ended: RecentCall, own: OwnCall) -> None:
    made = context.audit.made(
        decision,
        principal=context.principal,
        pid=context.pid,
        server=ended.server,
        tool=ended.tool,
        method="" if own.method == CALL_TOOL else own.method,
        outcome=ended.outcome,
        duration_ms=round(ended.seconds * 1000, 3),
        arguments_sha256=digest(bytes(own.params[-1])) if own.params else "",
        **context.recorded,
    )
    context.audit.note(made)


async def _send(upstream: Upstream, wanted: CallToSend, outcome: _Outcome) -> int:
    try:
        return upstream.send(wanted, outcome)
    except UpstreamUnavailable:
        if not upstream.can_wake:
            raise
    await upstream.wake()
    return upstream.send(wanted, outcome)


class _Outcome(OwnExchange):
    def __init__(self, redact: Callable[[str], str], operator: OperatorPeer | None, *, reports: bool) -> None:
        self._redact = redact
        self._operator = operator
        self._reports = reports
        self._done = trio.Event()
        self.result = b""
        self.error: CallError | None = None

    @property
    def is_settled(self) -> bool:
        return self._done.is_set()

    @property
    def ok(self) -> bool:
        return self.is_settled and self.error is None and not is_error(self.result)

    async def wait(self) -> bytes:
        await self._done.wait()
        if self.error is not None:
            raise self.error
        return self.result

    def reopen(self) -> None:
        self._done = trio.Event()  # the answer is a task, whose end is waited for

    def answered(self, result: Buffer) -> None:
        self.result = bytes(result)
        if not self.result.startswith(b"{"):
            # Nobody could tell it from an answer that is not mcpd's.
            self.error = UpstreamCallError("the server has answered with something other than an object")
        self._done.set()

    def refused(self, error: Buffer) -> None:
        self.lost(read_refusal(error, self._redact))

    def lost(self, error: CallError) -> None:
        if not self.is_settled:
            self.error = error
            self._done.set()

    def progressed(self, params: dict[str, Raw]) -> None:
        if self._operator is not None and self._reports:
            self._operator.report(params)

    def asked(self, request: PeerRequest) -> None:
        if self._operator is None:
            super().asked(request)
        else:
            self._operator.ask(request)

    @property
    def answerable(self) -> frozenset[str]:
        return frozenset() if self._operator is None else ASKED_OF_CLIENTS


class OperatorCallParams(Forwarding, kw_only=False):
    """A tool of a server or an instance, by the server's own name, and its arguments."""

    server: str
    tool: str
    arguments: Raw = Raw(b"{}")


async def call(context: OperatorContext, params: OperatorCallParams) -> Raw:
    """Call a tool and wait for its result; the call is cancelled if the operator disconnects."""
    named, members = (params.server, params.tool), tool_params(params.tool, params.arguments)
    try:
        return await serve(context, params, Kind.TOOL, named, members, partial(_check, params))
    except CallError as error:
        return Raw(error_result(error))


CALL = Command("call", OperatorCallParams, call, reads=True)


def _check(params: OperatorCallParams, entry: ServerEntry) -> None:
    # Some servers answer a wrong call with a stack trace.
    if not bytes(params.arguments).startswith(b"{"):
        raise InvalidArguments("the arguments of a tool are a JSON object")
    check_arguments(entry.all_tools.get(params.tool), params.tool, params.arguments)
