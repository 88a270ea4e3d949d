"""`mcpd resources`: the resources that servers offer, and the templates of their URIs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.model import Kind
from daemon.operators.base import Command
from daemon.operators.definitions import DefinitionsParams, listed, problems, servers_of

if TYPE_CHECKING:
    from daemon.operators.base import OperatorContext


async def resources(context: OperatorContext, params: DefinitionsParams) -> dict[str, object]:
    """The resources and templates, and what is wrong with servers that have some.

    Raises:
        UnknownServer: there is no such server.
    """
    servers = servers_of(context, params.server)
    return {
        "resources": listed(context, servers, Kind.RESOURCE),
        "templates": listed(context, servers, Kind.TEMPLATE),
        "servers": problems(context, servers, (Kind.RESOURCE, Kind.TEMPLATE)),
    }


RESOURCES = Command("resources", DefinitionsParams, resources)
