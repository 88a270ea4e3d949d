"""`mcpd prompt`: the messages of one prompt, undecoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from daemon.errors import InvalidArguments, PromptDisabled, UnknownPrompt
from daemon.kit.wording import suggestion
from daemon.model import Kind
from daemon.operators.base import Command
from daemon.operators.definitions import is_off, known_of, told_off
from daemon.operators.forwarding import Forwarding, forward, known_server
from daemon.protocol import GET_PROMPT
from daemon.surfaces.answers import choices

if TYPE_CHECKING:
    from msgspec import Raw

    from daemon.model import Definition
    from daemon.operators.base import OperatorContext


class PromptParams(Forwarding, kw_only=False):
    """A prompt, by the server's own name for it, of a server or an instance, and its arguments: texts."""

    server: str
    name: str
    arguments: dict[str, str] = msgspec.field(default_factory=dict)


async def prompt(context: OperatorContext, params: PromptParams) -> Raw:
    """Get a prompt; the request is cancelled if the operator disconnects.

    Raises:
        CallError: there is no such server, it refuses, or has no such prompt; or the prompt is switched off.
        InvalidArguments: an argument is missing, or is none of the prompt's.
    """
    name = params.name
    upstream, entry = known_server(context, params.server)
    known = known_of(entry, Kind.PROMPT)
    if Kind.PROMPT in entry.lists and name not in known:
        raise UnknownPrompt(f"server {entry.name} has no prompt {name!r}. {choices(known, name)}")
    if is_off(context, entry, Kind.PROMPT, name):
        raise PromptDisabled(told_off(entry, Kind.PROMPT, name))
    if name in known:
        _check(known[name], params.arguments)
    members = (
        b'"name":%b,"arguments":' % msgspec.json.encode(name),
        msgspec.json.encode(params.arguments),
    )
    return await forward(context, upstream, GET_PROMPT, members, params, what=name)


PROMPT = Command("prompt", PromptParams, prompt)


def _check(definition: Definition, given: dict[str, str]) -> None:
    """Refuse arguments that a prompt does not declare, and the lack of those that it needs."""
    described: dict[str, Any] = msgspec.json.decode(definition.raw)
    arguments = described.get("arguments") or []
    declared = {str(each.get("name")): each for each in arguments if isinstance(each, dict)}
    if unknown := [key for key in given if key not in declared]:
        raise InvalidArguments(
            f"prompt {definition.name} has no {unknown[0]!r}{suggestion(unknown[0], declared)}"
        )
    if missing := [key for key, each in declared.items() if each.get("required") is True and key not in given]:
        raise InvalidArguments(f"prompt {definition.name} needs {', '.join(missing)}")
