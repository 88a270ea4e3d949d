"""Asks the client's user before mcpd sends a call that rule `ask` covers or that trust holds back."""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable, Hashable, Sequence
from enum import StrEnum
from functools import partial

import msgspec
import trio
from loguru import logger
from msgspec import Raw

from daemon.catalog.authorship import OURS
from daemon.catalog.kinds import switch_of
from daemon.catalog.permissions import annotations_of, described, rule_for
from daemon.catalog.trust import HeldDefinition
from daemon.clients.asking import ELICIT, Questions, can_elicit, client_of, hold, owner_of, patient
from daemon.clients.call_records import note_question, user_of
from daemon.clients.calls import ClientCall
from daemon.clients.input_required import STATE, TTL, decode_elicited
from daemon.config.config_model import Profile
from daemon.errors import CallError, Overloaded, PermissionDenied, ToolHeld
from daemon.history.event import Event, EventKind
from daemon.history.event_words import of_held
from daemon.kit.waiting import keep_latest
from daemon.model import Tool
from daemon.protocol import CALL_TOOL, UNREADABLE, decode_text
from daemon.safety.escape import legible
from daemon.surfaces.answers import quoted
from daemon.surfaces.calling import label_of
from daemon.tracing.call_trace import trace_id
from daemon.wire.envelope import Buffer

Refusal = Callable[[str], CallError]
Taking = Callable[..., Awaitable[None]]


MAX_SHOWN = 4000
"""Characters of the arguments that a user is shown, some fifty lines; the question says if it cuts them."""

MAX_COMPACTED = 64 * 1024
"""Bytes of the longest arguments that are compacted: a tenth of a millisecond."""

_LINE_ENDS = str.maketrans("\n\r\t", "   ")
"""Replaces line ends by blanks: clients fold all but the first lines, so line ends could hide text."""

_WORD = re.compile(r"[^\s\"]+")
"""A tool name that needs no quotes."""

MEMBER = "choice"
"""The form member that holds the user's choice."""


class UserChoice(StrEnum):
    """The choices, in the words that the user sees."""

    ONCE = "allow once"
    SESSION = "allow for this session"
    APPROVE = "approve"
    """Allows the tool for every client from now on."""
    REFUSE = "refuse"


class NoChoice(StrEnum):
    """Reasons why an answer holds no choice, as people read them."""

    REFUSED = "the user has refused"
    DECLINED = (
        "the client has declined or cancelled the question (its user did, or the client itself if it runs"
        " without a user)"
    )
    NOT_OFFERED = "the answer names no choice that was offered"


Choice = UserChoice | NoChoice | None


def question(
    tool: Tool, arguments: Buffer, redact: Callable[[str, int], str], profile: Profile, *, session: bool
) -> Raw:
    """Make the params of an elicitation about a call; `session` offers to allow the tool for the session."""
    choices = [UserChoice.ONCE, *([UserChoice.SESSION] if session else []), UserChoice.REFUSE]
    shown = _shown(bytes(arguments), redact)
    return form(f"{tool.server}/{word(tool.name)} wants to run with {shown}\n{_reason(tool, profile)}", choices)


def word(name: str) -> str:
    """Make a server's name safe in a question: quoted, if it could read as a part of mcpd's sentence."""
    name = legible(name.translate(_LINE_ENDS))
    return name if _WORD.fullmatch(name) else msgspec.json.encode(name).decode()


def form(text: str, choices: Sequence[UserChoice]) -> Raw:
    """Make the params of an elicitation in which mcpd asks a user for a choice."""
    schema = {
        "type": "object",
        "properties": {MEMBER: {"type": "string", "title": "Your choice", "enum": choices}},
        "required": [MEMBER],
    }
    return Raw(msgspec.json.encode({"message": f"{OURS}{text}", "requestedSchema": schema}))


