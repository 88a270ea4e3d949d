"""`mcpd read`: what a resource holds, undecoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from daemon.errors import ResourceDisabled
from daemon.model import Kind
from daemon.operators.base import Command
from daemon.operators.definitions import is_off, told_off
from daemon.operators.forwarding import Forwarding, forward, known_server
from daemon.protocol import READ_RESOURCE

if TYPE_CHECKING:
    from msgspec import Raw

    from daemon.operators.base import OperatorContext


class ReadParams(Forwarding, kw_only=False):
    """A server or an instance, and its own URI of a resource; it need not be listed."""

    server: str
    uri: str


async def read(context: OperatorContext, params: ReadParams) -> Raw:
    """Read a resource; the request is cancelled if the operator disconnects.

    Raises:
        CallError: there is no such server, or it refuses; or the resource is switched off.
    """
    uri = params.uri
    upstream, entry = known_server(context, params.server)
    if is_off(context, entry, Kind.RESOURCE, uri):
        raise ResourceDisabled(told_off(entry, Kind.RESOURCE, uri))
    members = (b'"uri":', msgspec.json.encode(uri))
    return await forward(context, upstream, READ_RESOURCE, members, params, what=uri)


READ = Command("read", ReadParams, read)
