"""Prompts, resources and completions: a request that names one is made ready for its server.

Only what it is named by is replaced: all other members of the params, known or not, travel on as they are.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from daemon import protocol
from daemon.catalog.kinds import switch_of
from daemon.catalog.naming import read_mcpd_uri
from daemon.catalog.shown import locate
from daemon.clients.calls import ClientCall
from daemon.clients.dispatch import MAX_RETURNS
from daemon.errors import PromptDisabled, ResourceDisabled, UnknownPrompt, UnknownResource
from daemon.kit.wording import closest
from daemon.model import Kind
from daemon.surfaces.describing import unlisted
from daemon.surfaces.full import tool_in_words
from daemon.surfaces.surface import AwaitListing, Forward
from daemon.wire.envelope import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, read_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daemon.catalog.offer import Offer
    from daemon.clients.attachment import Request
    from daemon.clients.connection import ClientConnection
    from daemon.errors import CallError
    from daemon.model import ToolKey
    from daemon.surfaces.surface import Action, View
    from daemon.wire.envelope import Buffer


NO_COMPLETION = b'{"completion":{"values":[]}}'
"""The answer in place of a server that completes nothing."""


class ForwardedRequest(ClientCall, eq=False, kw_only=True):
    """A request of a client that a server answers."""

    route: Callable[[View], Action]
    """Says where it goes by what is known now; raises a `CallError` if it goes nowhere."""
    kinds: tuple[Kind, ...]
    """The lists in which what it names may stand."""

    @property
    def client_method(self) -> str:
        """The method of the client's request (`ClientCall.client_method`)."""
        return self.method

    def decide(self, view: View, *, patient: bool) -> Action:
        """Where it goes (`ClientCall.decide`)."""
        try:
            return self.route(view)
        except (UnknownPrompt, UnknownResource):
            if patient and (servers := unlisted(view.servers.values(), self.kinds)):
                return AwaitListing(servers=servers, calling=True, kinds=self.kinds)
            raise

    def described(self) -> str:
        """How the log describes a request that reached no server."""
        return self.label

    def answered(self, result: Buffer) -> None:
        """Answer the client with the result as its author wrote it.

        What a modern client reads from an older server has to say that it must not be cached.
        """
        if self.method == protocol.READ_RESOURCE and self.request.modern:
            result = protocol.completed(bytes(result), protocol.UNCACHED)
        super().answered(result)

    def refused(self, error: Buffer) -> None:
        """Answer with the server's own error; one that completes nothing has no values."""
        if self.method == protocol.COMPLETE and read_error(error)[0] == METHOD_NOT_FOUND:
            self.answered(NO_COMPLETION)
        else:
            super().refused(error)

    def code_of(self, error: CallError) -> int | None:
        """The JSON-RPC code of why there is no result (`ClientCall.code_of`)."""
        if isinstance(error, UnknownResource | ResourceDisabled) and not self.request.modern:
            return protocol.RESOURCE_NOT_FOUND
        wrong = (UnknownPrompt, PromptDisabled, UnknownResource, ResourceDisabled)
        return INVALID_PARAMS if isinstance(error, wrong) else INTERNAL_ERROR


MAX_SHOWN = 100
"""Characters of a name that is not known that the answer repeats."""

_decode_text = msgspec.json.Decoder(str).decode


def begin(
    connection: ClientConnection,
    request: Request,
    method: str,
    params: Raw | None,
    others: Mapping[str, Raw],
    route: Callable[[View], Action],
    kinds: tuple[Kind, ...] = (),
    make: Callable[..., ForwardedRequest] = ForwardedRequest,
) -> None:
    """Send a request to the server that `route` names, now or once that is up.

    Args:
        connection: the client's.
        request: the request.
        method: its method, which is the server's, too.
        params: as they arrived.
        others: the members of them that travel on as they are.
        route: says where it goes.
        kinds: the lists in which what it names may stand.
        make: makes it.

    Raises:
        msgspec.MsgspecError: its `_meta` is no object.
    """
    asked = make(
        calls=connection.calls,
        request=request,
        # No tool has an empty name: what was decided for calls of a tool does not count for this.
        name="",
        given=bytes(params or b"{}"),
        started=connection.peer.last_heard,
        label=method,
        method=method,
        others=others,
        route=route,
        kinds=kinds,
        # The list of a server's tools does not matter, so that a new one is not waited for.
        current=True,
        returns=MAX_RETURNS,
    )
    connection.dispatch.accept(asked, protocol.meta_of(params))


def forward_to(
    server: str, method: str, label: str, member: str, value: object, payload: Raw | None = None
) -> Forward:
    """The decision to send a request to a server.

    Args:
        server: its name.
        method: the method.
        label: what the log calls the request.
        member: the member that is replaced.
        value: what by: the server's own name for what is asked for.
        payload: the raw `arguments`; None if there are none.
    """
    head, written = b'"%b":' % member.encode(), msgspec.json.encode(value)
    if payload is not None:
        head, written = b'%b%b,"arguments":' % (head, written), bytes(payload)
    return Forward(server=server, method=method, name="", head=head, arguments=written, label=label)