def _shown(arguments: bytes, redact: Callable[[str, int], str]) -> str:
    compact = arguments
    if len(arguments) <= MAX_COMPACTED:
        try:
            # Not decoded: if a member occurs twice, the user sees both.
            compact = msgspec.json.format(arguments, indent=-1)
        except (msgspec.MsgspecError, RecursionError):
            compact = arguments
    # Long enough to recognise a secret at the cut.
    text = compact[: 2 * MAX_COMPACTED].decode(errors="replace").translate(_LINE_ENDS)
    shown = legible(redact(text, MAX_SHOWN))
    if len(text) <= MAX_SHOWN:
        return shown
    return f"arguments of {len(arguments):,} bytes, of which this is the beginning: {shown}"


def _reason(tool: Tool, profile: Profile) -> str:
    said = annotations_of(tool)
    kind = "read-only" if said.read_only else "destructive" if said.destructive else "not destructive"
    text = f"Annotations: {kind}{', open-world' if said.open_world else ''}."
    rule = rule_for(profile.permissions, tool)
    if rule is None:
        return text
    return f"{text} Rule of profile {profile.name}: {described(rule)}."


def choice_in(result: Buffer) -> UserChoice | NoChoice:
    """The user's choice, or the reason why the answer holds none."""
    try:
        answer = decode_elicited(result)
        if answer.action != "accept":
            return NoChoice.DECLINED
        choice = UserChoice(decode_text((answer.content or {})[MEMBER]))
    except (*UNREADABLE, ValueError, KeyError):
        return NoChoice.NOT_OFFERED
    return NoChoice.REFUSED if choice is UserChoice.REFUSE else choice


ASK_SECONDS = TTL
"""Seconds that a user has to answer, in either era."""

KEY = "permission"
"""The key of the question in `inputRequests` (MCP 2026-07-28)."""


def may_send(call: ClientCall, tool: Tool, arguments: Buffer) -> bool:
    """Whether a call may be sent now. If not, mcpd asks the call's user and judges the call again.

    Raises `PermissionDenied` if the user cannot be asked or has agreed to another call, and `Overloaded` if
    too many calls wait for their users.
    """
    context, session, identity = call.calls.context, call.request.session, _identity(call, tool)
    if call.agreed == identity or session.state.grants.covers(tool, trio.current_time()):
        return True
    if call.agreed is not None:
        text = f"{label_of(tool)} has changed since the user agreed. Nothing was sent: call it again."
        raise PermissionDenied(text, tool=tool.name, server=tool.server)
    if STATE in call.others and context.agreed.take(owner_of(call), identity):
        call.agreed = identity
        return True
    if not can_elicit(call, "form"):
        raise _cannot_be_asked(call, tool)
    redact, profile = context.redact.of(tool.server), session.selection.profile
    params = question(tool, arguments, redact, profile, session=_has_session(call))
    take = partial(_take, tool, identity)
    if not _ask(call, (tool.server, tool.name), params, partial(_refusal, call, tool), take):
        text = "too many calls wait for their users. Nothing was sent: try again later."
        raise Overloaded(text, bound="calls that wait for their users")
    return False


def _ask(call: ClientCall, about: tuple[str, str], params: Raw, refusal: Refusal, take: Taking) -> bool:
    """Ask a call's user about a server's tool. Returns False if too many calls wait.

    `take(call, choice)` runs before the call is judged again; the choice of a retry without an answer is None.
    If the client does not answer at all, the call fails with `refusal(why)`.
    """

    async def ask() -> None:
        with Questions() as asked:
            asked.put(call, KEY, ELICIT, params)
            call.calls.context.outbox.flush()
            async with patient(call, f"the user is asked about {'/'.join(about)}"):
                await asked.wait(trio.current_time() + ASK_SECONDS)
            if asked.refused is not None:
                raise refusal(f"the client refused to ask the user: {asked.refused[1]}")
            if KEY not in asked.answers:
                raise refusal(f"the user has not answered within {ASK_SECONDS:g} s")
        # The call's duration and timeout count from now.
        call.started = trio.current_time()
        await take(call, choice_in(asked.answers[KEY]))

    note_question(call, *about)

    def go_on(retry: ClientCall, response: Raw | None) -> bool:
        choice = None if response is None else choice_in(response)
        retry.calls.act_after(retry, partial(take, retry, choice))
        return True

    if call.request.modern:
        return hold(call, KEY, params, go_on)
    call.calls.act_after(call, ask)
    return True


