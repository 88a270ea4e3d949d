"""What a user is asked before a tool is called, and what the answer says."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct

from daemon.safety.escape import legible

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.model import Tool
    from daemon.wire.envelope import Buffer

ELICIT = "elicitation/create"

MAX_SHOWN = 4000
"""Characters of the arguments that a user is shown: some eighty lines, more than anybody reads before a choice.
What is left out is counted."""

MAX_LAID_OUT = 64 * 1024
"""Bytes of the longest arguments that are laid out over several lines: a tenth of a millisecond."""

MEMBER = "choice"
"""The member of the form with the user's choice."""


class UserChoice(StrEnum):
    """What a user can choose; these words are shown."""

    ONCE = "allow once"
    SESSION = "allow for this session"
    REFUSE = "refuse"


class _Chosen(Struct):
    action: str
    content: dict[str, object] | None = None


_decode = msgspec.json.Decoder(_Chosen).decode


def question(tool: Tool, arguments: Buffer, redact: Callable[[str, int], str], *, session: bool) -> Raw:
    """The params of the elicitation (MCP, `elicitation/create`).

    Args:
        tool: what is to be called.
        arguments: what it is to be called with, as it would be sent.
        redact: removes secrets from a text, and cuts it to so many characters.
        session: whether the choice may hold for the client's session: not where it has none.
    """
    choices = [str(each) for each in UserChoice if session or each is not UserChoice.SESSION]
    text = (
        f"The tool {tool.name} of the MCP server {tool.server} is to be called. Arguments:\n"
        f"{_shown(bytes(arguments), redact)}"
    )
    schema = {
        "type": "object",
        "properties": {MEMBER: {"type": "string", "title": "Your choice", "enum": choices}},
        "required": [MEMBER],
    }
    return Raw(msgspec.json.encode({"message": text, "requestedSchema": schema}))


def _shown(arguments: bytes, redact: Callable[[str, int], str]) -> str:
    """Arguments as a user reads them: as they were written, with nothing hidden in them."""
    laid_out = arguments
    if len(arguments) <= MAX_LAID_OUT:
        try:
            # Not decoded: of a member that stands there twice, both are to be seen.
            laid_out = msgspec.json.format(arguments, indent=2)
        except (msgspec.MsgspecError, RecursionError):
            laid_out = arguments
    # Enough to recognise a secret at the cut.
    text = laid_out[: 2 * MAX_LAID_OUT].decode(errors="replace")
    shown = legible(redact(text, MAX_SHOWN))
    if len(text) <= MAX_SHOWN:
        return shown
    return f"{shown}\nOnly the beginning is shown: these are {len(arguments):,} bytes."


def choice_in(result: Buffer) -> UserChoice | None:
    """What a user has chosen; None if the answer names no choice that was offered."""
    try:
        answer = _decode(result)
        if answer.action != "accept":
            return UserChoice.REFUSE
        return UserChoice(str((answer.content or {}).get(MEMBER)))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        return None
