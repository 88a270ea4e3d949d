"""`completion/complete`: what an argument of a prompt, or a variable of a template, may become."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from daemon import protocol
from daemon.clients.requests.forwarding import begin, forward_to, text_in
from daemon.clients.requests.prompts import find_prompt
from daemon.clients.requests.resources import find_resource, uri_in
from daemon.model import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.clients.attachment import Request
    from daemon.clients.connection import ClientConnection
    from daemon.clients.links import Links
    from daemon.model import ToolKey
    from daemon.surfaces.base import Forward, View

OF_PROMPT = "ref/prompt"
"""The type of a reference to a prompt (MCP, `PromptReference`)."""

OF_RESOURCE = "ref/resource"
"""The type of a reference to a resource or to a template of some (MCP, `ResourceTemplateReference`)."""

_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode


def complete(connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Hand a `completion/complete` to the server that has what it refers to.

    Raises:
        msgspec.MsgspecError: its params refer to nothing.
    """
    members = protocol.members_of(params)
    ref = _decode_object(members.pop("ref", Raw(b"{}")))
    kind = text_in(ref, "type")
    kinds: tuple[Kind, ...]
    if kind == OF_PROMPT:
        key, kinds = "name", (Kind.PROMPT,)
        find = partial(find_prompt, name=text_in(ref, key))
    elif kind == OF_RESOURCE:
        key, kinds = "uri", (Kind.TEMPLATE, Kind.RESOURCE)
        find = partial(_find_template, uri=uri_in(ref), links=request.session.links)
    else:
        raise msgspec.ValidationError(
            f"there are {OF_PROMPT} and {OF_RESOURCE}, nothing else - at `$.ref.type`"
        )
    route = partial(_route, ref, key, find)
    begin(connection, request, protocol.COMPLETE, params, members, route, kinds)


def _find_template(view: View, uri: str, links: Links) -> ToolKey:
    """The server that has a template, and that template there; else where a resource is."""
    listed = view.offer.definitions(Kind.TEMPLATE).get(uri)
    if listed is not None:
        return listed.definition.server, listed.definition.name
    return find_resource(view, uri, links)


def _route(ref: dict[str, Raw], key: str, find: Callable[[View], ToolKey], view: View) -> Forward:
    server, own = find(view)
    label = f"{server}/{protocol.COMPLETE}"
    return forward_to(server, protocol.COMPLETE, label, "ref", {**ref, key: own})