async def _take(tool: Tool, asked: tuple[str, ...], call: ClientCall, choice: Choice) -> None:
    """Apply the user's choice to a call; None has the user asked again. Raises PermissionDenied if refused.

    `asked` is the identity of the tool when the user was asked.
    """
    if choice in {UserChoice.ONCE, UserChoice.SESSION} and asked != _identity(call, tool):
        call.agreed = asked  # refuses the call: the server's name means another program by now
        return
    bound = logger.bind(session=call.calls.client.number, server=tool.server)
    if choice is UserChoice.SESSION and _has_session(call):
        call.request.session.state.grants.allow(tool, user_of(call))
        bound.info("the user allows calls of {} until session {} ends", label_of(tool), named(call))
    elif choice not in {UserChoice.ONCE, None}:
        bound.info("a call of {} was refused: no consent", label_of(tool))
        raise _refusal(call, tool, choice if isinstance(choice, NoChoice) else NoChoice.NOT_OFFERED)
    if choice is not None:
        lasts = "session" if choice is UserChoice.SESSION else "once"
        _note(call, EventKind.ALLOWED, tool.server, tool.name, lasts=lasts)
    call.agreed = None if choice is None else asked


AGAIN_SECONDS = 30.0
"""Seconds between a client's answer and the next question about the same tool: agents repeat calls at once."""

REFUSED_SECONDS = 600.0
"""Seconds between a user's refusal and the next question about the tool; `mcpd approve` works at any time."""

MAX_PAUSES = 1024
"""Pauses between questions that are kept, the latest ones: as many as four clients' calls in flight."""

MAX_NAME = 100
"""Characters of a name in a question about a held definition."""

MAX_DESCRIBED = 300
"""Characters of a new tool's description in a question: some four lines."""


def ask_about_held(call: ClientCall, error: CallError) -> bool:
    """Ask a call's user to approve a held tool, and judge the call again; False if the call must fail.

    An approval counts for every client, so only the daemon's own user is asked.
    """
    is_ours = call.client_method == CALL_TOOL and not call.calls.client.principal.owner
    if not isinstance(error, ToolHeld) or not is_ours or not can_elicit(call, "form"):
        return False
    context, held, it, now = call.calls.context, error.held, error.held.definition, trio.current_time()
    place = client_of(call), it.kind, it.server, it.name
    is_due = held.because in {"new", "changed"} and now >= context.pauses.get(place, 0.0)
    if not is_due or context.approve is None:
        return False
    keep_latest(context.pauses, place, now + ASK_SECONDS + AGAIN_SECONDS, MAX_PAUSES)
    params = form(_about(held), (UserChoice.APPROVE, UserChoice.REFUSE))
    refusal = partial(_not_approved, call, error)
    return _ask(call, (it.server, it.name), params, refusal, partial(_take_held, error, place))


def _about(held: HeldDefinition) -> str:
    it = held.definition
    name = f"{it.server}/{word(switch_of(it.kind, it.name)[:MAX_NAME])}"
    change = {what: [word(each[:MAX_NAME]) for each in names] for what, names in held.change.items()}
    said = str(msgspec.json.decode(it.raw).get("description") or "")
    says = msgspec.json.encode(legible(said[:MAX_DESCRIBED].translate(_LINE_ENDS))).decode()
    more = f"`mcpd approve {shlex.quote(name)} --diff` shows the change."
    if held.because == "new":
        more = f"Its description {'begins' if len(said) > MAX_DESCRIBED else 'says'}: {says}"
    return f"may models use {name} as it is now? It waits for approval: {of_held(held.because, change)}. {more}"