def text_in(members: Mapping[str, Raw], key: str) -> str:
    """The text of a member that must be there.

    Raises:
        msgspec.ValidationError: it is not there, or is no string.
    """
    if key not in members:
        raise msgspec.ValidationError(f"Object missing required field `{key}`")
    try:
        return _decode_text(members[key])
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(f"{error} - at `$.{key}`") from None


TOOLS = "mcpd_tools"
"""The prompt of mcpd's own, for models that take no list of tools. It is in no list: clients show people what
is listed, and nearly all of their models take tools."""


def get_prompt(connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Hand a `prompts/get` to the server that has the prompt.

    Raises:
        msgspec.MsgspecError: its params name no prompt.
    """
    members = protocol.members_of(params)
    name = text_in(members, "name")
    session = request.session
    if name == TOOLS and not session.selection.servers:
        offer = session.view().offer
        if name not in offer.definitions(Kind.PROMPT):
            _answer_tools(connection, request, offer)
            return
    payload = members.pop("arguments", None)
    del members["name"]
    route = partial(_route_prompt, name, payload)
    begin(connection, request, protocol.GET_PROMPT, params, members, route, (Kind.PROMPT,))


def _answer_tools(connection: ClientConnection, request: Request, offer: Offer) -> None:
    """Answer with every tool of the profile, as a text."""
    text = "\n\n".join(tool_in_words(msgspec.json.decode(raw)) for raw in offer.listing)
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
    key = catalog.names_of(Kind.PROMPT).key_of(name, catalog.servers)
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


def _route_prompt(name: str, payload: Raw | None, view: View) -> Forward:
    server, own = find_prompt(view, name)
    return forward_to(server, protocol.GET_PROMPT, f"{server}/prompt:{own}", "name", own, payload)


MAX_URI = 16 * 1024
"""Bytes of the longest URI that is looked for: it is compared with every template."""


def read_resource(connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Hand a `resources/read` to the server that has the resource.

    Raises:
        msgspec.MsgspecError: its params name no resource.
    """
    members = protocol.members_of(params)
    uri = uri_in(members)
    del members["uri"]
    route = partial(_route_resource, uri, request.session.links)
    kinds = (Kind.RESOURCE, Kind.TEMPLATE)
    begin(connection, request, protocol.READ_RESOURCE, params, members, route, kinds)


def uri_in(members: dict[str, Raw]) -> str:
    """The member `uri`.

    Raises:
        msgspec.ValidationError: it is not there, is no string, or is too long.
    """
    uri = text_in(members, "uri")
    if len(uri) > MAX_URI:
        raise msgspec.ValidationError(f"a URI of more than {MAX_URI} characters is not looked for - at `$.uri`")
    return uri


def find_resource(view: View, uri: str, links: Mapping[str, str]) -> ToolKey:
    """The server that has a resource, and the resource's own URI there.

    Args:
        view: what the client sees.
        uri: as the client names it.
        links: what its session was given links to.

    Raises:
        UnknownResource: there is none that the client sees.
        ResourceDisabled: it is switched off.
    """
    found = locate(view.catalog, view.offer, uri, links)
    if found is not None:
        return found
    said = read_mcpd_uri(uri)
    for server, own in [said] if said else [(server, uri) for server in view.servers]:
        if server in view.servers and (server, switch_of(Kind.RESOURCE, own)) in view.catalog.switched:
            text = f"this resource of server {server} is switched off by the operator of mcpd."
            raise ResourceDisabled(text, uri=uri, server=server)
    text = (
        f"no server has the resource {uri[:MAX_SHOWN]!r}. resources/list and resources/templates/list have all"
        " that are listed; mcpd://SERVER/ with a percent-encoded URI behind it asks one server for any."
    )
    raise UnknownResource(text, uri=uri)


def _route_resource(uri: str, links: Mapping[str, str], view: View) -> Forward:
    server, own = find_resource(view, uri, links)
    # What nobody lists may hold anything, and is not logged: only the operator sees the log.
    listed = uri in view.offer.definitions(Kind.RESOURCE)
    label = f"{server}/resource:{own}" if listed else f"{server}/resource"
    return forward_to(server, protocol.READ_RESOURCE, label, "uri", own)


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
    route = partial(_route_completion, ref, key, find)
    begin(connection, request, protocol.COMPLETE, params, members, route, kinds)


def _find_template(view: View, uri: str, links: Mapping[str, str]) -> ToolKey:
    """The server that has a template, and that template there; else where a resource is."""
    listed = view.offer.definitions(Kind.TEMPLATE).get(uri)
    if listed is not None:
        return listed.definition.server, listed.definition.name
    return find_resource(view, uri, links)


def _route_completion(ref: dict[str, Raw], key: str, find: Callable[[View], ToolKey], view: View) -> Forward:
    server, own = find(view)
    label = f"{server}/{protocol.COMPLETE}"
    return forward_to(server, protocol.COMPLETE, label, "ref", {**ref, key: own})
