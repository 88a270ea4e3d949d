"""Whose resource a URI is, for `mcpd read URI`: what a client is given, without a profile's limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from daemon.catalog.offer import Offer
from daemon.catalog.uris import locate as owner_of
from daemon.config.model import Profile
from daemon.model import Kind
from daemon.operators.base import Command, Refused
from daemon.operators.definitions import known_of
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
        Refused: it may be any server's, or is switched off.
    """
    catalog = context.catalog
    found = owner_of(catalog, Offer(catalog, EVERYTHING, None), params.uri, {})
    if found is not None:
        return {"server": found[0], "uri": found[1]}
    known = {uri: None for entry in catalog.servers.values() for uri in known_of(entry, Kind.RESOURCE)}
    raise Refused(
        f"no server is known to have {quoted(params.uri)}, or it is switched off. {choices(known, params.uri)}"
        " `mcpd read SERVER/URI` asks a server for what it does not list."
    )


LOCATE = Command("locate", LocateParams, locate)