async def _take_held(error: ToolHeld, place: Hashable, call: ClientCall, choice: Choice) -> None:
    """Approve the definition that the user has agreed to. Raises `ToolHeld` if the user has not agreed."""
    context, seconds = call.calls.context, REFUSED_SECONDS if choice is NoChoice.REFUSED else AGAIN_SECONDS
    keep_latest(context.pauses, place, trio.current_time() + seconds, MAX_PAUSES)
    if choice is not UserChoice.APPROVE or context.approve is None:
        raise _not_approved(call, error, choice if isinstance(choice, NoChoice) else NoChoice.NOT_OFFERED)
    # One instance alone may list it.
    catalog = call.request.session.instances.own_catalog(context.catalog.value)
    await context.approve([error.held.definition], user_of(call), catalog)


def _not_approved(call: ClientCall, error: ToolHeld, why: str) -> ToolHeld:
    it = error.held.definition
    _note(call, EventKind.DECLINED, it.server, switch_of(it.kind, it.name), why=why)
    # A user who was asked and refused needs no way around it.
    way = "" if why == NoChoice.REFUSED else f" `{error.details['approve']}` approves it."
    name = quoted(str(error.details[error.held.definition.kind]))
    text = (
        f"{name} waits for approval, and {why}. Nothing was sent. Do not call it again unless the user asks you"
    )
    return ToolHeld(f"{text} to.{way}", held=error.held, **error.details)


def _note(call: ClientCall, kind: EventKind, server: str, tool: str, **details: str) -> None:
    traced = {"traceId": found} if (found := trace_id(call.trace)) else {}
    client = call.calls.client
    told = {"tool": tool, "by": user_of(call), **details, **traced}
    told |= {"client": client.name, "principal": client.principal.words}
    call.calls.context.note(Event(kind=kind, server=server, session=call.request.session.name, details=told))


def named(call: ClientCall) -> str:
    """The name by which operators know the call's session."""
    state = call.request.session.state
    return state.key if state.named and state.key is not None else str(call.calls.client.number)


def _has_session(call: ClientCall) -> bool:
    return call.calls.client.principal.keeps or call.request.key is not None


def _identity(call: ClientCall, tool: Tool) -> tuple[str, ...]:
    entry = call.calls.context.catalog.value.config.mcp_servers.get(tool.server)
    return tool.server, tool.name, tool.schema_hash, "" if entry is None else entry.identity


def _cannot_be_asked(call: ClientCall, tool: Tool) -> PermissionDenied:
    how, more = _way_out(call, tool)
    why = f"this client cannot ask (it declares no elicitation). Nothing was sent. {how}, then call it again."
    return denied(tool, why, **more)


def _refusal(call: ClientCall, tool: Tool, why: str) -> PermissionDenied:
    _note(call, EventKind.DECLINED, tool.server, tool.name, why=why)
    # A user who was asked and refused needs no way around it.
    how, more = _way_out(call, tool) if why != NoChoice.REFUSED else ("", {})
    text = f"{why}. Nothing was sent. Do not call it again unless the user asks you to.{how and f' {how}.'}"
    return denied(tool, text, **more)


def denied(tool: Tool, why: str, **more: str) -> PermissionDenied:
    """The error about a call to which the user has not agreed."""
    text = f"{label_of(tool)} is called only if the user agrees, and {why}"
    return PermissionDenied(text, tool=tool.name, server=tool.server, **more)


def _way_out(call: ClientCall, tool: Tool) -> tuple[str, dict[str, str]]:
    """Words that tell the operator how to allow the call, and the command if there is one."""
    if not _has_session(call):
        return "An operator can allow it with `mcpd allow` in a session (Mcpd-Session)", {}
    label = shlex.quote(label_of(tool))
    command = f"mcpd allow {shlex.quote(named(call))} {label}"
    how = f"An operator can allow it with `{command}` (for a while: --for 1h)"
    if not call.request.session.state.named:
        how += (
            ", as long as this client runs. For a client that ends with its answer: start mcpd as `mcpd connect"
            f' --session KEY`, then `mcpd allow KEY {label}`; or write {{"match": "{label_of(tool)}", "then":'
            f' "allow"}} before the rule that asks, in `permissions` of profile {call.request.profile.name}'
        )
    return how, {"allow": command}
