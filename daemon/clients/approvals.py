"""Approval of calls by the client's user before they are sent (permission rule `ask`).

An approval covers one definition of a tool: with the arguments shown, for one call; or for the session.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import trio
from loguru import logger
from msgspec import Raw, Struct

from daemon.catalog.authorship import OURS
from daemon.catalog.permissions import annotations_of, rule_for
from daemon.clients.asking import ELICIT, Questions, can_elicit, hold, owner_of, patient
from daemon.clients.input_required import STATE, TTL
from daemon.errors import Overloaded, PermissionDenied
from daemon.safety.escape import legible
from daemon.surfaces.calling import label_of

if TYPE_CHECKING:
    from daemon.clients.calls import ClientCall
    from daemon.config.config_model import Profile
    from daemon.model import Tool
    from daemon.wire.envelope import Buffer


MAX_SHOWN = 4000
"""Characters of the arguments shown to a user: some fifty lines. The text says first that more is left out."""

MAX_COMPACTED = 64 * 1024
"""Bytes of the longest arguments that are compacted: a tenth of a millisecond."""

_LINE_ENDS = str.maketrans("\n\r\t", "   ")
"""Line ends become blanks: clients fold all but the first lines, and arguments must not push others out of
sight."""

_WORD = re.compile(r"[^\s\"]+")
"""A tool name that needs no quotes."""

MEMBER = "choice"
"""The form member that holds the user's choice."""


class UserChoice(StrEnum):
    """The choices, in the words that the user sees."""

    ONCE = "allow once"
    SESSION = "allow for this session"
    REFUSE = "refuse"


class NoChoice(StrEnum):
    """Reasons why an answer holds no choice, in words."""

    DECLINED = (
        "the client has declined or cancelled the question (its user has, or the client itself where it runs"
        " without one)"
    )
    NOT_OFFERED = "the answer names no choice that was offered"


class _Chosen(Struct):
    action: str
    content: dict[str, object] | None = None


_decode = msgspec.json.Decoder(_Chosen).decode


def question(
    tool: Tool, arguments: Buffer, redact: Callable[[str, int], str], profile: Profile, *, session: bool
) -> Raw:
    """The params of the elicitation (MCP, `elicitation/create`).

    `redact` removes secrets from a text and cuts it to that many characters. `session` says whether the choice
    may hold for the session; False where the client has none.
    """
    choices = [str(each) for each in UserChoice if session or each is not UserChoice.SESSION]
    name = legible(tool.name.translate(_LINE_ENDS))
    if not _WORD.fullmatch(name):
        # Quoted: otherwise the name could continue as this sentence does.
        name = msgspec.json.encode(name).decode()
    shown = _shown(bytes(arguments), redact)
    text = f"{OURS}{tool.server}/{name} wants to run with {shown}\n{_reason(tool, profile)}"
    schema = {
        "type": "object",
        "properties": {MEMBER: {"type": "string", "title": "Your choice", "enum": choices}},
        "required": [MEMBER],
    }
    return Raw(msgspec.json.encode({"message": text, "requestedSchema": schema}))


def _shown(arguments: bytes, redact: Callable[[str, int], str]) -> str:
    """Arguments on one line as they were written, with nothing hidden in them."""
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
    wanted = {} if rule.annotations is None else rule.annotations.wanted
    about = [
        *([] if rule.match is None else [rule.match]),
        *(f"{name.replace('_', '-')}: {str(value).lower()}" for name, value in wanted.items()),
    ]
    return f"{text} Rule of profile {profile.name}: {', '.join(about) or 'all tools'}."


def choice_in(result: Buffer) -> UserChoice | NoChoice:
    """The user's choice, or why the answer holds none."""
    try:
        answer = _decode(result)
        if answer.action != "accept":
            return NoChoice.DECLINED
        return UserChoice(str((answer.content or {}).get(MEMBER)))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        return NoChoice.NOT_OFFERED


ASK_SECONDS = TTL
"""Seconds that a user has to answer, in either era."""

KEY = "permission"
"""The key of the question in `inputRequests` (MCP 2026-07-28)."""

USER = "its user"
"""The author of a grant chosen in the client."""


_REFUSED = "the user has refused"


