"""Forwards requests for prompts, resources and completions, replacing only the name in their params."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from functools import partial

import attrs
import msgspec
from msgspec import Raw

from daemon import errors, protocol
from daemon.catalog.entry import UNKNOWN_LIST
from daemon.catalog.kinds import switch_of
from daemon.catalog.naming import app_uri, is_page, read_mcpd_uri, skill_uri, with_uris
from daemon.catalog.offer import Offer
from daemon.catalog.shown import locate, switched_off
from daemon.clients.attachment import Request
from daemon.clients.calls import ClientCall
from daemon.clients.connection import ClientConnection
from daemon.clients.dispatch import MAX_RETURNS
from daemon.errors import CallError, PromptDisabled, ResourceDisabled, UnknownPrompt, UnknownResource
from daemon.kit.wording import closest
from daemon.model import Kind, ToolKey
from daemon.surfaces.additions import refuse_held, refuse_held_uri, result_in
from daemon.surfaces.describing import unlisted
from daemon.surfaces.full import tool_in_words
from daemon.surfaces.surface import Action, AwaitListing, Forward, ReadResult, View
from daemon.wire.envelope import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, Buffer, read_error

NO_COMPLETION = b'{"completion":{"values":[]}}'


_NAMED_IN: Mapping[str, tuple[Callable[[str, str], str], tuple[str, ...]]] = {
    protocol.READ_RESOURCE: (app_uri, ("contents.*.uri",)),
    protocol.GET_SKILL: (skill_uri, ("skill.uri", "skill.resources.*.uri")),
    protocol.READ_DIRECTORY: (skill_uri, ("resources.*.uri",)),
}
"""By method: the function that makes a URI, and the places of URIs in a result (`naming.with_uris`)."""

OF_SKILLS = (Kind.SKILL, Kind.RESOURCE, Kind.TEMPLATE)
"""The lists that may hold the URI of a skill (SEP-2640)."""

_CACHEABLE = (protocol.READ_RESOURCE, protocol.GET_SKILL)


class ForwardedRequest(ClientCall, eq=False, kw_only=True):
    """A client's request that a server answers."""

    cuts = False
    route: Callable[[View], Action]
    """Decides where the request goes in the present view; raises a `CallError` if nowhere."""
    kinds: tuple[Kind, ...]

    @property
    def client_method(self) -> str:
        """The method of the client's request (`ClientCall.client_method`)."""
        return self.method

    def decide(self, view: View, *, patient: bool) -> Action:
        """Have `route` decide where the request goes (`ClientCall.decide`)."""
        try:
            return self.route(view)
        except (UnknownPrompt, UnknownResource):
            if patient and (servers := unlisted(view.servers.values(), self.kinds)):
                return AwaitListing(servers=servers, calling=True, kinds=self.kinds)
            raise

    def described(self) -> str:
        """The log's words for a request that reached no server."""
        return self.label

    def answered(self, result: Buffer) -> None:
        """Answer with the server's result; a modern client must not cache a read from an older server."""
        if self.method in _CACHEABLE and self.request.modern:
            result = protocol.completed(bytes(result), protocol.UNCACHED)
        super().answered(result)

    def refused(self, error: Buffer) -> None:
        """Answer with the server's error; a server without completions answers with no values."""
        shared = not self.request.session.selection.only
        if shared and self.method == protocol.COMPLETE and read_error(error)[0] == METHOD_NOT_FOUND:
            self.answered(NO_COMPLETION)
        else:
            super().refused(error)

    def code_of(self, error: CallError) -> int | None:
        """The JSON-RPC code for an error (`ClientCall.code_of`)."""
        of_skill = self.method in {protocol.GET_SKILL, protocol.READ_DIRECTORY}
        if isinstance(error, UnknownResource | ResourceDisabled) and not (self.request.modern or of_skill):
            return protocol.RESOURCE_NOT_FOUND
        wrong = (UnknownPrompt, PromptDisabled, UnknownResource, ResourceDisabled, errors.ToolHeld)
        return INVALID_PARAMS if isinstance(error, wrong) else INTERNAL_ERROR


