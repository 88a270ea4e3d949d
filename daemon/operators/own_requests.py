"""`mcpd call`, and any request of an operator to one server, sent as a client's call is."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import trio
from msgspec import UNSET, Raw, UnsetType

from daemon.audit.record import Decision, digest
from daemon.catalog.entry import ServerEntry
from daemon.catalog.kinds import switch_of
from daemon.clients.calls import IS_ERROR, is_error, text_in
from daemon.clients.server_requests import read_refusal
from daemon.counting.recent_calls import NAME, RecentCall
from daemon.counting.tally import CANCELLED, OK, OPERATOR
from daemon.errors import (
    AuditUnavailable,
    CallError,
    InvalidArguments,
    ToolDisabled,
    UnknownServer,
    UnknownTool,
    UpstreamCallError,
    UpstreamUnavailable,
)
from daemon.model import Kind
from daemon.operators.base import Command, OperatorCall, OperatorContext, OperatorPeer
from daemon.operators.server_changes import Whereabouts, own_instance
from daemon.operators.tool_reports import tools_like
from daemon.ports import CallToSend, OwnCall, Upstream
from daemon.protocol import ASKED_OF_CLIENTS, CALL_TOOL, CAPABILITIES_KEY, members_before, tool_params
from daemon.surfaces.answers import error_result
from daemon.surfaces.explaining import refusal
from daemon.surfaces.held import told_held
from daemon.surfaces.validators import validator_of
from daemon.wire.envelope import Buffer
from daemon.wire.requests import OwnExchange, PeerRequest

ASKS = b'"input_required"'
"""In an unfinished result (MCP 2026-07-28), and hardly in any other."""


class Forwarding(Whereabouts, kw_only=True):
    """The operator's abilities while a server works, and answers to the server's earlier questions."""

    progress: bool = False
    capabilities: Raw = Raw(b"{}")
    """The questions that the operator can answer (MCP, `ClientCapabilities`)."""
    inputResponses: Raw | UnsetType = UNSET  # noqa: N815 - the wire's name
    """Answers to an `input_required` result (MCP 2026-07-28)."""
    requestState: Raw | UnsetType = UNSET  # noqa: N815 - the wire's name
    """The state that came with that result."""


def known_server(context: OperatorContext, name: str) -> tuple[Upstream, ServerEntry]:
    """A server or an instance to ask, and the catalog's entry of the server; raises `UnknownServer`."""
    upstream = context.upstreams.get(name) or context.actors.get(name)
    if upstream is None:
        raise context.unknown(name)
    entry = upstream.own_catalog(context.catalog).servers.get(upstream.of)
    if entry is None:
        # A new configuration leaves the server out, and its child is being stopped.
        raise UnknownServer(f"server {upstream.of} is no longer in mcpd's configuration", server=upstream.of)
    return upstream, entry


async def forward(
    context: OperatorContext,
    upstream: Upstream,
    method: str,
    params: tuple[Buffer, ...],
    given: Forwarding,
    *,
    what: str = "",
) -> Raw:
    """Ask a server and return its result, undecoded; cancelled if the operator disconnects.

    Args:
        context: the daemon.
        upstream: a server or an instance; of a server with instances, the operator gets one as a client would.
        method: the MCP method.
        params: the raw members of its `params` (`ports.CallToSend.params`).
        given: the operator's abilities and place.
        what: the name of the tool or prompt, or the URI, for `mcpd calls`.

    Raises:
        CallError: there is no result.
    """
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
    if upstream.instances is None:
        return Raw(await _asked(context, upstream, own, what))
    async with own_instance(upstream.instances, given) as held:
        result = await _asked(context, held.upstream, own, what)
        held.goes_on = ASKS in result
        return Raw(result)


async def _asked(context: OperatorContext, upstream: Upstream, own: OwnCall, what: str) -> bytes:
    if refuses := context.audit.refuses:
        raise AuditUnavailable(refuses)
    outcome = _Outcome(context.redact.of(upstream.of), context.operator, reports=own.wants_progress)
    call = OperatorCall(sent=own, tool=what, upstream=upstream, started=trio.current_time(), lose=outcome.lost)
    context.own_calls[call] = None
    try:
        with call.waiting:
            call.key = await _send(upstream, own, outcome)
        context.outbox.flush()
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


