"""How a request that names something of a server is made ready for that server.

Only what it is named by is replaced: all other members of the params, known or not, travel on as they are.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from daemon import protocol
from daemon.clients.dispatch import MAX_RETURNS
from daemon.clients.forwarded import ForwardedRequest
from daemon.surfaces.base import AwaitListing, Forward
from daemon.surfaces.describing import unlisted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daemon.clients.attachment import Request
    from daemon.clients.connection import ClientConnection
    from daemon.model import Kind
    from daemon.surfaces.base import Action, View

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
    kinds: tuple[Kind, ...],
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

    Raises:
        msgspec.MsgspecError: its `_meta` is no object.
    """
    asked = ForwardedRequest(
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
        awaits=partial(_awaited, kinds),
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


def _awaited(kinds: tuple[Kind, ...], view: View) -> AwaitListing:
    return AwaitListing(servers=unlisted(view.servers.values(), kinds), calling=True, kinds=kinds)
