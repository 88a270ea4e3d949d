"""What a user is asked before a tool is called, and what the answer says."""

from __future__ import annotations

import re
from enum import Enum, StrEnum, auto
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct

from daemon.catalog.authorship import OURS
from daemon.catalog.permissions import annotations_of, rule_for
from daemon.safety.escape import legible

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.config.model import Profile
    from daemon.model import Tool
    from daemon.wire.envelope import Buffer

ELICIT = "elicitation/create"

MAX_SHOWN = 4000
"""Characters of the arguments that a user is shown: some fifty lines, more than anybody reads before a choice.
That more is left out is said before them."""

MAX_COMPACTED = 64 * 1024
"""Bytes of the longest arguments of which blanks are left out: a tenth of a millisecond."""

_LINE_ENDS = str.maketrans("\n\r\t", "   ")
"""Clients show the first lines of a question and fold the rest: arguments may not push others out of sight."""

_WORD = re.compile(r"[^\s\"]+")
"""A tool's name that needs no quotes."""

MEMBER = "choice"
"""The member of the form with the user's choice."""


class UserChoice(StrEnum):
    """What a user can choose; these words are shown."""

    ONCE = "allow once"
    SESSION = "allow for this session"
    REFUSE = "refuse"


class NoChoice(Enum):
    """Why an answer has no choice of a user."""

    DECLINED = auto()
    """The question was declined or cancelled: by a user, or by a client that runs without one."""
    NOT_OFFERED = auto()
    """The answer names nothing that was offered."""


class _Chosen(Struct):
    action: str
    content: dict[str, object] | None = None


_decode = msgspec.json.Decoder(_Chosen).decode


def question(
    tool: Tool, arguments: Buffer, redact: Callable[[str, int], str], profile: Profile, *, session: bool
) -> Raw:
    """The params of the elicitation (MCP, `elicitation/create`).

    Args:
        tool: what is to be called.
        arguments: what it is to be called with, as it would be sent.
        redact: removes secrets from a text, and cuts it to so many characters.
        profile: whose rule asks.
        session: whether the choice may hold for the client's session: not where it has none.
    """
    choices = [str(each) for each in UserChoice if session or each is not UserChoice.SESSION]
    name = legible(tool.name.translate(_LINE_ENDS))
    if not _WORD.fullmatch(name):
        # Where it ends is to be seen: it could go on as this sentence does.
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
    """Arguments as a user reads them, on one line: as they were written, with nothing hidden in them."""
    compact = arguments
    if len(arguments) <= MAX_COMPACTED:
        try:
            # Not decoded: of a member that stands there twice, both are to be seen.
            compact = msgspec.json.format(arguments, indent=-1)
        except (msgspec.MsgspecError, RecursionError):
            compact = arguments
    # Enough to recognise a secret at the cut.
    text = compact[: 2 * MAX_COMPACTED].decode(errors="replace").translate(_LINE_ENDS)
    shown = legible(redact(text, MAX_SHOWN))
    if len(text) <= MAX_SHOWN:
        return shown
    return f"arguments of {len(arguments):,} bytes, of which this is the beginning: {shown}"


def _reason(tool: Tool, profile: Profile) -> str:
    """What its server says that the tool does, and the rule because of which its user is asked."""
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
    """What a user has chosen, or why the answer has no choice."""
    try:
        answer = _decode(result)
        if answer.action != "accept":
            return NoChoice.DECLINED
        return UserChoice(str((answer.content or {}).get(MEMBER)))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        return NoChoice.NOT_OFFERED