def _keep(context: OperatorContext, call: OperatorCall, seconds: float, outcome: _Outcome) -> None:
    """Record an operator's call, and keep it among the recent ones unless the operator gave it up."""
    server, tool, recent = call.upstream.of, call.tool[:NAME] or call.sent.method, context.counters.recent
    code, text = OK if outcome.is_settled else CANCELLED, ""
    if outcome.error is not None:
        code, text = outcome.error.code, outcome.error.message
    elif is_error(outcome.result):
        code, text = IS_ERROR, text_in(outcome.result)
    ended = RecentCall(context.wall(), None, None, OPERATOR, "", server, tool, seconds, code)
    if call.key is not None or outcome.error is not None:
        _record(context, Decision.SENT if call.key is not None else Decision.REFUSED, ended, call.sent)
    if not outcome.is_settled:
        return
    recent.publish((1, [ended]))
    if code != OK:
        recent.failed(server, tool, code, text)


def _record(context: OperatorContext, decision: Decision, ended: RecentCall, own: OwnCall) -> None:
    record = context.audit.made(
        decision,
        principal=context.principal,
        server=ended.server,
        tool=ended.tool,
        method="" if own.method == CALL_TOOL else own.method,
        outcome=ended.outcome,
        duration_ms=round(ended.seconds * 1000, 3),
        arguments_sha256=digest(bytes(own.params[-1])) if own.params else "",
    )
    context.audit.note(lambda: record)


async def _send(upstream: Upstream, wanted: CallToSend, outcome: _Outcome) -> int:
    try:
        return upstream.send(wanted, outcome)
    except UpstreamUnavailable:
        if not upstream.can_wake:
            raise
    await upstream.wake()
    return upstream.send(wanted, outcome)


class _Outcome(OwnExchange):
    """The exchange of an operator's request, whose task waits for the outcome."""

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
        return self.is_settled and self.error is None

    async def wait(self) -> bytes:
        await self._done.wait()
        if self.error is not None:
            raise self.error
        return self.result

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
        """Report progress to an operator who wants it: some servers report without being asked."""
        if self._operator is not None and self._reports:
            self._operator.report(params)

    def asked(self, request: PeerRequest) -> None:
        """Put a request to the operator; refuse it without one."""
        if self._operator is None:
            super().asked(request)
        else:
            self._operator.ask(request)

    @property
    def answerable(self) -> frozenset[str]:
        """The requests that the operator's client can answer."""
        return frozenset() if self._operator is None else ASKED_OF_CLIENTS


class OperatorCallParams(Forwarding, kw_only=False):
    """A tool of a server or an instance, by the server's own name, and its arguments."""

    server: str
    tool: str
    arguments: Raw = Raw(b"{}")


async def call(context: OperatorContext, params: OperatorCallParams) -> Raw:
    """Call a tool and wait for its result; the call is cancelled if the operator disconnects."""
    try:
        upstream = _callable(context, params)
    except CallError as error:
        place = params.server, params.tool[:NAME]
        ended = RecentCall(context.wall(), None, None, OPERATOR, "", *place, 0.0, error.code)
        _record(context, Decision.REFUSED, ended, OwnCall(method=CALL_TOOL, params=(params.arguments,)))
        return Raw(error_result(error))
    try:
        members = tool_params(params.tool, params.arguments)
        return await forward(context, upstream, CALL_TOOL, members, params, what=params.tool)
    except CallError as error:
        return Raw(error_result(error))


CALL = Command("call", OperatorCallParams, call)


def _callable(context: OperatorContext, params: OperatorCallParams) -> Upstream:
    """The server of a tool that a model could call, too: listed and not switched off."""
    tool, catalog = params.tool, context.catalog
    upstream, entry = known_server(context, params.server)
    server = entry.name
    if not bytes(params.arguments).startswith(b"{"):
        raise InvalidArguments("the arguments of a tool are a JSON object")
    known = entry.tools
    if (held := entry.held(Kind.TOOL, tool)) is not None:
        raise told_held(held, tool)
    if known is not None and tool not in known:
        raise UnknownTool(f"server {server} has no tool {tool!r}. {tools_like(server, known, tool)}", tool=tool)
    if (server, tool) in catalog.switched_tools:
        name = f"{server}/{switch_of(Kind.TOOL, tool)}"
        text = f"{tool} is switched off by an operator; `mcpd enable {name}` switches it on again"
        raise ToolDisabled(text, tool=tool)
    if (server, tool) in catalog.off:
        raise ToolDisabled(f"{tool} is switched off in mcpd's configuration", tool=tool)
    validator = validator_of(known[tool]) if known else None
    arguments = msgspec.json.decode(params.arguments)
    if validator is not None and not validator.accepts(arguments):
        # Servers answer a wrong call with anything, up to a stack trace: nothing is sent.
        raise refusal(tool, validator, arguments, [], None)
    return upstream