MAX_SHOWN = 100
"""Characters of an unknown name that the answer repeats."""


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
    """Send a request to the server that `route` chooses, now or once the server is up.

    `others` pass unchanged; lists of `kinds` may hold its subject. Raises MsgspecError if `_meta` is no object.
    """
    asked = make(
        calls=connection.calls,
        request=request,
        # No tool has an empty name, so no remembered decision about a tool applies.
        name="",
        given=bytes(params or b"{}"),
        started=connection.peer.last_heard,
        label=method,
        method=method,
        others=others,
        route=route,
        kinds=kinds,
        # Tool lists do not matter here, so a new one is not waited for.
        current=True,
        returns=MAX_RETURNS,
    )
    connection.dispatch.accept(asked, protocol.meta_of(params))


def pass_on(method: str, connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Send a request unknown to mcpd to the client's only server. Raises MsgspecError for malformed params."""
    server, members = request.session.selection.only, protocol.members_of(params)
    head, last = b"", Raw(b"")
    if members:
        key, last = members.popitem()
        head = b"%b:" % msgspec.json.encode(key)
    label = f"{server}/{method}"
    forward = Forward(server=server, method=method, name="", head=head, arguments=last, label=label)
    begin(connection, request, method, params, members, lambda _view: forward)


def text_in(members: Mapping[str, Raw], key: str) -> str:
    """The text of a required member. Raises ValidationError if it is missing or not a string."""
    if key not in members:
        raise msgspec.ValidationError(f"Object missing required field `{key}`")
    try:
        return protocol.decode_text(members[key])
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(f"{error} - at `$.{key}`") from None


TOOLS = "mcpd_tools"
"""A prompt that lists the tools to a model whose client passes none on. Unlisted: people see lists."""


def get_prompt(connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Forward a `prompts/get` to the prompt's server. Raises MsgspecError if the params name no prompt."""
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
    route = partial(_route_prompt, name, payload, request.session.selection.only)
    begin(connection, request, protocol.GET_PROMPT, params, members, route, (Kind.PROMPT,))


def _answer_tools(connection: ClientConnection, request: Request, offer: Offer) -> None:
    text = "\n\n".join(tool_in_words(msgspec.json.decode(raw)) for raw in offer.listing)
    message = {"role": "user", "content": {"type": "text", "text": text}}
    result = msgspec.json.encode({"description": "Every tool, in words.", "messages": [message]})
    connection.peer.answer(request.id, protocol.completed(result) if request.modern else result)


def find_prompt(view: View, name: str, single: str = "") -> ToolKey:
    """A prompt's server and own name; at the server `single`, unlisted prompts count, too. Raises CallError."""
    catalog, offered = view.catalog, view.offer.definitions(Kind.PROMPT)
    if (found := offered.get(name)) is not None:
        return found.definition.server, found.definition.name
    key = catalog.names_of(Kind.PROMPT).key_of(name, catalog.servers)
    if key is not None:
        if any((each.definition.server, each.definition.name) == key for each in offered.values()):
            return key
        server, own = key
        if view.profile.prompts and (server, switch_of(Kind.PROMPT, own)) in catalog.switched:
            on = f"`mcpd enable {shlex.quote(f'{server}/{switch_of(Kind.PROMPT, own)}')}`"
            text = f"prompt {own!r} of server {server} is switched off by the operator of mcpd ({on})."
            raise PromptDisabled(text, prompt=name[:MAX_SHOWN], server=server)
        refuse_held(view, Kind.PROMPT, key, name)
    entry = catalog.servers.get(single)
    known = UNKNOWN_LIST if entry is None else entry.list_of(Kind.PROMPT)
    if known.listed and view.profile.prompts and name not in {**known.all, **known.quarantined}:
        return single, name
    near = closest(name, offered) or ([] if key is None else closest(key[1], offered))
    hint = f" Did you mean {', '.join(map(repr, near))}?" if near else ""
    text = f"there is no prompt {name[:MAX_SHOWN]!r}.{hint} prompts/list has all prompts."
    raise UnknownPrompt(text, prompt=name[:MAX_SHOWN], closest=near)


def _route_prompt(name: str, payload: Raw | None, single: str, view: View) -> Forward:
    server, own = find_prompt(view, name, single)
    return Forward.about(server, protocol.GET_PROMPT, f"{server}/prompt:{own}", "name", own, payload)


MAX_URI = 16 * 1024
"""Bytes of the longest URI that mcpd looks up: every URI template is compared with it."""


def ask_about_uri(method: str, connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Forward a request about a resource or skill to the URI's server. Raises MsgspecError without a URI."""
    members = protocol.members_of(params)
    uri = uri_in(members)
    del members["uri"]
    route = partial(_route_uri, method, uri, request.session.links)
    kinds = (Kind.RESOURCE, Kind.TEMPLATE) if method == protocol.READ_RESOURCE else OF_SKILLS
    begin(connection, request, method, params, members, route, kinds)


def _route_uri(method: str, uri: str, links: Mapping[str, str], view: View) -> Forward | ReadResult:
    if result_id := result_in(uri):
        return ReadResult(id=result_id)
    server, own = find_resource(view, uri, links)
    label, (name, paths) = f"{server}/{method}", _NAMED_IN[method]
    if is_read := method == protocol.READ_RESOURCE:
        # An unlisted URI may hold anything, so it is not logged: only the operator sees the log.
        listed = uri in view.offer.definitions(Kind.RESOURCE)
        label = f"{server}/resource:{own}" if listed else f"{server}/resource"
    forward = Forward.about(server, method, label, "uri", own)
    if is_read and is_page(own):
        forward = attrs.evolve(forward, page=own)
    if own == uri or name(server, own) == own:
        return forward
    # The answer names what is named by its server, too: another may have the server's own URI.
    return attrs.evolve(forward, convert=partial(with_uris, partial(name, server), paths))


def uri_in(members: dict[str, Raw]) -> str:
    """The member `uri`. Raises ValidationError if it is missing, too long or not a string."""
    uri = text_in(members, "uri")
    if len(uri) > MAX_URI:
        raise msgspec.ValidationError(f"a URI of more than {MAX_URI} characters is refused - at `$.uri`")
    return uri


def find_resource(view: View, uri: str, links: Mapping[str, str]) -> ToolKey:
    """A resource's server and own URI there. Raises `UnknownResource` or `ResourceDisabled`."""
    found = locate(view.catalog, view.offer, uri, links)
    if found is not None:
        return found
    named = read_mcpd_uri(uri)
    for server, own in [named] if named else [(server, uri) for server in view.servers]:
        if server in view.servers and (off := switched_off(view.catalog, (server, own))):
            on = f"`mcpd enable {shlex.quote('/'.join(min(off)))}`"
            text = f"this resource of server {server} is switched off by the operator of mcpd ({on})."
            raise ResourceDisabled(text, uri=uri, server=server)
    refuse_held_uri(view, uri)
    text = (
        f"no server has the resource {uri[:MAX_SHOWN]!r}. resources/list and resources/templates/list name"
        " all listed ones; mcpd://SERVER/URI, percent-encoded, asks one server for an unlisted one."
    )
    raise UnknownResource(text, uri=uri)


OF_PROMPT = "ref/prompt"

OF_RESOURCE = "ref/resource"
"""The type of a reference to a resource or template (MCP, `ResourceTemplateReference`)."""


def complete(connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Forward a `completion/complete` to its reference's server. Raises MsgspecError without a reference."""
    members = protocol.members_of(params)
    ref = protocol.decode_members(members.pop("ref", Raw(b"{}")))
    kind = text_in(ref, "type")
    kinds: tuple[Kind, ...]
    if kind == OF_PROMPT:
        key, kinds = "name", (Kind.PROMPT,)
        find = partial(find_prompt, name=text_in(ref, key), single=request.session.selection.only)
    elif kind == OF_RESOURCE:
        key, kinds = "uri", (Kind.TEMPLATE, Kind.RESOURCE)
        find = partial(_find_template, uri=uri_in(ref), links=request.session.links)
    else:
        raise msgspec.ValidationError(f"there are {OF_PROMPT} and {OF_RESOURCE} only - at `$.ref.type`")
    route = partial(_route_completion, ref, key, find)
    begin(connection, request, protocol.COMPLETE, params, members, route, kinds)


def _find_template(view: View, uri: str, links: Mapping[str, str]) -> ToolKey:
    listed = view.offer.definitions(Kind.TEMPLATE).get(uri)
    if listed is not None:
        return listed.definition.server, listed.definition.name
    return find_resource(view, uri, links)


def _route_completion(ref: dict[str, Raw], key: str, find: Callable[[View], ToolKey], view: View) -> Forward:
    server, own = find(view)
    label = f"{server}/{protocol.COMPLETE}"
    return Forward.about(server, protocol.COMPLETE, label, "ref", {**ref, key: own})
