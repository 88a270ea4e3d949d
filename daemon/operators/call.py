"""`mcpd call`: a tool's result, undecoded, or the error that a model would be given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from daemon.catalog.kinds import switch_of
from daemon.errors import CallError, InvalidArguments, ToolDisabled, UnknownTool
from daemon.model import Kind
from daemon.operators.base import Command
from daemon.operators.forwarding import Forwarding, forward, known_server
from daemon.operators.tool import tools_like
from daemon.protocol import CALL_TOOL, tool_params
from daemon.surfaces.answers import error_result
from daemon.surfaces.explaining import refusal
from daemon.surfaces.validators import Validators

if TYPE_CHECKING:
    from daemon.operators.base import OperatorContext
    from daemon.ports import Upstream


class OperatorCallParams(Forwarding, kw_only=False):
    """A tool, by the server's own name for it, of a server or an instance, and its arguments: a JSON object."""

    server: str
    tool: str
    arguments: Raw = Raw(b"{}")


async def call(context: OperatorContext, params: OperatorCallParams) -> Raw:
    """Call a tool and wait for its result; the call is cancelled if the operator disconnects."""
    try:
        upstream = _callable(context, params)
        members = tool_params(params.tool, params.arguments)
        return await forward(context, upstream, CALL_TOOL, members, params, what=params.tool)
    except CallError as error:
        return Raw(error_result(error))


CALL = Command("call", OperatorCallParams, call)


def _callable(context: OperatorContext, params: OperatorCallParams) -> Upstream:
    """The server of a tool that a model could call, too: listed and not switched off."""
    tool, catalog = params.tool, context.catalog
    upstream, entry = known_server(context, params.server)
    server = entry.name
    if not bytes(params.arguments).startswith(b"{"):
        raise InvalidArguments("the arguments of a tool are a JSON object")
    known = entry.tools
    if known is not None and tool not in known:
        raise UnknownTool(f"server {server} has no tool {tool!r}. {tools_like(server, known, tool)}", tool=tool)
    if (server, tool) in catalog.switched_tools:
        name = f"{server}/{switch_of(Kind.TOOL, tool)}"
        text = f"{tool} is switched off by an operator; `mcpd enable {name}` switches it on again"
        raise ToolDisabled(text, tool=tool)
    if (server, tool) in catalog.off:
        raise ToolDisabled(f"{tool} is switched off in mcpd's configuration", tool=tool)
    validator = Validators().of(known[tool]) if known else None
    arguments = msgspec.json.decode(params.arguments)
    if validator is not None and not validator.accepts(arguments):
        # Servers answer a wrong call with anything, up to a stack trace: nothing is sent.
        raise refusal(tool, validator, arguments, [], None)
    return upstream
