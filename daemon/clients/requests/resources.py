"""`resources/list`, `resources/templates/list` and `resources/read`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from daemon import protocol
from daemon.catalog.kinds import switch_of
from daemon.catalog.naming import read_mcpd_uri
from daemon.catalog.shown import locate
from daemon.clients.requests.forwarding import MAX_SHOWN, begin, forward_to, text_in
from daemon.clients.requests.lists import list_beside_tools
from daemon.errors import ResourceDisabled, UnknownResource
from daemon.model import Kind

if TYPE_CHECKING:
    from msgspec import Raw

    from daemon.clients.attachment import Request
    from daemon.clients.connection import ClientConnection
    from daemon.clients.links import Links
    from daemon.model import ToolKey
    from daemon.surfaces.base import Forward, View

MAX_URI = 16 * 1024
"""Bytes of the longest URI that is looked for: it is compared with every template."""


def list_resources(connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Answer `resources/list` (`list_beside_tools`)."""
    list_beside_tools(Kind.RESOURCE, connection, params, request)


def list_templates(connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Answer `resources/templates/list` (`list_beside_tools`)."""
    list_beside_tools(Kind.TEMPLATE, connection, params, request)


def read_resource(connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Hand a `resources/read` to the server that has the resource.

    Raises:
        msgspec.MsgspecError: its params name no resource.
    """
    members = protocol.members_of(params)
    uri = uri_in(members)
    del members["uri"]
    route = partial(_route, uri, request.session.links)
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


def find_resource(view: View, uri: str, links: Links) -> ToolKey:
    """The server that has a resource, and the resource's own URI there.

    Args:
        view: what the client sees.
        uri: as the client names it.
        links: what its session was given links to.

    Raises:
        UnknownResource: there is none that the client sees.
        ResourceDisabled: it is switched off.
    """
    found = locate(view.catalog, view.offer, uri, links.servers)
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


def _route(uri: str, links: Links, view: View) -> Forward:
    server, own = find_resource(view, uri, links)
    # What nobody lists may hold anything, and is not logged: only the operator sees the log.
    listed = uri in view.offer.definitions(Kind.RESOURCE)
    label = f"{server}/resource:{own}" if listed else f"{server}/resource"
    return forward_to(server, protocol.READ_RESOURCE, label, "uri", own)
