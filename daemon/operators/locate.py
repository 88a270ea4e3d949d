"""Whose resource a URI is, for `mcpd read URI`: what a client is given, without a profile's limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from daemon.catalog.offer import Offer
from daemon.catalog.uris import locate as owner_of
from daemon.config.model import Profile
from daemon.errors import ResourceDisabled
from daemon.model import Kind
from daemon.operators.base import Command, Refused
from daemon.operators.definitions import is_off, known_of, told_off
from daemon.surfaces.answers import choices, quoted

if TYPE_CHECKING:
    from daemon.operators.base import OperatorContext

EVERYTHING = Profile(name="operator")
"""A profile that hides nothing."""


class LocateParams(msgspec.Struct):
    """The URI that is asked for."""

    uri: str


async def locate(context: OperatorContext, params: LocateParams) -> dict[str, object]:
    """The server that has a URI, and its own name for it.

    Raises:
        ResourceDisabled: who lists it is switched off, or it is.
        Refused: it may be any server's, or only a template that is switched off becomes it.
    """
    catalog = context.catalog
    found = owner_of(catalog, Offer(catalog, EVERYTHING, None), params.uri, {})
    if found is not None:
        return {"server": found[0], "uri": found[1]}
    known: dict[str, None] = {}
    for entry in catalog.servers.values():
        for uri in known_of(entry, Kind.RESOURCE):
            if not is_off(context, entry, Kind.RESOURCE, uri):
                known[uri] = None
            elif uri == params.uri:
                raise ResourceDisabled(told_off(entry, Kind.RESOURCE, uri))
    raise Refused(
        f"no server is known to have {quoted(params.uri)}, or it is switched off. {choices(known, params.uri)}"
        " `mcpd read SERVER/URI` asks a server for what it does not list."
    )


LOCATE = Command("locate", LocateParams, locate)
