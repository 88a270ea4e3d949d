"""`prompts/list` and `prompts/get`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from daemon import protocol
from daemon.catalog.kinds import switch_of
from daemon.clients.requests.forwarding import MAX_SHOWN, begin, forward_to, text_in
from daemon.clients.requests.lists import list_beside_tools
from daemon.errors import PromptDisabled, UnknownPrompt
from daemon.kit.wording import closest
from daemon.model import Kind
from daemon.surfaces.full import tool_in_words

if TYPE_CHECKING:
    from msgspec import Raw

    from daemon.clients.attachment import Request
    from daemon.clients.connection import ClientConnection
    from daemon.model import ToolKey
    from daemon.surfaces.base import Forward, View


TOOLS = "mcpd_tools"
"""The prompt of mcpd's own, for models that take no list of tools. It is in no list: clients show people what
is listed, and nearly all of their models take tools."""


def list_prompts(connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Answer `prompts/list` (`list_beside_tools`)."""
    list_beside_tools(Kind.PROMPT, connection, params, request)


def get_prompt(connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Hand a `prompts/get` to the server that has the prompt.

    Raises:
        msgspec.MsgspecError: its params name no prompt.
    """
    members = protocol.members_of(params)
    name = text_in(members, "name")
    if (
        name == TOOLS
        and not request.session.selection.servers
        and not _is_offered(request.session.view(), name)
    ):
        _answer_tools(connection, request)
        return
    payload = members.pop("arguments", None)
    del members["name"]
    route = partial(_route, name, payload)
    begin(connection, request, protocol.GET_PROMPT, params, members, route, (Kind.PROMPT,))


def _is_offered(view: View, name: str) -> bool:
    return name in view.offer.definitions(Kind.PROMPT)


def _answer_tools(connection: ClientConnection, request: Request) -> None:
    """Answer with every tool of the profile, as a text."""
    listing = request.session.view().offer.listing
    text = "\n\n".join(tool_in_words(msgspec.json.decode(raw)) for raw in listing)
    message = {"role": "user", "content": {"type": "text", "text": text}}
    result = msgspec.json.encode({"description": "Every tool, in words.", "messages": [message]})
    connection.peer.answer(request.id, protocol.completed(result) if request.modern else result)


def find_prompt(view: View, name: str) -> ToolKey:
    """The server that has a prompt, and the prompt's own name there.

    Args:
        view: what the client sees.
        name: as the client names it, in any spelling.

    Raises:
        UnknownPrompt: there is none that the client sees.
        PromptDisabled: it is switched off.
    """
    catalog, offered = view.catalog, view.offer.definitions(Kind.PROMPT)
    if (found := offered.get(name)) is not None:
        return found.definition.server, found.definition.name
    key = catalog.prompt_names.key_of(name, catalog.servers)
    if key is not None:
        if any((each.definition.server, each.definition.name) == key for each in offered.values()):
            return key
        server, own = key
        if view.profile.prompts and (server, switch_of(Kind.PROMPT, own)) in catalog.switched:
            text = f"prompt {own!r} of server {server} is switched off by the operator of mcpd."
            raise PromptDisabled(text, prompt=name[:MAX_SHOWN], server=server)
    near = closest(name, offered)
    hint = f" Did you mean {', '.join(map(repr, near))}?" if near else ""
    text = f"there is no prompt {name[:MAX_SHOWN]!r}.{hint} prompts/list has all that there are."
    raise UnknownPrompt(text, prompt=name[:MAX_SHOWN], closest=near)


def _route(name: str, payload: Raw | None, view: View) -> Forward:
    server, own = find_prompt(view, name)
    return forward_to(server, protocol.GET_PROMPT, f"{server}/prompt:{own}", "name", own, payload)