def may_send(call: ClientCall, tool: Tool, arguments: Buffer) -> bool:
    """Whether a call may be sent now; otherwise its user is asked and the call is judged again.

    Raises `PermissionDenied`: the user cannot be asked, or has agreed to something else; `Overloaded`: too many
    calls wait for their users.
    """
    context, session = call.calls.context, call.request.session
    if call.agreed == _identity(tool) or session.state.grants.covers(tool, trio.current_time()):
        return True
    if call.agreed is not None:
        text = f"{label_of(tool)} has changed since the user agreed. Nothing was sent: call it again."
        raise PermissionDenied(text, tool=tool.name, server=tool.server)
    if STATE in call.others and context.agreed.take(owner_of(call), _identity(tool)):
        call.agreed = _identity(tool)
        return True
    if not can_elicit(call, "form"):
        raise _cannot_be_asked(call, tool)
    redact, profile = context.redact.of(tool.server), session.selection.profile
    params = question(tool, arguments, redact, profile, session=_has_session(call))
    if not call.request.modern:
        call.calls.act_after(call, partial(_ask, call, tool, params))
    elif not hold(call, KEY, params, partial(_go_on, tool)):
        text = "too many calls wait for their users. Nothing was sent: try again later."
        raise Overloaded(text, bound="calls that wait for their users")
    return False


async def _ask(call: ClientCall, tool: Tool, params: Raw) -> None:
    """Ask a client of the handshake era and wait for the answer."""
    with Questions() as asked:
        asked.put(call, KEY, ELICIT, params)
        call.calls.context.outbox.flush()
        async with patient(call, f"the user is asked about {label_of(tool)}"):
            await asked.wait(trio.current_time() + ASK_SECONDS)
        if asked.refused is not None:
            raise _refusal(call, tool, f"the client refused to ask the user: {asked.refused[1]}")
        if KEY not in asked.answers:
            raise _refusal(call, tool, f"the user has not answered within {ASK_SECONDS:g} s")
    # The call's duration and timeout count from now.
    call.started = trio.current_time()
    take(call, tool, choice_in(asked.answers[KEY]))


def _go_on(tool: Tool, retry: ClientCall, response: Raw | None) -> bool:
    """Apply the answer in a modern client's retry; without an answer the retry asks again."""
    if response is not None:
        take(retry, tool, choice_in(response))
    return False


def take(call: ClientCall, tool: Tool, choice: UserChoice | NoChoice) -> None:
    """Apply the user's choice to a call. Raises PermissionDenied: the user refuses."""
    bound = logger.bind(session=call.calls.client.number, server=tool.server)
    if choice is UserChoice.SESSION and _has_session(call):
        call.request.session.state.grants.allow(tool, USER)
        bound.info(
            "{} may be called as long as session {} lasts: its user says so", label_of(tool), named(call)
        )
    elif choice is not UserChoice.ONCE:
        bound.info("a call of {} was not agreed to", label_of(tool))
        why = choice if isinstance(choice, NoChoice) else NoChoice.NOT_OFFERED
        raise _refusal(call, tool, _REFUSED if choice is UserChoice.REFUSE else why)
    call.agreed = _identity(tool)


def named(call: ClientCall) -> str:
    """The call's session as operators name it."""
    state = call.request.session.state
    return state.key if state.named and state.key is not None else str(call.calls.client.number)


def _has_session(call: ClientCall) -> bool:
    return call.calls.client.principal.keeps or call.request.key is not None


def _identity(tool: Tool) -> tuple[str, ...]:
    return tool.server, tool.name, tool.schema_hash


def _cannot_be_asked(call: ClientCall, tool: Tool) -> PermissionDenied:
    how, more = _way_out(call, tool)
    why = f"this client cannot ask (it declares no elicitation). Nothing was sent. {how}, then call it again."
    return _denied(tool, why, more)


def _refusal(call: ClientCall, tool: Tool, why: str) -> PermissionDenied:
    # A user who was asked and refused needs no way around it.
    how, more = _way_out(call, tool) if why != _REFUSED else ("", {})
    text = f"{why}. Nothing was sent. Do not call it again unless the user asks you to.{how and f' {how}.'}"
    return _denied(tool, text, more)


def _denied(tool: Tool, why: str, more: dict[str, str]) -> PermissionDenied:
    text = f"{label_of(tool)} is called only if the user agrees, and {why}"
    return PermissionDenied(text, tool=tool.name, server=tool.server, **more)


def _way_out(call: ClientCall, tool: Tool) -> tuple[str, dict[str, str]]:
    """The operator's way to allow the call, in words, and the command if there is one."""
    if not _has_session(call):
        return "An operator can allow it with `mcpd allow` in a session (Mcpd-Session)", {}
    label = shlex.quote(label_of(tool))
    command = f"mcpd allow {shlex.quote(named(call))} {label}"
    how = f"An operator can allow it with `{command}` (for a while: --for 1h)"
    if not call.request.session.state.named:
        how += (
            ", as long as this client runs. For a run that ends with its answer: start mcpd as `mcpd connect"
            f' --session KEY`, then `mcpd allow KEY {label}`; or write {{"match": "{label_of(tool)}", "then":'
            f' "allow"}} before the rule that asks, in `permissions` of profile {call.request.profile.name}'
        )
    return how, {"allow": command}
